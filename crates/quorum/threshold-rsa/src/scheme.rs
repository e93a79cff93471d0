//! The sharing of M d, as the agreement on handovers sees it.
//!
//! A dealer i draws a polynomial `G_i` whose constant `γ_i` is random, and publishes its
//! *correction* `ζ_i` = L `γ_i` - F(i, 0). The new polynomial is the sum of L `λ_i` `G_i` over the
//! chosen dealers, less the sum of `λ_i` `ζ_i`: its constant is F(0, 0) again, and no integer
//! becomes longer.

use encoding::{FieldReader, FieldWrite as _};
use handover::element::MalformedHandoverMessage;
use handover::participant::{GroupSize, ParticipantId};
use handover::scheme::{DealingFault, HandoverField, HandoverScheme, HandoverTerms};
use keys::rsa::mgf1;
use num_bigint::BigInt;
use num_integer::Integer as _;
use random::wipe_stack;
use rsa_arithmetic::SecretInteger;
use zeroize::Zeroizing;

use crate::dealing::uniform;
use crate::key::ThresholdRsaKey;
use crate::lagrange::{from_bytes, of_width, weights};
use crate::proof::{ExponentProof, SquarePower};
use crate::sharing::{
    IntegerCommitment, IntegerPolynomial, IntegerRow, IntegerRowRepair, ThresholdRsaShare,
    ThresholdRsaSharing, pairs, public_power,
};

const COEFFICIENT_DOMAIN: &[u8] = b"sunder-threshold-rsa coefficient v1\0";

/// The longest correction in bytes.
const MAX_CORRECTION: usize = 2048;

/// The sharing of an RSA key by a symmetric polynomial of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThresholdRsaScheme {}

/// The polynomial of a dealer, with its correction. Secret.
pub struct IntegerDealing {
    key: ThresholdRsaKey,
    pub(crate) polynomial: IntegerPolynomial,
    /// Public.
    pub(crate) correction: Vec<u8>,
}

/// The commitment to the polynomial of a dealer, and its correction. Only the encoding has been
/// checked: it depends on the key whether the bytes are numbers in their range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DealtIntegers {
    pub(crate) size: GroupSize,
    pub(crate) elements: Vec<u8>,
    pub(crate) correction: Vec<u8>,
    pub(crate) row_len: u16,
}

/// There is no proof: a dealer that has encrypted rows to correct receivers knows its polynomial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoConstantProof;

impl HandoverField for NoConstantProof {
    fn write(&self, _: &mut Vec<u8>) {}

    fn read(_: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        Ok(Self)
    }
}

impl HandoverField for DealtIntegers {
    fn write(&self, out: &mut Vec<u8>) {
        out.push(self.size.to_byte());
        out.put_counted(&self.elements);
        out.put_counted(&self.correction);
        out.put_u16(self.row_len);
    }

    fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        let size = GroupSize::of_faulty(reader.u8()?);
        let size = size.ok_or(MalformedHandoverMessage("no size of a group"))?;
        // Numbers of at most 4096 bits.
        let elements = reader.counted_up_to(512 * pairs(size).count())?.to_vec();
        let correction = reader.counted_up_to(MAX_CORRECTION)?.to_vec();
        Ok(Self { size, elements, correction, row_len: reader.u16()? })
    }
}

impl DealtIntegers {
    /// The commitment and the correction. `None` if a number is out of its range.
    fn parse(&self, old: &ThresholdRsaSharing) -> Option<(IntegerCommitment, BigInt)> {
        let key = old.key();
        let row_len = IntegerRow::encoded_len(self.size, key.dealt_row_bits(self.size));
        if usize::from(self.row_len) != row_len {
            return None;
        }
        let correction = from_bytes(key.correction_bits(old.size()), &self.correction)?;
        Some((IntegerCommitment::from_bytes(key, self.size, &self.elements)?, correction))
    }
}

/// The weights L `λ_i` of dealers, and the sum of `λ_i` `ζ_i`.
struct DealerWeights {
    weights: Vec<BigInt>,
    correction: BigInt,
}

impl DealerWeights {
    fn new(key: &ThresholdRsaKey, chosen: &[(ParticipantId, BigInt)]) -> Self {
        let dealers: Vec<_> = chosen.iter().map(|(dealer, _)| *dealer).collect();
        let weights = weights(key.scale(), &dealers);
        let sum = weights.iter().zip(chosen).map(|(weight, (_, correction))| weight * correction);
        // L divides the sum, unless dealers have broken the strong RSA assumption.
        let correction = sum.sum::<BigInt>().div_floor(&BigInt::from(key.scale().clone()));
        Self { weights, correction }
    }
}

