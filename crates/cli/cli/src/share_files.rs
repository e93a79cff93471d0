//! The share files of `sunder split` and `sunder join`.

pub(crate) mod input;
mod interrupt;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod share;
