//! Proofs that one secret integer is the logarithm of each of several squares modulo N (Shoup 2000,
//! 2.2), made non-interactive by a hash.

use encoding::{FieldReader, FieldWrite as _};
use handover::element::MalformedHandoverMessage;
use handover::scheme::HandoverField;
use keys::rsa::mgf1;
use num_bigint::{BigUint, Sign};
use random::wipe_stack;
use rsa_arithmetic::{RsaElement, RsaModulus, SecretInteger};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use crate::dealing::uniform;
use crate::key::{CHALLENGE_BITS, HIDING_BITS, ThresholdRsaKey, response_bits};
use crate::lagrange::{from_bytes, of_width};

const DOMAIN: &[u8] = b"sunder-threshold-rsa exponent proof v1\0";
const NONCE_DOMAIN: &[u8] = b"sunder-threshold-rsa exponent proof nonce v1\0";

/// The longest response in bytes.
const MAX_RESPONSE: usize = 2048;

/// A base and its power, both squares modulo N.
pub(crate) type SquarePower = (RsaElement, RsaElement);

/// A proof that its author knows s with P = Q^s for each of some pairs of squares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExponentProof {
    challenge: u128,
    /// The response, with the length that the bound on the secret determines.
    response: Vec<u8>,
}

impl ExponentProof {
    /// The proof, bound to `context`. It is a function of its arguments: its nonce is a hash of all
    /// that the challenge depends on and of the secret, so two challenges never have one nonce.
    pub(crate) fn new(
        key: &ThresholdRsaKey,
        secret: &SecretInteger,
        powers: &[SquarePower],
        context: &[u8],
    ) -> Self {
        let modulus = key.group().modulus();
        let statement = statement(modulus, powers, context);
        let drawn = secret.bits() + CHALLENGE_BITS + HIDING_BITS;
        let mut bytes = Zeroizing::new(vec![0; drawn.div_ceil(8) as usize]);
        mgf1(&[NONCE_DOMAIN, &secret.to_be_bytes(), &statement], &mut bytes);
        let bits = response_bits(secret.bits());
        let mut response = uniform(bits, drawn, &mut bytes);
        let commitments = powers.iter().map(|(base, _)| {
            if base == key.g_squared() {
                return key.power_of_g(&response).square();
            }
            // A base without an inverse reveals a factor of N.
            modulus.pow(base, &response).unwrap_or_else(|| modulus.one())
        });
        let challenge = challenge(&statement, commitments);
        response.add_product(secret, challenge);
        let proof = Self { challenge, response: response.to_be_bytes().to_vec() };
        wipe_stack();
        proof
    }

    /// Whether the proof is right for these pairs and this context, for a secret of at most `bits`
    /// bits.
    pub(crate) fn verify(
        &self,
        key: &ThresholdRsaKey,
        bits: u32,
        powers: &[SquarePower],
        context: &[u8],
    ) -> bool {
        let modulus = key.group().modulus();
        let bits = response_bits(bits);
        let response = from_bytes(bits, &self.response);
        let Some(response) = response else { return false };
        let limbs = response.magnitude().to_u64_digits();
        let challenge = BigUint::from(self.challenge).to_u64_digits();
        let commitments = powers.iter().map(|(base, power)| {
            let of_power = modulus.product_of_long_powers(&[(power, &challenge)]);
            if base == key.g_squared() {
                let of_base = key.power_of_g(&of_width(bits, &response)?).square();
                return Some(of_base.times(&of_power.inverse()?));
            }
            let of_base = modulus.product_of_long_powers(&[(base, &limbs)]);
            Some(if response.sign() == Sign::Minus {
                of_base.times(&of_power).inverse()?
            } else {
                of_base.times(&of_power.inverse()?)
            })
        });
        let Some(commitments) = commitments.collect::<Option<Vec<_>>>() else { return false };
        let statement = statement(modulus, powers, context);
        self::challenge(&statement, commitments.into_iter()) == self.challenge
    }
}

impl HandoverField for ExponentProof {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.challenge.to_be_bytes());
        out.put_counted(&self.response);
    }

    fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        let challenge = u128::from_be_bytes(reader.take()?);
        Ok(Self { challenge, response: reader.counted_up_to(MAX_RESPONSE)?.to_vec() })
    }
}

fn statement(modulus: &RsaModulus, powers: &[SquarePower], context: &[u8]) -> Vec<u8> {
    let mut statement = vec![u8::try_from(powers.len()).expect("there are one or two")];
    statement.put_counted(&modulus.to_be_bytes());
    for (base, power) in powers {
        statement.extend(base.to_be_bytes());
        statement.extend(power.to_be_bytes());
    }
    statement.extend(context);
    statement
}

fn challenge(statement: &[u8], commitments: impl Iterator<Item = RsaElement>) -> u128 {
    let mut hash = Sha256::new().chain_update(DOMAIN);
    for commitment in commitments {
        hash.update(commitment.to_be_bytes());
    }
    let digest = hash.chain_update(statement).finalize();
    u128::from_be_bytes(*digest.first_chunk().expect("half of a digest"))
}

#[cfg(test)]
mod tests {
    use handover::participant::GroupSize;
    use rsa_arithmetic::fixture::tiny_key;

    use super::*;

    #[test]
    fn a_proof_holds_for_its_squares_and_context_only() {
        let size = GroupSize::of_faulty(1).unwrap();
        let key = &ThresholdRsaKey::new(tiny_key().group().clone(), size).unwrap();
        let (modulus, g) = (key.group().modulus(), key.g_squared().clone());
        let base = g.pow(12345);
        for negative in [false, true] {
            let mut secret = SecretInteger::zero(300);
            let magnitude = SecretInteger::from_unsigned(296, &[0xab; 37]);
            if negative {
                secret.subtract(&magnitude);
            } else {
                secret.add(&magnitude);
            }
            let power = |base| (base, modulus.pow(base, &secret).unwrap());
            let powers = [power(&g), power(&base)].map(|(base, power)| (base.clone(), power));
            let proof = ExponentProof::new(key, &secret, &powers, b"context");
            assert!(proof.verify(key, 300, &powers, b"context"));
            assert!(!proof.verify(key, 300, &powers, b"another"));
            assert!(!proof.verify(key, 300, &powers[..1], b"context"));
            assert!(!proof.verify(key, 290, &powers, b"context"));
            let wrong = [powers[0].clone(), (base.clone(), powers[0].1.clone())];
            assert!(!proof.verify(key, 300, &wrong, b"context"));
            let forged = ExponentProof::new(key, &secret, &wrong, b"context");
            assert!(!forged.verify(key, 300, &wrong, b"context"), "another exponent");
            let mut bytes = Vec::new();
            proof.write(&mut bytes);
            assert_eq!(bytes.len(), 16 + 4 + SecretInteger::encoded_len(response_bits(300)));
            assert_eq!(ExponentProof::read(&mut FieldReader::new(&bytes)), Ok(proof));
            for i in 0..bytes.len() {
                let mut wrong = bytes.clone();
                wrong[i] ^= 1;
                let read = ExponentProof::read(&mut FieldReader::new(&wrong));
                assert!(!read.is_ok_and(|it| it.verify(key, 300, &powers, b"context")));
            }
        }
    }
}
