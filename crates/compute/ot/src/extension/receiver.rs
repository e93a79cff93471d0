//! The receiver of extended transfers.

use blocks::Block;
use blocks::hash::MiTccr;
use blocks::prg::Prg;
use zeroize::Zeroizing;

use crate::Error;
use crate::bits::bytes_of;
use crate::error::check_argument;
use crate::extension::check::{self, RowHash};
use crate::extension::matrix::OtBitMatrix;
use crate::extension::sender::{hash_of_session, session_of};
use crate::extension::{BASE_TRANSFERS, OtExtension, PIECE_TRANSFERS, SALT_LEN, tree};

/// The receiver of extended transfers.
pub struct OtExtensionReceiver {
    extension: OtExtension,
    /// The leaves of all trees, and the number of used blocks of their streams.
    leaves: Zeroizing<Vec<Block>>,
    blocks_used: u64,
    /// The masks that hide the choices in proofs.
    masks: Prg,
    hash: MiTccr,
    session: [u8; 32],
    pieces: u64,
    transfers: u64,
    matrix: OtBitMatrix,
}

impl OtExtensionReceiver {
    /// The receiver, and its set-up message for the sender. `keys` are those of the base transfers,
    /// in which it is the sender. The seed must be uniformly random, secret, and used once.
    pub fn new(
        extension: OtExtension,
        keys: &[[Block; 2]; BASE_TRANSFERS],
        seed: Block,
    ) -> (Self, Vec<u8>) {
        let mut masks = Prg::new(seed);
        let mut message = vec![0; SALT_LEN];
        masks.fill_bytes(&mut message);
        let count = extension.kind.trees() * extension.kind.leaves();
        let mut leaves = Zeroizing::new(Vec::with_capacity(count));
        for keys in keys.chunks_exact(extension.kind.bits()) {
            leaves.extend_from_slice(&tree::all_leaves(keys, &mut message));
        }
        if extension.commits() {
            for leaves in leaves.chunks_exact(extension.kind.leaves()) {
                message.extend(check::commit(leaves));
            }
        }
        let session = session_of(extension, &message);
        let hash = hash_of_session(&session);
        let matrix = OtBitMatrix::default();
        let receiver = Self {
            extension,
            leaves,
            blocks_used: check::VALUE_BLOCKS,
            masks,
            hash,
            session,
            pieces: 0,
            transfers: 0,
            matrix,
        };
        (receiver, message)
    }

    /// Makes `out.len()` correlated transfers with packed choices. Appends the message for the
    /// sender, [`OtExtension::message_len`] bytes, to `message`.
    ///
    /// # Errors
    /// If the number of choices, in whole bytes, is not that of the transfers.
    pub fn extend(
        &mut self,
        choices: &[u8],
        out: &mut [Block],
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        check_argument("bytes of choices", choices.len(), bytes_of(out.len()))?;
        message.reserve(self.extension.message_len(out.len()));
        for (choices, out) in
            choices.chunks(PIECE_TRANSFERS / 8).zip(out.chunks_mut(PIECE_TRANSFERS))
        {
            self.extend_piece(choices, out.len(), message);
            self.matrix.copy_columns(out);
        }
        self.transfers += out.len() as u64;
        Ok(())
    }

    /// Makes random transfers: like [`Self::extend`], but hashes the blocks. Each block is uniform,
    /// and the sender has one for each choice.
    ///
    /// # Errors
    /// As [`Self::extend`].
    pub fn random(
        &mut self,
        choices: &[u8],
        out: &mut [Block],
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let first = self.transfers;
        self.extend(choices, out, message)?;
        let (groups, _) = out.as_chunks_mut::<1>();
        self.hash.hash(first, groups);
        Ok(())
    }

    /// Leaves the columns of a piece in the matrix.
    fn extend_piece(&mut self, choices: &[u8], count: usize, message: &mut Vec<u8>) {
        let OtExtension { kind, .. } = self.extension;
        let width = self.extension.width(count);
        self.matrix.begin(kind, width, self.blocks_used);
        self.blocks_used += width as u64;
        let mut row = Zeroizing::new(vec![Block::ZERO; width]);
        Block::bytes_of_mut(&mut row)[..choices.len()].copy_from_slice(choices);
        if self.extension.is_checked() {
            row[width - 1] = self.masks.block();
        }
        let begin = message.len();
        for (tree, leaves) in self.leaves.chunks_exact(kind.leaves()).enumerate() {
            let sum = self.matrix.fold_all(kind, tree, leaves);
            let at = message.len();
            message.extend_from_slice(Block::bytes_of(&sum[..width]));
            let added = message[at..].iter_mut().zip(Block::bytes_of(&row));
            added.for_each(|(byte, choices)| *byte ^= choices);
        }
        if self.extension.is_checked() {
            let hash = RowHash::new(&self.session, self.pieces, &message[begin..]);
            message.extend(hash.hash(&row).to_bytes());
            for row in self.matrix.rows() {
                message.extend(hash.hash(&row[..width]).to_bytes());
            }
        }
        self.pieces += 1;
    }
}

#[cfg(test)]
mod tests;
