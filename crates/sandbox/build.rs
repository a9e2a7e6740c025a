//! Builds the guest, which `guest_program.rs` includes.

fn main() {
    let sources = ["crates/guest", "crates/linux/src", "crates/protocol/src"];
    cofferdam_embed::embed("cofferdam-guest", "COFFERDAM_GUEST_PROGRAM", &sources);
}
