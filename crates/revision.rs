//! Passes on the revision of the source: the build script of the crates `cli` and `lab`.
//!
//! `SUNDER_VERSION` is the version, with the revision if it is known. `SUNDER_REVISION` is set only
//! if it is known: results name it.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=../../revision.rs");
    let version = env::var("CARGO_PKG_VERSION").unwrap_or_default();
    match revision() {
        Some(revision) => {
            println!("cargo::rustc-env=SUNDER_REVISION={revision}");
            println!("cargo::rustc-env=SUNDER_VERSION={version} ({revision})");
        }
        None => println!("cargo::rustc-env=SUNDER_VERSION={version}"),
    }
}

/// The revision, for builds that are kept: `None` if there is no git, or this is no clone.
fn revision() -> Option<String> {
    // Builds for tests are not kept, and each commit would build them again.
    if env::var("PROFILE").is_ok_and(|profile| profile == "debug") {
        return None;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let path = git(&["rev-parse", "--git-path", file])?;
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
}

/// What a command of git prints; `None` if it fails.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
