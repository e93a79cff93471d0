//! The sharing of an Ed25519 key, as the agreement on handovers sees it.

use curve25519_dalek::scalar::Scalar;
use encoding::FieldReader;
use handover::element::{MalformedHandoverMessage, PrimeOrderPoint, hash_to_scalar};
use handover::participant::{GroupSize, ParticipantId, ParticipantSet};
use handover::proof::{LogarithmProof, of_base};
use handover::scheme::{
    DealingFault, HandoverField, HandoverPurpose, HandoverScheme, HandoverTerms,
};
use zeroize::Zeroizing;

use crate::sharing::{
    KeyShare, RowRepair, ShareRow, SharingCommitment, SharingPolynomial, lagrange_at_zero,
};

/// The sharing of an Ed25519 key by a symmetric polynomial of scalars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchnorrScheme {}

impl HandoverField for SharingCommitment {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.to_bytes());
    }

    fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        Self::read_from(reader)
    }
}

/// The weights with which the dealings of these dealers are added.
pub(crate) fn weights(
    terms: &HandoverTerms<SchnorrScheme>,
    chosen: ParticipantSet,
) -> Vec<(ParticipantId, Scalar)> {
    let weight = |dealer| match terms.old {
        Some(_) => lagrange_at_zero(dealer, chosen.iter()),
        None => Scalar::ONE,
    };
    chosen.iter().map(|dealer| (dealer, weight(dealer))).collect()
}

impl HandoverScheme for SchnorrScheme {
    type Sharing = SharingCommitment;
    type Commitment = SharingCommitment;
    type ConstantProof = LogarithmProof;
    type Polynomial = SharingPolynomial;
    type Row = ShareRow;
    type Value = [u8; 32];
    type Repair = RowRepair;
    type Share = KeyShare;
    type Possession = LogarithmProof;

    fn size(sharing: &SharingCommitment) -> GroupSize {
        sharing.size()
    }

    fn polynomial(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        share: Option<&KeyShare>,
        seed: &[u8; 32],
    ) -> Option<SharingPolynomial> {
        let secret = match (&terms.old, share) {
            (Some(old), Some(share)) if share.sharing() == old && share.server() == dealer => {
                *share.secret()
            }
            (None, None) if terms.new.contains(dealer) => {
                hash_to_scalar(&[b"sunder-schnorr secret v1\0", seed])
            }
            _ => return None,
        };
        let secret = Zeroizing::new(secret);
        Some(SharingPolynomial::new(&secret, terms.new, seed))
    }

    fn commitment(
        _: &HandoverTerms<Self>,
        _: ParticipantId,
        polynomial: &SharingPolynomial,
    ) -> SharingCommitment {
        polynomial.commitment()
    }

    fn prove_constant(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        polynomial: &SharingPolynomial,
    ) -> LogarithmProof {
        let context = terms.context(HandoverPurpose::Constant, &[dealer]);
        let constant = [of_base(PrimeOrderPoint::base(polynomial.secret()))];
        LogarithmProof::new(polynomial.secret(), &constant, &context)
    }

    fn check_commitment(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        sharing: &SharingCommitment,
        proof: &LogarithmProof,
    ) -> Result<(), DealingFault> {
        if sharing.size() != terms.new {
            return Err(DealingFault::Degree);
        }
        let constant = *sharing.public_key();
        if terms.old.as_ref().is_some_and(|old| old.verification_share(dealer) != constant) {
            return Err(DealingFault::Secret);
        }
        let context = terms.context(HandoverPurpose::Constant, &[dealer]);
        let knows_secret = proof.verify(&[of_base(constant)], &context);
        if knows_secret { Ok(()) } else { Err(DealingFault::Knowledge) }
    }

    fn encode_dealt_row(
        polynomial: &SharingPolynomial,
        receiver: ParticipantId,
        extra: usize,
    ) -> Zeroizing<Vec<u8>> {
        polynomial.row(receiver).to_bytes(extra)
    }

    fn dealt_row_len(commitment: &SharingCommitment) -> usize {
        ShareRow::encoded_len(commitment.size())
    }

    fn decode_dealt_row(
        terms: &HandoverTerms<Self>,
        commitment: &SharingCommitment,
        receiver: ParticipantId,
        bytes: &[u8],
    ) -> Option<ShareRow> {
        let row = ShareRow::read(&mut FieldReader::new(bytes), terms.new).ok()?;
        commitment.fits_row(receiver, &row).then_some(row)
    }

    fn row_len(terms: &HandoverTerms<Self>) -> usize {
        ShareRow::encoded_len(terms.new)
    }

    fn encode_row(row: &ShareRow) -> Zeroizing<Vec<u8>> {
        row.to_bytes(0)
    }

    fn read_row(
        terms: &HandoverTerms<Self>,
        reader: &mut FieldReader<'_>,
    ) -> Result<ShareRow, MalformedHandoverMessage> {
        ShareRow::read(reader, terms.new)
    }

    fn common_value(row: &ShareRow, other: ParticipantId) -> Zeroizing<[u8; 32]> {
        Zeroizing::new(row.at(other).to_bytes())
    }

    fn new_repair(server: ParticipantId) -> RowRepair {
        RowRepair::new(server)
    }

    fn repair(
        _: &HandoverTerms<Self>,
        commitment: &SharingCommitment,
        repair: &mut RowRepair,
        from: ParticipantId,
        value: &[u8; 32],
    ) -> Option<ShareRow> {
        repair.handle_value(commitment, from, value)
    }

    /// The sum of the chosen sharings, each times its weight.
    fn combine(
        terms: &HandoverTerms<Self>,
        chosen: &[(ParticipantId, &SharingCommitment)],
    ) -> SharingCommitment {
        let weights = weights(terms, chosen.iter().map(|(dealer, _)| *dealer).collect());
        let parts = weights.iter().zip(chosen);
        let parts = parts.map(|((_, weight), (_, dealt))| (*weight, *dealt));
        SharingCommitment::combine(terms.new, &parts.collect::<Vec<_>>())
    }

    fn combine_rows(
        terms: &HandoverTerms<Self>,
        server: ParticipantId,
        chosen: &[(ParticipantId, &SharingCommitment, &ShareRow)],
        sharing: &SharingCommitment,
    ) -> Option<KeyShare> {
        let weights = weights(terms, chosen.iter().map(|(dealer, ..)| *dealer).collect());
        let rows = weights.iter().zip(chosen).map(|((_, weight), (.., row))| (*weight, *row));
        KeyShare::new(server, ShareRow::combine(terms.new, rows), sharing.clone())
    }

    fn prove_possession(share: &KeyShare, context: &[u8]) -> LogarithmProof {
        let statement = of_base(share.sharing().verification_share(share.server()));
        LogarithmProof::new(share.secret(), &[statement], context)
    }

    fn verify_possession(
        sharing: &SharingCommitment,
        server: ParticipantId,
        proof: &LogarithmProof,
        context: &[u8],
    ) -> bool {
        proof.verify(&[of_base(sharing.verification_share(server))], context)
    }
}
