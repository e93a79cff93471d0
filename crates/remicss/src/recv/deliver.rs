//! What a receiver hands out.

use std::net::SocketAddr;
use std::time::Duration;

use crate::wire::datagram::Kind;

/// Where a receiver puts what it has received.
pub trait Deliver {
    /// One IP packet or more, whose own lengths say where the next begins, as they were sent. `kind`
    /// says whether their transport checksums are complete.
    fn packets(&mut self, kind: Kind, packets: &[u8]);

    /// The control message with a number, verified.
    fn control(&mut self, number: u64, message: &[u8]);

    /// A share of a control message that was told came on a channel, and it is right. On each channel
    /// they are told by rising numbers.
    fn control_share(&mut self, share: ControlShare);
}

/// A share of a control symbol that has verified: it is on the symbol's polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlShare {
    /// The symbol's number.
    pub number: u64,
    /// The channel's index.
    pub channel: usize,
    /// How many datagrams had come on the channel before it.
    pub before: u64,
    /// When it came, and where from.
    pub at: Duration,
    /// See [`Self::at`].
    pub from: SocketAddr,
    /// Whether its channel was in quarantine.
    pub is_quarantined: bool,
}
