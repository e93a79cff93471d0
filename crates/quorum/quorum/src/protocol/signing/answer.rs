//! The messages of signing.

use bytes::Bytes;
use keys::rsa::{RsaEncoding, SALT_LEN};
use keys::{IdentityPublicKey, IdentitySecretKey};
use rsa_arithmetic::key::GroupPublicKey;
use rsa_arithmetic::modulus::RsaElement;
use sha2::{Digest as _, Sha256};

use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};

/// The length in bytes of the longest message that is signed.
pub const MAX_MESSAGE_LEN: usize = 1 << 20;

/// The prefix of the bytes that the signature of an answer covers.
const DOMAIN: &[u8] = b"sunder-quorum answer to a sign request v1\0";

/// Encodes a full sign in the field of the signers.
const FULL: u16 = 0;

const PKCS1: u8 = 1;
const PSS: u8 = 2;
const PKCS1_SHA512: u8 = 3;

/// The length in bytes of a signature of an identity key.
const SIGNATURE_LEN: usize = 64;

/// A group of servers in one epoch.
#[derive(Clone, Debug)]
pub struct SigningGroup {
    /// The number of the epoch.
    pub epoch: u64,
    /// The public part of the key.
    pub key: GroupPublicKey,
    /// Which server holds which shares.
    pub combination: CombinatorialSharing,
    /// The identity keys of the servers, by index.
    pub identities: Vec<IdentityPublicKey>,
}

/// The f+1 servers of a quick sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuickSigners(u16);

impl QuickSigners {
    /// The set of these servers, if they are f+1 servers of the group.
    pub fn new(
        group: &CombinatorialSharing,
        servers: impl IntoIterator<Item = ServerIndex>,
    ) -> Option<Self> {
        let add = |bits: u16, server: ServerIndex| Some(bits | 1_u16.checked_shl(server.0.into())?);
        Self::of_bits(group, servers.into_iter().try_fold(0, add)?)
    }

    fn of_bits(group: &CombinatorialSharing, bits: u16) -> Option<Self> {
        let are_signers = bits.count_ones() as usize == group.signer_count();
        (are_signers && bits >> group.server_count() == 0).then_some(Self(bits))
    }

    /// Whether a server is one of them.
    pub fn contains(self, server: ServerIndex) -> bool {
        self.0.checked_shr(server.0.into()).is_some_and(|bits| bits & 1 == 1)
    }

    /// The servers, in ascending order.
    pub fn servers(self) -> Vec<ServerIndex> {
        (0..16).map(ServerIndex).filter(|&server| self.contains(server)).collect()
    }
}

/// Appends an encoding.
pub(super) fn write_encoding(encoding: &RsaEncoding, bytes: &mut Vec<u8>) {
    match encoding {
        RsaEncoding::Pkcs1 => bytes.push(PKCS1),
        RsaEncoding::Pkcs1Sha512 => bytes.push(PKCS1_SHA512),
        RsaEncoding::Pss { salt } => {
            bytes.push(PSS);
            bytes.extend_from_slice(salt);
        }
    }
}

/// Reads an encoding. Returns what follows it, too.
pub(super) fn read_encoding(bytes: &[u8]) -> Option<(RsaEncoding, &[u8])> {
    Some(match bytes.split_first()? {
        (&PKCS1, rest) => (RsaEncoding::Pkcs1, rest),
        (&PKCS1_SHA512, rest) => (RsaEncoding::Pkcs1Sha512, rest),
        (&PSS, rest) => {
            let (salt, rest) = rest.split_first_chunk::<SALT_LEN>()?;
            (RsaEncoding::Pss { salt: *salt }, rest)
        }
        _ => return None,
    })
}

/// A request to a server for its partial signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialSignQuery {
    /// The epoch of the requester.
    pub epoch: u64,
    /// The servers of a quick sign. `None` for a full sign.
    pub signers: Option<QuickSigners>,
    /// How the message is encoded.
    pub encoding: RsaEncoding,
    /// The message, of at most [`MAX_MESSAGE_LEN`] bytes.
    pub message: Bytes,
}

