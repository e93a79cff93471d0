//! The operation on whole buffers: linear combinations over GF(2^8).
//!
//! Splitting, joining, verification and the XOR scheme are all `output_r = sum_i w_ri * input_i`
//! for each byte, with public weights. The loop is implemented once (in `vector`), with a vector
//! type for each instruction set, which is selected once at run time. All kernels give the same
//! bytes. None has a branch or a memory address that depends on the buffers' contents.
#![allow(unsafe_code)]

#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
mod vector;
mod weight;
#[cfg(target_arch = "x86_64")]
mod x86;

#[cfg(target_arch = "aarch64")]
use std::arch::aarch64;
#[cfg(target_arch = "x86_64")]
use std::arch::x86_64;
use std::fmt;
use std::mem::MaybeUninit;
use std::sync::OnceLock;

use crate::scheme::MAX_SHARES;
use vector::combine;
use weight::KernelWeight;

/// The instruction sets with a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKernel {
    /// 64-byte vectors and the GF(2^8) multiplication instruction.
    #[cfg(target_arch = "x86_64")]
    Gfni512,
    /// 32-byte vectors and the GF(2^8) multiplication instruction.
    #[cfg(target_arch = "x86_64")]
    Gfni,
    /// 32-byte vectors, products looked up by nibble inside a register.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// 16-byte vectors, products looked up by nibble inside a register.
    #[cfg(target_arch = "x86_64")]
    Ssse3,
    /// 16-byte vectors, products looked up by nibble inside a register.
    #[cfg(target_arch = "aarch64")]
    Neon,
    /// Shifts and masks on ordinary integers, for every other processor.
    Portable,
}

impl FieldKernel {
    /// Returns the kernels that this processor can run, fastest first. Never empty.
    pub fn available() -> Vec<Self> {
        #[cfg(target_arch = "x86_64")]
        let vectors = {
            use std::arch::is_x86_feature_detected as has;
            [
                (has!("gfni") && has!("avx512f"), Self::Gfni512),
                (has!("gfni") && has!("avx2"), Self::Gfni),
                (has!("avx2"), Self::Avx2),
                (has!("ssse3"), Self::Ssse3),
            ]
        };
        #[cfg(target_arch = "aarch64")]
        let vectors = [(std::arch::is_aarch64_feature_detected!("neon"), Self::Neon)];
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        let vectors: [(bool, Self); 0] = [];

        let detected = vectors.into_iter().filter_map(|(has, kernel)| has.then_some(kernel));
        detected.chain([Self::Portable]).collect()
    }

    /// Returns the fastest kernel of this processor; detected once.
    pub fn best() -> Self {
        static BEST: OnceLock<FieldKernel> = OnceLock::new();
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// Computes `outputs[r][j] = sum_i weights[r][i] * inputs[i][j]`; the weights are given row by
    /// row.
    ///
    /// # Safety
    /// This processor supports the kernel's instructions. There are as many input and output
    /// pointers as the weights have columns and rows. They are all valid for `len` bytes, for
    /// reading and for writing. No output overlaps any other buffer.
    unsafe fn combine(
        self,
        weights: &[KernelWeight],
        inputs: &[*const u8],
        outputs: &[*mut u8],
        len: usize,
    ) {
        // SAFETY: as this function's own safety conditions.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Gfni512 => combine::<x86_64::__m512i>(weights, inputs, outputs, len),
                #[cfg(target_arch = "x86_64")]
                Self::Gfni => combine::<x86::GfniVector>(weights, inputs, outputs, len),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => combine::<x86_64::__m256i>(weights, inputs, outputs, len),
                #[cfg(target_arch = "x86_64")]
                Self::Ssse3 => combine::<x86_64::__m128i>(weights, inputs, outputs, len),
                #[cfg(target_arch = "aarch64")]
                Self::Neon => combine::<aarch64::uint8x16_t>(weights, inputs, outputs, len),
                Self::Portable => combine::<u64>(weights, inputs, outputs, len),
            }
        }
    }
}

impl fmt::Display for FieldKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            #[cfg(target_arch = "x86_64")]
            Self::Gfni512 => "GFNI+AVX-512",
            #[cfg(target_arch = "x86_64")]
            Self::Gfni => "GFNI+AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => "AVX2",
            #[cfg(target_arch = "x86_64")]
            Self::Ssse3 => "SSSE3",
            #[cfg(target_arch = "aarch64")]
            Self::Neon => "NEON",
            Self::Portable => "portable",
        })
    }
}

/// A matrix of public weights: one row for each output, one column for each input.
#[derive(Clone)]
pub(crate) struct WeightMatrix {
    columns: usize,
    rows: usize,
    entries: Vec<KernelWeight>,
    kernel: FieldKernel,
}

impl WeightMatrix {
    /// Creates a matrix of at most 255 rows, each of `columns` weights (1..=255).
    pub(crate) fn new(columns: usize, rows: impl IntoIterator<Item = Vec<u8>>) -> Self {
        assert!((1..=MAX_SHARES).contains(&columns), "1 to 255 columns");
        let mut weights =
            Self { columns, rows: 0, entries: Vec::new(), kernel: FieldKernel::best() };
        for row in rows {
            assert_eq!(row.len(), columns, "a row has a weight a column");
            weights.entries.extend(row.into_iter().map(KernelWeight::get));
            weights.rows += 1;
        }
        assert!(weights.rows <= MAX_SHARES, "at most 255 rows");
        weights
    }

