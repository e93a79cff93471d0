//! Transposition of bit matrices with 128 rows, for oblivious transfer extension.

use zeroize::Zeroize as _;

use crate::aes::Kernel;
use crate::block::Block;
use crate::lanes::{Job, Lanes};

/// The rows of the matrix, and the bits of a block.
const ROWS: usize = 128;

/// How many square matrices are transposed at a time: a cache line of each row.
const SIDE_BY_SIDE: usize = 4;

/// Transposes a bit matrix of 128 rows and `n` columns: row `i` is the `n / 128` blocks from
/// `rows[i * n / 128]`, and bit `i` of `columns[j]` becomes bit `j` of row `i`, both from the least
/// significant. Matrices of a few thousand columns stay in the cache.
///
/// # Panics
/// When the slices differ in length, or the length `n` is not a multiple of 128.
pub fn transpose(rows: &[Block], columns: &mut [Block]) {
    transpose_with(Kernel::best(), rows, columns);
}

/// Is [`transpose`], with the instructions of one kernel.
///
/// # Panics
/// As [`transpose`].
pub fn transpose_with(kernel: Kernel, rows: &[Block], columns: &mut [Block]) {
    assert!(rows.len() == columns.len(), "as many blocks in as out");
    assert!(rows.len().is_multiple_of(ROWS), "a multiple of 128 columns");
    if !rows.is_empty() {
        kernel.run(Transpose { rows, columns });
    }
}

struct Transpose<'a> {
    rows: &'a [Block],
    columns: &'a mut [Block],
}

impl Job for Transpose<'_> {
    type Output = ();

    #[inline(always)]
    fn run<L: Lanes>(self, _: L) {
        let width = self.rows.len() / ROWS;
        let mut square = [[0; WORDS]; ROWS];
        for (part, columns) in self.columns.chunks_mut(ROWS * SIDE_BY_SIDE).enumerate() {
            let at = part * SIDE_BY_SIDE;
            if let Some(columns) = columns.first_chunk_mut() {
                let row = |row: usize| {
                    let blocks = self.rows[row * width + at..].first_chunk();
                    words(blocks.expect("as wide as the columns are many"))
                };
                transpose_squares(row, &mut square, columns);
            } else {
                let row = |row: usize| {
                    let mut blocks = [Block::ZERO; SIDE_BY_SIDE];
                    let rest = &self.rows[row * width + at..(row + 1) * width];
                    blocks[..rest.len()].copy_from_slice(rest);
                    words(&blocks)
                };
                let mut all = [Block::ZERO; ROWS * SIDE_BY_SIDE];
                transpose_squares(row, &mut square, &mut all);
                columns.copy_from_slice(&all[..columns.len()]);
                all.zeroize();
            }
        }
        // The bits may be secret.
        square.zeroize();
    }
}

/// A row of matrices side by side.
type Words = [u64; WORDS];

const WORDS: usize = 2 * SIDE_BY_SIDE;

/// Transposes matrices side by side: exchanges the upper right and the lower left quarter of each,
/// then of each quarter, and so on. Two sizes are exchanged in one pass over the rows.
#[inline(always)]
fn transpose_squares(
    row: impl Fn(usize) -> Words,
    square: &mut [Words; ROWS],
    columns: &mut [Block; ROWS * SIDE_BY_SIDE],
) {
    for i in 0..32 {
        let (a, c) = swap_words(row(i), row(i + 64));
        let (b, d) = swap_words(row(i + 32), row(i + 96));
        (square[i], square[i + 32]) = swap_bits::<32>(a, b, 0x0000_0000_FFFF_FFFF);
        (square[i + 64], square[i + 96]) = swap_bits::<32>(c, d, 0x0000_0000_FFFF_FFFF);
    }
    for rows in square.as_chunks_mut::<32>().0 {
        for i in 0..8 {
            let (a, c) = swap_bits::<16>(rows[i], rows[i + 16], 0x0000_FFFF_0000_FFFF);
            let (b, d) = swap_bits::<16>(rows[i + 8], rows[i + 24], 0x0000_FFFF_0000_FFFF);
            (rows[i], rows[i + 8]) = swap_bits::<8>(a, b, 0x00FF_00FF_00FF_00FF);
            (rows[i + 16], rows[i + 24]) = swap_bits::<8>(c, d, 0x00FF_00FF_00FF_00FF);
        }
    }
    for (part, rows) in square.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        for i in 0..2 {
            let (a, c) = swap_bits::<4>(rows[i], rows[i + 4], 0x0F0F_0F0F_0F0F_0F0F);
            let (b, d) = swap_bits::<4>(rows[i + 2], rows[i + 6], 0x0F0F_0F0F_0F0F_0F0F);
            (rows[i], rows[i + 2]) = swap_bits::<2>(a, b, 0x3333_3333_3333_3333);
            (rows[i + 4], rows[i + 6]) = swap_bits::<2>(c, d, 0x3333_3333_3333_3333);
        }
        for i in [0, 2, 4, 6] {
            let (a, b) = swap_bits::<1>(rows[i], rows[i + 1], 0x5555_5555_5555_5555);
            for side in 0..SIDE_BY_SIDE {
                let column = &mut columns[side * ROWS + part * 8 + i..];
                column[0] = block(a[2 * side], a[2 * side + 1]);
                column[1] = block(b[2 * side], b[2 * side + 1]);
            }
        }
    }
}

#[inline(always)]
fn words(blocks: &[Block; SIDE_BY_SIDE]) -> Words {
    let (words, _) = Block::bytes_of(blocks).as_chunks::<8>();
    std::array::from_fn(|i| u64::from_le_bytes(words[i]))
}

#[inline(always)]
fn block(low: u64, high: u64) -> Block {
    Block::from(u128::from(high) << 64 | u128::from(low))
}

/// Exchanges the high words of the upper row and the low words of the lower row.
#[inline(always)]
fn swap_words(upper: Words, lower: Words) -> (Words, Words) {
    let low = std::array::from_fn(|i| if i % 2 == 0 { upper[i] } else { lower[i - 1] });
    let high = std::array::from_fn(|i| if i % 2 == 0 { upper[i + 1] } else { lower[i] });
    (low, high)
}

/// Does the same with parts of `D` bits; `low` has the bits of the low parts.
#[inline(always)]
fn swap_bits<const D: usize>(upper: Words, lower: Words, low: u64) -> (Words, Words) {
    let different: Words = std::array::from_fn(|i| (upper[i] >> D ^ lower[i]) & low);
    let upper = std::array::from_fn(|i| upper[i] ^ different[i] << D);
    let lower = std::array::from_fn(|i| lower[i] ^ different[i]);
    (upper, lower)
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
            for kernel in Kernel::available() {
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
