//! The settings of an end.

use std::net::SocketAddr;
use std::time::Duration;

use crate::protocol::control::handshake::{ClientIdentity, SharedKey};
use crate::protocol::recv::receiver::SymbolReceiverLimits;
use crate::protocol::wire::terms::TunnelTerms;

/// Which end this is, and what it knows of its peer.
pub enum EndpointRole {
    /// The client connects to these addresses, one for each channel.
    Client {
        /// The server's addresses.
        servers: Vec<SocketAddr>,
        /// The pre-shared key.
        key: Option<SharedKey>,
    },
    /// The server.
    Server(ClientIdentity),
}

/// The settings of either end.
#[derive(Clone, Debug)]
pub struct EndpointSettings {
    /// The terms of an association.
    pub terms: TunnelTerms,
    /// The limits of a receiver.
    pub limits: SymbolReceiverLimits,
    /// The channels' configured rates in bit/s of IP packets.
    pub rates_bps: Vec<Option<u64>>,
    /// The length of the headers of IP and UDP on each channel: 28 or 48.
    pub headers: Vec<u16>,
    /// When keys are renewed.
    pub key_limits: KeyRenewalLimits,
    /// Whether packets are kept in order.
    pub keeps_order: bool,
    /// At a server: whether the client may move to any address.
    pub is_roaming: bool,
}

/// When keys are renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRenewalLimits {
    /// Their maximum age.
    pub age: Duration,
    /// The maximum number of failed joins under them, at either end.
    pub failures: u64,
}

impl Default for KeyRenewalLimits {
    /// An hour, and 2^20 failures, which take 9 minutes at the maximum rate of failures.
    fn default() -> Self {
        Self { age: Duration::from_secs(3600), failures: 1 << 20 }
    }
}
