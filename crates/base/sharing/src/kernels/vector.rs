//! The loop that all kernels share, generic over the vector type.
//!
//! A kernel is a [`SimdVector`], which [`impl_vector`] implements with its instructions. The method
//! `pass` enables these instructions and calls [`combine_rows`]. The functions that this calls are
//! inlined, so the code is compiled once for each instruction set and number of outputs, as small
//! functions whose loops keep everything in registers.

use super::weight::KernelWeight;

/// A vector register of bytes, with the operations of a linear combination over GF(2^8).
///
/// # Safety
/// Each method may only be called if the processor supports the vector's instructions.
pub(super) trait SimdVector: Copy {
    /// The number of bytes in a vector; a power of two, at most [`MAX_BYTES`].
    const BYTES: usize;

    /// The all-zero vector.
    unsafe fn zero() -> Self;

    /// Reads `Self::BYTES` bytes, at any alignment.
    unsafe fn load(from: *const u8) -> Self;

    /// Writes `Self::BYTES` bytes, at any alignment.
    unsafe fn store(self, to: *mut u8);

    /// Returns `self + vector * weight` in every byte.
    unsafe fn add_product(self, vector: Self, weight: &KernelWeight) -> Self;

    /// Runs [`combine_rows`] with as many vectors at a time as suit the registers.
    unsafe fn pass<const R: usize>(
        weights: &[KernelWeight],
        inputs: &[*const u8],
        outputs: &[*mut u8],
        start: usize,
        end: usize,
    );
}

