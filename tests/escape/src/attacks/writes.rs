//! Writing outside of the workspace.

use crate::attack::{Attack, HARMFUL, Outside};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::Writes, name, description, arguments)
}

const CREATE: Outside = Outside::With(&["create-in", "."]);
const CHANGE: Outside = Outside::With(&["change-file", "{secret}"]);
const WRITE: Outside = Outside::With(&["open-for-writing", "{secret}"]);

pub(super) const ATTACKS: &[Attack] = &[
    act(
        "create-in-system",
        "puts programs where everybody looks for them",
        &["create-in", "/usr", "/usr/bin", "/usr/lib", "/usr/local/bin", "/bin", "/lib", "/sbin"],
    )
    .outside(CREATE)
    .shown(),
    act("create-in-etc", "adds configuration", &["create-in", "/etc", "/etc/ssl/certs", "/etc/alternatives"])
        .outside(CREATE)
        .shown(),
    act("create-at-root", "adds to the root directory", &["create-in", "/", "/opt", "/home", "/var", "/dev"])
        .outside(CREATE)
        .shown(),
    act("create-in-kernel-settings", "adds to /proc", &["create-in", "/proc", "/proc/sys", "/proc/self", "/sys"])
        .outside(CREATE)
        .shown(),
    act("change-system-program", "changes a program of the system's", &["change-file", "/usr/bin/env"])
        .outside(CHANGE)
        .shown(),
    act("change-passwd", "adds a user", &["change-file", "/etc/passwd"]).outside(CHANGE).shown(),
    act("change-resolver", "sends name lookups elsewhere", &["change-file", "/etc/resolv.conf"])
        .outside(CHANGE)
        .shown(),
    act("replace-passwd", "renames over a file of /etc", &["replace-file", "/etc/passwd"]).outside(HARMFUL),
    act("remove-program", "removes a program of the system's", &["remove-file", "/usr/bin/env"]).outside(HARMFUL),
    act(
        "core-pattern",
        "has the kernel run a program as root when one crashes",
        &["open-for-writing", "/proc/sys/kernel/core_pattern"],
    ),
    act(
        "module-program",
        "has the kernel run a program as root when it wants a module",
        &["open-for-writing", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug"],
    ),
    act("system-requests", "reboots by /proc/sysrq-trigger", &["system-request"]).outside(HARMFUL),
    act(
        "kernel-settings",
        "changes settings of the whole kernel",
        &[
            "open-for-writing",
            "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/panic",
            "/proc/sys/kernel/randomize_va_space",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/vm/drop_caches",
            "/proc/sys/fs/file-max",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sys/user/max_user_namespaces",
        ],
    ),
    act("interrupts", "moves interrupts", &["open-for-writing", "/proc/irq/default_smp_affinity", "/proc/mtrr"]),
    act(
        "file-formats",
        "teaches the kernel a new program format",
        &["open-for-writing", "/proc/sys/fs/binfmt_misc/register"],
    ),
    act(
        "descriptor-for-writing",
        "opens system files for writing",
        &["open-for-writing", "/etc/hosts", "/etc/ld.so.cache", "/usr/bin/env", "/usr/lib/os-release"],
    )
    .outside(WRITE)
    .shown(),
];
