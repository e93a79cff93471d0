//! FROST(Ed25519, SHA-512) of RFC 9591: nonces, a session of f+1 signers, signature shares.

use std::collections::BTreeMap;

use bytes::Bytes;
use curve25519_dalek::EdwardsPoint;
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::VartimeMultiscalarMul as _;
use encoding::{FieldReader, FieldWrite as _};
use random::wipe_stack;
use zeroize::{Zeroize as _, Zeroizing};

use crate::sharing::{SharingCommitment, lagrange_at_zero};
use ::handover::element::{
    MalformedHandoverMessage, PrimeOrderPoint, half_sha512, hash_to_scalar, read_scalar, sha512,
};
use ::handover::participant::{GroupSize, ParticipantId};

/// The largest message to sign, in bytes.
pub const MAX_MESSAGE_LEN: usize = 1 << 20;

/// The context string (6.1).
const CONTEXT: &[u8] = b"FROST-ED25519-SHA512-v1";

/// A signer's commitments to its two nonces (5.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NonceCommitments {
    hiding: PrimeOrderPoint,
    binding: PrimeOrderPoint,
}

impl NonceCommitments {
    /// The encoding: the hiding commitment, then the binding one.
    pub fn to_bytes(&self) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..32].copy_from_slice(&self.hiding.to_bytes());
        bytes[32..].copy_from_slice(&self.binding.to_bytes());
        bytes
    }

    /// Decodes commitments.
    ///
    /// # Errors
    /// If the bytes are not two points of prime order.
    pub fn from_bytes(bytes: &[u8; 64]) -> Result<Self, MalformedHandoverMessage> {
        Self::read(&mut FieldReader::new(bytes))
    }

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        Ok(Self { hiding: PrimeOrderPoint::read(reader)?, binding: PrimeOrderPoint::read(reader)? })
    }
}

/// Two nonces of a signer. Signing consumes them, they have no encoding, and they cannot be copied.
pub(crate) struct SigningNonces {
    hiding: Scalar,
    binding: Scalar,
}

impl Drop for SigningNonces {
    fn drop(&mut self) {
        self.hiding.zeroize();
        self.binding.zeroize();
    }
}

impl SigningNonces {
    /// Nonces from 64 fresh random bytes (4.1). They also depend on the share, so that an attacker
    /// who predicts the random bytes does not know them.
    pub(crate) fn new(share: &Scalar, randomness: &[u8; 64]) -> Self {
        let share = Zeroizing::new(share.to_bytes());
        let nonce = |random| hash_to_scalar(&[CONTEXT, b"nonce", random, &*share]);
        let nonces = Self { hiding: nonce(&randomness[..32]), binding: nonce(&randomness[32..]) };
        wipe_stack();
        nonces
    }

    pub(crate) fn commitments(&self) -> NonceCommitments {
        let hiding = PrimeOrderPoint::base(&self.hiding);
        let binding = PrimeOrderPoint::base(&self.binding);
        wipe_stack();
        NonceCommitments { hiding, binding }
    }
}

/// One attempt of f+1 signers to sign a message: what a coordinator sends to each of them (5.2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningSession {
    message: Bytes,
    signers: BTreeMap<ParticipantId, NonceCommitments>,
}

/// A session as a coordinator sends it. The points of its commitments are not decoded yet, because
/// that is costly: a signer first checks that it may answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedSession {
    message: Bytes,
    signers: BTreeMap<ParticipantId, [u8; 64]>,
}

/// A signer's share of a signature (5.2). Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignatureShare(Scalar);

impl SignatureShare {
    /// The encoding.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0.to_bytes()
    }

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedHandoverMessage> {
        read_scalar(reader).map(Self)
    }
}

impl EncodedSession {
    /// Reads a session without decoding its points. Its message is a part of `bytes`, not a copy.
    ///
    /// # Errors
    /// If the bytes have another form, or the signers are not in the order of their numbers.
    pub fn parse(bytes: &Bytes) -> Result<Self, MalformedHandoverMessage> {
        let mut reader = FieldReader::new(bytes);
        let mut signers = BTreeMap::new();
        for _ in 0..reader.u8()? {
            let signer = ParticipantId::read(&mut reader)?;
            if signers.last_key_value().is_some_and(|(last, _)| *last >= signer) {
                return Err(MalformedHandoverMessage("signers are not in order"));
            }
            signers.insert(signer, reader.take()?);
        }
        let message = bytes.slice_ref(reader.counted_up_to(MAX_MESSAGE_LEN)?);
        reader.finish()?;
        Ok(Self { message, signers })
    }

