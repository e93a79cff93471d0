//! Tests of single members, of whole groups, and of what an observer learns.
#![allow(clippy::cast_precision_loss, reason = "statistics of small numbers")]

mod broadcast;
mod group;
mod rounds;
mod simulation;
mod snooping;
pub(crate) mod unlinkability;
