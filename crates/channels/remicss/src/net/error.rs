//! Errors of a tunnel.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use random::RandomError;
use thiserror::Error;
use tun::NetlinkError;

use crate::protocol::control::handshake::TunnelServerError;
use crate::protocol::wire::terms::TunnelTermsError;

/// Why a tunnel cannot be opened, or has failed. Each text is one line: what is wrong, and what to
/// do where that is known.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TunnelError {
    /// The address or device of a channel cannot be used.
    #[error("channel {number}: cannot use {local}{}: {source}", on(.device.as_deref()))]
    Bind {
        /// The channel, counted from 1.
        number: usize,
        /// The local address.
        local: SocketAddr,
        /// The channel's network device.
        device: Option<String>,
        /// The system's error.
        source: io::Error,
    },
    /// The name of a channel's server cannot be looked up.
    #[error("channel {number}: {source}; check the name and this host's resolver")]
    ServerName {
        /// The channel, counted from 1.
        number: usize,
        /// Which name, and why.
        source: io::Error,
    },
    /// The tunnel's device cannot be created.
    #[error("cannot create the device {name}: {source}{}", advice(.source))]
    Device {
        /// The device's name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// The tunnel's device cannot be configured.
    #[error("{name}: {source}")]
    Interface {
        /// The device's name.
        name: String,
        /// The kernel's answer.
        source: NetlinkError,
    },
    /// The tunnel's device was deleted while the tunnel ran.
    #[error("the device {name} was deleted")]
    DeviceDeleted {
        /// The device's name.
        name: String,
    },
    /// The tunnel's device failed while the tunnel ran.
    #[error("cannot read from {name}: {source}")]
    Read {
        /// The device's name.
        name: String,
        /// The system's error.
        source: io::Error,
    },
    /// A thread's waker cannot be created.
    #[error(transparent)]
    Waker(io::Error),
    /// Neither the peer's addresses nor a shared key are configured.
    #[error("neither the peer's addresses nor a shared key are given")]
    NoPeer,
    /// Two clients have the same key.
    #[error(
        "the clients {first} and {second} have the same key: give each its own (sunder key new FILE)"
    )]
    SameKey {
        /// A client's name.
        first: String,
        /// Another client's name.
        second: String,
    },
    /// What was used of quotas cannot be read.
    #[error(
        "cannot use {}: {reason}; repair it, or remove it to count the quotas from 0", .path.display()
    )]
    QuotaFile {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// What is used of quotas cannot be kept.
    #[error(
        "cannot write {}: {source}; give `quota_file` a path in a directory that this user may write",
        .path.display()
    )]
    QuotaFileWrite {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The terms of an association are invalid.
    #[error(transparent)]
    Terms(#[from] TunnelTermsError),
    /// The settings of the server are invalid.
    #[error(transparent)]
    Server(#[from] TunnelServerError),
    /// The random source failed.
    #[error(transparent)]
    Random(#[from] RandomError),
}

fn on(device: Option<&str>) -> String {
    device.map(|name| format!(" on {name}")).unwrap_or_default()
}

fn advice(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as root, or with CAP_NET_ADMIN",
        io::ErrorKind::ResourceBusy => "; stop what uses it, or name another device",
        io::ErrorKind::NotFound => " (/dev/net/tun); load the kernel's module: modprobe tun",
        _ => "",
    }
}
