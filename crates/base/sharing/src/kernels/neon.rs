//! NEON: 16 products with two table look-ups inside registers, one for each nibble, so no address
//! depends on the data.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};

use super::vector::impl_vector;
use super::weight::Weight;

impl_vector! {
    uint8x16_t, features: "neon", unroll: 2,
    zero: vdupq_n_u8(0),
    load(from): vld1q_u8(from),
    store(value, to): vst1q_u8(to, value),
    add_product(sum, vector, weight): {
        if weight.value == 1 {
            return veorq_u8(sum, vector);
        }
        let low = vqtbl1q_u8(vld1q_u8(weight.low.as_ptr()), vandq_u8(vector, vdupq_n_u8(0x0F)));
        let high = vqtbl1q_u8(vld1q_u8(weight.high.as_ptr()), vshrq_n_u8::<4>(vector));
        veorq_u8(sum, veorq_u8(low, high))
    },
}
