//! Slots by oblivious transfer, the engine `ot`: 1-of-N transfers by halves of the choice.

use blocks::Block;
use ot::one_of_n;

use crate::engine::EngineError;
use crate::engine::slots::SlotTransfer;

/// 1-of-N transfers as in [`one_of_n`].
pub(super) struct OneOfN {
    /// N.
    slots: usize,
}

impl OneOfN {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots }
    }
}

impl SlotTransfer for OneOfN {
    fn pads(&self, keys: &[[Block; 2]], pads: &mut [Block]) -> Result<(), EngineError> {
        Ok(one_of_n::keys(keys, pads)?)
    }

    fn pad(&self, keys: &[Block], chosen: usize) -> Result<Block, EngineError> {
        Ok(one_of_n::key(keys, chosen, self.slots)?)
    }
}
