//! Linear combinations of whole buffers, for codes of other crates.

use crate::kernels::WeightMatrix;
use crate::scheme::MAX_SHARES;

/// A matrix of public weights over GF(2^8) modulo 0x11B: a row for each output, a column for each
/// input.
///
/// ```
/// use sunder_sharing::{LinearCombination, field};
///
/// // The sum of two buffers, and one of them three times.
/// let combination = LinearCombination::new(&[vec![1, 1], vec![3, 0]]);
/// let (mut sum, mut product) = ([0; 2], [0; 2]);
/// combination.apply(&[[1, 2], [4, 9]], &mut [&mut sum, &mut product]);
/// assert_eq!(sum, [1 ^ 4, 2 ^ 9]);
/// assert_eq!(product, [3, field::multiply(3, 2)]);
/// ```
#[derive(Clone)]
pub struct LinearCombination(WeightMatrix);

impl LinearCombination {
    /// The largest number of rows, and of columns.
    pub const MAX: usize = MAX_SHARES;

    /// Creates a matrix from at most 255 rows of 1 to 255 weights each.
    ///
    /// # Panics
    /// If there are more rows, or none or more weights in one, or rows of different lengths.
    pub fn new(rows: &[Vec<u8>]) -> Self {
        let columns = rows.first().map_or(1, Vec::len);
        Self(WeightMatrix::new(columns, rows.iter().cloned()))
    }

    /// Computes `outputs[r][j] = sum_i weights[r][i] * inputs[i][j]` for all bytes `j`. The time
    /// does not depend on the bytes.
    ///
    /// # Panics
    /// If the number of inputs differs from that of columns, the number of outputs from that of
    /// rows, or buffers differ in length.
    pub fn apply<S: AsRef<[u8]>>(&self, inputs: &[S], outputs: &mut [&mut [u8]]) {
        let (first, rest) = inputs.split_first().expect("an input for each column");
        self.0.apply(first.as_ref(), rest, outputs);
    }
}
