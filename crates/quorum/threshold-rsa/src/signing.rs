//! Signatures (Shoup 2000): f+1 servers each compute a power of the encoded message, and the
//! product of these, raised to public exponents, is the signature.

use std::collections::{BTreeMap, VecDeque};

use encoding::FieldReader;
use handover::element::MalformedHandoverMessage;
use handover::participant::{ParticipantId, ParticipantSet};
use handover::scheme::HandoverField as _;
use keys::rsa::{PUBLIC_EXPONENT, RsaEncoding};
use num_bigint::{BigInt, BigUint};
use random::wipe_stack;
use rsa_arithmetic::RsaElement;
use sha2::{Digest as _, Sha256};

use crate::key::ThresholdRsaKey;
use crate::lagrange::{basis, weights};
use crate::proof::{ExponentProof, SquarePower};
use crate::sharing::{ThresholdRsaShare, ThresholdRsaSharing, product_of_powers, public_power};

const NAME_DOMAIN: &[u8] = b"sunder-threshold-rsa answer v1\0";

const CONTEXT: &[u8] = b"sunder-threshold-rsa partial signature v1\0";

/// The encoded message x, which all servers raise to their shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedRsaMessage(RsaElement);

impl EncodedRsaMessage {
    /// The encoding of a message. `None` if the modulus is too short for it.
    pub fn new(key: &ThresholdRsaKey, encoding: &RsaEncoding, message: &[u8]) -> Option<Self> {
        let modulus = key.group().modulus();
        modulus.element(&encoding.encode(message, modulus.byte_len())?).map(Self)
    }
}

/// A server's part of a signature, `x_i` = x^(2 F(i, 0)), with the name of what it is a part of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialRsaSignature {
    /// [`answer_name`].
    name: [u8; 32],
    value: RsaElement,
    /// That `x_i` is right. Without it, whether the combined signature is right shows it.
    proof: Option<ExponentProof>,
}

impl PartialRsaSignature {
    /// The encoding: the name, a number of the length of N, and the proof, if there is one. Sign it
    /// with the server's identity key, so that a wrong part is evidence.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.name.to_vec();
        bytes.extend(self.value.to_be_bytes());
        if let Some(proof) = &self.proof {
            proof.write(&mut bytes);
        }
        bytes
    }

    /// Decodes a partial signature in the group with this sharing.
    ///
    /// # Errors
    /// If the bytes are not exactly a partial signature.
    pub fn from_bytes(
        sharing: &ThresholdRsaSharing,
        bytes: &[u8],
    ) -> Result<Self, MalformedHandoverMessage> {
        let modulus = sharing.key().group().modulus();
        let mut reader = FieldReader::new(bytes);
        let name = reader.take()?;
        let value = modulus.element(reader.bytes(modulus.byte_len())?);
        let value = value.ok_or(MalformedHandoverMessage("no number modulo N"))?;
        let proof = if reader.is_empty() { None } else { Some(ExponentProof::read(&mut reader)?) };
        reader.finish()?;
        Ok(Self { name, value, proof })
    }

    /// Whether it is named a part by this server of a signature of this x in the group with this
    /// sharing. Any other part says nothing about it.
    pub fn is_named(
        &self,
        sharing: &ThresholdRsaSharing,
        signer: ParticipantId,
        x: &EncodedRsaMessage,
    ) -> bool {
        self.name == answer_name(sharing, signer, x)
    }

    /// Whether it is the part that its name says, as its proof shows. Anyone can check this.
    pub fn is_proven(
        &self,
        sharing: &ThresholdRsaSharing,
        signer: ParticipantId,
        x: &EncodedRsaMessage,
    ) -> bool {
        self.is_named(sharing, signer, x) && self.has_right_proof(sharing, signer, x)
    }

    /// Whether this part, in an answer that the server has signed, proves the server faulty. One
    /// with a proof does so by itself, and needs no `proven` ones. One without a proof is compared
    /// with proven parts of f+1 servers. Anyone can check this.
    pub fn is_evidence(
        &self,
        sharing: &ThresholdRsaSharing,
        signer: ParticipantId,
        x: &EncodedRsaMessage,
        proven: &BTreeMap<ParticipantId, Self>,
    ) -> bool {
        if !self.is_named(sharing, signer, x) {
            return false;
        }
        if self.proof.is_some() {
            return !self.has_right_proof(sharing, signer, x);
        }
        let needed = sharing.size().signer_count();
        let right: Vec<_> = proven
            .iter()
            .filter(|(server, part)| part.is_proven(sharing, **server, x))
            .map(|(server, part)| (*server, &part.value))
            .take(needed)
            .collect();
        right.len() == needed && !is_determined(sharing, signer, &self.value, &right)
    }

    fn has_right_proof(
        &self,
        sharing: &ThresholdRsaSharing,
        signer: ParticipantId,
        x: &EncodedRsaMessage,
    ) -> bool {
        let bits = sharing.key().row_bits(sharing.size());
        let powers = powers(sharing, signer, x, &self.value);
        let (key, context) = (sharing.key(), context(&self.name));
        self.proof.as_ref().is_some_and(|proof| proof.verify(key, bits, &powers, &context))
    }
}

