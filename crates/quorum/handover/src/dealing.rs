//! A dealing: a dealer's sharing among the new group, with its commitment and an encrypted row for
//! each server.

use std::collections::BTreeMap;

use encoding::FieldReader;

use crate::element::{MalformedHandoverMessage, PrimeOrderPoint};
use crate::participant::{ParticipantId, ParticipantSet};
use crate::proof::{LogarithmProof, of_base};
use crate::scheme::{DealingFault, HandoverField, HandoverPurpose, HandoverScheme, HandoverTerms};
use crate::session_key::{TAG_LEN, open};

/// A dealing. Only its encoding has been checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverDealing<S: HandoverScheme> {
    /// The commitment to the dealer's polynomial.
    pub sharing: S::Commitment,
    /// E.
    pub ephemeral: PrimeOrderPoint,
    /// The proof that the dealer knows e.
    pub ephemeral_proof: LogarithmProof,
    /// The proof that the dealer knows the secret that it shares.
    pub constant_proof: S::ConstantProof,
    /// The rows of the receivers, encrypted.
    pub ciphertexts: BTreeMap<ParticipantId, Vec<u8>>,
}

impl<S: HandoverScheme> HandoverDealing<S> {
    /// The servers for which there is a ciphertext.
    pub fn receivers(&self) -> ParticipantSet {
        self.ciphertexts.keys().copied().collect()
    }

    /// Checks all that is public. Ciphertexts are checked by their receivers.
    ///
    /// # Errors
    /// Why the dealing proves its dealer faulty.
    pub fn check(
        &self,
        dealer: ParticipantId,
        terms: &HandoverTerms<S>,
    ) -> Result<(), DealingFault> {
        S::check_commitment(terms, dealer, &self.sharing, &self.constant_proof)?;
        let context = terms.context(HandoverPurpose::EphemeralKey, &[dealer]);
        if !self.ephemeral_proof.verify(&[of_base(self.ephemeral)], &context) {
            return Err(DealingFault::Knowledge);
        }
        let receivers = self.ciphertexts.keys().filter(|it| terms.new.contains(**it)).count();
        if receivers < terms.new.quorum() { Err(DealingFault::Receivers) } else { Ok(()) }
    }

    /// The row of a receiver, decrypted by K. `None` if the ciphertext does not decrypt to the row
    /// that the commitment says: then the dealer is faulty.
    pub fn open_row(
        &self,
        terms: &HandoverTerms<S>,
        dealer: ParticipantId,
        receiver: ParticipantId,
        agreed: &PrimeOrderPoint,
    ) -> Option<S::Row> {
        let context = terms.context(HandoverPurpose::Encryption, &[dealer, receiver]);
        let plaintext = open(agreed, &context, self.ciphertexts.get(&receiver)?)?;
        S::decode_dealt_row(terms, &self.sharing, receiver, &plaintext)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        self.sharing.write(out);
        out.extend(self.ephemeral.to_bytes());
        self.ephemeral_proof.write(out);
        self.constant_proof.write(out);
        self.receivers().write(out);
        for ciphertext in self.ciphertexts.values() {
            out.extend(ciphertext);
        }
    }

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        let sharing = S::Commitment::read(reader)?;
        let ephemeral = PrimeOrderPoint::read(reader)?;
        let ephemeral_proof = LogarithmProof::read(reader)?;
        let constant_proof = S::ConstantProof::read(reader)?;
        let len = S::dealt_row_len(&sharing) + TAG_LEN;
        let mut ciphertexts = BTreeMap::new();
        for receiver in ParticipantSet::read(reader)?.iter() {
            ciphertexts.insert(receiver, reader.bytes(len)?.to_vec());
        }
        Ok(Self { sharing, ephemeral, ephemeral_proof, constant_proof, ciphertexts })
    }
}
