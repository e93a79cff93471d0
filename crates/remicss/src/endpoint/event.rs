//! What happens at an end, and where its packets go.

use std::net::SocketAddr;

use crate::control::handshake::{ClientFailure, ServerRefusal};
use crate::control::peer_address::Refusal;
use crate::control::strangers::StrangersReport;
use crate::wire::datagram::Kind;
use crate::wire::keys::Keys;

/// What has happened.
#[derive(Debug)]
pub enum Event {
    /// There is an association: send under these keys, to these addresses.
    Associated {
        /// What this end holds.
        keys: Keys,
        /// The peer's address on each channel.
        peers: Vec<SocketAddr>,
    },
    /// The peer has another address on a channel, and has shown that it is there.
    Moved {
        /// The channel's index.
        channel: usize,
        /// The address.
        to: SocketAddr,
    },
    /// Shares of the peer's came from another address, and it has not shown that it is there.
    NotMoved {
        /// The channel's index.
        channel: usize,
        /// The address.
        to: SocketAddr,
        /// Why it is not taken for the peer's.
        why: Refusal,
    },
    /// Others than the peer send to a channel.
    Strangers(StrangersReport),
    /// All channels carry datagrams of this length, as UDP's payload, as far as it is known of them.
    Room(usize),
    /// Nothing has come from the peer for too long.
    Gone,
    /// A handshake has failed. A client tries again.
    Failed(ClientFailure),
    /// Someone was refused.
    Refused {
        /// The channel's index, if it is one channel's matter.
        channel: Option<usize>,
        /// Why.
        reason: ServerRefusal,
    },
}

/// Where packets go.
pub trait Packets {
    /// Takes IP packets of a symbol, whose own lengths say where the next begins. `kind` says whether
    /// their transport checksums are complete.
    fn take(&mut self, kind: Kind, packets: &[u8]);
}
