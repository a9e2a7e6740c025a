//! Terminals.

use crate::attack::{Attack, Outside};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::Terminal, name, description, arguments)
}

pub(super) const ATTACKS: &[Attack] = &[
    act("other-terminals", "finds somebody else's terminal", &["other-terminals"]),
    // Kernels since 6.2 can have this switched off for everybody.
    act("type-into-terminal", "types a command for whoever reads next", &["type-into-terminal"]).on_terminal(),
    act("type-with-high-bits", "the same, with bits that the kernel ignores", &["type-with-high-bits"]).on_terminal(),
    act("type-into-own-terminal", "the same, on a terminal it made", &["type-into-terminal"]),
    act("paste-into-terminal", "pastes into a console", &["paste-into-terminal"]).on_terminal(),
    act("line-discipline", "changes how a terminal works", &["change-line-discipline"]).on_terminal(),
    act("terminal-of-the-caller", "opens the terminal of whoever started it", &["open-own-terminal"]),
    act(
        "consoles",
        "opens the machine's consoles",
        &["open-for-writing", "/dev/console", "/dev/tty0", "/dev/tty1", "/dev/vcs", "/dev/ttyS0", "/dev/uinput"],
    )
    .outside(Outside::Same),
    act("left-over-terminals", "finds the terminals of commands that have ended", &["other-terminals"]),
];
