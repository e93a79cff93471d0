//! Functions shared by the tests of experiments.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};

/// A free address of this host, whose port no other test of this program gets. The port is below
/// those that the system gives to outgoing connections: one of these could otherwise take it before
/// the program that is to listen there has started.
pub(crate) fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 10_000 + u16::try_from(process::id() % 20_000).unwrap();
    loop {
        let port = first + NEXT.fetch_add(1, Ordering::Relaxed);
        assert!(port < 32_768, "no port is free");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

/// The port of a [`free_address`].
pub(crate) fn free_port() -> u16 {
    free_address().port()
}

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
