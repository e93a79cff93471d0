//! The content of a dealing: one *row* for each label t, which is a sharing of `s_t` among the
//! labels u of the new group. The manifest names the rows by digests of their proofs.

use encoding::{FieldReader, FieldWrite as _};

use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};
use crate::protocol::refresh::session::SessionPoint;
use crate::protocol::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};

/// The largest number of dealings of one dealer in a run.
pub(crate) const MAX_ROUNDS: u8 = 16;

/// The number of a dealing of a dealer. The first covers the labels for which it is the designated
/// dealer (3.3.1). The others cover all labels that it holds and that have no chosen dealing, if
/// new servers need them. There are several if one dealing would exceed the length of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DealingRound(pub(crate) u8);

impl DealingRound {
    pub(crate) const DESIGNATED: Self = Self(0);

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let round = reader.u8()?;
        if round < MAX_ROUNDS {
            Ok(Self(round))
        } else {
            Err(MalformedEncoding("too many dealings"))
        }
    }
}

/// The public summary of a dealing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DealingManifest {
    pub(crate) run: Sha256Digest,
    pub(crate) dealer: ServerIndex,
    pub(crate) round: DealingRound,
    /// E, from which the keys of the ciphertexts are derived.
    pub(crate) ephemeral: SessionPoint,
    /// The labels in ascending order, with the digests of the rows' proofs.
    pub(crate) rows: Vec<(Label, Sha256Digest)>,
}

impl DealingManifest {
    /// The digest that identifies the dealing.
    pub(crate) fn digest(&self) -> Sha256Digest {
        let mut bytes = Vec::new();
        self.write(&mut bytes);
        Sha256Digest::of(&[b"SNDR-QUORUM-DEALING\0", &bytes])
    }

    pub(crate) fn labels(&self) -> impl Iterator<Item = Label> {
        self.rows.iter().map(|&(label, _)| label)
    }

    /// Whether the dealer may deal these labels.
    pub(crate) fn fits(&self, run: Sha256Digest, old: &CombinatorialSharing) -> bool {
        let mut labels = self.labels();
        self.run == run
            && !self.rows.is_empty()
            && labels.all(|label| old.holds(self.dealer, label))
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.run.0);
        out.push(self.dealer.0);
        out.push(self.round.0);
        out.extend(self.ephemeral.as_bytes());
        out.put_u16(u16::try_from(self.rows.len()).expect("there are at most 715 labels"));
        for (label, digest) in &self.rows {
            out.put_u16(label.0);
            out.extend(digest.0);
        }
    }

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let (run, dealer, round) =
            (reader.digest()?, reader.server()?, DealingRound::read(reader)?);
        let ephemeral = SessionPoint::read(reader)?;
        let mut rows = Vec::<(Label, Sha256Digest)>::new();
        for _ in 0..reader.u16()? {
            let row = (reader.label()?, reader.digest()?);
            if rows.last().is_some_and(|last| last.0 >= row.0) {
                return Err(MalformedEncoding("labels do not ascend"));
            }
            rows.push(row);
        }
        Ok(Self { run, dealer, round, ephemeral, rows })
    }

    /// The message that a new server signs to confirm a dealing: it has right proofs for all rows,
    /// and its own subshares match them.
    pub(crate) fn confirmation(digest: Sha256Digest) -> Vec<u8> {
        [&b"SNDR-QUORUM-CONFIRM\0"[..], &digest.0].concat()
    }

    /// The message that the dealer signs for the receiver of the ciphertexts with these digests,
    /// one for each row.
    pub(crate) fn delivery(
        digest: Sha256Digest,
        to: ServerIndex,
        ciphertexts: &[Sha256Digest],
    ) -> Vec<u8> {
        let mut message = b"SNDR-QUORUM-DELIVERY\0".to_vec();
        message.extend(digest.0);
        message.push(to.0);
        message.extend(ciphertexts.iter().flat_map(|digest| digest.0));
        message
    }

    /// The context of the key of the ciphertexts for a new server.
    pub(crate) fn session_context(digest: Sha256Digest, to: ServerIndex) -> Vec<u8> {
        [&b"SNDR-QUORUM-DELIVERY\0"[..], &digest.0, &[to.0]].concat()
    }
}

/// The digest of a row's proofs.
pub(crate) fn proofs_digest(proofs: &[u8]) -> Sha256Digest {
    Sha256Digest::of(&[b"SNDR-QUORUM-PROOFS\0", proofs])
}

/// The digest of a ciphertext.
pub(crate) fn ciphertext_digest(ciphertext: &[u8]) -> Sha256Digest {
    Sha256Digest::of(&[b"SNDR-QUORUM-CIPHERTEXT\0", ciphertext])
}

/// The label of the subshare that is the remainder, and not expanded from a seed.
pub(crate) const REMAINDER: Label = Label(0);
