//! Changes of valid bytes, which the fuzzer need not invent.

// Not every target uses all of it.
#![allow(dead_code)]

use arbitrary::Arbitrary;

#[derive(Arbitrary, Debug)]
pub struct Changes {
    /// Which example is changed.
    example: u8,
    /// Positions and new bytes.
    bytes: Vec<(u16, u8)>,
    /// A position, and bytes to insert there.
    inserted: Option<(u16, Vec<u8>)>,
    len: Option<u16>,
}

impl Changes {
    /// One of the examples, changed. None of them: empty bytes.
    pub fn of_one(&self, examples: &[Vec<u8>]) -> Vec<u8> {
        let at = usize::from(self.example) % examples.len().max(1);
        self.of(examples.get(at).map_or(&[], Vec::as_slice))
    }

    /// The bytes, changed.
    pub fn of(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = bytes.to_vec();
        for &(at, byte) in &self.bytes {
            let at = usize::from(at) % out.len().max(1);
            if let Some(changed) = out.get_mut(at) {
                *changed = byte;
            }
        }
        if let Some((at, inserted)) = &self.inserted {
            let at = usize::from(*at) % (out.len() + 1);
            out.splice(at..at, inserted.iter().copied());
        }
        if let Some(len) = self.len {
            out.truncate(len.into());
        }
        out
    }
}
