//! Kernel interfaces, other ways to call the kernel, and what belongs to the whole machine.

use crate::attack::{Attack, HARMFUL, Outside};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::Kernel, name, description, arguments)
}

pub(super) const ATTACKS: &[Attack] = &[
    act("bpf", "programs in the kernel", &["bpf"]),
    act("add-key", "keeps data in the kernel's keyrings", &["add-key"]),
    act("request-key", "asks for keys of the user's", &["request-key"]),
    act("keyctl", "joins a keyring", &["keyctl"]),
    act("io-uring", "a second way to every call", &["io-uring"]),
    act("userfaultfd", "holds the kernel up at a page, the help of many exploits", &["userfaultfd"]),
    act("perf-events", "measures the kernel", &["perf-events"]),
    act("fanotify", "watches file systems", &["fanotify"]),
    act("kernel-log", "reads the kernel's log", &["kernel-log"]),
    act("load-module", "loads code into the kernel", &["load-module"]).outside(HARMFUL),
    act("kexec", "starts another kernel", &["kexec"]).outside(HARMFUL),
    act("reboot", "reboots", &["reboot"]).outside(HARMFUL),
    act("ports", "talks to hardware", &["ports"]).outside(HARMFUL),
    act("swap", "changes swap space", &["swap"]).outside(HARMFUL),
    act("accounting", "changes process accounting", &["accounting"]).outside(HARMFUL),
    act("quota", "changes quotas", &["quota"]).outside(HARMFUL),
    act("hang-up", "hangs up the terminal", &["hang-up"]).outside(HARMFUL),
    act("move-pages", "moves other processes' memory", &["move-pages"]).outside(HARMFUL),
    act("set-clock", "changes the time, for everybody", &["set-clock"]).outside(HARMFUL),
    act("set-names", "changes the machine's name", &["set-names"]).outside(Outside::InNamespaces).shown(),
    act("make-device", "makes device files for memory and disks", &["make-device"]),
    act("x32-calls", "calls by the numbers of the x32 interface", &["x32-calls"]),
    act("compat-calls", "calls by the numbers of the 32-bit interface", &["compat-calls"]),
    act("personality", "makes memory executable that should not be", &["personality"]).shown(),
    act("asynchronous-io", "takes the machine's asynchronous requests", &["exhaust-asynchronous-io", "8192"]),
];
