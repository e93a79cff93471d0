//! The share files of `sunder split`, `sunder join` and `sunder check`.

pub(crate) mod candidate;
pub(crate) mod decoding;
pub(crate) mod input;
mod interrupt;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod page;
pub(crate) mod scan;
pub(crate) mod share;