/// Implements [`SimdVector`] for a type. Its arguments are the instruction sets that `pass`
/// enables, the number of vectors at a time, and an expression for each other method.
macro_rules! impl_vector {
    (
        $vector:ty, $(features: $features:literal,)? unroll: $unroll:literal,
        zero: $zero:expr,
        load($from:ident): $load:expr,
        store($value:ident, $to:ident): $store:expr,
        add_product($sum:ident, $factor:ident, $weight:ident): $add_product:expr $(,)?
    ) => {
        impl $crate::kernels::vector::SimdVector for $vector {
            const BYTES: usize = size_of::<Self>();

            #[allow(unused_unsafe)] // Ordinary integers need none.
            #[inline(always)]
            unsafe fn zero() -> Self {
                // SAFETY: the caller's processor supports the instructions, here and below.
                unsafe { $zero }
            }

            #[inline(always)]
            unsafe fn load($from: *const u8) -> Self {
                // SAFETY: the caller's pointer is valid for as many bytes as the vector has.
                unsafe { $load }
            }

            #[inline(always)]
            unsafe fn store(self, $to: *mut u8) {
                let $value = self;
                // SAFETY: the caller's pointer is valid for as many bytes as the vector has.
                unsafe { $store }
            }

            #[allow(unused_unsafe)] // Ordinary integers need none.
            #[inline(always)]
            unsafe fn add_product(self, $factor: Self, $weight: &KernelWeight) -> Self {
                let $sum = self;
                // SAFETY: arithmetic, and reads of 16 bytes from arrays of 16 bytes.
                unsafe { $add_product }
            }

            $(#[target_feature(enable = $features)])?
            unsafe fn pass<const R: usize>(
                weights: &[KernelWeight],
                inputs: &[*const u8],
                outputs: &[*mut u8],
                start: usize,
                end: usize,
            ) {
                // SAFETY: the caller's contract, and the instructions are enabled.
                unsafe {
                    $crate::kernels::vector::combine_rows::<Self, R, $unroll>(
                        weights, inputs, outputs, start, end,
                    );
                }
            }
        }
    };
}
pub(super) use impl_vector;

/// The widest vector of any kernel, in bytes.
const MAX_BYTES: usize = 64;

/// The number of outputs that are computed in one pass over the inputs. Each loaded vector is used
/// for all of them while it is in a register.
const ROWS: usize = 4;

/// The number of bytes that go through all passes before the next bytes do, so that the inputs are
/// still in the first-level cache in the second pass.
const CHUNK: usize = 4096;

/// Computes `outputs[r][j] = sum_i weights[r][i] * inputs[i][j]`.
///
/// # Safety
/// As for `Kernel::combine`.
pub(super) unsafe fn combine<V: SimdVector>(
    weights: &[KernelWeight],
    inputs: &[*const u8],
    outputs: &[*mut u8],
    len: usize,
) {
    let chunk = if outputs.len() > ROWS { CHUNK } else { len };
    let mut start = 0;
    while start < len {
        let end = len.min(start + chunk);
        let mut weights = weights;
        for outputs in outputs.chunks(ROWS) {
            let (these, others) = weights.split_at(outputs.len() * inputs.len());
            // SAFETY: `start..end` lies within `0..len`, and these weights are these outputs'.
            unsafe {
                match outputs.len() {
                    1 => V::pass::<1>(these, inputs, outputs, start, end),
                    2 => V::pass::<2>(these, inputs, outputs, start, end),
                    3 => V::pass::<3>(these, inputs, outputs, start, end),
                    _ => V::pass::<ROWS>(these, inputs, outputs, start, end),
                }
            }
            weights = others;
        }
        start = end;
    }
}

/// Computes the bytes from `start` to `end` of `R` outputs, `U` vectors at a time. The range must
/// not be empty.
///
/// # Safety
/// As for `Kernel::combine`: the weights are those of `R` outputs, and `end` is within the buffers.
#[inline(always)]
pub(super) unsafe fn combine_rows<V: SimdVector, const R: usize, const U: usize>(
    weights: &[KernelWeight],
    inputs: &[*const u8],
    outputs: &[*mut u8],
    start: usize,
    end: usize,
) {
    // SAFETY: every block read and written lies within `start..end`, the first and the
    // last by construction; that they overlap others is harmless, because outputs are not inputs.
    unsafe {
        let mut at = start;
        if end - start >= 2 * U * V::BYTES {
            // The first vector may overlap the second; after it, no store crosses two cache lines.
            let ahead = outputs[0].add(start).align_offset(V::BYTES);
            if ahead > 0 {
                block::<V, R, 1>(weights, inputs, outputs, at);
                at += ahead;
            }
        }
        while end - at >= U * V::BYTES {
            block::<V, R, U>(weights, inputs, outputs, at);
            at += U * V::BYTES;
        }
        while end - at >= V::BYTES {
            block::<V, R, 1>(weights, inputs, outputs, at);
            at += V::BYTES;
        }
        if at < end {
            if end - start >= V::BYTES {
                block::<V, R, 1>(weights, inputs, outputs, end - V::BYTES);
            } else {
                short_block::<V, R>(weights, inputs, outputs, at, end - at);
            }
        }
    }
}

/// Computes `U` vectors of `R` outputs at offset `at`.
#[inline(always)]
unsafe fn block<V: SimdVector, const R: usize, const U: usize>(
    weights: &[KernelWeight],
    inputs: &[*const u8],
    outputs: &[*mut u8],
    at: usize,
) {
    // SAFETY: the caller's buffers hold `U * V::BYTES` bytes from `at` on; `weights` holds
    // `inputs.len()` weights for each of `R` rows, and `outputs` `R` pointers.
    unsafe {
        let mut sums = [[V::zero(); U]; R];
        for (i, input) in inputs.iter().enumerate() {
            let mut vectors = [V::zero(); U];
            for (u, vector) in vectors.iter_mut().enumerate() {
                *vector = V::load(input.add(at + u * V::BYTES));
            }
            for (r, row) in sums.iter_mut().enumerate() {
                let weight = weights.get_unchecked(r * inputs.len() + i);
                for (sum, &vector) in row.iter_mut().zip(&vectors) {
                    *sum = sum.add_product(vector, weight);
                }
            }
        }
        for (r, row) in sums.iter().enumerate() {
            for (u, sum) in row.iter().enumerate() {
                sum.store(outputs.get_unchecked(r).add(at + u * V::BYTES));
            }
        }
    }
}

/// Computes fewer bytes than a vector has, through a buffer with the size of a vector.
#[inline(always)]
unsafe fn short_block<V: SimdVector, const R: usize>(
    weights: &[KernelWeight],
    inputs: &[*const u8],
    outputs: &[*mut u8],
    at: usize,
    len: usize,
) {
    let mut buffer = zeroize::Zeroizing::new([0u8; MAX_BYTES]);
    // SAFETY: `len` is below `V::BYTES`, hence below `MAX_BYTES`, and within the buffers.
    unsafe {
        let mut sums = [V::zero(); R];
        for (i, input) in inputs.iter().enumerate() {
            buffer.as_mut_ptr().copy_from_nonoverlapping(input.add(at), len);
            let vector = V::load(buffer.as_ptr());
            for (r, sum) in sums.iter_mut().enumerate() {
                *sum = sum.add_product(vector, &weights[r * inputs.len() + i]);
            }
        }
        for (sum, output) in sums.iter().zip(outputs) {
            sum.store(buffer.as_mut_ptr());
            output.add(at).copy_from_nonoverlapping(buffer.as_ptr(), len);
        }
    }
}
