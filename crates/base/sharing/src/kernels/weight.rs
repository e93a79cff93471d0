//! One factor of a linear combination.

use std::sync::OnceLock;

use crate::field::multiply;

/// One public weight, in the forms that the kernels need.
#[derive(Clone, Copy)]
pub(super) struct KernelWeight {
    pub(super) value: u8,
    /// The weight in each of eight bytes, for the GFNI kernels.
    #[cfg(target_arch = "x86_64")]
    pub(super) splat: u64,
    /// Its products with 0x00, 0x01 .. 0x0F, which the table kernels use for low nibbles.
    pub(super) low: [u8; 16],
    /// Its products with 0x00, 0x10 .. 0xF0, for high nibbles.
    pub(super) high: [u8; 16],
}

impl KernelWeight {
    /// Returns a precomputed weight, because codes with thousands of weights need them for each
    /// block.
    pub(super) fn get(value: u8) -> Self {
        static ALL: OnceLock<Box<[KernelWeight; 256]>> = OnceLock::new();
        let all = || Box::new(std::array::from_fn(|value| Self::new(value.to_le_bytes()[0])));
        ALL.get_or_init(all)[usize::from(value)]
    }

    fn new(value: u8) -> Self {
        let nibble = |i: usize| u8::try_from(i).expect("a nibble");
        Self {
            value,
            #[cfg(target_arch = "x86_64")]
            splat: u64::from_ne_bytes([value; 8]),
            low: std::array::from_fn(|i| multiply(value, nibble(i))),
            high: std::array::from_fn(|i| multiply(value, nibble(i) << 4)),
        }
    }
}
