//! Builds the attack program, which `stage.rs` includes: `cofferdam doctor --attack` needs nothing else.

fn main() {
    cofferdam_embed::embed("cofferdam-attacker", "COFFERDAM_ATTACKER_PROGRAM", &["tests/escape/attacker"]);
}
