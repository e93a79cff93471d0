//! A server's part of a signature by an RSA key that is shared by a polynomial, signed with its
//! identity key, and the evidence that it is wrong.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use encoding::{FieldReader, FieldWrite as _};
use keys::rsa::RsaEncoding;
use keys::{IdentityPublicKey, IdentitySecretKey, RsaPublicKey};
use threshold_rsa::{
    EncodedRsaMessage, PartialRsaSignature, ThresholdRsaShare, ThresholdRsaSharing,
};

use super::answer::{MAX_MESSAGE_LEN, read_encoding, write_encoding};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::GroupHeader;
use crate::protocol::key_sharing::KeySharing;

/// The prefix of the bytes that the signature of a part covers.
const DOMAIN: &[u8] = b"sunder-quorum part of a signature v1\0";

/// The length in bytes of a signature of an identity key.
const SIGNATURE_LEN: usize = 64;

/// A request to a server for its part of a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PartQuery {
    /// The epoch of the requester.
    pub(crate) epoch: u64,
    /// Whether with a proof that the part is right.
    pub(crate) with_proof: bool,
    /// How the message is encoded.
    pub(crate) encoding: RsaEncoding,
    /// The message, of at most [`MAX_MESSAGE_LEN`] bytes.
    pub(crate) message: Bytes,
}

impl PartQuery {
    /// The request as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.epoch.to_be_bytes().to_vec();
        bytes.push(u8::from(self.with_proof));
        write_encoding(&self.encoding, &mut bytes);
        bytes.extend_from_slice(&self.message);
        bytes
    }

    /// Decodes the output of [`Self::to_bytes`]. `None` if it is not a valid request in this epoch.
    pub(crate) fn parse(epoch: u64, bytes: &[u8]) -> Option<Self> {
        let (of_epoch, rest) = bytes.split_first_chunk()?;
        let (with_proof, rest) = match rest.split_first()? {
            (0, rest) => (false, rest),
            (1, rest) => (true, rest),
            _ => return None,
        };
        let (encoding, message) = read_encoding(rest)?;
        let is_valid = u64::from_be_bytes(*of_epoch) == epoch && message.len() <= MAX_MESSAGE_LEN;
        let message = Bytes::copy_from_slice(message);
        is_valid.then_some(Self { epoch, with_proof, encoding, message })
    }

    /// The answer of a server: its part, and its signature. The caller has checked that the message
    /// may be signed. `None` if the key is too short for the encoding.
    pub(crate) fn answer(
        &self,
        share: &ThresholdRsaShare,
        identity: &IdentitySecretKey,
    ) -> Option<Vec<u8>> {
        let key = share.sharing().key();
        let x = EncodedRsaMessage::new(key, &self.encoding, &self.message)?;
        let part = if self.with_proof { share.sign_with_proof(&x) } else { share.sign(&x) };
        let part = part?.to_bytes();
        let signature = identity.sign(&[DOMAIN, &part].concat());
        Some([&part[..], &signature].concat())
    }
}

/// A server's part of a signature: [`PartialRsaSignature`], and the signature of the server, which
/// makes a wrong part evidence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SignedPart {
    bytes: Vec<u8>,
}

impl SignedPart {
    /// Decodes what [`PartQuery::answer`] returns, if the server has signed it.
    pub(super) fn parse(bytes: &[u8], server: &IdentityPublicKey) -> Option<Self> {
        let (part, signature) = bytes.split_last_chunk::<SIGNATURE_LEN>()?;
        let is_signed = server.verify(&[DOMAIN, part].concat(), signature);
        is_signed.then(|| Self { bytes: bytes.to_vec() })
    }

    /// The encoded [`PartialRsaSignature`].
    pub(super) fn part(&self) -> &[u8] {
        &self.bytes[..self.bytes.len() - SIGNATURE_LEN]
    }

    /// Whether it has a proof, which follows the name and a number modulo N.
    pub(super) fn has_proof(&self, sharing: &ThresholdRsaSharing) -> bool {
        self.part().len() > 32 + sharing.key().group().modulus().byte_len()
    }

