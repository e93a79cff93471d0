//! The protocol, without input or output.
