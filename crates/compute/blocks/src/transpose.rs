//! Transposition of bit matrices with 128 rows, for oblivious transfer extension.

use zeroize::{Zeroize as _, Zeroizing};

use crate::aes::AesKernel;
use crate::block::Block;
use crate::lanes::{KernelJob, Lanes, MAX_WIDTH};

/// The rows of the matrix, and the bits of a block.
const ROWS: usize = 128;

/// Transposes a bit matrix of 128 rows and `n` columns: row `i` is the `n / 128` blocks from
/// `rows[i * n / 128]`, and bit `i` of `columns[j]` becomes bit `j` of row `i`, both from the least
/// significant. Matrices of a few thousand columns stay in the cache.
///
/// # Panics
/// When the slices differ in length, or the length `n` is not a multiple of 128.
pub fn transpose(rows: &[Block], columns: &mut [Block]) {
    transpose_with(AesKernel::best(), rows, columns);
}

/// Like [`transpose`], with the given kernel.
///
/// # Panics
/// As [`transpose`].
pub fn transpose_with(kernel: AesKernel, rows: &[Block], columns: &mut [Block]) {
    assert!(rows.len() == columns.len(), "as many blocks in as out");
    assert!(rows.len().is_multiple_of(ROWS), "a multiple of 128 columns");
    if !rows.is_empty() {
        kernel.run(TransposeJob { rows, columns });
    }
}

struct TransposeJob<'a> {
    rows: &'a [Block],
    columns: &'a mut [Block],
}

/// The number of rows that are transposed together.
const GROUP: usize = 8;

/// The number of groups, and of bytes in a block.
const GROUPS: usize = ROWS / GROUP;

impl KernelJob for TransposeJob<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, lanes: L) {
        let width = self.rows.len() / ROWS;
        let mut bytes = [[Block::ZERO; MAX_WIDTH * GROUPS]; GROUP];
        for (part, columns) in self.columns.chunks_mut(ROWS * L::WIDTH).enumerate() {
            let at = part * L::WIDTH;
            for group in 0..GROUPS {
                let mut vectors = [lanes.splat(Block::ZERO); GROUP];
                for (i, vector) in vectors.iter_mut().enumerate() {
                    let row = &self.rows[(GROUP * group + i) * width..][..width];
                    *vector = load(lanes, &row[at..]);
                }
                let vectors = transpose_bits(lanes, vectors);
                for (vector, bytes) in vectors.into_iter().zip(&mut bytes) {
                    lanes.store(vector, Block::bytes_of_mut(&mut bytes[L::WIDTH * group..]));
                }
            }
            for bytes in &mut bytes {
                let mut vectors = [lanes.splat(Block::ZERO); GROUPS];
                for (group, vector) in vectors.iter_mut().enumerate() {
                    *vector = lanes.load(Block::bytes_of(&bytes[L::WIDTH * group..]));
                }
                let vectors = lanes.transpose_bytes(vectors);
                for (group, vector) in vectors.into_iter().enumerate() {
                    lanes.store(vector, Block::bytes_of_mut(&mut bytes[L::WIDTH * group..]));
                }
            }
            for (lane, columns) in columns.chunks_exact_mut(ROWS).enumerate() {
                for (byte, columns) in columns.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
                    for (column, bytes) in columns.iter_mut().zip(&bytes) {
                        *column = bytes[L::WIDTH * byte + lane];
                    }
                }
            }
        }
        // The bits may be secret.
        bytes.zeroize();
    }
}

/// Reads a vector from the beginning of a row, which may be shorter.
#[inline(always)]
fn load<L: Lanes>(lanes: L, row: &[Block]) -> L::Vector {
    if row.len() >= L::WIDTH {
        return lanes.load(Block::bytes_of(row));
    }
    let mut last = Zeroizing::new([Block::ZERO; MAX_WIDTH]);
    last[..row.len()].copy_from_slice(row);
    lanes.load(Block::bytes_of(&*last))
}

/// Transposes the matrices that the bits of one byte of all vectors make: exchanges the upper right
/// and the lower left quarter of each, then of each quarter, and so on. Bit `i` of byte `j` of
/// vector `k` becomes bit `k` of byte `j` of vector `i`.
#[inline(always)]
fn transpose_bits<L: Lanes>(lanes: L, [a, b, c, d, e, f, g, h]: [L::Vector; 8]) -> [L::Vector; 8] {
    let [a, e] = swap_bits::<L, 4>(lanes, a, e, 0x0F);
    let [b, f] = swap_bits::<L, 4>(lanes, b, f, 0x0F);
    let [c, g] = swap_bits::<L, 4>(lanes, c, g, 0x0F);
    let [d, h] = swap_bits::<L, 4>(lanes, d, h, 0x0F);
    let [a, c] = swap_bits::<L, 2>(lanes, a, c, 0x33);
    let [b, d] = swap_bits::<L, 2>(lanes, b, d, 0x33);
    let [e, g] = swap_bits::<L, 2>(lanes, e, g, 0x33);
    let [f, h] = swap_bits::<L, 2>(lanes, f, h, 0x33);
    let [a, b] = swap_bits::<L, 1>(lanes, a, b, 0x55);
    let [c, d] = swap_bits::<L, 1>(lanes, c, d, 0x55);
    let [e, f] = swap_bits::<L, 1>(lanes, e, f, 0x55);
    let [g, h] = swap_bits::<L, 1>(lanes, g, h, 0x55);
    [a, b, c, d, e, f, g, h]
}

/// Exchanges the high parts of `D` bits in the upper vector and the low parts in the lower; `low`
/// has the bits of the low parts in a byte.
#[inline(always)]
fn swap_bits<L: Lanes, const D: u32>(
    lanes: L,
    upper: L::Vector,
    lower: L::Vector,
    low: u8,
) -> [L::Vector; 2] {
    let low = lanes.splat(Block::from_bytes([low; 16]));
    let different = lanes.and(lanes.xor(lanes.shr(upper, D), lower), low);
    [lanes.xor(upper, lanes.shl(different, D)), lanes.xor(lower, different)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prg::Prg;

    #[test]
    fn every_kernel_transposes() {
        for width in [0, 1, 2, 3, 4, 5, 8, 17] {
            let mut rows = vec![Block::ZERO; width * ROWS];
            Prg::new(Block::from(7)).fill(&mut rows);
            for kernel in AesKernel::available() {
                let mut columns = vec![Block::ZERO; width * ROWS];
                transpose_with(kernel, &rows, &mut columns);
                for (j, column) in columns.iter().enumerate() {
                    for i in 0..ROWS {
                        let expected = rows[i * width + j / 128].bit(j % 128);
                        assert_eq!(column.bit(i), expected, "{kernel}: row {i}, column {j}");
                    }
                }
            }
        }
    }
}