    fn decode(&self, sharing: &ThresholdRsaSharing) -> Option<PartialRsaSignature> {
        PartialRsaSignature::from_bytes(sharing, self.part()).ok()
    }
}

/// A server's wrong part of a signature, with the sharing of its epoch. It is a proof for anyone
/// who has the epoch's header: by itself if the part has a proof, and otherwise with the right
/// parts of f+1 servers, which have proofs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongPartEvidence {
    /// Encoded. Servers forget it when the epoch ends.
    sharing: Vec<u8>,
    encoding: RsaEncoding,
    message: Bytes,
    wrong: Vec<u8>,
    proven: BTreeMap<ServerIndex, Vec<u8>>,
}

impl WrongPartEvidence {
    /// `proven` are right parts with proofs.
    pub(super) fn new<'a>(
        sharing: &Arc<ThresholdRsaSharing>,
        query: &PartQuery,
        wrong: &SignedPart,
        proven: impl IntoIterator<Item = (ServerIndex, &'a SignedPart)>,
    ) -> Self {
        let proven = proven.into_iter().map(|(server, part)| (server, part.bytes.clone()));
        let (encoding, message) = (query.encoding, query.message.clone());
        let (sharing, wrong) = (KeySharing::Rsa(sharing.clone()).to_bytes(), wrong.bytes.clone());
        Self { sharing, encoding, message, wrong, proven: proven.collect() }
    }

    /// Whether it proves that this server of an epoch is faulty. The caller has verified that the
    /// group with this key has signed the epoch's header.
    pub fn verify(&self, public: &RsaPublicKey, epoch: &GroupHeader, server: ServerIndex) -> bool {
        // Before anything that is costly.
        let is_of_epoch = KeySharing::digest_of(&self.sharing) == epoch.witnesses;
        let sharing = is_of_epoch.then(|| KeySharing::parse_rsa(public, &self.sharing)).flatten();
        let Some(KeySharing::Rsa(sharing)) = sharing else { return false };
        let sharing = &*sharing;
        let part = |server: ServerIndex, bytes: &[u8]| {
            let identity = epoch.group.member(server)?.identity;
            let part = SignedPart::parse(bytes, &identity)?.decode(sharing)?;
            Some((server.participant()?, part))
        };
        let x = EncodedRsaMessage::new(sharing.key(), &self.encoding, &self.message);
        let proven = self.proven.iter().filter_map(|(server, bytes)| part(*server, bytes));
        x.zip(part(server, &self.wrong)).is_some_and(|(x, (signer, wrong))| {
            wrong.is_evidence(sharing, signer, &x, &proven.collect())
        })
    }

    /// The evidence as bytes: the sharing, the encoding and the message, the wrong answer, and each
    /// other answer after its server, all with their lengths.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut signed = Vec::new();
        write_encoding(&self.encoding, &mut signed);
        signed.extend_from_slice(&self.message);
        let mut bytes = Vec::new();
        bytes.put_counted(&self.sharing);
        bytes.put_counted(&signed);
        bytes.put_counted(&self.wrong);
        for (server, answer) in &self.proven {
            bytes.push(server.0);
            bytes.put_counted(answer);
        }
        bytes
    }

    /// Decodes the output of [`Self::to_bytes`]. The evidence is not verified.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut reader = FieldReader::new(bytes);
        let sharing = reader.counted().ok()?.to_vec();
        let (encoding, message) = read_encoding(reader.counted_up_to(2 * MAX_MESSAGE_LEN).ok()?)?;
        let message = Bytes::copy_from_slice(message);
        let wrong = reader.counted().ok()?.to_vec();
        let mut proven = BTreeMap::new();
        while !reader.is_empty() {
            let server = ServerIndex(reader.u8().ok()?);
            if proven.last_key_value().is_some_and(|(last, _)| *last >= server) {
                return None;
            }
            proven.insert(server, reader.counted().ok()?.to_vec());
        }
        Some(Self { sharing, encoding, message, wrong, proven })
    }
}