    /// The same weights, applied by the given kernel.
    pub(crate) fn with_kernel(mut self, kernel: FieldKernel) -> Self {
        assert!(FieldKernel::available().contains(&kernel), "this processor lacks {kernel}");
        self.kernel = kernel;
        self
    }

    /// Computes `outputs[r][j] = sum_i self[r][i] * inputs[i][j]` for all bytes `j`, where the
    /// inputs are `first` and then `rest`.
    ///
    /// # Panics
    /// If the number of inputs differs from that of columns, the number of outputs from that of
    /// rows, or a length from that of `first`.
    #[inline(always)] // For each of its callers: a join of a packet's shares is 5 % faster.
    pub(crate) fn apply<S: AsRef<[u8]>>(
        &self,
        first: &[u8],
        rest: &[S],
        outputs: &mut [&mut [u8]],
    ) {
        let len = first.len();
        assert!(1 + rest.len() == self.columns, "an input a column");
        assert!(outputs.len() == self.rows, "an output a row");

        let mut in_pointers = [MaybeUninit::<*const u8>::uninit(); MAX_SHARES];
        in_pointers[0].write(first.as_ptr());
        for (pointer, input) in in_pointers[1..].iter_mut().zip(rest) {
            let input = input.as_ref();
            assert!(input.len() == len, "inputs of one length");
            pointer.write(input.as_ptr());
        }
        let mut out_pointers = [MaybeUninit::<*mut u8>::uninit(); MAX_SHARES];
        for (pointer, output) in out_pointers.iter_mut().zip(outputs.iter_mut()) {
            assert!(output.len() == len, "outputs of one length");
            pointer.write(output.as_mut_ptr());
        }
        // SAFETY: the first `columns` and `rows` pointers were written just above, from slices of
        // `len` bytes; outputs are exclusive borrows, so they overlap nothing; `kernel` was
        // chosen from those that this processor has.
        unsafe {
            let inputs = std::slice::from_raw_parts(in_pointers.as_ptr().cast(), self.columns);
            let outputs = std::slice::from_raw_parts(out_pointers.as_ptr().cast(), self.rows);
            self.kernel.combine(&self.entries, inputs, outputs, len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::multiply;

    /// The same sums with the scalar field, as the reference for every kernel.
    fn reference(rows: &[Vec<u8>], inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let byte = |row: &Vec<u8>, j: usize| {
            row.iter().zip(inputs).fold(0, |sum, (&w, input)| sum ^ multiply(w, input[j]))
        };
        let output = |row| (0..inputs[0].len()).map(|j| byte(row, j)).collect();
        rows.iter().map(output).collect()
    }

    fn check(kernel: FieldKernel, rows: &[Vec<u8>], inputs: &[Vec<u8>], misalign: usize) {
        let len = inputs[0].len();
        let shifted: Vec<Vec<u8>> =
            inputs.iter().map(|input| [&vec![0; misalign], &input[..]].concat()).collect();
        let views: Vec<&[u8]> = shifted.iter().map(|input| &input[misalign..]).collect();
        // One byte of canary on each side of every output.
        let mut outputs = vec![vec![0xEE; misalign + len + 2]; rows.len()];
        let mut targets: Vec<&mut [u8]> =
            outputs.iter_mut().map(|o| &mut o[misalign + 1..misalign + 1 + len]).collect();
        let weights = WeightMatrix::new(inputs.len(), rows.to_vec()).with_kernel(kernel);
        weights.apply(views[0], &views[1..], &mut targets);
        for (output, expected) in outputs.iter().zip(reference(rows, inputs)) {
            assert_eq!(output[misalign + 1..misalign + 1 + len], expected, "{kernel}, {len} bytes");
            assert!(output[..=misalign].iter().all(|&b| b == 0xEE), "{kernel} wrote before");
            assert_eq!(output[misalign + 1 + len], 0xEE, "{kernel} wrote behind");
        }
    }

    fn bytes(len: usize, seed: u32) -> Vec<u8> {
        let mut state = seed.wrapping_mul(2_654_435_761) | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state.to_le_bytes()[1]
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn every_kernel_knows_all_products() {
        let all: Vec<u8> = (0..=255).collect();
        for kernel in FieldKernel::available() {
            for weight in 0..=255 {
                check(kernel, &[vec![weight]], std::slice::from_ref(&all), 0);
            }
        }
    }

    #[test]
    fn every_kernel_takes_any_length_and_alignment() {
        for kernel in FieldKernel::available() {
            for len in (0..300).chain([511, 512, 1408, 4096, 9001]) {
                let inputs: Vec<Vec<u8>> = (0..3).map(|i| bytes(len, 7 + i)).collect();
                let rows = vec![vec![1, 1, 1], vec![0, 2, 255], vec![19, 1, 77]];
                check(kernel, &rows, &inputs, len % 67);
            }
        }
    }

    #[test]
    fn every_kernel_takes_any_shape() {
        for kernel in FieldKernel::available() {
            for columns in [1, 2, 5, 17, 255] {
                for rows in [0, 1, 2, 3, 4, 5, 8, 9, 255] {
                    let inputs: Vec<Vec<u8>> = (0..columns).map(|i| bytes(197, 1 + i)).collect();
                    let rows: Vec<Vec<u8>> =
                        (0..rows).map(|r| bytes(inputs.len(), 1000 + r)).collect();
                    check(kernel, &rows, &inputs, 3);
                }
            }
        }
    }
}
