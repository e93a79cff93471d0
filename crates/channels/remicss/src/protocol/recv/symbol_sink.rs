//! The output of a receiver.

use std::net::SocketAddr;
use std::time::Duration;

use crate::protocol::wire::datagram::SymbolKind;

/// Takes what a receiver delivers.
pub trait SymbolSink {
    /// One or more IP packets, each of whose own length gives the start of the next. `kind` says
    /// whether their transport checksums are complete. From a reorder buffer, it may also be a part
    /// of packets.
    fn packets(&mut self, kind: SymbolKind, packets: &[u8]);

    /// The verified control message with this number.
    fn control(&mut self, number: u64, message: &[u8]);

    /// A right share of a verified control message has arrived on a channel. On each channel they
    /// are reported in ascending order of their numbers.
    fn control_share(&mut self, share: ControlShare);
}

/// A right share of a verified control symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlShare {
    /// The symbol's number.
    pub number: u64,
    /// The channel's index.
    pub channel: usize,
    /// The number of datagrams received on the channel before it.
    pub before: u64,
    /// The time of arrival.
    pub at: Duration,
    /// The source address.
    pub from: SocketAddr,
    /// Whether its channel was in quarantine.
    pub is_quarantined: bool,
}
