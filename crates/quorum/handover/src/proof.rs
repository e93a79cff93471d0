//! Proofs that one scalar is the logarithm of each of several points (Schnorr 1991; Chaum and
//! Pedersen 1992), made non-interactive by a hash (Fiat and Shamir 1986).

use curve25519_dalek::EdwardsPoint;
use curve25519_dalek::scalar::Scalar;
use encoding::FieldReader;
use random::wipe_stack;
use zeroize::Zeroizing;

use crate::element::{MalformedHandoverMessage, PrimeOrderPoint, hash_to_scalar, read_scalar};
use crate::scheme::HandoverField;

const DOMAIN: &[u8] = b"sunder-schnorr logarithm proof v1\0";
const NONCE_DOMAIN: &[u8] = b"sunder-schnorr logarithm proof nonce v1\0";

/// A base, and the point that is the base times the secret.
pub type Power = (PrimeOrderPoint, PrimeOrderPoint);

/// The statement that a point is the base point times a secret.
pub fn of_base(power: PrimeOrderPoint) -> Power {
    (PrimeOrderPoint::base(&Scalar::ONE), power)
}

/// A proof that its author knows x with P = x Q for each of some pairs of points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogarithmProof {
    challenge: Scalar,
    response: Scalar,
}

impl LogarithmProof {
    /// The proof, bound to `context`. It is a function of its arguments: its nonce is a hash of all
    /// that the challenge depends on and of the secret, so two challenges never have one nonce.
    pub fn new(secret: &Scalar, powers: &[Power], context: &[u8]) -> Self {
        let secret_bytes = Zeroizing::new(secret.to_bytes());
        let statement = statement(powers, context);
        let nonce = Zeroizing::new(hash_to_scalar(&[NONCE_DOMAIN, &*secret_bytes, &statement]));
        let commitments = powers.iter().map(|(base, _)| *nonce * base.point());
        let challenge = challenge(&statement, commitments);
        let proof = Self { challenge, response: *nonce + challenge * secret };
        wipe_stack();
        proof
    }

    /// Whether the proof is right for these pairs and this context.
    pub fn verify(&self, powers: &[Power], context: &[u8]) -> bool {
        let commitments = powers
            .iter()
            .map(|(base, power)| self.response * base.point() - self.challenge * power.point());
        challenge(&statement(powers, context), commitments) == self.challenge
    }
}

impl HandoverField for LogarithmProof {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.challenge.as_bytes());
        out.extend(self.response.as_bytes());
    }

    fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        Ok(Self { challenge: read_scalar(reader)?, response: read_scalar(reader)? })
    }
}

fn statement(powers: &[Power], context: &[u8]) -> Vec<u8> {
    let mut statement = vec![u8::try_from(powers.len()).expect("there are one or two")];
    for (base, power) in powers {
        statement.extend(base.to_bytes());
        statement.extend(power.to_bytes());
    }
    statement.extend(context);
    statement
}

fn challenge(statement: &[u8], commitments: impl Iterator<Item = EdwardsPoint>) -> Scalar {
    let commitments: Vec<u8> = commitments.flat_map(|it| it.compress().to_bytes()).collect();
    hash_to_scalar(&[DOMAIN, &commitments, statement])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_points_and_context_only() {
        let (x, y) = (Scalar::from(7_u8), Scalar::from(11_u8));
        let base = PrimeOrderPoint::base(&y);
        let (public, shared) = (PrimeOrderPoint::base(&x), PrimeOrderPoint::base(&(x * y)));
        let powers = [of_base(public), (base, shared)];
        let proof = LogarithmProof::new(&x, &powers, b"context");
        assert!(proof.verify(&powers, b"context"));
        assert!(!proof.verify(&powers, b"another"));
        assert!(!proof.verify(&powers[..1], b"context"));
        assert!(!proof.verify(&[of_base(public), (base, public)], b"context"));
        assert!(!LogarithmProof::new(&y, &powers, b"context").verify(&powers, b"context"));
        let mut bytes = Vec::new();
        proof.write(&mut bytes);
        assert_eq!(LogarithmProof::read(&mut FieldReader::new(&bytes)), Ok(proof));
        for i in 0..bytes.len() {
            let mut wrong = bytes.clone();
            wrong[i] ^= 1;
            let read = LogarithmProof::read(&mut FieldReader::new(&wrong));
            assert!(!read.is_ok_and(|it| it.verify(&powers, b"context")));
        }
    }
}