/// The statement that x^4 has the same logarithm to the base of the square of the value as the
/// verification share.
fn powers(
    sharing: &ThresholdRsaSharing,
    signer: ParticipantId,
    x: &EncodedRsaMessage,
    value: &RsaElement,
) -> [SquarePower; 2] {
    let g = sharing.key().g_squared().clone();
    let of_x = (x.0.square().square(), value.square());
    [(g, sharing.verification_share(signer).square()), of_x]
}

/// What a part belongs to: the key, the group and its epoch, the server, and x. Without it, the
/// signed part of another message or epoch would look like a wrong one.
fn answer_name(
    sharing: &ThresholdRsaSharing,
    signer: ParticipantId,
    x: &EncodedRsaMessage,
) -> [u8; 32] {
    Sha256::new()
        .chain_update(NAME_DOMAIN)
        .chain_update(sharing.digest())
        .chain_update([signer.number()])
        .chain_update(x.0.to_be_bytes())
        .finalize()
        .into()
}

fn context(name: &[u8; 32]) -> Vec<u8> {
    [CONTEXT, name].concat()
}

/// Whether a value is the one that f+1 right values determine: L times the exponents is compared,
/// and L has no common factor with the order of squares.
fn is_determined(
    sharing: &ThresholdRsaSharing,
    server: ParticipantId,
    value: &RsaElement,
    right: &[(ParticipantId, &RsaElement)],
) -> bool {
    let key = sharing.key();
    let servers: Vec<_> = right.iter().map(|(server, _)| *server).collect();
    let at = BigInt::from(server.number());
    let exponents: Vec<BigInt> = basis(key.scale(), &servers)
        .iter()
        .map(|polynomial| polynomial.iter().rev().fold(BigInt::ZERO, |sum, it| sum * &at + it))
        .collect();
    let terms = right.iter().zip(&exponents).map(|((_, it), by)| (*it, by)).collect();
    public_power(key, value, key.scale()).has_same_square(&product_of_powers(key, terms))
}

impl ThresholdRsaShare {
    /// The server's part of the signature, without a proof. Check first that the message may be
    /// signed. `None` if x has no inverse, which reveals a factor of N.
    pub fn sign(&self, x: &EncodedRsaMessage) -> Option<PartialRsaSignature> {
        let modulus = self.sharing().key().group().modulus();
        let value = modulus.pow(&x.0.square(), self.secret())?;
        wipe_stack();
        let name = answer_name(self.sharing(), self.server(), x);
        Some(PartialRsaSignature { name, value, proof: None })
    }

