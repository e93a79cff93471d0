//! Single members, whole groups, and what others learn from what they see.
#![allow(clippy::cast_precision_loss, reason = "statistics of small numbers")]

mod group;
mod rounds;
mod simulation;
mod snooping;
mod unlinkability;
