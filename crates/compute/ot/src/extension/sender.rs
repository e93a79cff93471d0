//! The sender of extended transfers.

use blocks::Block;
use blocks::hash::MiTccr;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use zeroize::{Zeroize as _, Zeroizing};

use crate::Error;
use crate::error::check_len;
use crate::extension::check::{self, COMMITMENT_LEN, RowHash};
use crate::extension::matrix::OtBitMatrix;
use crate::extension::{BASE_TRANSFERS, OtExtension, PIECE_TRANSFERS, SALT_LEN, tree};

/// The sender of extended transfers.
pub struct OtExtensionSender {
    extension: OtExtension,
    offset: Block,
    /// The leaves of all trees, and the number of used blocks of their streams. The first leaf of
    /// each tree is not known.
    leaves: Zeroizing<Vec<Block>>,
    blocks_used: u64,
    hash: MiTccr,
    session: [u8; 32],
    pieces: u64,
    transfers: u64,
    has_ended: bool,
    matrix: OtBitMatrix,
}

impl OtExtensionSender {
    /// The sender, from the receiver's set-up message. `offset` must be uniformly random and
    /// secret. Its bits were this end's choices in the base transfers, in which it was the
    /// receiver, and `keys` are the chosen keys.
    ///
    /// # Errors
    /// If the message has not [`OtExtension::set_up_len`] bytes, or is inconsistent.
    pub fn new(
        extension: OtExtension,
        offset: Block,
        keys: &[Block; BASE_TRANSFERS],
        message: &[u8],
    ) -> Result<Self, Error> {
        check_len(message, extension.set_up_len())?;
        let kind = extension.kind;
        // Bits of the offset, as integers: unlike a `Choice`, they can be wiped.
        let choices: [u8; BASE_TRANSFERS] = std::array::from_fn(|i| u8::from(offset.bit(i)));
        let choices = Zeroizing::new(choices);
        let mut leaves = Zeroizing::new(Vec::with_capacity(kind.trees() * kind.leaves()));
        let corrections_len = tree::corrections_len(kind.bits());
        let (corrections, commitments) =
            message[SALT_LEN..].split_at(kind.trees() * corrections_len);
        let of_trees = keys.chunks_exact(kind.bits()).zip(choices.chunks_exact(kind.bits()));
        for (i, (keys, choices)) in of_trees.enumerate() {
            let corrections = &corrections[i * corrections_len..(i + 1) * corrections_len];
            leaves.extend_from_slice(&tree::known_leaves(keys, choices, corrections));
        }
        if extension.commits() {
            let mut consistent = Choice::from(1);
            let of_trees = leaves.chunks_exact(kind.leaves());
            let of_trees = of_trees.zip(choices.chunks_exact(kind.bits()));
            for ((leaves, choices), commitment) in
                of_trees.zip(commitments.chunks_exact(COMMITMENT_LEN))
            {
                consistent &= check::is_committed(leaves, choices, commitment);
            }
            if !bool::from(consistent) {
                return Err(Error::Inconsistent);
            }
        }
        let session = session_of(extension, message);
        let hash = hash_of_session(&session);
        let matrix = OtBitMatrix::default();
        Ok(Self {
            extension,
            offset,
            leaves,
            blocks_used: check::VALUE_BLOCKS,
            hash,
            session,
            pieces: 0,
            transfers: 0,
            has_ended: false,
            matrix,
        })
    }

    /// The offset.
    pub fn offset(&self) -> Block {
        self.offset
    }

    /// Makes `out.len()` correlated transfers, from the receiver's message.
    ///
    /// # Errors
    /// If the message has not [`OtExtension::message_len`] bytes, or is inconsistent, or an earlier
    /// one was.
    pub fn extend(&mut self, message: &[u8], out: &mut [Block]) -> Result<(), Error> {
        self.check(message, out.len())?;
        let pieces = message
            .chunks(self.extension.piece_len(PIECE_TRANSFERS))
            .zip(out.chunks_mut(PIECE_TRANSFERS));
        for (message, out) in pieces {
            self.extend_piece(message, out.len())?;
            self.matrix.copy_columns(out);
        }
        self.transfers += out.len() as u64;
        Ok(())
    }

    /// Makes `out.len()` random transfers: two uniform blocks for each, of which the receiver has
    /// the chosen one.
    ///
    /// # Errors
    /// As [`Self::extend`].
    pub fn random(&mut self, message: &[u8], out: &mut [[Block; 2]]) -> Result<(), Error> {
        self.check(message, out.len())?;
        let pieces = message
            .chunks(self.extension.piece_len(PIECE_TRANSFERS))
            .zip(out.chunks_mut(PIECE_TRANSFERS));
        for (message, out) in pieces {
            self.extend_piece(message, out.len())?;
            for (pair, column) in out.iter_mut().zip(self.matrix.columns()) {
                *pair = [*column, *column ^ self.offset];
            }
            self.hash.hash(self.transfers, out);
            self.transfers += out.len() as u64;
        }
        Ok(())
    }

    fn check(&self, message: &[u8], count: usize) -> Result<(), Error> {
        if self.has_ended {
            return Err(Error::Ended);
        }
        check_len(message, self.extension.message_len(count))
    }

    /// Leaves the columns of a piece in the matrix.
    fn extend_piece(&mut self, message: &[u8], count: usize) -> Result<(), Error> {
        let OtExtension { kind, .. } = self.extension;
        let width = self.extension.width(count);
        self.matrix.begin(kind, width, self.blocks_used);
        self.blocks_used += width as u64;
        let (sent_rows, proof) = message.split_at(self.extension.rows_len(count));
        let of_trees =
            self.leaves.chunks_exact(kind.leaves()).zip(sent_rows.chunks_exact(16 * width));
        for (tree, (leaves, sent)) in of_trees.enumerate() {
            self.matrix.fold_known(kind, tree, leaves, (sent, self.offset));
        }
        if self.extension.is_checked() {
            let hash = RowHash::new(&self.session, self.pieces, sent_rows);
            let (choices, proofs) = proof.split_at(16);
            let choices = to_block(choices);
            let mut consistent = Choice::from(1);
            let rows = self.matrix.rows().zip(proofs.chunks_exact(16));
            for (bit, (row, proof)) in rows.enumerate() {
                let mask = Block::mask(self.offset.bit(bit));
                consistent &= (hash.hash(&row[..width]) ^ (choices & mask)).ct_eq(&to_block(proof));
            }
            if !bool::from(consistent) {
                self.has_ended = true;
                return Err(Error::Inconsistent);
            }
        }
        self.pieces += 1;
        Ok(())
    }
}

impl Drop for OtExtensionSender {
    fn drop(&mut self) {
        self.offset.zeroize();
    }
}

fn to_block(bytes: &[u8]) -> Block {
    Block::from_bytes(*bytes.first_chunk::<16>().expect("16 bytes"))
}

/// The identifier of a session: a digest of the set-up that both ends know.
pub(super) fn session_of(extension: OtExtension, message: &[u8]) -> [u8; 32] {
    Sha256::new()
        .chain_update(b"sunder ot session")
        .chain_update((extension.kind.bits() as u64).to_be_bytes())
        .chain_update([u8::from(extension.is_checked())])
        .chain_update(message)
        .finalize()
        .into()
}

/// The hash of random transfers.
pub(super) fn hash_of_session(session: &[u8; 32]) -> MiTccr {
    MiTccr::new(to_block(&Sha256::new().chain_update(b"hash").chain_update(session).finalize()))
}
