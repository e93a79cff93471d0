//! `sunder transport`: files and TCP ports over any transport, and what transports take.

mod connecting;
mod expose;
mod forward;
mod forwarding;
mod key;
mod measure;
mod pairing;
mod probe;
mod progress;
mod receive;
mod relay;
mod send;
mod serve;

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Subcommand;
use console::CommandFailure;
use keys::file::exposure;
use keys::{IdentityPublicKey, IdentitySecretKey};
use transport::{
    ConnectionSecurity, Error, PeerKeyPolicy, TransportChoice, persistent_identity, random_identity,
};

pub(super) use expose::Expose;
pub(super) use forward::Forward;
pub(super) use relay::Relay;

/// Sends files and forwards TCP ports over the fastest transport.
///
/// Both ends prove their keys, and everything is encrypted, unless --insecure is given. After a
/// break the transfer resumes where it stopped. The digest of the file is checked at the end.
#[derive(clap::Args)]
#[command(arg_required_else_help = true, after_help = HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: TransportCommand,
}

const HELP: &str = "\
Example: sunder transport receive --listen 0.0.0.0:7000 --out inbox
prints the command for the other host, such as:
sunder transport send FILE 192.0.2.10:7000 --key 3d40...660c";

#[derive(Subcommand)]
enum TransportCommand {
    Receive(Box<receive::Arguments>),
    Send(Box<send::Arguments>),
    Expose(expose::Arguments),
    Forward(Box<forward::Arguments>),
    Key(key::Arguments),
    Relay(relay::Arguments),
    Serve(serve::Arguments),
    Measure(Box<measure::Arguments>),
    Probe(probe::Arguments),
}

/// Runs the subcommand.
///
/// # Errors
/// As the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        TransportCommand::Receive(arguments) => receive::run(arguments),
        TransportCommand::Send(arguments) => send::run(arguments),
        TransportCommand::Expose(arguments) => expose::run(arguments),
        TransportCommand::Forward(arguments) => forward::run(arguments),
        TransportCommand::Key(arguments) => key::run(arguments),
        TransportCommand::Relay(arguments) => relay::run(arguments),
        TransportCommand::Serve(arguments) => serve::run(arguments),
        TransportCommand::Measure(arguments) => measure::run(arguments),
        TransportCommand::Probe(arguments) => probe::run(arguments),
    }
}

/// The key in a file. Without a file, this user's key, which is kept.
///
/// # Errors
/// If it cannot be read or created.
pub(super) fn kept_identity(file: Option<&Path>) -> Result<IdentitySecretKey, CommandFailure> {
    if let Some(file) = file {
        return identity(file);
    }
    let failed = |error| format!("this user's key cannot be kept: {error}");
    let kept = persistent_identity().map_err(|error| CommandFailure::Failed(failed(error)))?;
    let missing = "no directory to keep a key in: set HOME, or give --identity";
    kept.ok_or_else(|| CommandFailure::Failed(missing.into()))
}

/// The key of this end in a file.
fn identity(path: &Path) -> Result<IdentitySecretKey, CommandFailure> {
    if let Some(error) = exposure(path) {
        let (what, fix) = (error.problem(), error.advice());
        console::warning(&format!("identity: {what}, and so impersonate you: {fix}"));
    }
    IdentitySecretKey::read(path).map_err(|error| CommandFailure::Usage(error.to_string()))
}

/// Encryption with the identity in a file, and the peers with these keys. Without a file, the
/// identity is one of random bytes, for this run.
pub(super) fn security(
    file: Option<&PathBuf>,
    keys: &[IdentityPublicKey],
    is_insecure: bool,
) -> Result<ConnectionSecurity, CommandFailure> {
    security_or(file, keys, is_insecure, random_identity)
}

/// The same. Without a file, the identity is `other`.
fn security_or(
    file: Option<&PathBuf>,
    keys: &[IdentityPublicKey],
    is_insecure: bool,
    other: fn() -> Result<IdentitySecretKey, Error>,
) -> Result<ConnectionSecurity, CommandFailure> {
    if is_insecure {
        return Ok(ConnectionSecurity::Insecure);
    }
    let identity = match file {
        Some(file) => identity(file)?,
        None => other().map_err(|error| failed(&error))?,
    };
    let peers =
        if keys.is_empty() { PeerKeyPolicy::Any } else { PeerKeyPolicy::Pinned(keys.to_owned()) };
    Ok(ConnectionSecurity::Noise { identity: Arc::new(identity), peers })
}

pub(super) fn parse_choice(name: &str) -> Result<TransportChoice, String> {
    name.parse().map_err(|error: Error| error.to_string())
}

/// The address under which other hosts reach this one, as far as it is known.
pub(super) fn reachable(address: SocketAddr) -> Option<SocketAddr> {
    if !address.ip().is_unspecified() {
        return Some(address);
    }
    // The address from which the system would send to others. Nothing is sent.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    let ip: IpAddr = socket.local_addr().ok()?.ip();
    Some((ip, address.port()).into())
}

/// Converts an error of the crate to a failure of the command.
pub(super) fn failed(error: &Error) -> CommandFailure {
    let message = error.to_string();
    match error {
        _ if error.is_security() => CommandFailure::Refused(message),
        Error::Address { .. } | Error::UnknownTransport { .. } | Error::NoKey { .. } => {
            CommandFailure::Usage(message)
        }
        Error::Io { source, .. } if source.kind() == io::ErrorKind::InvalidInput => {
            CommandFailure::Usage(message)
        }
        _ => CommandFailure::Failed(message),
    }
}
