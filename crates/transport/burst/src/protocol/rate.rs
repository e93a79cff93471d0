//! Congestion control: a model of the path's rate and queue, built from acknowledgements and
//! losses.
//!
//! [`BurstCongestionModel`] is notified of each packet that is sent, acknowledged or lost, and
//! computes a sending rate and a congestion window. It keeps no per-packet state:
//! [`BurstCongestionModel::on_sent`] returns it as a [`PacketSendState`], which the connection
//! stores and passes back.
//!
//! - *Delivery rate*: the bytes acknowledged, divided by the time in which they were sent or in
//!   which they arrived by the receiver's clock, whichever is longer. This is as in BBR
//!   (draft-ietf-ccwg-bbr), but delayed acknowledgements do not distort it.
//! - *Queue*: the round-trip time minus the min RTT.
//! - *Loss* is a weak signal: loss of up to 2 % counts as noise, unless it occurs while the queue
//!   is nearly as long as it ever was, which only an overflowing queue explains.
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
