//! New namespaces and new rights.

use crate::attack::{Attack, HARMFUL, Outside};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::Namespaces, name, description, arguments)
}

pub(super) const ATTACKS: &[Attack] = &[
    act("clone-user", "a user namespace by clone: all rights inside it", &["clone", "user"]).shown(),
    act("clone3-user", "a user namespace by clone3, whose flags no filter can see", &["clone3", "user"]).shown(),
    act("unshare-user", "a user namespace by unshare", &["unshare", "user"]).shown(),
    act("unshare-mount", "a mount namespace", &["unshare", "mount"]),
    act("unshare-pid", "a pid namespace, to hide in", &["unshare", "pid"]),
    act("unshare-net", "a network namespace", &["unshare", "net"]),
    act("unshare-ipc", "an IPC namespace", &["unshare", "ipc"]),
    act("unshare-uts", "a UTS namespace, by which commands are told apart", &["unshare", "uts"]),
    act("unshare-cgroup", "a cgroup namespace", &["unshare", "cgroup"]),
    act("unshare-time", "a time namespace", &["unshare", "time"]),
    act("clone-mount", "a mount namespace by clone", &["clone", "mount"]),
    act("clone3-mount", "a mount namespace by clone3", &["clone3", "mount"]),
    act("join-first", "enters process 1's namespaces", &["join-namespaces", "1"])
        .outside(Outside::With(&["join-namespaces", "{victim}"])),
    act("join-by-pidfd", "enters process 1's namespaces by its descriptor", &["join-by-pidfd", "1"])
        .outside(Outside::With(&["join-by-pidfd", "{victim}"])),
    act("map-users", "maps itself to root", &["map-users"]).outside(HARMFUL),
    act("become-root", "asks to be root", &["become-root"]).outside(HARMFUL),
    act("rights", "has any capability, or none of the locks", &["status"]).shown(),
    act("raise-capabilities", "asks for capabilities", &["raise-capabilities"]),
    act("undo-no-new-privileges", "takes the lock off again", &["undo-no-new-privileges"]),
    act("replace-filter", "puts a filter that allows everything over the other", &["replace-filter"]).shown(),
    act("hijack-listener", "becomes the one who is asked about refused calls", &["hijack-listener"]).shown(),
];
