//! Passes on the revision of the source, which results name.

use std::env;
use std::path::Path;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Results of builds for tests are not kept, and each commit would build them again.
    if env::var("OPT_LEVEL").is_ok_and(|level| level != "3") {
        return;
    }
    for file in ["HEAD", "logs/HEAD"] {
        let Some(path) = git(&["rev-parse", "--git-path", file]) else { return };
        if Path::new(&path).exists() {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    if let Some(revision) = git(&["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
    {
        println!("cargo::rustc-env=SUNDER_REVISION={revision}");
    }
}

/// What a command of git prints; `None` if there is no git, or this is no clone.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}
