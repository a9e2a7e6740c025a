//! The sandbox's root directory: a small read-only tmpfs that carries the host's system directories (read-only),
//! a synthesised /etc, devices, one memory file system for everything temporary, and the workspace.
//!
//! Told in three parts, because a prepared sandbox waits between the second and the third: [`build`], [`mount_proc`]
//! (by the reaper), [`assign_workspace`] and [`close`]. The list of what goes where comes from the launcher.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use cofferdam_protocol::Limits;
use cofferdam_protocol::launch::{RootEntry, WorkspaceSource};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
    UnmountFlags,
};

use crate::error::{Result, Step, StepError};
use crate::sys;

/// The root itself holds only names, small files and mount points.
const ROOT_OPTIONS: &[(&str, &str)] = &[("size", "4m"), ("nr_inodes", "4096"), ("mode", "0755")];
/// Where the memory file system is attached while its directories are bound to their places.
const SCRATCH: &str = ".scratch";
/// One inode per so many bytes of a memory file system: a million empty files must not fit into a small limit.
const BYTES_PER_INODE: u64 = 4096;

/// The host's tree, kept reachable until the workspace is bound.
pub struct OldRoot(OwnedFd);

/// The mounts of the host that go into the root. As root they are taken before privileges are given up, because
/// the dedicated user may not be able to walk to them; otherwise inside the new mount namespace.
pub type Trees = Vec<Option<OwnedFd>>;

pub fn open_trees(entries: &[RootEntry]) -> Result<Trees> {
    let open = |entry: &RootEntry| match entry {
        RootEntry::Bind { source, .. } => open_tree(source, true).map(Some),
        RootEntry::Device { path } => open_tree(path, false).map(Some),
        _ => Ok(None),
    };
    entries.iter().map(open).collect()
}

fn open_tree(source: &str, read_only: bool) -> Result<OwnedFd> {
    let tree = clone_tree(CWD, source).step_with(|| format!("opening {source}"))?;
    let attributes = if read_only {
        sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV
    } else {
        sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NOEXEC
    };
    sys::mount_setattr(tree.as_fd(), attributes, true).step_with(|| format!("making {source} read-only"))?;
    Ok(tree)
}

