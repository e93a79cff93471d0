//! Stores repair symbols until everything that they protect has arrived.

use std::collections::VecDeque;

use super::buffer::BurstReceiveBuffer;
use crate::protocol::frame::{RepairFrame, RepairGeneration};
use crate::protocol::repair;

/// The largest number of symbols kept. The oldest are dropped first.
const MAX_KEPT: usize = 256;

#[derive(Debug)]
struct BufferedRepairSymbol {
    generation: RepairGeneration,
    index: u8,
    symbol: Box<[u8]>,
}

#[derive(Debug, Default)]
pub(in crate::protocol) struct RepairSymbolBuffer {
    kept: VecDeque<BufferedRepairSymbol>,
}

impl RepairSymbolBuffer {
    /// Whether memory is within its bounds.
    #[cfg(any(fuzzing, test))]
    pub(in crate::protocol) fn is_bounded(&self) -> bool {
        self.kept.len() <= MAX_KEPT
    }

    /// Keeps a symbol if it may repair missing data. Returns whether it is kept.
    pub(in crate::protocol) fn add(
        &mut self,
        repair: &RepairFrame<'_>,
        buffer: &BurstReceiveBuffer,
    ) -> bool {
        let RepairFrame { generation, index, symbol } = *repair;
        if is_useless(&generation, buffer)
            || self.kept.iter().any(|kept| kept.generation == generation && kept.index == index)
        {
            return false;
        }
        if self.kept.len() >= MAX_KEPT {
            self.kept.retain(|kept| !is_useless(&kept.generation, buffer));
        }
        if self.kept.len() >= MAX_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(BufferedRepairSymbol { generation, index, symbol: symbol.into() });
        true
    }

    /// What can be recovered of the generation that contains the offset `at`: data with its offset,
    /// and whether the stream ends after it.
    pub(in crate::protocol) fn recover(
        &mut self,
        at: u64,
        buffer: &BurstReceiveBuffer,
    ) -> Vec<(u64, Vec<u8>, bool)> {
        let is_within = |kept: &&BufferedRepairSymbol| {
            kept.generation.start <= at && at <= kept.generation.end()
        };
        let Some(generation) = self.kept.iter().find(is_within).map(|kept| kept.generation) else {
            return Vec::new();
        };
        let is_useless = is_useless(&generation, buffer);
        let missing = missing(&generation, buffer);
        let count = self.kept.iter().filter(|kept| kept.generation == generation).count();
        if !is_useless && missing.len() > count {
            return Vec::new();
        }
        let recovered =
            if is_useless { Vec::new() } else { self.decode(&generation, &missing, buffer) };
        self.kept.retain(|kept| kept.generation != generation);
        recovered
    }

    fn decode(
        &self,
        generation: &RepairGeneration,
        missing: &[usize],
        buffer: &BurstReceiveBuffer,
    ) -> Vec<(u64, Vec<u8>, bool)> {
        if missing.is_empty() {
            return vec![(generation.end(), Vec::new(), generation.is_end)];
        }
        let symbols = generation.symbols();
        let repair_symbols = usize::from(generation.repair_symbols);
        let mut decoder =
            repair::RepairDecoder::new(symbols, repair_symbols, generation.symbol_len);
        let mut symbol = vec![0; generation.symbol_len];
        for index in 0..symbols {
            if !missing.contains(&index) {
                let (start, end) = bounds(generation, index);
                let len = usize::try_from(end - start).unwrap_or(0);
                buffer.copy(start, &mut symbol[..len]);
                symbol[len..].fill(0);
                decoder.add_source(index, &symbol);
            }
        }
        for kept in self.kept.iter().filter(|kept| kept.generation == *generation) {
            decoder.add_repair(usize::from(kept.index), &kept.symbol);
        }
        let part = |(index, mut data): (usize, Vec<u8>)| {
            let (start, end) = bounds(generation, index);
            data.truncate(usize::try_from(end - start).unwrap_or(0));
            (start, data, generation.is_end && end == generation.end())
        };
        decoder.recovered().into_iter().map(part).collect()
    }
}

/// Whether nothing is missing, or the data that has arrived is no longer stored.
fn is_useless(generation: &RepairGeneration, buffer: &BurstReceiveBuffer) -> bool {
    let has_all = buffer.has(generation.start, generation.end());
    has_all && (!generation.is_end || buffer.is_complete()) || !buffer.is_kept(generation.start)
}

/// The indices of symbols that are incomplete.
fn missing(generation: &RepairGeneration, buffer: &BurstReceiveBuffer) -> Vec<usize> {
    (0..generation.symbols())
        .filter(|&index| {
            let (start, end) = bounds(generation, index);
            !buffer.has(start, end)
        })
        .collect()
}

/// The start and the end of a symbol in the stream.
fn bounds(generation: &RepairGeneration, index: usize) -> (u64, u64) {
    let start = generation.start + (index * generation.symbol_len) as u64;
    (start, (start + generation.symbol_len as u64).min(generation.end()))
}