    /// The server's part of the signature, with a proof that it is right: two powers more.
    pub fn sign_with_proof(&self, x: &EncodedRsaMessage) -> Option<PartialRsaSignature> {
        let part = self.sign(x)?;
        let powers = powers(self.sharing(), self.server(), x, &part.value);
        let key = self.sharing().key();
        let proof = ExponentProof::new(key, self.secret(), &powers, &context(&part.name));
        Some(PartialRsaSignature { proof: Some(proof), ..part })
    }
}

/// The number that partial signatures of f+1 servers make, big-endian. It is the signature if all
/// are right.
fn combine(
    sharing: &ThresholdRsaSharing,
    x: &EncodedRsaMessage,
    partial: &[(ParticipantId, &RsaElement)],
) -> Vec<u8> {
    let key = sharing.key();
    let servers: Vec<_> = partial.iter().map(|(server, _)| *server).collect();
    let exponents: Vec<BigInt> =
        weights(key.scale(), &servers).into_iter().map(|weight| weight * 2).collect();
    let terms =
        partial.iter().zip(&exponents).map(|((_, value), exponent)| (*value, exponent)).collect();
    // y = x^(4 L M d), so y^e = x^(4 L M). With a 4 L M + b e = 1, (y^a x^b)^e = x.
    let y = product_of_powers(key, terms);
    let known = key.scale() * key.multiplier() * 4_u8;
    let e = BigUint::from(PUBLIC_EXPONENT);
    // By Fermat's theorem: e is prime, and no factor of L.
    let a = (&known % &e).modpow(&(&e - 2_u8), &e);
    let b = (&a * &known - 1_u8) / &e;
    let divisor = public_power(key, &x.0, &b).inverse();
    // An x without an inverse reveals a factor of N, and has no signature here.
    let divisor = divisor.unwrap_or_else(|| key.group().modulus().one());
    public_power(key, &y, &a).times(&divisor).to_be_bytes()
}

/// What a [`ThresholdRsaRequest`] wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ThresholdRsaOutput {
    /// Ask a server for its part of the signature.
    Ask {
        /// The server.
        to: ParticipantId,
        /// Whether with a proof.
        with_proof: bool,
    },
    /// A server has sent a wrong part. Its signed answer is evidence
    /// ([`PartialRsaSignature::is_evidence`]): by itself if it has a proof, otherwise together with
    /// right answers of f+1 servers that have proofs.
    Faulty {
        /// The server.
        signer: ParticipantId,
    },
    /// The signature.
    Signed(Vec<u8>),
}

/// A request for a signature. It asks f+1 servers for parts without proofs. If these do not make a
/// signature, it asks all servers for parts with proofs.
pub struct ThresholdRsaRequest {
    sharing: ThresholdRsaSharing,
    encoding: RsaEncoding,
    message: Vec<u8>,
    x: EncodedRsaMessage,
    /// The servers that were not asked yet, the next one first.
    unasked: VecDeque<ParticipantId>,
    quick: BTreeMap<ParticipantId, RsaElement>,
    proven: BTreeMap<ParticipantId, RsaElement>,
    wants_proofs: bool,
    is_signed: bool,
    faulty: ParticipantSet,
    outputs: VecDeque<ThresholdRsaOutput>,
}

impl ThresholdRsaRequest {
    /// A request to the servers of a group, which are asked in this order. `None` if the modulus is
    /// too short for the encoding.
    pub fn new(
        sharing: ThresholdRsaSharing,
        encoding: RsaEncoding,
        message: Vec<u8>,
        order: impl IntoIterator<Item = ParticipantId>,
    ) -> Option<Self> {
        let x = EncodedRsaMessage::new(sharing.key(), &encoding, &message)?;
        let size = sharing.size();
        let mut request = Self {
            unasked: order.into_iter().filter(|server| size.contains(*server)).collect(),
            sharing,
            encoding,
            message,
            x,
            quick: BTreeMap::new(),
            proven: BTreeMap::new(),
            wants_proofs: false,
            is_signed: false,
            faulty: ParticipantSet::default(),
            outputs: VecDeque::new(),
        };
        for _ in 0..size.signer_count() {
            request.ask_another();
        }
        Some(request)
    }

