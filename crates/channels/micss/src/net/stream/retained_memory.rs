//! The memory for shares that all streams of this process retain, in case a channel's connection is
//! replaced.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::protocol::memory::MemoryLease;

/// The maximum, in bytes: the data that 5 Gbit/s carries in 100 ms. Streams beyond that retain
/// nothing. More would not stay in the processor's cache: 64 streams over three channels of
/// loopback reached 0.63 GB/s with 256 MiB and 0.71 with 64.
const MAX_BYTES: usize = 64 << 20;

/// The memory of this process.
pub(crate) static KEPT: RetainedShareMemory = RetainedShareMemory(AtomicUsize::new(0));

/// How much of it is in use.
pub(crate) struct RetainedShareMemory(AtomicUsize);

/// A part of it.
struct RetainedMemoryPart {
    of: &'static RetainedShareMemory,
    bytes: usize,
}

impl RetainedShareMemory {
    /// The lease of a stream.
    pub(crate) fn lease(&'static self) -> MemoryLease {
        let mut part = RetainedMemoryPart { of: self, bytes: 0 };
        MemoryLease::limited(move |bytes| part.resize(bytes))
    }
}

impl RetainedMemoryPart {
    fn resize(&mut self, bytes: usize) -> bool {
        let Some(more) = bytes.checked_sub(self.bytes) else {
            self.of.0.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            self.bytes = bytes;
            return true;
        };
        let before = self.of.0.fetch_add(more, Ordering::Relaxed);
        let may = before + more <= MAX_BYTES;
        if may {
            self.bytes = bytes;
        } else {
            self.of.0.fetch_sub(more, Ordering::Relaxed);
        }
        may
    }
}

impl Drop for RetainedMemoryPart {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_limited_and_given_back() {
        static MEMORY: RetainedShareMemory = RetainedShareMemory(AtomicUsize::new(0));
        let [mut first, mut second] = [MEMORY.lease(), MEMORY.lease()];
        assert!(first.resize(MAX_BYTES - 1) && second.resize(1));
        assert!(!second.resize(2));
        assert!(first.resize(1) && second.resize(2));
        drop((first, second));
        assert_eq!(MEMORY.0.load(Ordering::Relaxed), 0);
    }
}
