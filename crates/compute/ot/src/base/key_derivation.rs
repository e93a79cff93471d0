//! Keys from the shared elements of the Diffie-Hellman transfers.

use blocks::Block;
use sha2::{Digest as _, Sha256};

/// Derives keys from shared elements. A key also depends on the protocol, on everything that was
/// sent before the receiver's elements, on the number of the transfer, and on the receiver's
/// element in it.
pub(crate) struct OtKeyDerivation(Sha256);

impl OtKeyDerivation {
    pub(crate) fn new(domain: &[u8], sent: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        hash.update(domain);
        for sent in sent {
            hash.update(sent);
        }
        Self(hash)
    }

    /// The keys of encoded shared elements: `count` for each transfer, in order. `sent` are the
    /// receiver's elements, one for each transfer, with encodings of the same length.
    pub(crate) fn keys<T: AsRef<[u8]>>(
        &self,
        shared: &[T],
        sent: &[u8],
        count: usize,
    ) -> Vec<Block> {
        let Some(first) = shared.first() else { return Vec::new() };
        let of_transfers = shared.chunks_exact(count).zip(sent.chunks_exact(first.as_ref().len()));
        let mut keys = Vec::with_capacity(shared.len());
        for (number, (shared, sent)) in (0_u32..).zip(of_transfers) {
            let mut hash = self.0.clone();
            hash.update(number.to_be_bytes());
            hash.update(sent);
            keys.extend(shared.iter().map(|shared| {
                let hash = hash.clone().chain_update(shared).finalize();
                Block::from_bytes(*hash.first_chunk::<16>().expect("a hash has 32 bytes"))
            }));
        }
        keys
    }
}
