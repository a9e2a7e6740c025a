//! Mounts, and the root directory.

use crate::attack::{Attack, Outside};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::Mounts, name, description, arguments).outside(Outside::InNamespaces)
}

pub(super) const ATTACKS: &[Attack] = &[
    act("mount-tmpfs", "mounts a file system of its own", &["mount-tmpfs"]).shown(),
    act("mount-bind", "shows a directory in another place", &["mount-bind"]).shown(),
    act("mount-over-settings", "covers /proc/sys", &["mount-over-settings"]).shown(),
    act("mount-proc", "mounts a second /proc, without masks", &["mount-proc"]),
    act("mount-sysfs", "mounts /sys", &["mount-sysfs"]),
    act("mount-overlay", "makes /usr writable by a layer above it", &["mount-overlay"]),
    act("mount-cgroup", "mounts control groups, for their release agent", &["mount-cgroup"]),
    act("mount-disk", "mounts the machine's disk", &["mount-disk"]),
    act("remount-system", "makes /usr writable", &["remount-writable", "/usr"]),
    act("remount-settings", "makes /proc/sys writable", &["remount-writable", "/proc/sys"]),
    act("share-mounts", "lets its mounts spread", &["share-mounts"]).shown(),
    act("unmount-settings", "uncovers what lies below", &["unmount", "/proc/sys"]),
    act("unmount-mask", "takes a mask off /proc", &["unmount", "/proc/sysrq-trigger"]),
    act("unmount-root", "takes the root directory away", &["unmount", "/"]),
    act("open-tree", "takes a mount along as a descriptor", &["open-tree"]),
    act("move-mount", "moves a mount", &["move-mount"]),
    act("fsopen", "makes a file system with the new interface", &["fsopen"]).shown(),
    act("fspick", "reconfigures a file system", &["fspick"]),
    act("mount-setattr", "takes read-only and no-set-uid back", &["mount-setattr"]),
    act("chroot", "changes its root, the first step of an old way out", &["chroot"]).shown(),
    act("pivot-root", "puts another root in place", &["pivot-root"]),
];
