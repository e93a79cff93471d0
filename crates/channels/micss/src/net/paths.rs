//! The paths to a peer, one for each channel: whether they work, and the consequences if not.

mod links;
pub(crate) mod monitor;
pub(crate) mod path;
