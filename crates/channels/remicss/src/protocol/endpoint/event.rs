//! The events of an end, and the sink of its packets.

use std::net::SocketAddr;

use crate::protocol::control::handshake::{TunnelClientFailure, TunnelClientRefusal};
use crate::protocol::control::path_prober::{DatagramLimit, PathMtuChange};
use crate::protocol::control::peer_address::AddressValidationFailure;
use crate::protocol::control::unverified::UnverifiedReport;
use crate::protocol::wire::datagram::SymbolKind;
use crate::protocol::wire::keys::TunnelKeys;

/// An event of the receiving half.
#[derive(Debug)]
pub enum TunnelEvent {
    /// There is a new association: send under these keys, to these addresses.
    Associated {
        /// The keys.
        keys: TunnelKeys,
        /// The peer's address on each channel.
        peers: Vec<SocketAddr>,
    },
    /// The peer has moved to another address on a channel, which was validated.
    Moved {
        /// The channel's index.
        channel: usize,
        /// The address.
        to: SocketAddr,
    },
    /// Shares of the peer arrived from another address, whose validation failed.
    MoveRejected {
        /// The channel's index.
        channel: usize,
        /// The address.
        to: SocketAddr,
        /// Why it was rejected.
        reason: AddressValidationFailure,
    },
    /// Datagrams arrived that are not from the peer.
    UnverifiedDatagrams(UnverifiedReport),
    /// The maximum length of datagrams with shares has changed.
    MaxDatagramLen(DatagramLimit),
    /// The MTU of a channel's path has changed.
    PathMtu(PathMtuChange),
    /// The peer is gone: no message has verified for too long.
    Gone,
    /// A handshake has failed. The client tries again.
    Failed(TunnelClientFailure),
    /// The server has refused a client.
    Refused {
        /// The channel's index, if it concerns one channel.
        channel: Option<usize>,
        /// Why.
        reason: TunnelClientRefusal,
    },
}

/// Takes the received packets.
pub trait PacketSink {
    /// Takes the IP packets of a symbol, each of whose own length gives the start of the next.
    /// `kind` says whether their transport checksums are complete.
    fn take(&mut self, kind: SymbolKind, packets: &[u8]);
}