fn possession(sharing: &ThresholdRsaSharing, server: ParticipantId) -> [SquarePower; 1] {
    [(sharing.key().g_squared().clone(), sharing.verification_share(server).square())]
}

impl HandoverScheme for ThresholdRsaScheme {
    type Sharing = ThresholdRsaSharing;
    type Commitment = DealtIntegers;
    type ConstantProof = NoConstantProof;
    type Polynomial = IntegerDealing;
    type Row = IntegerRow;
    type Value = Vec<u8>;
    type Repair = IntegerRowRepair;
    type Share = ThresholdRsaShare;
    type Possession = ExponentProof;

    fn size(sharing: &ThresholdRsaSharing) -> GroupSize {
        sharing.size()
    }

    fn polynomial(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        share: Option<&ThresholdRsaShare>,
        seed: &[u8; 32],
    ) -> Option<IntegerDealing> {
        let (old, share) = terms.old.as_ref().zip(share)?;
        let key = old.key();
        if share.sharing() != old || share.server() != dealer || !key.admits(terms.new) {
            return None;
        }
        let drawn = key.drawn_bits();
        let coefficients: Vec<_> = pairs(terms.new)
            .map(|(a, b)| {
                let term = [a, b].map(|it| u8::try_from(it).expect("f is at most 16"));
                let mut bytes = Zeroizing::new(vec![0; drawn.div_ceil(8) as usize]);
                mgf1(&[COEFFICIENT_DOMAIN, seed, &term], &mut bytes);
                uniform(drawn, drawn, &mut bytes)
            })
            .collect();
        let mut correction = SecretInteger::zero(key.correction_bits(old.size()));
        correction.add_multiple(&coefficients[0], &key.scale().to_u64_digits(), false);
        correction.subtract(share.secret());
        let correction = correction.to_be_bytes().to_vec();
        wipe_stack();
        let polynomial = IntegerPolynomial { size: terms.new, coefficients };
        Some(IntegerDealing { key: key.clone(), polynomial, correction })
    }

    fn commitment(
        _: &HandoverTerms<Self>,
        _: ParticipantId,
        dealing: &IntegerDealing,
    ) -> DealtIntegers {
        let IntegerDealing { key, polynomial, correction } = dealing;
        let size = polynomial.size;
        let row_len = IntegerRow::encoded_len(size, key.dealt_row_bits(size));
        DealtIntegers {
            size,
            elements: IntegerCommitment::new(size, polynomial.commit(key)).to_bytes(),
            correction: correction.clone(),
            row_len: u16::try_from(row_len).expect("a row has less than 64 KiB"),
        }
    }

    fn prove_constant(
        _: &HandoverTerms<Self>,
        _: ParticipantId,
        _: &IntegerDealing,
    ) -> NoConstantProof {
        NoConstantProof
    }

    fn check_commitment(
        terms: &HandoverTerms<Self>,
        dealer: ParticipantId,
        dealt: &DealtIntegers,
        _: &NoConstantProof,
    ) -> Result<(), DealingFault> {
        // A key is not generated without a dealer.
        let old = terms.old.as_ref().ok_or(DealingFault::Secret)?;
        if dealt.size != terms.new || !old.key().admits(terms.new) {
            return Err(DealingFault::Degree);
        }
        let (commitment, correction) = dealt.parse(old).ok_or(DealingFault::Range)?;
        // g^(L γ) = g^F(i,0) g^ζ
        let key = old.key();
        let correction = of_width(key.correction_bits(old.size()), &correction);
        let correction = correction.ok_or(DealingFault::Range)?;
        let expected = old.verification_share(dealer).times(&key.power_of_g(&correction));
        let constant = public_power(key, commitment.constant(), key.scale());
        if constant.has_same_square(&expected) { Ok(()) } else { Err(DealingFault::Secret) }
    }

    fn encode_dealt_row(
        dealing: &IntegerDealing,
        receiver: ParticipantId,
        extra: usize,
    ) -> Zeroizing<Vec<u8>> {
        let bits = dealing.key.dealt_row_bits(dealing.polynomial.size);
        dealing.polynomial.row(receiver, bits).to_bytes(extra)
    }

    fn dealt_row_len(dealt: &DealtIntegers) -> usize {
        dealt.row_len.into()
    }

    fn decode_dealt_row(
        terms: &HandoverTerms<Self>,
        dealt: &DealtIntegers,
        receiver: ParticipantId,
        bytes: &[u8],
    ) -> Option<IntegerRow> {
        let old = terms.old.as_ref()?;
        let key = old.key();
        let (commitment, _) = dealt.parse(old)?;
        let mut reader = FieldReader::new(bytes);
        let row = IntegerRow::read(&mut reader, terms.new, key.dealt_row_bits(terms.new)).ok()?;
        reader.finish().ok()?;
        let fits = commitment.fits_row(key, receiver, &row);
        fits.then(|| row.with_bits(key.held_row_bits(terms.new)))
    }

