//! Set-uid and set-gid files: as an ordinary user's they would be that user's on the host, for everybody to run.

use crate::attack::{Attack, Outside};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::SetId, name, description, arguments)
}

pub(super) const ATTACKS: &[Attack] = &[
    act("set-uid-chmod", "chmod 4755", &["setid-chmod"]).shown(),
    act("set-uid-fchmod", "fchmod 4755", &["setid-fchmod"]).shown(),
    act("set-uid-fchmodat", "fchmodat 4755", &["setid-fchmodat"]).shown(),
    act("set-uid-fchmodat2", "fchmodat2 4755, which older filters do not know", &["setid-fchmodat2"]),
    act("set-gid-chmod", "chmod 2755", &["setid-group"]).shown(),
    act("set-uid-high-bits", "chmod 4755 with bits that the kernel ignores", &["setid-high-bits"]).shown(),
    act("set-uid-open", "open with mode 4755", &["setid-open"]).shown(),
    act("set-uid-openat", "openat with mode 4755", &["setid-openat"]).shown(),
    act("set-uid-openat2", "openat2, whose mode no filter can see", &["setid-openat2"]).shown(),
    act("set-uid-creat", "creat with mode 4755", &["setid-creat"]).shown(),
    act("set-uid-unnamed", "an unnamed file with mode 4755, named later", &["setid-unnamed"]),
    act("set-uid-mknod", "mknod of a plain file with mode 4755", &["setid-mknod"]).shown(),
    act("set-uid-mknodat", "mknodat of a plain file with mode 4755", &["setid-mknodat"]).shown(),
    act("set-gid-directory", "a directory that hands its group on", &["setid-directory"]).shown(),
    act("set-uid-copied", "brings a set-uid program of the system's in", &["setid-copied", "/usr/bin/su"])
        .outside(Outside::Never("a copy of such a program would be one")),
    act("set-uid-program", "runs a set-uid program of the system's", &["setid-program", "/usr/bin/su"]),
    act("set-uid-passwd", "runs the program that changes passwords", &["setid-program", "/usr/bin/passwd"]),
    act("file-capability", "gives a file capabilities", &["set-attribute", "capable", "security.capability"]),
];
