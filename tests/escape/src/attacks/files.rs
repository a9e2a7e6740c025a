//! Reading what is the host's: by path, by link, through processes, devices and handles.

use crate::attack::{Attack, Outside};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::Files, name, description, arguments)
}

pub(super) const ATTACKS: &[Attack] =
    &[
        act("secret-by-path", "reads a file of the caller's by its path", &["read-path", "{secret}"]).shown(),
        act("secret-by-dot-dot", "climbs out of the workspace", &["read-dot-dot", "{secret}"]).shown(),
        act("shadow", "reads the machine's password hashes", &["read-path", "/etc/shadow"]),
        act("machine-id", "reads what identifies the machine", &["read-path", "/etc/machine-id"]),
        act("home-directories", "lists other people's homes", &["list-any", "/home", "agent"]),
        act("root-home", "lists root's home", &["list-any", "/root"]),
        act("host-var", "lists logs, mail and databases", &["list-any", "/var", "tmp", "run"]).shown(),
        act("host-run", "lists sockets and process files", &["list-any", "/run"]).shown(),
        act("host-tmp", "lists the host's temporary files", &["list-any", "/tmp"]).shown(),
        act("host-sys", "lists the machine's devices", &["list-any", "/sys"]).shown(),
        act("host-boot", "reads kernel images", &["list-any", "/boot"]),
        act("host-etc", "lists configuration that may hold secrets", &["read-path", "/etc/fstab"]),
        act("secret-by-symlink", "reads through a symlink it made", &["read-through-symlink", "{secret}"]).shown(),
        act("secret-by-hard-link", "reads through a hard link it made", &["read-through-hard-link", "{secret}"])
            .shown(),
        act("link-to-system-program", "links a set-uid program into the workspace", &["hard-link", "/usr/bin/su"])
            .outside(Outside::With(&["hard-link", "{secret}"]))
            .shown(),
        act("environments-of-processes", "reads secrets of processes", &["environments", "{marker}"]).shown(),
        act("process-roots", "reads through /proc/PID/root", &["process-roots", "{secret}"]).shown(),
        act("process-directories", "reads through /proc/PID/cwd", &["process-directories", "secret"]).shown(),
        act("process-descriptors", "reopens descriptors in /proc/PID/fd", &["process-descriptors", "{marker}"]).shown(),
        act("inherited-descriptors", "uses a descriptor that was left open", &["inherited-descriptors"])
            .outside(Outside::Shell("exec 9<{secret}; exec {attacker} inherited-descriptors"))
            .shown(),
        act(
            "reopen-for-writing",
            "turns a read-only descriptor into one for writing",
            &["reopen-for-writing", "/usr/bin/env"],
        )
        .outside(Outside::With(&["reopen-for-writing", "{secret}"]))
        .shown(),
        act("first-root", "looks through process 1's root", &["process-file", "1", "root/"])
            .outside(Outside::With(&["process-file", "{victim}", "root/"]))
            .shown(),
        act("first-directory", "looks through process 1's directory", &["process-file", "1", "cwd/"])
            .outside(Outside::With(&["process-file", "{victim}", "cwd/"]))
            .shown(),
        act("first-environment", "reads process 1's environment", &["process-file", "1", "environ"])
            .outside(Outside::With(&["process-file", "{victim}", "environ"]))
            .shown(),
        act("first-descriptors", "lists process 1's descriptors", &["process-file", "1", "fd"])
            .outside(Outside::With(&["process-file", "{victim}", "fd"]))
            .shown(),
        act("first-maps", "learns where process 1's memory lies", &["process-file", "1", "maps"])
            .outside(Outside::With(&["process-file", "{victim}", "maps"]))
            .shown(),
        act("first-mapped-files", "follows process 1's mapped files", &["process-file", "1", "map_files"])
            .outside(Outside::With(&["process-file", "{victim}", "map_files"])),
        act("first-stack", "reads process 1's kernel stack", &["process-file", "1", "stack"])
            .outside(Outside::With(&["process-file", "{victim}", "stack"])),
        // Where Yama is set to keep processes from each other, this is refused outside as well.
        act("first-memory", "reads and writes process 1's memory", &["process-memory", "1"])
            .outside(Outside::With(&["process-memory", "{victim}"])),
        act("open-by-handle", "opens any inode of a file system by its number", &["open-by-handle"]),
        act(
            "memory-devices",
            "opens memory, ports, kernel log and disks",
            &[
                "open-devices",
                "/dev/mem",
                "/dev/kmem",
                "/dev/port",
                "/dev/kmsg",
                "/dev/sda",
                "/dev/vda",
                "/dev/nvme0n1",
                "/dev/fuse",
                "/dev/kvm",
                "/dev/net/tun",
                "/dev/loop-control",
                "/dev/vsock",
                "/dev/vhost-net",
            ],
        ),
        act("kernel-core", "reads the kernel's memory", &["open-devices", "/proc/kmsg"]),
        act("kernel-addresses", "learns where the kernel lies", &["kernel-addresses"]),
        act(
            "masked-files",
            "reads what tells about the host's users",
            &[
                "print-any",
                "/proc/kcore",
                "/proc/keys",
                "/proc/key-users",
                "/proc/timer_list",
                "/proc/sched_debug",
                "/proc/latency_stats",
                "/proc/vmallocinfo",
                "/proc/slabinfo",
                "/proc/kpageflags",
            ],
        ),
    ];
