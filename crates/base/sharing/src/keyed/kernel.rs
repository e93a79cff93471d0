//! The operation on whole messages: a sum of products of blocks and powers, not reduced.
//!
//! It is additive: the sum of a message is the sum of those of its pieces, each with its own
//! powers.
#![allow(unsafe_code)]

use std::fmt;
use std::sync::OnceLock;

#[cfg(target_arch = "aarch64")]
use super::pmull;
use super::portable::{self, BLOCK};
#[cfg(target_arch = "x86_64")]
use super::{clmul, wide};

/// The instruction sets with a kernel of the keyed hash. All kernels give the same tags, in a time
/// that depends on the length only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashKernel {
    /// Carry-less multiplication of eight blocks at a time, with AVX-512.
    #[cfg(target_arch = "x86_64")]
    Wide,
    /// Carry-less multiplication of one block at a time.
    #[cfg(target_arch = "x86_64")]
    Clmul,
    /// Carry-less multiplication of one block at a time.
    #[cfg(target_arch = "aarch64")]
    Pmull,
    /// Multiplications of ordinary integers, for every other processor.
    Portable,
}

impl HashKernel {
    /// Returns the kernels that this processor can run, fastest first. Never empty.
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let special = {
            use std::arch::is_x86_feature_detected as has;
            let clmul = has!("pclmulqdq");
            let wide = clmul && has!("vpclmulqdq") && has!("avx512f") && has!("avx512bw");
            [(wide, Self::Wide), (clmul, Self::Clmul)]
        };
        #[cfg(target_arch = "aarch64")]
        let special = [(std::arch::is_aarch64_feature_detected!("aes"), Self::Pmull)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let special: [(bool, Self); 0] = [];

        let detected = special.into_iter().filter_map(|(has, kernel)| has.then_some(kernel));
        detected.chain([Self::Portable]).collect()
    }

    /// Returns the fastest kernel of this processor; detected once.
    pub(super) fn best() -> Self {
        static BEST: OnceLock<HashKernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// Returns the sum of the products of a message's blocks and as many powers, not reduced. The
    /// last block is padded with zeros. The kernel must be one of [`Self::available`].
    ///
    /// # Panics
    /// If the number of powers differs from the number of blocks.
    pub(super) fn sum(self, message: &[u8], powers: &[u64]) -> u128 {
        assert!(powers.len() == message.len().div_ceil(BLOCK), "a power a block");
        match self {
            // SAFETY: callers have the kernel from `available`, so this processor supports it.
            #[cfg(target_arch = "x86_64")]
            Self::Wide => unsafe { wide::sum(message, powers) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Clmul => unsafe { clmul::sum(message, powers) },
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Self::Pmull => unsafe { pmull::sum(message, powers) },
            Self::Portable => portable::sum(message, powers),
        }
    }

    /// Returns one product, not reduced. The kernel must be one of [`Self::available`].
    pub(super) fn multiply(self, a: u64, b: u64) -> u128 {
        match self {
            // SAFETY: as in `sum`; processors with the wide instructions support these, too.
            #[cfg(target_arch = "x86_64")]
            Self::Wide | Self::Clmul => unsafe { clmul::multiply(a, b) },
            // SAFETY: as in `sum`.
            #[cfg(target_arch = "aarch64")]
            Self::Pmull => unsafe { pmull::multiply(a, b) },
            Self::Portable => portable::multiply(a, b),
        }
    }
}

impl fmt::Display for HashKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            #[cfg(target_arch = "x86_64")]
            Self::Wide => "VPCLMULQDQ",
            #[cfg(target_arch = "x86_64")]
            Self::Clmul => "PCLMULQDQ",
            #[cfg(target_arch = "aarch64")]
            Self::Pmull => "PMULL",
            Self::Portable => "portable",
        })
    }
}
