//! For build scripts: builds a program of this workspace as a static one and names it to the crate that includes it,
//! so that a plain `cargo build` makes one file that holds everything.
//!
//! Such a program is for another target (static musl), so it is built by a cargo of its own in a directory of its own.
//! Where the musl target is not installed, glibc is linked statically instead: larger, otherwise the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

/// Builds `package` and sets `variable` to the file, for `include_bytes!(env!(…))`. `sources` are the directories that
/// it is made from, relative to the workspace. If `variable` is in the environment, that file is taken as it is.
pub fn embed(package: &str, variable: &str, sources: &[&str]) {
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets it"));
    let root = manifest.join("../..");
    for path in sources.iter().chain(&["Cargo.lock", "Cargo.toml"]) {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    println!("cargo::rerun-if-env-changed={variable}");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    let program = match env::var_os(variable) {
        Some(prebuilt) => PathBuf::from(prebuilt),
        None => build(package, &root, &out),
    };
    let embedded = out.join(package);
    fs::copy(&program, &embedded).expect("the program has been built");
    println!("cargo::rustc-env={variable}={}", embedded.display());
}

fn build(package: &str, root: &Path, out: &Path) -> PathBuf {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it");
    let musl = format!("{architecture}-unknown-linux-musl");
    let target = if is_installed(&musl) { musl } else { format!("{architecture}-unknown-linux-gnu") };
    // One directory beside the main one for all profiles: these programs are always built the same way.
    let target_directory = out
        .ancestors()
        .find(|directory| directory.file_name().is_some_and(|name| name == "build"))
        .and_then(|build| build.parent()?.parent())
        .map_or_else(|| out.join("guest-target"), |target| target.join("guest"));
    let status = Command::new(env::var_os("CARGO").expect("cargo sets it"))
        .current_dir(root)
        .args(["build", "--package", package, "--profile", "guest", "--target", &target, "--target-dir"])
        .arg(&target_directory)
        // Flags and wrappers meant for the outer build (coverage, sanitizers, clippy) are not meant for this one.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static\u{1f}-Crelocation-model=static")
        .env_remove("RUSTFLAGS")
        .env_remove("RUSTC_WRAPPER")
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CARGO_TARGET_DIR")
        .env_remove("CARGO_BUILD_TARGET")
        .status()
        .expect("cargo can be started");
    assert!(status.success(), "{package} could not be built; run: cargo build -p {package} --target {target}");
    target_directory.join(target).join("guest").join(package)
}

fn is_installed(target: &str) -> bool {
    let rustc = env::var_os("RUSTC").expect("cargo sets it");
    let output = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    output.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).is_dir())
}