    /// x, for the servers that are asked.
    pub fn encoded(&self) -> &EncodedRsaMessage {
        &self.x
    }

    /// The servers that have sent wrong parts.
    pub fn faulty(&self) -> ParticipantSet {
        self.faulty
    }

    /// The next thing to do.
    pub fn poll_output(&mut self) -> Option<ThresholdRsaOutput> {
        self.outputs.pop_front()
    }

    /// Asks one more server: call it when a server that was asked is slow, refuses, or answers
    /// something else.
    pub fn ask_another(&mut self) {
        if let Some(to) = self.unasked.pop_front() {
            self.outputs.push_back(ThresholdRsaOutput::Ask { to, with_proof: self.wants_proofs });
        }
    }

    /// Takes an answer, which the server has signed. Repeated answers change nothing. An answer to
    /// another question, or one that cannot be read, changes nothing either: it is no evidence. A
    /// part without a proof changes nothing when it is too late. Returns whether the answer has
    /// changed something.
    pub fn handle_answer(&mut self, from: ParticipantId, answer: &[u8]) -> bool {
        if !self.sharing.size().contains(from) || self.faulty.contains(from) {
            return false;
        }
        let Ok(partial) = PartialRsaSignature::from_bytes(&self.sharing, answer) else {
            return false;
        };
        if !partial.is_named(&self.sharing, from, &self.x) {
            return false;
        }
        if partial.proof.is_none() {
            if self.wants_proofs || self.is_signed || self.quick.contains_key(&from) {
                return false;
            }
            self.quick.insert(from, partial.value);
            self.try_quick();
            return true;
        }
        if self.proven.contains_key(&from) {
            return false;
        }
        if partial.has_right_proof(&self.sharing, from, &self.x) {
            self.proven.insert(from, partial.value);
            self.try_proven();
        } else {
            self.accuse(from);
        }
        true
    }

    fn try_quick(&mut self) {
        if self.quick.len() < self.sharing.size().signer_count() {
            return;
        }
        if !self.try_sign(&self.quick.clone()) {
            self.wants_proofs = true;
            self.unasked.clear();
            for to in self.sharing.size().participants() {
                self.outputs.push_back(ThresholdRsaOutput::Ask { to, with_proof: true });
            }
        }
    }

    fn try_proven(&mut self) {
        let needed = self.sharing.size().signer_count();
        if self.proven.len() < needed {
            return;
        }
        if !self.is_signed {
            let proven = self.proven.clone();
            self.try_sign(&proven.into_iter().take(needed).collect());
        }
        let right: Vec<_> =
            self.proven.iter().take(needed).map(|(it, value)| (*it, value)).collect();
        let wrong = std::mem::take(&mut self.quick)
            .into_iter()
            .filter(|(server, value)| !is_determined(&self.sharing, *server, value, &right))
            .map(|(server, _)| server);
        for server in wrong.collect::<Vec<_>>() {
            if !self.faulty.contains(server) {
                self.accuse(server);
            }
        }
    }

    fn try_sign(&mut self, partial: &BTreeMap<ParticipantId, RsaElement>) -> bool {
        let partial: Vec<_> = partial.iter().map(|(server, value)| (*server, value)).collect();
        let signature = combine(&self.sharing, &self.x, &partial);
        let public = self.sharing.key().group().public();
        let is_right = public.verify_encoding(&self.encoding, &self.message, &signature);
        if is_right {
            self.is_signed = true;
            self.outputs.push_back(ThresholdRsaOutput::Signed(signature));
        }
        is_right
    }

    fn accuse(&mut self, signer: ParticipantId) {
        self.faulty.insert(signer);
        self.outputs.push_back(ThresholdRsaOutput::Faulty { signer });
    }
}