impl PartialSignQuery {
    /// The request as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.epoch.to_be_bytes().to_vec();
        bytes.extend(self.signers.map_or(FULL, |signers| signers.0).to_be_bytes());
        write_encoding(&self.encoding, &mut bytes);
        bytes.extend_from_slice(&self.message);
        bytes
    }

    /// Decodes the output of [`Self::to_bytes`]. `None` if it is not a valid request in this group.
    pub fn parse(group: &SigningGroup, bytes: &[u8]) -> Option<Self> {
        let (epoch, rest) = bytes.split_first_chunk()?;
        let (signers, rest) = rest.split_first_chunk()?;
        let (encoding, message) = read_encoding(rest)?;
        let epoch = u64::from_be_bytes(*epoch);
        if epoch != group.epoch || message.len() > MAX_MESSAGE_LEN {
            return None;
        }
        let bits = u16::from_be_bytes(*signers);
        let signers = QuickSigners::of_bits(&group.combination, bits);
        if signers.is_none() && bits != FULL {
            return None;
        }
        Some(Self { epoch, signers, encoding, message: Bytes::copy_from_slice(message) })
    }

    /// The number x to be signed. `None` if N is too short for the encoding.
    pub(super) fn number(&self, group: &SigningGroup) -> Option<RsaElement> {
        let modulus = group.key.modulus();
        modulus.element(&self.encoding.encode(&self.message, modulus.byte_len())?)
    }
}

/// A server's partial signatures of one number, signed with its identity key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartialSignatures {
    /// The server.
    pub(super) server: ServerIndex,
    /// The servers of a quick sign. `None` for a full sign.
    pub(super) signers: Option<QuickSigners>,
    /// The SHA-256 of the number that is signed.
    pub(super) number: [u8; 32],
    /// In a quick sign, the product of the partial signatures for which the server is responsible.
    /// In a full sign, one partial signature for each label of the server.
    pub(super) values: Vec<RsaElement>,
    signature: [u8; SIGNATURE_LEN],
}

impl PartialSignatures {
    /// Signs an answer.
    pub(super) fn new(
        group: &SigningGroup,
        server: ServerIndex,
        query: &PartialSignQuery,
        values: Vec<RsaElement>,
        identity: &IdentitySecretKey,
    ) -> Option<Self> {
        let (signers, number) = (query.signers, digest(&query.number(group)?));
        let mut answer = Self { server, signers, number, values, signature: [0; SIGNATURE_LEN] };
        answer.signature = identity.sign(&answer.signed(group));
        Some(answer)
    }

    /// The server that answers.
    pub fn server(&self) -> ServerIndex {
        self.server
    }

    /// The labels of the values. In a quick sign, one value covers all labels.
    pub(super) fn labels(&self, group: &CombinatorialSharing) -> Vec<Label> {
        match self.signers {
            Some(signers) => group.responsible(self.server, &signers.servers()).collect(),
            None => group.labels_of(self.server).collect(),
        }
    }

    /// Whether this is an answer for this number.
    pub(super) fn is_about(&self, number: &RsaElement) -> bool {
        self.number == digest(number)
    }

    /// The answer as bytes.
    pub fn to_bytes(&self, group: &SigningGroup) -> Vec<u8> {
        let mut bytes = self.content(group);
        bytes.extend_from_slice(&self.signature);
        bytes
    }

    /// Decodes the output of [`Self::to_bytes`], if a server of this group has signed it.
    pub fn parse(group: &SigningGroup, bytes: &[u8]) -> Option<Self> {
        let (content, signature) = bytes.split_last_chunk()?;
        let (epoch, rest) = content.split_first_chunk()?;
        let (&[server], rest) = rest.split_first_chunk()?;
        let (signers, rest) = rest.split_first_chunk()?;
        let (number, values) = rest.split_first_chunk()?;
        let server = ServerIndex(server);
        let identity = group.identities.get(usize::from(server.0))?;
        let bits = u16::from_be_bytes(*signers);
        let signers = QuickSigners::of_bits(&group.combination, bits);
        let count = match signers {
            Some(signers) => signers.contains(server).then_some(1)?,
            None if bits == FULL => group.combination.labels_of(server).count(),
            None => return None,
        };
        let modulus = group.key.modulus();
        let of_epoch = u64::from_be_bytes(*epoch) == group.epoch;
        if !of_epoch || values.len() != count * modulus.byte_len() {
            return None;
        }
        let values = values.chunks(modulus.byte_len()).map(|value| modulus.element(value));
        let values = values.collect::<Option<_>>()?;
        let answer = Self { server, signers, number: *number, values, signature: *signature };
        identity.verify(&answer.signed(group), signature).then_some(answer)
    }

    fn content(&self, group: &SigningGroup) -> Vec<u8> {
        let mut bytes = group.epoch.to_be_bytes().to_vec();
        bytes.push(self.server.0);
        bytes.extend(self.signers.map_or(FULL, |signers| signers.0).to_be_bytes());
        bytes.extend_from_slice(&self.number);
        bytes.extend(self.values.iter().flat_map(RsaElement::to_be_bytes));
        bytes
    }

    fn signed(&self, group: &SigningGroup) -> Vec<u8> {
        [DOMAIN, &group.key.public().digest(), &self.content(group)].concat()
    }
}

fn digest(number: &RsaElement) -> [u8; 32] {
    Sha256::digest(number.to_be_bytes()).into()
}
