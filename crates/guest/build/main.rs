//! Compiles the seccomp policy (policy/seccomp.json) to BPF for the target, so that starting a sandbox only has to
//! load it. [`policy`] reads it, [`program`] makes the instructions.

mod policy;
mod program;

use std::path::PathBuf;
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=policy/seccomp.json");
    println!("cargo::rerun-if-changed=build");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    // The numbers of calls are those of the machine that builds.
    assert_eq!(env::consts::ARCH, architecture, "build the guest on a machine of its own architecture");
    let text = fs::read_to_string("policy/seccomp.json").expect("the policy is there");
    let policy = policy::read(&text, architecture == "x86_64");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("seccomp.bpf"), program::compile(&policy, &architecture)).expect("OUT_DIR is writable");
}