    /// The bound on rows that dealers send, also for rows that were repaired: it is what bounds the
    /// rows of other servers (Lemma 2).
    fn may_hold(terms: &HandoverTerms<Self>, row: &IntegerRow) -> bool {
        let old = terms.old.as_ref();
        old.is_some_and(|old| row.is_within(old.key().dealt_row_bits(terms.new)))
    }

    fn row_len(terms: &HandoverTerms<Self>) -> usize {
        let bits = terms.old.as_ref().map_or(0, |old| old.key().held_row_bits(terms.new));
        IntegerRow::encoded_len(terms.new, bits)
    }

    fn encode_row(row: &IntegerRow) -> Zeroizing<Vec<u8>> {
        row.to_bytes(0)
    }

    fn read_row(
        terms: &HandoverTerms<Self>,
        reader: &mut FieldReader<'_>,
    ) -> Result<IntegerRow, MalformedHandoverMessage> {
        let bits = terms.old.as_ref().map(|old| old.key().held_row_bits(terms.new));
        let bits = bits.ok_or(MalformedHandoverMessage("there is no old group"))?;
        IntegerRow::read(reader, terms.new, bits)
    }

    fn common_value(row: &IntegerRow, other: ParticipantId) -> Zeroizing<Vec<u8>> {
        row.at(other).to_be_bytes()
    }

    fn new_repair(server: ParticipantId) -> IntegerRowRepair {
        IntegerRowRepair::new(server)
    }

    fn repair(
        terms: &HandoverTerms<Self>,
        dealt: &DealtIntegers,
        repair: &mut IntegerRowRepair,
        from: ParticipantId,
        value: &Vec<u8>,
    ) -> Option<IntegerRow> {
        let old = terms.old.as_ref()?;
        let (commitment, _) = dealt.parse(old)?;
        let bits = old.key().held_row_bits(terms.new);
        repair.add(old.key(), &commitment, bits, from, value)
    }

    fn combine(
        terms: &HandoverTerms<Self>,
        chosen: &[(ParticipantId, &DealtIntegers)],
    ) -> ThresholdRsaSharing {
        let old = terms.old.as_ref().expect("a dealing without an old group is refused");
        let key = old.key();
        let (commitments, corrections): (Vec<_>, Vec<_>) = chosen
            .iter()
            .map(|(dealer, dealt)| {
                let (commitment, correction) = dealt.parse(old).expect("a dealing is checked");
                (commitment, (*dealer, correction))
            })
            .unzip();
        let sum = DealerWeights::new(key, &corrections);
        let parts: Vec<_> = sum.weights.iter().zip(&commitments).collect();
        let constant = key.constant().clone();
        let commitment = IntegerCommitment::combine(key, terms.new, &parts, constant);
        ThresholdRsaSharing::new(key.clone(), commitment)
    }

    fn combine_rows(
        terms: &HandoverTerms<Self>,
        server: ParticipantId,
        chosen: &[(ParticipantId, &DealtIntegers, &IntegerRow)],
        sharing: &ThresholdRsaSharing,
    ) -> Option<ThresholdRsaShare> {
        let old = terms.old.as_ref()?;
        let key = old.key();
        let corrections = chosen.iter().map(|(dealer, dealt, _)| {
            let correction = from_bytes(key.correction_bits(old.size()), &dealt.correction)?;
            Some((*dealer, correction))
        });
        let sum = DealerWeights::new(key, &corrections.collect::<Option<Vec<_>>>()?);
        let rows: Vec<_> =
            sum.weights.iter().zip(chosen).map(|(it, (.., row))| (it, *row)).collect();
        let bits = key.row_bits(terms.new);
        let correction = of_width(bits, &sum.correction)?;
        let row = IntegerRow::combine(terms.new, bits, &rows, &correction);
        ThresholdRsaShare::new(server, row, sharing.clone())
    }

    fn prove_possession(share: &ThresholdRsaShare, context: &[u8]) -> ExponentProof {
        let sharing = share.sharing();
        let powers = possession(sharing, share.server());
        ExponentProof::new(sharing.key(), share.secret(), &powers, context)
    }

    fn verify_possession(
        sharing: &ThresholdRsaSharing,
        server: ParticipantId,
        proof: &ExponentProof,
        context: &[u8],
    ) -> bool {
        let bits = sharing.key().row_bits(sharing.size());
        proof.verify(sharing.key(), bits, &possession(sharing, server), context)
    }
}
