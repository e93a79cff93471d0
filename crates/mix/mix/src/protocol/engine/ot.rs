//! The engine `ot`: slots by 1-of-N oblivious transfers, see [`one_of_n`].

use blocks::Block;
use ot::one_of_n;

use crate::protocol::engine::MixEngineError;
use crate::protocol::engine::slots::SlotTransfer;

/// 1-of-N transfers as in [`one_of_n`].
pub(super) struct OneOfNTransfer {
    /// N.
    slots: usize,
}

impl OneOfNTransfer {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots }
    }
}

impl SlotTransfer for OneOfNTransfer {
    fn pads(&self, keys: &[[Block; 2]], pads: &mut [Block]) -> Result<(), MixEngineError> {
        Ok(one_of_n::keys(keys, pads)?)
    }

    fn pad(&self, keys: &[Block], chosen: usize) -> Result<Block, MixEngineError> {
        Ok(one_of_n::key(keys, chosen, self.slots)?)
    }
}
