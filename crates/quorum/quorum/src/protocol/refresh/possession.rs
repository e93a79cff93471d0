//! Witnesses, and the proof that a new server has its shares, which precedes the erasure of old
//! shares.

use random::{RandomError, RandomGenerator};
use rsa_arithmetic::integer::SecretInteger;
use rsa_arithmetic::modulus::{RsaElement, RsaModulus};
use zeroize::Zeroizing;

use super::parameters::RefreshParameters;
use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};
use crate::protocol::wire::Sha256Digest;

/// The witnesses of an epoch, `w_u` = `g^{s_u`}, by label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareWitnesses {
    elements: Vec<RsaElement>,
    digest: Sha256Digest,
}

impl ShareWitnesses {
    /// Witnesses in the order of labels.
    pub fn new(elements: Vec<RsaElement>) -> Self {
        let bytes: Vec<u8> = elements.iter().flat_map(RsaElement::to_be_bytes).collect();
        Self { elements, digest: Self::digest_of(&bytes) }
    }

    /// Parses `count` witnesses.
    pub fn parse(bytes: &[u8], count: usize, modulus: &RsaModulus) -> Option<Self> {
        let elements = parse_elements(bytes, count, modulus)?;
        Some(Self { elements, digest: Self::digest_of(bytes) })
    }

    /// The witnesses, concatenated.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.elements.iter().flat_map(RsaElement::to_be_bytes).collect()
    }

    /// The digest that headers carry.
    pub fn digest(&self) -> Sha256Digest {
        self.digest
    }

    /// The digest of encoded witnesses.
    pub(crate) fn digest_of(bytes: &[u8]) -> Sha256Digest {
        Sha256Digest::of(&[b"SNDR-QUORUM-WITNESSES\0", bytes])
    }

    /// The witness of the share with a label.
    ///
    /// # Panics
    /// If there is no such label.
    pub fn witness(&self, label: Label) -> &RsaElement {
        &self.elements[usize::from(label.0)]
    }
}

/// Parses `count` concatenated elements.
pub(crate) fn parse_elements(
    bytes: &[u8],
    count: usize,
    modulus: &RsaModulus,
) -> Option<Vec<RsaElement>> {
    if bytes.len() != count * modulus.byte_len() {
        return None;
    }
    bytes.chunks_exact(modulus.byte_len()).map(|bytes| modulus.element(bytes)).collect()
}

/// Proves that a server has its shares (Schnorr 1989): g^S = prod `w_u^{r_u`}, where
/// S = sum `r_u` `s_u`.
/// `shares` are those of the server, by label.
pub(crate) fn prove<'a>(
    run: Sha256Digest,
    server: ServerIndex,
    witnesses: Sha256Digest,
    shares: impl IntoIterator<Item = (Label, &'a SecretInteger)>,
    parameters: &RefreshParameters,
    generator: &mut RandomGenerator,
) -> Result<Vec<u8>, RandomError> {
    let mut sum = SecretInteger::zero(parameters.combined_bits());
    for (label, share) in shares {
        sum.add_product(share, coefficient(run, server, witnesses, label));
    }
    // 256 bits longer than S, so that the response reveals less than 2^-128 about S.
    let bits = parameters.response_bits();
    let mut mask = Zeroizing::new(vec![0; (bits as usize - 1) / 8]);
    generator.fill(&mut mask)?;
    let mut response = SecretInteger::from_unsigned(bits, &mask);
    let commitment = parameters.power(&response).to_be_bytes();
    response.add_product(&sum, challenge(run, server, witnesses, &commitment));
    Ok([&commitment[..], &response.to_be_bytes()].concat())
}

/// Whether `proof` proves that a server has its shares.
pub(crate) fn verify(
    proof: &[u8],
    run: Sha256Digest,
    server: ServerIndex,
    witnesses: &ShareWitnesses,
    combination: &CombinatorialSharing,
    parameters: &RefreshParameters,
) -> bool {
    let Some((commitment, response)) = proof.split_at_checked(parameters.modulus.byte_len()) else {
        return false;
    };
    let parsed = SecretInteger::from_be_bytes(parameters.response_bits(), response);
    let Some(response) = parsed else { return false };
    let challenge = challenge(run, server, witnesses.digest, commitment);
    let Some(commitment) = parameters.modulus.element(commitment) else { return false };
    let terms: Vec<_> = combination
        .labels_of(server)
        .map(|label| (witnesses.witness(label), coefficient(run, server, witnesses.digest, label)))
        .collect();
    let combined = parameters.modulus.product_of_powers(&terms).pow(challenge);
    parameters.power(&response).has_same_square(&commitment.times(&combined))
}

/// `r_u`.
fn coefficient(
    run: Sha256Digest,
    server: ServerIndex,
    witnesses: Sha256Digest,
    label: Label,
) -> u128 {
    let parts: [&[u8]; 5] =
        [b"SNDR-QUORUM-COEFFICIENT\0", &run.0, &[server.0], &witnesses.0, &label.0.to_be_bytes()];
    number(Sha256Digest::of(&parts))
}

fn challenge(
    run: Sha256Digest,
    server: ServerIndex,
    witnesses: Sha256Digest,
    commitment: &[u8],
) -> u128 {
    let parts: [&[u8]; 5] =
        [b"SNDR-QUORUM-POSSESSION\0", &run.0, &[server.0], &witnesses.0, commitment];
    number(Sha256Digest::of(&parts))
}

fn number(digest: Sha256Digest) -> u128 {
    let (first, _) = digest.0.split_first_chunk().expect("a digest has 32 bytes");
    u128::from_be_bytes(*first)
}