    /// The encoding: the number of signers, each with its commitments, and the message.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![self.signers.keys().fold(0, |count, _| count + 1)];
        for (signer, commitments) in &self.signers {
            bytes.push(signer.number());
            bytes.extend(commitments);
        }
        bytes.put_counted(&self.message);
        bytes
    }

    /// The message to sign. A signer checks that it may sign it.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Whether the session has exactly f+1 signers, all of this group.
    pub fn fits(&self, size: GroupSize) -> bool {
        self.signers.len() == size.signer_count()
            && self.signers.keys().all(|signer| size.contains(*signer))
    }

    /// The commitments of a signer, encoded.
    pub(crate) fn commitments(&self, signer: ParticipantId) -> Option<&[u8; 64]> {
        self.signers.get(&signer)
    }

    /// Decodes the points of the commitments.
    ///
    /// # Errors
    /// If the commitments of a signer are not two points of prime order.
    pub fn decode(&self) -> Result<SigningSession, MalformedHandoverMessage> {
        let decode = |(signer, bytes): (&ParticipantId, &[u8; 64])| {
            NonceCommitments::from_bytes(bytes).map(|commitments| (*signer, commitments))
        };
        let signers = self.signers.iter().map(decode).collect::<Result<_, _>>()?;
        Ok(SigningSession { message: self.message.clone(), signers })
    }
}

impl SigningSession {
    /// A session for a message.
    pub(crate) fn new(
        message: impl Into<Bytes>,
        signers: BTreeMap<ParticipantId, NonceCommitments>,
    ) -> Self {
        Self { message: message.into(), signers }
    }

    /// The message to sign. A signer checks that it may sign it.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// The commitments of the session's signers.
    pub fn signers(&self) -> &BTreeMap<ParticipantId, NonceCommitments> {
        &self.signers
    }

    /// Whether the session has exactly f+1 signers, all of this group.
    pub fn fits(&self, size: GroupSize) -> bool {
        self.encoded().fits(size)
    }

    /// The session as a coordinator sends it.
    pub fn encoded(&self) -> EncodedSession {
        let signers = self.signers.iter().map(|(signer, it)| (*signer, it.to_bytes())).collect();
        EncodedSession { message: self.message.clone(), signers }
    }

    /// A digest that binds an answer to the session, the group and the epoch.
    pub fn digest(&self, sharing: &SharingCommitment) -> [u8; 32] {
        let parts: [&[u8]; 3] =
            [b"sunder-schnorr session v1\0", &sharing.digest(), &self.to_bytes()];
        half_sha512(&parts)
    }

    /// The encoding ([`EncodedSession::to_bytes`]).
    pub fn to_bytes(&self) -> Vec<u8> {
        self.encoded().to_bytes()
    }

    /// Decodes a session.
    ///
    /// # Errors
    /// If the bytes are not exactly a session, with its signers in the order of their numbers.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, MalformedHandoverMessage> {
        EncodedSession::parse(&Bytes::copy_from_slice(bytes))?.decode()
    }

    /// The binding factor of each signer, in their order (4.4).
    fn binding_factors(&self, key: &PrimeOrderPoint) -> BTreeMap<ParticipantId, Scalar> {
        let mut list = Vec::new();
        for (signer, commitments) in &self.signers {
            list.extend(signer.scalar().as_bytes());
            list.extend(commitments.to_bytes());
        }
        let message = sha512(&[CONTEXT, b"msg", &self.message]);
        let list = sha512(&[CONTEXT, b"com", &list]);
        let factor = |signer: ParticipantId| {
            let (key, signer) = (key.to_bytes(), signer.scalar().to_bytes());
            hash_to_scalar(&[CONTEXT, b"rho", &key, &*message, &*list, &signer])
        };
        self.signers.keys().map(|signer| (*signer, factor(*signer))).collect()
    }

    /// The values that signing, verification and aggregation share.
    pub(crate) fn values(&self, key: &PrimeOrderPoint) -> SessionValues {
        let factors = self.binding_factors(key);
        let hiding: EdwardsPoint = self.signers.values().map(|it| it.hiding.point()).sum();
        let binding = self.signers.values().map(|it| it.binding.point());
        let bound = EdwardsPoint::vartime_multiscalar_mul(factors.values(), binding);
        let commitment = PrimeOrderPoint::new(hiding + bound);
        let challenge = hash_to_scalar(&[&commitment.to_bytes(), &key.to_bytes(), &self.message]);
        SessionValues { factors, commitment, challenge }
    }

    /// The signature share of a signer (5.2). `values` are those of this session, which has the
    /// signer with the commitments of these nonces.
    pub(crate) fn sign(
        &self,
        values: &SessionValues,
        signer: ParticipantId,
        share: &Scalar,
        nonces: SigningNonces,
    ) -> SignatureShare {
        let lambda = lagrange_at_zero(signer, self.signers.keys().copied());
        let nonce = nonces.hiding + nonces.binding * values.factors[&signer];
        let share = SignatureShare(nonce + lambda * share * values.challenge);
        drop(nonces);
        wipe_stack();
        share
    }

    /// Whether a signature share is right (5.4).
    pub(crate) fn verify_share(
        &self,
        values: &SessionValues,
        sharing: &SharingCommitment,
        signer: ParticipantId,
        share: SignatureShare,
    ) -> bool {
        let Some(commitments) = self.signers.get(&signer) else { return false };
        let lambda = lagrange_at_zero(signer, self.signers.keys().copied());
        let nonce =
            commitments.hiding.point() + values.factors[&signer] * commitments.binding.point();
        let verification = sharing.verification_share(signer);
        EdwardsPoint::mul_base(&share.0) == nonce + values.challenge * lambda * verification.point()
    }
}

