//! Repair symbols for the end of the data.

use std::collections::VecDeque;

use super::buffer::BurstSendBuffer;
use crate::protocol::frame::{
    self, MAX_REPAIR_SYMBOLS, MAX_SYMBOLS, RepairFrame, RepairGeneration,
};
use crate::protocol::repair;

/// Bytes of the stream that are sent for the first time.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewStreamChunk {
    pub(super) offset: u64,
    pub(super) len: usize,
    /// The bytes of the stream that fit into a packet.
    pub(super) longest: usize,
    /// Whether the stream ends after it.
    pub(super) is_end: bool,
}

/// The number of repair symbols that may be sent before any data is.
const MAX_CREDIT: f64 = 64.0;

/// The number of repair symbols that each packet of the stream adds to this.
const CREDIT_PER_PACKET: f64 = 0.125;

/// The accepted probability that a transfer needs another round trip.
const FAILURE: f64 = 0.1;

/// When this many packets are counted, the counts are halved. Initially, a loss of one in 1,000 is
/// assumed.
const MIN_LOSS_SAMPLE: f64 = 20_000.0;

#[derive(Debug)]
pub(super) struct RepairSymbolQueue {
    /// The generation that is being filled: its start, its symbol length and its length.
    open: Option<(u64, usize, usize)>,
    ready: VecDeque<Vec<u8>>,
    credit: f64,
    packets: f64,
    lost: f64,
}

impl Default for RepairSymbolQueue {
    fn default() -> Self {
        let ready = VecDeque::new();
        Self { open: None, ready, credit: MAX_CREDIT, packets: 1000.0, lost: 1.0 }
    }
}

impl RepairSymbolQueue {
    /// Counts packets that have arrived.
    pub(super) fn on_arrived(&mut self, packets: u64) {
        self.count(packets, 0);
    }

    /// Counts packets that were lost.
    pub(super) fn on_lost(&mut self, packets: u64) {
        self.count(packets, packets);
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers of packets")]
    fn count(&mut self, packets: u64, lost: u64) {
        self.packets += packets as f64;
        self.lost += lost as f64;
        if self.packets > MIN_LOSS_SAMPLE {
            self.packets /= 2.0;
            self.lost /= 2.0;
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Writes the next repair frame. Returns whether there is one.
    pub(super) fn write_ready(&mut self, frames: &mut Vec<u8>) -> bool {
        let Some(frame) = self.ready.pop_front() else { return false };
        frames.extend(frame);
        true
    }

    /// Records bytes of the stream that are sent, in order to protect them. `is_tail`: they are to
    /// be protected. `is_last`: the send buffer is empty after them. `protected` is the number of
    /// bytes to protect in all.
    pub(super) fn on_sent(
        &mut self,
        chunk: &NewStreamChunk,
        is_tail: bool,
        is_last: bool,
        protected: f64,
        buffer: &BurstSendBuffer,
    ) {
        self.credit = (self.credit + CREDIT_PER_PACKET).min(MAX_CREDIT);
        let (start, symbol_len, len) = match self.open.take() {
            // The path MTU has changed.
            Some((_, symbol_len, _)) if symbol_len != chunk.longest => return,
            Some((start, symbol_len, len)) => (start, symbol_len, len + chunk.len),
            None if is_tail => (chunk.offset, chunk.longest, chunk.len),
            None => return,
        };
        let symbols = len.div_ceil(symbol_len);
        if symbols < MAX_SYMBOLS && !is_last {
            self.open = Some((start, symbol_len, len));
            return;
        }
        // What has arrived already needs no repair.
        if buffer.acked_to() > start {
            return;
        }
        let generations = (protected / super::bytes_f64(MAX_SYMBOLS * symbol_len)).max(1.0);
        let wanted = repair::count(symbols, self.lost / self.packets, FAILURE / generations);
        let count = wanted.min(MAX_REPAIR_SYMBOLS).min(floor(self.credit));
        let (Ok(repair_symbols), Ok(len)) = (u8::try_from(count), u32::try_from(len)) else {
            return;
        };
        if count == 0 {
            return;
        }
        self.credit -= f64::from(repair_symbols);
        let is_end = chunk.is_end;
        let generation = RepairGeneration { start, len, symbol_len, is_end, repair_symbols };
        let mut encoder = repair::RepairEncoder::new(symbols, count);
        let mut symbol = vec![0; symbol_len];
        for index in 0..symbols {
            let at = start + (index * symbol_len) as u64;
            let len = usize::try_from(generation.end() - at).unwrap_or(0).min(symbol_len);
            buffer.copy(at, &mut symbol[..len]);
            symbol[len..].fill(0);
            encoder.add(index, &symbol);
        }
        for (index, symbol) in (0..repair_symbols).zip(encoder.packets()) {
            let mut frames = Vec::with_capacity(symbol_len + frame::REPAIR_OVERHEAD);
            let symbol = symbol.as_ref();
            frame::write_repair(&RepairFrame { generation, index, symbol }, &mut frames);
            self.ready.push_back(frames);
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 64")]
fn floor(credit: f64) -> usize {
    credit.max(0.0) as usize
}
