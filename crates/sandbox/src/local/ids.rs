//! Who a sandbox is on the host. An ordinary user's sandboxes are that user. Root's are a dedicated user that owns
//! nothing and that nobody else is; an id-mapped mount shows it root's workspace as its own, and writes what it makes
//! there back as root's.

use std::fs::{self, File};
use std::io::{self, Read};
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::mount::OpenTreeFlags;

use crate::SandboxError;
use crate::guest_program::GuestProgram;

/// Beyond every range that distributions, systemd and container engines hand out.
pub(super) const DEDICATED_ID: u32 = 1_880_097_280;

/// The dedicated user, when this process is root.
pub(super) fn dedicated_id() -> Option<u32> {
    rustix::process::geteuid().is_root().then_some(DEDICATED_ID)
}

/// "Root's files, seen as the dedicated user's", as a user namespace; made at the first need.
#[derive(Debug, Default)]
pub(super) struct IdMap {
    namespace: OnceLock<File>,
}

impl IdMap {
    /// The workspace as a mount of its own, to be attached inside the sandbox.
    pub(super) fn mount(&self, directory: BorrowedFd<'_>, program: &GuestProgram) -> Result<OwnedFd, SandboxError> {
        let namespace = match self.namespace.get() {
            Some(namespace) => namespace,
            None => {
                let made =
                    make_namespace(program).map_err(|error| SandboxError::io("mapping the sandbox's user", error))?;
                self.namespace.get_or_init(|| made)
            }
        };
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = rustix::mount::open_tree(directory, "", flags)
            .map_err(|error| SandboxError::io("opening the workspace", error))?;
        set_id_map(&tree, namespace).map_err(|error| {
            SandboxError::io("mapping the workspace's owner (its file system may not support id-mapped mounts)", error)
        })?;
        Ok(tree)
    }
}

fn make_namespace(program: &GuestProgram) -> io::Result<File> {
    let mut holder = Command::new(program.path())
        .arg("hold-user-namespace")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let made = (|| {
        let mut ready = [0];
        holder.stdout.as_mut().ok_or(io::ErrorKind::BrokenPipe)?.read_exact(&mut ready)?;
        let process = format!("/proc/{}", holder.id());
        let process = Path::new(&process);
        for map in ["uid_map", "gid_map"] {
            fs::write(process.join(map), format!("0 {DEDICATED_ID} 1"))?;
        }
        File::open(process.join("ns/user"))
    })();
    drop(holder.stdin.take());
    holder.wait()?;
    made
}

#[repr(C)]
struct MountAttributes {
    set: u64,
    clear: u64,
    propagation: u64,
    user_namespace: u64,
}

const MOUNT_ATTR_IDMAP: u64 = 0x0010_0000;

fn set_id_map(tree: &OwnedFd, namespace: &File) -> io::Result<()> {
    let attributes = MountAttributes {
        set: MOUNT_ATTR_IDMAP,
        clear: 0,
        propagation: 0,
        user_namespace: namespace.as_raw_fd() as u64,
    };
    // SAFETY: the path is a C string, the structure is the kernel's `struct mount_attr` with its size beside it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &attributes as *const MountAttributes,
            size_of::<MountAttributes>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
