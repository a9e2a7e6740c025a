//! Compiles the seccomp policy (policy/seccomp.json) to BPF for the target, so that starting a sandbox only has to
//! load it.

use std::collections::HashMap;
use std::{env, fs, path::PathBuf};

use seccompiler::{BpfProgram, TargetArch};
use serde_json::Value;

/// `SECCOMP_RET_TRACE`, which stands in the policy where the guest is to be asked: seccompiler has no name for
/// `SECCOMP_RET_USER_NOTIF`.
const RETURN_TRACE: u32 = 0x7ff0_0000;
const RETURN_USER_NOTIFICATION: u32 = 0x7fc0_0000;
const BPF_RETURN_CONSTANT: u16 = 0x06;

fn main() {
    println!("cargo::rerun-if-changed=policy/seccomp.json");
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the target");
    let mut policy: Value =
        serde_json::from_str(&fs::read_to_string("policy/seccomp.json").expect("the policy is there"))
            .expect("the policy is JSON");
    if architecture != "x86_64" {
        drop_calls_of_x86_64(&mut policy);
    }
    let target = TargetArch::try_from(architecture.as_str()).expect("the architecture is one that seccompiler knows");
    let filters: HashMap<String, BpfProgram> =
        seccompiler::compile_from_json(policy.to_string().as_bytes(), target).expect("the policy compiles");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    for (name, program) in filters {
        let mut bytes = Vec::with_capacity(program.len() * 8);
        for instruction in program {
            let mut k = instruction.k;
            if instruction.code == BPF_RETURN_CONSTANT && k & 0xffff_0000 == RETURN_TRACE {
                k = RETURN_USER_NOTIFICATION;
            }
            bytes.extend_from_slice(&instruction.code.to_ne_bytes());
            bytes.extend_from_slice(&[instruction.jt, instruction.jf]);
            bytes.extend_from_slice(&k.to_ne_bytes());
        }
        fs::write(out.join(format!("{name}.bpf")), bytes).expect("OUT_DIR is writable");
    }
}

/// Newer architectures never had the calls that `…at` variants replaced; the policy marks those in their comment.
fn drop_calls_of_x86_64(policy: &mut Value) {
    for filter in policy.as_object_mut().expect("the policy is an object").values_mut() {
        let rules = filter["filter"].as_array_mut().expect("a filter has rules");
        rules.retain(|rule| !rule["comment"].as_str().is_some_and(|comment| comment.starts_with("x86_64")));
    }
}
