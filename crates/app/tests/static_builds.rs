//! altq compiles with musl, for static binaries on x86-64 and ARM64. Needs the targets
//! (`rustup target add`, which `.ci/run` does by itself); a target that is missing is skipped, and
//! the test says so.

use std::path::Path;
use std::process::Command;

const TARGETS: [&str; 2] = ["x86_64-unknown-linux-musl", "aarch64-unknown-linux-musl"];

/// Whether the standard library of a target is installed.
fn installed(target: &str) -> bool {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let told = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    told.is_ok_and(|told| told.status.success() && Path::new(String::from_utf8_lossy(&told.stdout).trim()).is_dir())
}

#[test]
fn with_musl() {
    for target in TARGETS {
        if !installed(target) {
            eprintln!("SKIPPED: {target} is not installed (rustup target add {target})");
            continue;
        }
        let checked = Command::new(env!("CARGO"))
            .args(["check", "--package", "altq", "--locked", "--quiet", "--target", target])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .output()
            .unwrap();
        assert!(checked.status.success(), "{target}:\n{}", String::from_utf8_lossy(&checked.stderr));
    }
}
