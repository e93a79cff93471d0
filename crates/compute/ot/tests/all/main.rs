//! Transfers from end to end.

mod base;
mod extension;
mod hostile;
mod messages;
mod privacy;
mod trace;
