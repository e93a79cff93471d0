//! Voting keys, which sign a server's votes in one epoch.

use std::fmt;

use encoding::FieldReader;
use keys::{IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator, wipe_stack};
use zeroize::Zeroizing;

use super::combination::ServerIndex;
use super::wire::{MalformedEncoding, Sha256Digest};

/// A server's voting key for one epoch and one incarnation of its log file. Secret: wiped when
/// dropped.
pub struct VotingSecret {
    bytes: Zeroizing<[u8; 32]>,
    key: IdentitySecretKey,
}

impl VotingSecret {
    /// Generates a key.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn random(generator: &mut RandomGenerator) -> Result<Self, RandomError> {
        Ok(Self::from_bytes(Zeroizing::new(generator.array()?)))
    }

    /// The key with these bytes.
    pub fn from_bytes(bytes: Zeroizing<[u8; 32]>) -> Self {
        let key = IdentitySecretKey::new(&bytes);
        wipe_stack();
        Self { bytes, key }
    }

    /// The bytes of the key. Secret.
    pub fn to_bytes(&self) -> &[u8; 32] {
        &self.bytes
    }

    /// The public key, which verifies its signatures.
    pub fn public(&self) -> IdentityPublicKey {
        self.key.public()
    }

    pub(crate) fn sign(&self, message: &[u8]) -> [u8; 64] {
        self.key.sign(message)
    }
}

impl fmt::Debug for VotingSecret {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("VotingSecret(..)")
    }
}

/// A server's public voting key, with a proof of possession of the secret key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct VotingKey {
    pub(crate) key: IdentityPublicKey,
    proof: [u8; 64],
}

impl VotingKey {
    /// The key of a server in the run or epoch whose header has this digest.
    pub(crate) fn new(secret: &VotingSecret, header: Sha256Digest, server: ServerIndex) -> Self {
        let proof = secret.sign(&proven(header, server));
        Self { key: secret.public(), proof }
    }

    /// Whether the proof of possession is valid for this header and server.
    pub(crate) fn is_proven(&self, header: Sha256Digest, server: ServerIndex) -> bool {
        self.key.verify(&proven(header, server), &self.proof)
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.key.to_bytes());
        out.extend(self.proof);
    }

    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        Ok(Self { key: read_key(reader)?, proof: reader.take()? })
    }
}

fn proven(header: Sha256Digest, server: ServerIndex) -> Vec<u8> {
    [&b"SNDR-QUORUM-VOTING\0"[..], &header.0, &[server.0]].concat()
}

fn read_key(reader: &mut FieldReader<'_>) -> Result<IdentityPublicKey, MalformedEncoding> {
    IdentityPublicKey::from_bytes(&reader.take()?)
        .map_err(|_| MalformedEncoding("a voting key is not a public key"))
}

/// Writes an optional key.
pub(crate) fn write_key(key: Option<&IdentityPublicKey>, out: &mut Vec<u8>) {
    out.push(u8::from(key.is_some()));
    out.extend(key.into_iter().flat_map(IdentityPublicKey::to_bytes));
}

/// Reads an optional key.
pub(crate) fn read_optional_key(
    reader: &mut FieldReader<'_>,
) -> Result<Option<IdentityPublicKey>, MalformedEncoding> {
    match reader.u8()? {
        0 => Ok(None),
        1 => read_key(reader).map(Some),
        _ => Err(MalformedEncoding("neither a voting key nor none")),
    }
}
