//! The basis: `k` shares that are trusted, and the discrepancies of the others.

use zeroize::Zeroizing;

use super::decoder::ReedSolomonCode;
use crate::field::lagrange_rows;
use crate::kernels::WeightMatrix;
use crate::scheme::{SecretSharingScheme, SharingParameters};
use crate::split::secret_weights;

/// The number of bytes of each share that are processed at a time.
pub(super) const CHUNK: usize = 4096;

/// `k` shares that are trusted as long as the others do not contradict them. Shares are identified
/// by their indices in a list.
pub(super) struct ShareBasis {
    members: Vec<usize>,
    others: Vec<usize>,
    /// The weights of all shares' bytes in the secret's: zero for shares outside the basis.
    secret_weights: Vec<u8>,
    /// The weights from the basis to the secret (the first row) and to the other shares.
    weights: WeightMatrix,
    /// The weights from the other shares' discrepancies to the syndromes, once they are needed.
    syndrome_weights: Option<WeightMatrix>,
    /// The differences between the other shares and the values that follow from the basis:
    /// [`CHUNK`] bytes for each. While they are being computed, they contain shares.
    discrepancies: Zeroizing<Vec<u8>>,
    /// The syndromes of each byte: [`CHUNK`] bytes for each syndrome.
    syndromes: Vec<u8>,
}

impl ShareBasis {
    /// Creates a basis of these members, which must be in order.
    pub(super) fn new(sharing: SharingParameters, coordinates: &[u8], members: Vec<usize>) -> Self {
        let others: Vec<usize> = (0..coordinates.len()).filter(|i| !members.contains(i)).collect();
        let nodes: Vec<u8> = members.iter().map(|&i| coordinates[i]).collect();
        let targets: Vec<u8> = others.iter().map(|&i| coordinates[i]).collect();
        let first = secret_weights(sharing, &nodes);
        let mut secret_weights = vec![0; coordinates.len()];
        members.iter().zip(&first).for_each(|(&i, &weight)| secret_weights[i] = weight);
        debug_assert!(
            others.is_empty() || sharing.scheme() == SecretSharingScheme::Shamir,
            "xor needs all"
        );
        let rows = lagrange_rows(&nodes, &targets);
        let weights = WeightMatrix::new(nodes.len(), [first].into_iter().chain(rows));
        let discrepancies = Zeroizing::new(vec![0; others.len() * CHUNK]);
        let (syndrome_weights, syndromes) = (None, Vec::new());
        Self {
            members,
            others,
            secret_weights,
            weights,
            syndrome_weights,
            discrepancies,
            syndromes,
        }
    }

    /// The shares of the basis, in order.
    pub(super) fn trusted_shares(&self) -> &[usize] {
        &self.members
    }

    /// The weight of an error of share `i` in the secret.
    pub(super) fn secret_weight(&self, i: usize) -> u8 {
        self.secret_weights[i]
    }

    /// Computes from the basis the secret's bytes from `start` on, and the other shares'
    /// discrepancies. Returns whether there are no discrepancies.
    pub(super) fn interpolate(
        &mut self,
        shares: &[&[u8]],
        start: usize,
        secret: &mut [u8],
    ) -> bool {
        let len = secret.len();
        let part = |&i: &usize| &shares[i][start..start + len];
        let inputs: Vec<&[u8]> = self.members.iter().map(part).collect();
        let rows = self.discrepancies.chunks_exact_mut(CHUNK).map(|row| &mut row[..len]);
        let mut outputs: Vec<&mut [u8]> = [secret].into_iter().chain(rows).collect();
        self.weights.apply(inputs[0], &inputs[1..], &mut outputs);

        let mut agreed = true;
        for (row, share) in outputs[1..].iter_mut().zip(self.others.iter().map(part)) {
            row.iter_mut().zip(share).for_each(|(value, &found)| *value ^= found);
            agreed &= !has_nonzero(row);
        }
        agreed
    }

    /// The other shares, and the discrepancies of the first `len` bytes that were last
    /// interpolated.
    pub(super) fn discrepancies(&self, len: usize) -> impl Iterator<Item = (usize, &[u8])> {
        let rows = self.discrepancies.chunks_exact(CHUNK).map(move |row| &row[..len]);
        self.others.iter().copied().zip(rows)
    }

    /// The number of other shares that disagree, for each byte.
    pub(super) fn disagreeing(&self, len: usize) -> [u8; CHUNK] {
        let mut counts = [0; CHUNK];
        for (_, row) in self.discrepancies(len) {
            let counts = counts.iter_mut().zip(row);
            counts.for_each(|(count, &difference)| *count += u8::from(difference != 0));
        }
        counts
    }

    /// Computes the syndromes of the first `len` bytes that were last interpolated: row `j`
    /// contains the `S_j`.
    pub(super) fn syndromes(&mut self, code: &ReedSolomonCode, len: usize) -> Vec<&[u8]> {
        let weights = self.syndrome_weights.get_or_insert_with(|| {
            WeightMatrix::new(self.others.len(), code.syndrome_rows(&self.others))
        });
        self.syndromes.resize(self.others.len() * CHUNK, 0);
        let inputs: Vec<&[u8]> =
            self.discrepancies.chunks_exact(CHUNK).map(|row| &row[..len]).collect();
        let rows = self.syndromes.chunks_exact_mut(CHUNK).map(|row| &mut row[..len]);
        weights.apply(inputs[0], &inputs[1..], &mut rows.collect::<Vec<_>>());
        self.syndromes.chunks_exact(CHUNK).map(|row| &row[..len]).collect()
    }
}

/// Whether any byte is not zero.
pub(super) fn has_nonzero(bytes: &[u8]) -> bool {
    // Without an early exit, so that it can be vectorised.
    bytes.iter().fold(0, |sum, byte| sum | byte) != 0
}
