//! Builds the attack program as a static program and puts it where `stage.rs` includes it: what is attacked with is
//! inside the binary, so that `cofferdam doctor --attack` needs nothing else. Built like the guest, see the build
//! script of `crates/sandbox`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("../..");
    for path in ["tests/escape/attacker", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo::rerun-if-env-changed=COFFERDAM_ATTACKER");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let program = match env::var_os("COFFERDAM_ATTACKER") {
        Some(prebuilt) => PathBuf::from(prebuilt),
        None => build(&root, &out),
    };
    let embedded = out.join("attacker");
    fs::copy(&program, &embedded).expect("the attack program has been built");
    println!("cargo::rustc-env=COFFERDAM_ATTACKER_PROGRAM={}", embedded.display());
}

fn build(root: &Path, out: &Path) -> PathBuf {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let musl = format!("{architecture}-unknown-linux-musl");
    let target = if is_installed(&musl) { musl } else { format!("{architecture}-unknown-linux-gnu") };
    // The guest's directory: both are built the same way.
    let target_directory = out
        .ancestors()
        .find(|directory| directory.file_name().is_some_and(|name| name == "build"))
        .and_then(|build| build.parent()?.parent())
        .map_or_else(|| out.join("guest-target"), |target| target.join("guest"));
    let status = Command::new(env::var_os("CARGO").expect("cargo sets it"))
        .current_dir(root)
        .args(["build", "--package", "cofferdam-attacker", "--profile", "guest", "--target", &target, "--target-dir"])
        .arg(&target_directory)
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET")
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "the attack program could not be built; run: cargo build -p cofferdam-attacker");
    target_directory.join(target).join("guest").join("cofferdam-attacker")
}

fn is_installed(target: &str) -> bool {
    let rustc = env::var_os("RUSTC").expect("cargo sets it");
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}
