//! The protocol without input or output.

pub(crate) mod combination;
