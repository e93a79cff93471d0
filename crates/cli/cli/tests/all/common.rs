//! Functions shared by the tests of experiments.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// Runs `sunder` in a directory, where it also keeps what it learns.
pub(crate) fn sunder(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(arguments).current_dir(directory).env("XDG_STATE_HOME", directory);
    command.stdin(Stdio::null()).output().unwrap()
}

/// Runs `sunder lab`.
pub(crate) fn lab(directory: &Path, arguments: &[&str]) -> Output {
    sunder(directory, &[&["lab"], arguments].concat())
}

/// The output of `sunder lab`; `None`, after a message, if users may not create networks.
pub(crate) fn performed(directory: &Path, arguments: &[&str]) -> Option<String> {
    let output = lab(directory, arguments);
    let stderr = String::from_utf8(output.stderr).unwrap();
    if output.status.code() == Some(1)
        && (stderr.contains("does not let you make networks") || stderr.contains("/dev/net/tun"))
    {
        eprintln!("skipped: {stderr}");
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The program of CometBFT. `None`, after a message, if it was not built.
pub(crate) fn cometbft() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/cometbft/cometbft");
    let found = built.canonicalize().ok();
    if found.is_none() {
        eprintln!(
            "skipped: CometBFT is not built; `make setup` builds it, or says why it does not"
        );
    }
    found
}
