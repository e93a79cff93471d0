//! The paths to a peer, one for each channel: their states, and the consequences of a lost path.

mod links;
pub(crate) mod monitor;
pub(crate) mod path;