/// What follows from a session and the public key.
pub(crate) struct SessionValues {
    factors: BTreeMap<ParticipantId, Scalar>,
    /// R, the group commitment (4.5).
    commitment: PrimeOrderPoint,
    challenge: Scalar,
}

impl SessionValues {
    /// The Ed25519 signature that right shares of all signers give (5.3).
    pub(crate) fn aggregate(&self, shares: impl Iterator<Item = SignatureShare>) -> [u8; 64] {
        let sum: Scalar = shares.map(|share| share.0).sum();
        let mut signature = [0; 64];
        signature[..32].copy_from_slice(&self.commitment.to_bytes());
        signature[32..].copy_from_slice(sum.as_bytes());
        signature
    }
}

#[cfg(test)]
mod tests {
    use std::array;

    use super::*;

    fn hex<const N: usize>(digits: &str) -> [u8; N] {
        let mut bytes = [0; N];
        base16ct::lower::decode(digits, &mut bytes).unwrap();
        bytes
    }

    fn scalar(digits: &str) -> Scalar {
        Scalar::from_canonical_bytes(hex(digits)).unwrap()
    }

    /// RFC 9591, E.1: of signers 1 and 3, the share, the randomness of the nonces, the nonces, the
    /// commitments, the binding factor and the signature share.
    const SIGNERS: [[&str; 9]; 2] = [
        [
            "929dcc590407aae7d388761cddb0c0db6f5627aea8e217f4a033f2ec83d93509",
            "06894e04ee4aceec8619d5f6a0a180e2f47194d2ac306cba586b555e7c48d765",
            "40d6f879ff22e22409f7d808fed81f37118e7d3e4af71c0f44c60207553bcbce",
            "ef6599dea4010581a72b3018c37c29a4341d7cab0773e8687ca74dcf14009701",
            "2baadfa0c69aa60d517ad4751de372a73f9d89cfc39026601f18458cdec12605",
            "9b116f12589591a7e23fe8048059ab10ab48e67739e7a2fb3890f61a7999478c",
            "c39b66b7dfccb122da24f13587f9a08c4347cae70046ca15169adf90ba65854d",
            "ff960a65374e216a0918729b153466016664fa980d409bc3f308daa7acb30d0d",
            "60997f0142e43e8005027fe5ab7447dac00d22c2d7ddd9571a02613ba7d81c08",
        ],
        [
            "d3cb090a075eb154e82fdb4b3cb507f110040905468bb9c46da8bdea643a9a02",
            "fa5d950626782aade9e33fa781376d4888c2d1de7c37518bc248eb818ed0cdde",
            "7459a4d14ded0e365b085271be8dc6600d5b88f3978a2174297ffa32001a5afc",
            "80f8d9a4b8f9366e1a0b618107c907cd3ee29fa9bb40b4691cc1bde696240005",
            "2610b664a5a187b4855e87d2ff485bebdf043dc2f161fcd4854cd01dc0276404",
            "e679a2a971748ccfaabead4dbe8ac1def61275c186c79d471e1e45091ad1e687",
            "b2a942478453fabb6bd3181c56ba657413447b4136e1daea2484d396d1a516b3",
            "279d48ec56f16d234c09ea62f3d02ab776ee38e03f66b20f939f1316e13df10f",
            "79390e78bc59699c7af831f8f5fb478ec871a85f561a8641b5670ac4443f720f",
        ],
    ];
    const KEY: &str = "15d21ccd7ee42959562fc8aa63224c8851fb3ec85a3faf66040d380fb9738673";
    const SIGNATURE: &str = "154fb694ee7fcb37bf2381d94488c2a84b03b3352ad085feca81ad26d45852b7\
                             ecfe971ce4da95c4a95db93ac376b053897fca212ef85f99cf696bffeb178f07";

