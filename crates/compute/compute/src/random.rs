//! Random blocks, from the system or, in tests, from a seed.

use blocks::Block;

use crate::error::Error;

/// A party's random number generator.
pub(crate) struct PartyRng(blocks::prg::Prg);

impl PartyRng {
    /// A generator with a seed from the system.
    pub(crate) fn system() -> Result<Self, Error> {
        let mut seed = zeroize::Zeroizing::new([0; 16]);
        let filled = getrandom::fill(&mut *seed);
        filled.map_err(|error| Error::system(std::io::Error::other(error.to_string())))?;
        Ok(Self::of(Block::from_bytes(*seed)))
    }

    /// A generator with this seed.
    pub(crate) fn of(seed: Block) -> Self {
        Self(blocks::prg::Prg::new(seed))
    }

    pub(crate) fn block(&mut self) -> Block {
        self.0.block()
    }
}
