//! A share that has arrived.

use std::time::Duration;

use crate::protocol::wire::datagram::{SymbolKind, SymbolShareHeader};

/// A share that has arrived.
#[derive(Clone, Copy)]
pub(crate) struct ShareArrival<'a> {
    pub(crate) channel: usize,
    pub(crate) number: u64,
    pub(crate) header: SymbolShareHeader,
    /// At most [`MAX_SYMBOL_LEN`](crate::protocol::wire::symbol::MAX_SYMBOL_LEN) bytes.
    pub(crate) share: &'a [u8],
    pub(crate) now: Duration,
}

impl ShareArrival<'_> {
    pub(super) fn len(&self) -> u16 {
        u16::try_from(self.share.len()).unwrap_or(u16::MAX)
    }

    pub(super) fn first(&self) -> u8 {
        self.header.first()
    }

    pub(super) fn is_control(&self) -> bool {
        self.header.kind == SymbolKind::Control
    }
}