    /// The signers, their nonces, and the session that they have.
    fn session() -> ([ParticipantId; 2], [SigningNonces; 2], SigningSession) {
        let ids = [1, 3].map(|number| ParticipantId::new(number).unwrap());
        let nonces = SIGNERS.map(|it| {
            let mut randomness = [0; 64];
            randomness[..32].copy_from_slice(&hex::<32>(it[1]));
            randomness[32..].copy_from_slice(&hex::<32>(it[2]));
            SigningNonces::new(&scalar(it[0]), &randomness)
        });
        let signers = (0..2).map(|i| (ids[i], nonces[i].commitments())).collect();
        (ids, nonces, SigningSession::new(b"test".to_vec(), signers))
    }

    #[test]
    fn frost_gives_the_values_of_rfc_9591() {
        let (ids, nonces, session) = session();
        let key = PrimeOrderPoint::from_bytes(hex(KEY)).unwrap();
        let values = session.values(&key);
        let mut nonces = nonces.into_iter();
        let shares: [SignatureShare; 2] = array::from_fn(|i| {
            let vector = SIGNERS[i];
            let nonces = nonces.next().unwrap();
            assert_eq!(nonces.hiding, scalar(vector[3]));
            assert_eq!(nonces.binding, scalar(vector[4]));
            let commitments = nonces.commitments();
            assert_eq!(commitments.hiding.to_bytes(), hex::<32>(vector[5]));
            assert_eq!(commitments.binding.to_bytes(), hex::<32>(vector[6]));
            assert_eq!(values.factors[&ids[i]], scalar(vector[7]));
            let share = session.sign(&values, ids[i], &scalar(vector[0]), nonces);
            assert_eq!(share.to_bytes(), hex::<32>(vector[8]));
            share
        });
        let signature = values.aggregate(shares.into_iter());
        assert_eq!(signature[..], [&SIGNATURE[..64], &SIGNATURE[64..]].map(hex::<32>).concat());
        let key = ed25519_dalek::VerifyingKey::from_bytes(&hex(KEY)).unwrap();
        key.verify_strict(b"test", &signature.into()).unwrap();
    }

    #[test]
    fn a_session_is_read_as_written_and_its_signers_are_in_order() {
        let (_, _, session) = session();
        let bytes = session.to_bytes();
        assert_eq!(SigningSession::from_bytes(&bytes), Ok(session));
        for len in 0..bytes.len() {
            assert!(SigningSession::from_bytes(&bytes[..len]).is_err());
        }
        let (first, second) = (bytes[1..66].to_vec(), bytes[66..131].to_vec());
        for order in [[&second, &first], [&first, &first]] {
            let swapped = [&bytes[..1], order[0], order[1], &bytes[131..]].concat();
            assert!(SigningSession::from_bytes(&swapped).is_err());
        }
        assert!(SigningSession::from_bytes(&[&bytes[..], &[0]].concat()).is_err());
    }

    /// The attack that the binding factors and single use prevent: two answers with one nonce and
    /// known factors are two equations in the nonce and the share.
    #[test]
    fn a_nonce_used_twice_would_reveal_the_share() {
        let (ids, nonces, session) = session();
        let key = PrimeOrderPoint::from_bytes(hex(KEY)).unwrap();
        let copy = |nonces: &SigningNonces| SigningNonces { ..*nonces };
        let share = scalar(SIGNERS[0][0]);
        let lambda = lagrange_at_zero(ids[0], ids);
        // Three answers, as the two nonces and the share are three unknowns.
        let rows = [&b"a"[..], b"b", b"c"].map(|message| {
            let session = SigningSession { message: message.into(), ..session.clone() };
            let values = session.values(&key);
            let answer = session.sign(&values, ids[0], &share, copy(&nonces[0]));
            (values.factors[&ids[0]], lambda * values.challenge, answer.0)
        });
        // Differences remove the hiding nonce, and then the binding one.
        let [(r0, c0, z0), (r1, c1, z1), (r2, c2, z2)] = rows;
        let (r, c, z) = (r1 - r0, c1 - c0, z1 - z0);
        let (s, d, y) = (r2 - r0, c2 - c0, z2 - z0);
        let found = (z * s - y * r) * (c * s - d * r).invert();
        assert_eq!(found, share);
    }
}