/// Builds everything but /proc and the workspace, and makes it the root directory of this mount namespace.
pub fn build(entries: &[RootEntry], trees: Trees, limits: &Limits) -> Result<OldRoot> {
    rustix::mount::mount_change("/", MountPropagationFlags::REC | MountPropagationFlags::PRIVATE)
        .step("making the host's mounts private")?;
    let old_root = rustix::fs::open("/", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step("opening the host's root directory")?;
    let root = new_tmpfs(ROOT_OPTIONS).step("making the root directory")?;
    // Any directory does: pivot_root takes the mount away from it again. /proc exists on every Linux.
    attach(root.as_fd(), CWD, "/proc").step("attaching the root directory")?;

    make_directory(&root, SCRATCH)?;
    let (size, inodes) = memory_size(limits.tmp_bytes);
    let scratch = new_tmpfs(&[("size", &size), ("nr_inodes", &inodes), ("mode", "0755")]).step("making /tmp")?;
    attach(scratch.as_fd(), root.as_fd(), SCRATCH).step("attaching /tmp")?;
    for (number, (entry, tree)) in entries.iter().zip(trees).enumerate() {
        place(&root, &scratch, number, entry, tree)?;
    }
    mount_terminals(&root)?;
    detach(root.as_fd(), SCRATCH).step("detaching the scratch directory")?;
    rustix::fs::unlinkat(&root, SCRATCH, AtFlags::REMOVEDIR).step("removing the scratch directory")?;

    rustix::process::fchdir(&root).step("entering the root directory")?;
    rustix::process::pivot_root(".", ".").step("pivoting the root directory")?;
    Ok(OldRoot(old_root))
}

fn place(root: &OwnedFd, scratch: &OwnedFd, number: usize, entry: &RootEntry, tree: Option<OwnedFd>) -> Result<()> {
    match entry {
        RootEntry::Directory { path } => make_directory(root, inner(path)),
        RootEntry::File { path, content } => {
            let mode = Mode::from_raw_mode(0o644);
            let file = rustix::fs::openat(root, inner(path), OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC, mode)
                .step_with(|| format!("making {path}"))?;
            File::from(file).write_all(content.as_bytes()).step_with(|| format!("writing {path}"))
        }
        RootEntry::Symlink { path, target } => {
            rustix::fs::symlinkat(target.as_str(), root, inner(path)).step_with(|| format!("making {path}"))
        }
        RootEntry::Bind { path, .. } | RootEntry::Device { path } => {
            let tree = tree.ok_or_else(|| missing(path))?;
            make_mount_point(root, &tree, inner(path))?;
            attach(tree.as_fd(), root.as_fd(), inner(path)).step_with(|| format!("mounting {path}"))
        }
        RootEntry::Scratch { path } => {
            let name = number.to_string();
            make_directory(scratch, &name)?;
            let mode = Mode::from_raw_mode(if path.starts_with("/home") { 0o755 } else { 0o1777 });
            rustix::fs::chmodat(scratch, name.as_str(), mode, AtFlags::empty())
                .step_with(|| format!("making {path}"))?;
            let tree = clone_tree(scratch.as_fd(), &name).step_with(|| format!("opening {path}"))?;
            let attributes = sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV;
            sys::mount_setattr(tree.as_fd(), attributes, false).step_with(|| format!("restricting {path}"))?;
            make_directory(root, inner(path))?;
            attach(tree.as_fd(), root.as_fd(), inner(path)).step_with(|| format!("mounting {path}"))
        }
    }
}

/// A private instance of the terminals' file system.
fn mount_terminals(root: &OwnedFd) -> Result<()> {
    let mount = || -> io::Result<()> {
        let context = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(&context, "ptmxmode", "0666")?;
        rustix::mount::fsconfig_set_string(&context, "mode", "0620")?;
        rustix::mount::fsconfig_create(&context)?;
        let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        let mount = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
        attach(mount.as_fd(), root.as_fd(), "dev/pts")
    };
    mount().step("mounting /dev/pts")
}

/// By the reaper, which is inside the pid namespace, while the host's own /proc is still reachable: the kernel lets
/// an unprivileged process mount /proc only where an unmasked one is visible.
pub fn mount_proc() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("proc", "/proc", "proc", flags, None).step("mounting /proc")
}

/// Hides and closes what the sandbox's own /proc would still show or accept.
pub fn mask_proc() -> Result<()> {
    // What anybody may read and what tells about the host, its users and its kernel; the rest is root's, and root is
    // not mapped here.
    const HIDDEN: &[&str] = &["keys", "key-users", "cmdline", "interrupts", "config.gz"];
    for path in HIDDEN.iter().map(|name| format!("/proc/{name}")) {
        match rustix::mount::mount_bind("/dev/null", &path) {
            Ok(()) | Err(rustix::io::Errno::NOENT) => {}
            Err(error) => return Err(error).step_with(|| format!("masking {path}")),
        }
    }
    let settings = clone_tree(CWD, "/proc/sys").step("opening /proc/sys")?;
    sys::mount_setattr(settings.as_fd(), sys::MOUNT_ATTR_RDONLY, true).step("making /proc/sys read-only")?;
    attach(settings.as_fd(), CWD, "/proc/sys").step("mounting /proc/sys")
}

