//! What an end is to do.

use std::net::SocketAddr;
use std::time::Duration;

use crate::control::handshake::{Peer, SharedKey};
use crate::recv::receiver::Limits;
use crate::wire::terms::Terms;

/// Which end this is, and what it knows of the other.
pub enum Role {
    /// It connects to these addresses, one a channel.
    Client {
        /// The server's addresses.
        servers: Vec<SocketAddr>,
        /// The key that both ends have.
        key: Option<SharedKey>,
    },
    /// It is connected to.
    Server(Peer),
}

/// What an end is to do, whichever it is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What the ends must agree on.
    pub terms: Terms,
    /// What it may use.
    pub limits: Limits,
    /// The channels' rates in bit/s of IP packets, as far as they are configured.
    pub rates_bps: Vec<Option<u64>>,
    /// The length of IP's and UDP's headers on each channel: 28, or 48.
    pub headers: Vec<u16>,
    /// How long keys are used.
    pub key_limits: KeyLimits,
    /// Whether packets wait for those of their flow that were sent before.
    pub keeps_order: bool,
    /// At a server: whether the client may move to any address while the tunnel runs.
    pub is_roaming: bool,
}

/// How long keys are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyLimits {
    /// How old they may be.
    pub age: Duration,
    /// How many joins may fail under them, at either end.
    pub failures: u64,
}

impl Default for KeyLimits {
    /// An hour, and 2^20 failures, which take 9 minutes where as many joins fail as are tried.
    fn default() -> Self {
        Self { age: Duration::from_secs(3600), failures: 1 << 20 }
    }
}
