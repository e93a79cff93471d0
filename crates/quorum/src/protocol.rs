//! The protocol without input or output.

pub(crate) mod ceremony;
pub(crate) mod combination;
pub(crate) mod integer;
pub(crate) mod rsa;
pub(crate) mod share;
pub mod signing;

#[cfg(test)]
pub(crate) mod fixture;
