//! Bad places and bad luck: full disks, broken directories, servers that stop and sandboxes that vanish. Each test says
//! what a person is told, and that everything else goes on.

mod endings;
mod places;
#[path = "../api/support.rs"]
#[allow(dead_code, reason = "the other test binary uses the rest")]
mod support;
