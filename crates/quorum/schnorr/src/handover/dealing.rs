//! A dealing: a dealer's sharing among the new group, with its commitment and an encrypted row for
//! each server.

use std::collections::BTreeMap;

use encoding::FieldReader;

use super::session_key::{TAG_LEN, open};
use super::terms::{HandoverPurpose, HandoverTerms};
use crate::element::{MalformedSchnorrMessage, PrimeOrderPoint};
use crate::participant::{GroupSize, ParticipantId, ParticipantSet};
use crate::proof::{LogarithmProof, of_base};
use crate::sharing::{ShareRow, SharingCommitment};

/// A dealing. Only its encoding has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverDealing {
    pub(crate) sharing: SharingCommitment,
    /// E, and the proof that the dealer knows e.
    pub(crate) ephemeral: PrimeOrderPoint,
    pub(crate) ephemeral_proof: LogarithmProof,
    /// The proof that the dealer knows the secret that it shares.
    pub(crate) constant_proof: LogarithmProof,
    /// The rows of the receivers, encrypted.
    pub(crate) ciphertexts: BTreeMap<ParticipantId, Vec<u8>>,
}

/// Why a dealing proves its dealer faulty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DealingFault {
    /// The commitment is to a sharing of another degree than f'.
    #[error("the sharing has the wrong degree")]
    Degree,
    /// The dealer does not share its own share.
    #[error("the shared secret is not the dealer's share")]
    Secret,
    /// The dealer does not show that it knows the secret, or the ephemeral key.
    #[error("a proof of knowledge is wrong")]
    Knowledge,
    /// There are fewer than 2f'+1 receivers.
    #[error("the dealing has fewer than 2f+1 receivers")]
    Receivers,
}

fn ciphertext_len(size: GroupSize) -> usize {
    ShareRow::encoded_len(size) + TAG_LEN
}

impl HandoverDealing {
    /// The servers for which there is a ciphertext.
    pub(crate) fn receivers(&self) -> ParticipantSet {
        self.ciphertexts.keys().copied().collect()
    }

    /// Checks all that is public. Ciphertexts are checked by their receivers.
    pub(crate) fn check(
        &self,
        dealer: ParticipantId,
        terms: &HandoverTerms,
    ) -> Result<(), DealingFault> {
        if self.sharing.size() != terms.new {
            return Err(DealingFault::Degree);
        }
        let constant = *self.sharing.public_key();
        if terms.old.as_ref().is_some_and(|old| old.verification_share(dealer) != constant) {
            return Err(DealingFault::Secret);
        }
        let context = terms.context(HandoverPurpose::Constant, &[dealer]);
        let knows_secret = self.constant_proof.verify(&[of_base(constant)], &context);
        let context = terms.context(HandoverPurpose::EphemeralKey, &[dealer]);
        let ephemeral = [of_base(self.ephemeral)];
        if !knows_secret || !self.ephemeral_proof.verify(&ephemeral, &context) {
            return Err(DealingFault::Knowledge);
        }
        let receivers = self.ciphertexts.keys().filter(|it| terms.new.contains(**it)).count();
        if receivers < terms.new.quorum() { Err(DealingFault::Receivers) } else { Ok(()) }
    }

    /// The row of a receiver, decrypted by K. `None` if the ciphertext does not decrypt to the row
    /// that the commitment says: then the dealer is faulty.
    pub(crate) fn open_row(
        &self,
        terms: &HandoverTerms,
        dealer: ParticipantId,
        receiver: ParticipantId,
        agreed: &PrimeOrderPoint,
    ) -> Option<ShareRow> {
        let context = terms.context(HandoverPurpose::Encryption, &[dealer, receiver]);
        let plaintext = open(agreed, &context, self.ciphertexts.get(&receiver)?)?;
        let row = ShareRow::read(&mut FieldReader::new(&plaintext), terms.new).ok()?;
        self.sharing.fits_row(receiver, &row).then_some(row)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.sharing.to_bytes());
        out.extend(self.ephemeral.to_bytes());
        self.ephemeral_proof.write(out);
        self.constant_proof.write(out);
        self.receivers().write(out);
        for ciphertext in self.ciphertexts.values() {
            out.extend(ciphertext);
        }
    }

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedSchnorrMessage> {
        let sharing = SharingCommitment::read(reader)?;
        let ephemeral = PrimeOrderPoint::read(reader)?;
        let ephemeral_proof = LogarithmProof::read(reader)?;
        let constant_proof = LogarithmProof::read(reader)?;
        let len = ciphertext_len(sharing.size());
        let mut ciphertexts = BTreeMap::new();
        for receiver in ParticipantSet::read(reader)?.iter() {
            ciphertexts.insert(receiver, reader.bytes(len)?.to_vec());
        }
        Ok(Self { sharing, ephemeral, ephemeral_proof, constant_proof, ciphertexts })
    }
}
