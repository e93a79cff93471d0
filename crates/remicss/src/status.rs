//! What an end of a tunnel tells about itself: one JSON document, for people and scripts.

use serde::{Deserialize, Serialize};

/// What an end is doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The tunnel's device.
    pub device: String,
    /// How long it has run, in seconds.
    pub uptime_s: f64,
    /// Whether the ends are associated.
    pub associated: bool,
    /// What was achieved: means since the association.
    pub achieved: Achieved,
    /// What the model says of the plan in force; nothing if none is.
    pub predicted: Option<Predicted>,
    /// The channels, in the configuration's order.
    pub channels: Vec<Channel>,
    /// Symbols that waited for those of their flow that were sent before.
    pub waited: Waited,
    /// What was not passed on, by reason.
    pub dropped: Dropped,
}

/// How symbols left that had to wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waited {
    /// The longest that one may wait now, in ms.
    pub window_ms: f64,
    /// Behind the one that they waited for.
    pub in_order: u64,
    /// Because the one that they waited for was known to be lost.
    pub after_loss: u64,
    /// Because they had waited for as long as the window.
    pub after_time: u64,
    /// To make room for others.
    pub for_room: u64,
}

/// What was achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Achieved {
    /// The mean threshold of what was sent. Nothing if nothing was sent.
    pub kappa: Option<f64>,
    /// The mean multiplicity, in the same way.
    pub mu: Option<f64>,
    /// What the thresholds and channels that were used for what was sent give by the model, with
    /// channels as they are measured now: the proportion of packets that an adversary learns. Nothing
    /// if nothing was sent, or no risk is configured.
    pub risk: Option<f64>,
    /// In the same way, the proportion of this end's packets that are lost.
    pub loss_out: Option<f64>,
    /// In the same way, the mean delay of those that arrive, in ms.
    pub delay_ms: Option<f64>,
    /// Symbols that were sent.
    pub sent_symbols: u64,
    /// The bytes of packets in them.
    pub sent_bytes: u64,
    /// Symbols that were received, verified.
    pub received_symbols: u64,
    /// The bytes of packets in them.
    pub received_bytes: u64,
    /// The proportion of the peer's symbols that did not come, as counted. Nothing if none came.
    pub loss_in: Option<f64>,
}

/// What the model says of what this end sends by the plan of now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Predicted {
    /// The mean threshold.
    pub kappa: f64,
    /// The mean multiplicity.
    pub mu: f64,
    /// The proportion of packets that an adversary learns. Nothing if no risk is configured.
    pub risk: Option<f64>,
    /// The proportion that is lost.
    pub loss_out: f64,
    /// The mean delay of what arrives, in ms.
    pub delay_ms: f64,
    /// The highest rate, in Mbit/s of the channels' IP packets: shares of one each.
    pub rate_mbit: f64,
}

/// A channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// `up`, `down` or `quarantine`: what the peer says of what this end sends; or `missing` from the
    /// association. Nothing without a peer.
    pub state_out: Option<String>,
    /// The same for what arrives here, as this end sees it.
    pub state_in: Option<String>,
    /// How long it has been missing from the association, in seconds, if it is.
    pub missing_s: Option<f64>,
    /// The risk as configured. Nothing if none is at any channel.
    pub risk: Option<f64>,
    /// What this end takes it to carry, in Mbit/s. Nothing without a peer.
    pub rate_mbit: Option<f64>,
    /// Where that is from: `set` in the configuration, `measured`, the `guess` to start with, or `at least`
    /// where so much was carried, and nobody knows whether that is all.
    pub rate_from: Option<String>,
    /// The proportion of datagrams that are lost on the way to the peer, once it was measured.
    pub loss_out: Option<f64>,
    /// The delay in ms, once it was measured: half the round trip over the fastest channels, and how
    /// much later the peer receives on this one.
    pub delay_ms: Option<f64>,
    /// Datagrams that were sent.
    pub sent: u64,
    /// Their bytes, as IP packets.
    pub sent_bytes: u64,
    /// Datagrams that the kernel did not take.
    pub refused: u64,
    /// Datagrams that were received.
    pub received: u64,
    /// Their bytes, as UDP's payload.
    pub received_bytes: u64,
    /// Shares that were wrong, for all that is known.
    pub wrong: u64,
    /// Where the peer is. Nothing without a peer.
    pub peer: Option<String>,
    /// Datagrams from other addresses, since the start.
    pub wrong_source: u64,
    /// Datagrams with wrong tokens, since the start.
    pub wrong_token: u64,
}

/// What was not passed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Packets while there was no association.
    pub unconnected: u64,
    /// Packets for which fewer channels were up than the privacy floor.
    pub below_floor: u64,
    /// Packets that were too long.
    pub too_long: u64,
    /// Packets, or several of one connection, for which the channels were too slow.
    pub queued: u64,
    /// Datagrams from other addresses than the peer's, on all channels.
    pub wrong_source: u64,
    /// Datagrams with wrong tokens, on all channels: of others than the peer, or of an association that
    /// is over.
    pub wrong_token: u64,
    /// Datagrams that were none, or had a threshold below the floor.
    pub malformed: u64,
    /// Datagrams that came twice.
    pub duplicate: u64,
    /// Symbols whose tag did not fit, and that no other shares gave back.
    pub tampered: u64,
    /// Shares that were not joined, as too many joins had failed of late.
    pub unjoined: u64,
    /// Packets whose source is none that the peer may use.
    pub not_allowed: u64,
    /// Packets that the tunnel's device did not take.
    pub undelivered: u64,
}
