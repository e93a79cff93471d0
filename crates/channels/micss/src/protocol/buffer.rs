//! Memory for a record and its shares.

use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;
use zeroize::Zeroize;

/// Buffers from this length on are memory-mapped. The heap keeps freed memory for later use; mapped
/// memory returns to the system, so an idle stream does not keep the memory of a busy one.
const MAPPED_FROM: usize = 64 << 10;

/// Bytes, initially zero. Together they may be a secret, so they are wiped when dropped.
pub(crate) enum ZeroizingBuffer {
    Heap(Vec<u8>),
    Mapped(MmapMut),
}

impl ZeroizingBuffer {
    pub(crate) fn new(len: usize) -> Self {
        let mapped = (len >= MAPPED_FROM).then(|| MmapMut::map_anon(len).ok()).flatten();
        // The number of mappings of a process is limited.
        mapped.map_or_else(|| Self::Heap(vec![0; len]), Self::Mapped)
    }
}

impl Default for ZeroizingBuffer {
    fn default() -> Self {
        Self::new(0)
    }
}

impl Deref for ZeroizingBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

impl DerefMut for ZeroizingBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Mapped(bytes) => bytes,
        }
    }
}

impl Drop for ZeroizingBuffer {
    fn drop(&mut self) {
        (**self).zeroize();
    }
}
