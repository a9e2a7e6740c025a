//! Changing what is mounted, with the old interface and the new one, and leaving the root directory.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::Act;
use crate::guard::Place::Namespaced;
use crate::outcome::{Outcome, any, tried};
use crate::sys::{self, CWD, at, mount, text};

pub const ACTS: &[Act] = &[
    ("mount-tmpfs", Namespaced, |_| tried("mounting a tmpfs", mount("x", "/tmp", "tmpfs", 0))),
    ("mount-bind", Namespaced, |_| tried("binding /usr to /tmp", mount("/usr", "/tmp", "", libc::MS_BIND))),
    ("mount-over-settings", Namespaced, |_| tried("covering /proc/sys", mount("x", "/proc/sys", "tmpfs", 0))),
    ("mount-proc", Namespaced, |_| tried("mounting /proc again", mount("x", "/tmp", "proc", 0))),
    ("mount-sysfs", Namespaced, |_| tried("mounting sysfs", mount("x", "/tmp", "sysfs", 0))),
    ("mount-overlay", Namespaced, mount_overlay),
    ("mount-cgroup", Namespaced, |_| any(["cgroup", "cgroup2"].map(|kind| tried(kind, mount("x", "/tmp", kind, 0))))),
    ("mount-disk", Namespaced, |_| {
        any(["/dev/vda", "/dev/sda1"].map(|disk| tried(disk, mount(disk, "/tmp", "ext4", libc::MS_RDONLY))))
    }),
    ("remount-writable", Namespaced, |a| {
        let flags = [libc::MS_REMOUNT | libc::MS_BIND, libc::MS_REMOUNT];
        any(flags.map(|flags| tried("remounting", mount("none", &a[0], "", flags))))
    }),
    ("share-mounts", Namespaced, |_| tried("sharing mounts", mount("none", "/", "", libc::MS_REC | libc::MS_SHARED))),
    ("unmount", Namespaced, |a| {
        let path = text(&a[0]);
        let flags = [0, libc::MNT_DETACH as usize, libc::MNT_FORCE as usize];
        any(flags.map(|flags| tried("unmounting", sys::call(libc::SYS_umount2, &[at(&path), flags]))))
    }),
    ("open-tree", Namespaced, |_| tried("open_tree", open_tree())),
    ("move-mount", Namespaced, move_mount),
    ("fsopen", Namespaced, |_| tried("fsopen", sys::call(libc::SYS_fsopen, &[at(&text("tmpfs")), 0]))),
    ("fspick", Namespaced, |_| tried("fspick", sys::call(libc::SYS_fspick, &[CWD, at(&text("/")), 0]))),
    ("mount-setattr", Namespaced, mount_setattr),
    ("chroot", Namespaced, chroot),
    ("pivot-root", Namespaced, pivot_root),
];

const OPEN_TREE_CLONE: usize = 1;
const MOVE_MOUNT_F_EMPTY_PATH: usize = 4;

fn open_tree() -> std::io::Result<usize> {
    sys::call(libc::SYS_open_tree, &[CWD, at(&text("/usr")), OPEN_TREE_CLONE])
}

fn move_mount(_: &[String]) -> Outcome {
    // Without a tree of its own, something that is mounted already is moved.
    let (here, there) = (text("/tmp"), text("/var/tmp"));
    let moved = match open_tree() {
        Ok(tree) => sys::call(libc::SYS_move_mount, &[tree, at(&text("")), CWD, at(&there), MOVE_MOUNT_F_EMPTY_PATH]),
        Err(_) => sys::call(libc::SYS_move_mount, &[CWD, at(&here), CWD, at(&there), 0]),
    };
    tried("move_mount", moved)
}

/// Takes "read-only" and "no set-uid" away again.
fn mount_setattr(_: &[String]) -> Outcome {
    // struct mount_attr: set, clear, propagation, user namespace.
    let attributes: [u64; 4] = [0, 0x1 | 0x2 | 0x4, 0, 0];
    let clear = |path: &str| {
        let path = text(path);
        sys::call(libc::SYS_mount_setattr, &[CWD, at(&path), 0, attributes.as_ptr() as usize, 32])
    };
    any(["/usr", "/", "/proc/sys"].map(|path| tried(path, clear(path))))
}

fn mount_overlay(_: &[String]) -> Outcome {
    let here = std::env::current_dir().unwrap_or_default();
    for name in ["upper", "work"] {
        let _ = fs::create_dir_all(here.join("overlay").join(name));
    }
    let here = here.display();
    let options = text(&format!("lowerdir=/usr,upperdir={here}/overlay/upper,workdir={here}/overlay/work"));
    let (source, target) = (text("overlay"), text("/tmp"));
    let made = sys::call(libc::SYS_mount, &[at(&source), at(&target), at(&source), 0, at(&options)]);
    // The kernel makes a directory that nobody may enter, which would outlive the scratch directory it is in; /tmp is
    // covered now, so it is named from here.
    let _ = fs::set_permissions("overlay/work/work", PermissionsExt::from_mode(0o700));
    tried("an overlay over /usr", made)
}

/// The classic way out of a chroot begins with a second one.
fn chroot(_: &[String]) -> Outcome {
    tried("chroot", sys::call(libc::SYS_chroot, &[at(&text("/tmp"))]))
}

fn pivot_root(_: &[String]) -> Outcome {
    // Where mounting works, a mount to pivot to is made first.
    let _ = fs::create_dir("pivot");
    let _ = mount("x", "pivot", "tmpfs", 0);
    let _ = fs::create_dir("pivot/old");
    let (new, old) = (text("pivot"), text("pivot/old"));
    tried("pivot_root", sys::call(libc::SYS_pivot_root, &[at(&new), at(&old)]))
}
