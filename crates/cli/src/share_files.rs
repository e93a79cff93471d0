//! Share files: what `sunder split` and `sunder join` read and write.

pub(crate) mod input;
mod interrupt;
pub(crate) mod names;
pub(crate) mod output;
pub(crate) mod share;
