//! How fast to send: a model of the path's rate and queue, made from what arrives.
//!
//! [`BurstCongestionModel`] is told of each packet that is sent, acknowledged or lost, and gives a
//! rate and a window. It keeps no packets: what it needs to know again of one, [`PacketSendState`],
//! it returns from [`BurstCongestionModel::on_sent`], and the connection hands it back.
//!
//! - *Rate of delivery*: bytes acknowledged over the time in which they were sent or arrived, by
//!   the receiver's clock, whichever is longer; as in BBR (draft-ietf-ccwg-bbr), but without the
//!   distortion by delayed acknowledgements.
//! - *Queue*: the round-trip time less the shortest one.
//! - *Loss* says little: up to 2 % is noise, unless it comes when the queue is nearly as long as it
//!   ever was, which only an overflowing queue explains.
//!
//! The phases are in `docs/protocols/burst.md`.

#![allow(clippy::cast_precision_loss, reason = "counts of bytes are far below 2^52")]

#[cfg(test)]
mod competitors;
mod delays;
mod growth;
mod losses;
mod model;
mod path;
mod reports;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;

pub use model::BurstCongestionModel;
pub use reports::{BurstAckEvent, BurstCongestionMetrics, BurstLossEvent, PacketSendState};