/// Binds the workspace to /workspace and /app. `tree` is a mount made for it by a launcher that is root.
pub fn assign_workspace(
    source: &WorkspaceSource,
    tree: Option<OwnedFd>,
    old_root: &OldRoot,
    limits: &Limits,
) -> Result<()> {
    let tree = match (source, tree) {
        (_, Some(tree)) => tree,
        (WorkspaceSource::Temporary, None) => {
            let (size, inodes) = memory_size(limits.workspace_bytes.min(limits.memory_bytes));
            new_tmpfs(&[("size", &size), ("nr_inodes", &inodes), ("mode", "0755")]).step("making the workspace")?
        }
        (WorkspaceSource::Directory { path, device, inode }, None) => {
            // Walked without symlinks and compared with what the launcher checked: whoever swaps a directory in
            // between gets an error, not a mount of his choice.
            let directory = rustix::fs::openat2(
                &old_root.0,
                inner(path),
                OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            )
            .step_with(|| format!("opening the workspace {path}"))?;
            let found = rustix::fs::fstat(&directory).step("examining the workspace")?;
            if (found.st_dev, found.st_ino) != (*device, *inode) {
                let changed = io::Error::other("it was replaced by another directory meanwhile");
                return Err(changed).step_with(|| format!("opening the workspace {path}"));
            }
            clone_tree(directory.as_fd(), "").step_with(|| format!("binding the workspace {path}"))?
        }
    };
    let recursive = matches!(source, WorkspaceSource::Directory { .. });
    sys::mount_setattr(tree.as_fd(), sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV, recursive)
        .step("restricting the workspace")?;
    attach(tree.as_fd(), CWD, "/workspace").step("mounting the workspace")?;
    let again = clone_tree(CWD, "/workspace").step("opening /workspace")?;
    attach(again.as_fd(), CWD, "/app").step("mounting /app")
}

/// Cuts the host's tree off and makes the root read-only: from here on nothing can be added.
pub fn close(old_root: OldRoot) -> Result<()> {
    // After pivot_root(".", ".") the host's root lies on top of ours.
    rustix::process::fchdir(&old_root.0).step("entering the host's root directory")?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).step("detaching the host's root directory")?;
    drop(old_root);
    rustix::process::chdir("/").step("entering the root directory")?;
    let root =
        rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).step("opening the root directory")?;
    let attributes = sys::MOUNT_ATTR_RDONLY | sys::MOUNT_ATTR_NOSUID | sys::MOUNT_ATTR_NODEV;
    sys::mount_setattr(root.as_fd(), attributes, false).step("making the root directory read-only")
}

fn new_tmpfs(options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        rustix::mount::fsconfig_set_string(&context, *key, *value)?;
    }
    rustix::mount::fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?)
}

fn memory_size(bytes: u64) -> (String, String) {
    (bytes.to_string(), (bytes / BYTES_PER_INODE).max(64).to_string())
}

fn clone_tree(directory: BorrowedFd<'_>, path: &str) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    Ok(rustix::mount::open_tree(directory, path, flags)?)
}

fn attach(mount: BorrowedFd<'_>, directory: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    Ok(rustix::mount::move_mount(mount, "", directory, path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)?)
}

/// umount has no form relative to a directory, so it is entered for the moment.
fn detach(directory: BorrowedFd<'_>, path: &str) -> io::Result<()> {
    rustix::process::fchdir(directory)?;
    Ok(rustix::mount::unmount(path, UnmountFlags::DETACH)?)
}

fn make_directory(parent: &OwnedFd, path: &str) -> Result<()> {
    match rustix::fs::mkdirat(parent, path, Mode::from_raw_mode(0o755)) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(error) => Err(error).step_with(|| format!("making /{path}")),
    }
}

/// A directory or an empty file, as the thing that will cover it.
fn make_mount_point(root: &OwnedFd, tree: &OwnedFd, path: &str) -> Result<()> {
    let found = rustix::fs::fstat(tree).step_with(|| format!("examining {path}"))?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Directory {
        return make_directory(root, path);
    }
    rustix::fs::openat(root, path, OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
        .step_with(|| format!("making /{path}"))
        .map(drop)
}

/// Paths in the plan are absolute; every call here is relative to the root's descriptor.
fn inner(path: &str) -> &str {
    path.trim_start_matches('/')
}

fn missing(path: &str) -> StepError {
    StepError { step: format!("mounting {path}"), source: io::ErrorKind::NotFound.into() }
}

/// /workspace and /proc as the guest will use them from outside.
pub fn open_for_guest(path: &str) -> Result<OwnedFd> {
    rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .step_with(|| format!("opening {path}"))
}
