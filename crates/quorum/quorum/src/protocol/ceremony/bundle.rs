//! The bundle, from which servers join a group: `docs/formats/quorum.md`. It contains the public
//! key, the header of an epoch with the list of servers, and in the first epoch of an RSA key the
//! share file of each server, encrypted to the server's identity. The bundle of servers that are to
//! generate an Ed25519 key has only the founding header.

use encoding::{FieldError, FieldReader, FieldWrite as _};
use keys::noise::{self, EphemeralKey, SEALED_OVERHEAD};
use keys::sealed::SealedKey;
use keys::{AnyPublicKey, Ed25519PublicKey, IdentitySecretKey, KEY_LEN, RsaPublicKey};
use random::{RandomError, RandomGenerator};
use rsa_arithmetic::modulus::RsaModulus;
use zeroize::Zeroizing;

use super::share_file::{MAX_SHARE_FILE_LEN, QuorumShareFile, QuorumShareFileError};
use crate::protocol::combination::ServerIndex;
use crate::protocol::group::{GroupHeader, GroupHeaderKind, GroupKeyAnchor, QuorumGroup};
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The first bytes of a bundle.
const MAGIC: [u8; 16] = *b"SNDR-QUORUM-BDL\0";

/// The version of the format with an RSA key.
const VERSION: u8 = 1;

/// The version of the format without: of servers that generate an Ed25519 key, or have one.
const ED25519_VERSION: u8 = 2;
const FOUNDING: u8 = 1;
const ED25519: u8 = 2;

/// The first bytes of what the encryption of a share file is bound to.
const DOMAIN: &[u8] = b"SNDR-QUORUM-BUNDLE\0";

/// The length of the sealed key that precedes a server's encrypted share file.
const SEALED_KEY_LEN: usize = KEY_LEN + SEALED_OVERHEAD;

/// The largest length of a bundle, in bytes. With f = 4 and 4096 bits, it has 8,200,000 bytes.
pub(crate) const MAX_BUNDLE_LEN: u64 = 14 << 20;

/// A bundle. Not secret: only each server can decrypt its share file.
#[derive(Clone, Debug)]
pub struct QuorumBundle {
    anchor: GroupKeyAnchor,
    header: GroupHeader,
    /// The encrypted share file of each server, or nothing.
    sealed: Vec<Vec<u8>>,
}

/// Why a bundle, or a share in it, cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuorumBundleError {
    /// It is malformed.
    #[error(transparent)]
    Malformed(#[from] MalformedEncoding),
    /// It was cut off or changed.
    #[error("it was cut off or changed: copy it again")]
    Damaged,
    /// It has no shares.
    #[error("it has no shares: it is for servers that join by a refresh")]
    NoShares,
    /// The list of servers does not have this identity.
    #[error("its list of servers does not have this server's `identity`")]
    NotListed,
    /// The share file of this server was not encrypted to its identity, or was changed.
    #[error("the share for this server cannot be decrypted: it was exchanged or changed")]
    Sealed,
    /// The decrypted share file is wrong.
    #[error("the share for this server is wrong: {0}")]
    Share(#[from] QuorumShareFileError),
}

impl From<FieldError> for QuorumBundleError {
    fn from(error: FieldError) -> Self {
        Self::Malformed(error.into())
    }
}

impl QuorumBundle {
    /// A bundle with the share file of each server of a ceremony, in the order of the servers.
    ///
    /// # Errors
    /// If the operating system gives no random bytes.
    ///
    /// # Panics
    /// If there are no files.
    pub fn seal(
        files: &[QuorumShareFile],
        generator: &mut RandomGenerator,
    ) -> Result<Self, RandomError> {
        let first = files.first().expect("a group has servers");
        let anchor = first.public().clone().into();
        let mut bundle = Self::without_shares(anchor, first.header.clone());
        for (file, member) in files.iter().zip(first.header.group.members()) {
            let key = Zeroizing::new(generator.array::<KEY_LEN>()?);
            let ephemeral = EphemeralKey(Zeroizing::new(generator.array()?));
            let context = bundle.context(file.server);
            let mut sealed = noise::seal_to(&member.identity, &context, &key, ephemeral);
            sealed.extend(SealedKey::new(&key).seal(&context, &file.to_bytes(), generator)?);
            bundle.sealed.push(sealed);
        }
        Ok(bundle)
    }

    /// A bundle without shares, for servers that join by a refresh. The header is of the epoch
    /// whose servers they are to connect with.
    pub fn without_shares(anchor: GroupKeyAnchor, header: GroupHeader) -> Self {
        Self { anchor, header, sealed: Vec::new() }
    }

    /// The bundle of servers that are to generate an Ed25519 key, at this time. It has no secrets.
    pub fn founding(group: QuorumGroup, time: UnixSeconds) -> Self {
        let header = GroupHeader::founding(group, time);
        Self::without_shares(GroupKeyAnchor::Founding(header.digest()), header)
    }

    /// The same bundle without its shares.
    #[must_use]
    pub fn public_part(&self) -> Self {
        Self::without_shares(self.anchor.clone(), self.header.clone())
    }

    /// What it says of the group's key.
    pub fn anchor(&self) -> &GroupKeyAnchor {
        &self.anchor
    }

    /// The group's public key. `None` if its servers are to generate one.
    pub fn public(&self) -> Option<AnyPublicKey> {
        self.anchor.public()
    }

    /// The header of the epoch, with the servers.
    pub fn header(&self) -> &GroupHeader {
        &self.header
    }

    /// Whether it contains shares.
    pub fn has_shares(&self) -> bool {
        !self.sealed.is_empty()
    }

    /// Decrypts and completely checks the share file of the server with this identity.
    ///
    /// # Errors
    /// If it has no shares for this server, or they are wrong.
    pub fn share_of(
        &self,
        identity: &IdentitySecretKey,
    ) -> Result<QuorumShareFile, QuorumBundleError> {
        if self.sealed.is_empty() {
            return Err(QuorumBundleError::NoShares);
        }
        let server = self.header.group.index_of(&identity.public());
        let server = server.ok_or(QuorumBundleError::NotListed)?;
        let sealed = self.sealed.get(usize::from(server.0)).ok_or(QuorumBundleError::Damaged)?;
        let (key, content) =
            sealed.split_at_checked(SEALED_KEY_LEN).ok_or(QuorumBundleError::Sealed)?;
        let context = self.context(server);
        let key = noise::open_sealed(identity, &context, key).ok_or(QuorumBundleError::Sealed)?;
        let key: &[u8; KEY_LEN] =
            key.as_slice().try_into().map_err(|_| QuorumBundleError::Sealed)?;
        let content = SealedKey::new(key).open(&context, content);
        let file = QuorumShareFile::parse(&content.ok_or(QuorumBundleError::Sealed)?)?;
        let is_same = file.server == server
            && file.header == self.header
            && GroupKeyAnchor::Rsa(file.public().clone()) == self.anchor;
        if is_same { Ok(file) } else { Err(QuorumBundleError::Sealed) }
    }

    /// What the encryption of a server's share file is bound to.
    fn context(&self, server: ServerIndex) -> Vec<u8> {
        [DOMAIN, &self.anchor.digest().0, &self.header.digest().0, &[server.0]].concat()
    }

    /// The bytes of the file.
    ///
    /// # Panics
    /// Never: a group has at most 31 servers.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        match &self.anchor {
            GroupKeyAnchor::Rsa(public) => {
                out.push(VERSION);
                out.put_counted(&public.modulus());
            }
            GroupKeyAnchor::Founding(digest) => {
                out.extend([ED25519_VERSION, FOUNDING]);
                out.extend(digest.0);
            }
            GroupKeyAnchor::Ed25519(public) => {
                out.extend([ED25519_VERSION, ED25519]);
                out.extend(public.to_bytes());
            }
        }
        out.put_counted(&self.header.to_bytes());
        out.push(u8::try_from(self.sealed.len()).expect("a group has at most 31 servers"));
        for sealed in &self.sealed {
            out.put_counted(sealed);
        }
        let digest = Sha256Digest::of(&[&out]);
        out.extend(digest.0);
        out
    }

    /// Parses a bundle. Its shares are checked by [`Self::share_of`].
    ///
    /// # Errors
    /// If the bytes are not a bundle.
    pub fn parse(bytes: &[u8]) -> Result<Self, QuorumBundleError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(MalformedEncoding("not a bundle of a quorum").into());
        }
        let (content, digest) = bytes.split_last_chunk::<32>().ok_or(QuorumBundleError::Damaged)?;
        if content.len() < MAGIC.len() || Sha256Digest::of(&[content]).0 != *digest {
            return Err(QuorumBundleError::Damaged);
        }
        let mut reader = FieldReader::new(&content[MAGIC.len()..]);
        let anchor = match reader.u8()? {
            VERSION => GroupKeyAnchor::Rsa(read_rsa_key(&mut reader)?),
            ED25519_VERSION => read_ed25519_anchor(&mut reader)?,
            _ => {
                let why = "of a version that this program does not know";
                return Err(MalformedEncoding(why).into());
            }
        };
        let header = GroupHeader::parse(reader.counted()?)?;
        let is_first = header.kind == GroupHeaderKind::Founding && header.is_next(None);
        let fits = match anchor {
            GroupKeyAnchor::Founding(digest) => is_first && header.digest() == digest,
            _ => header.kind == GroupHeaderKind::Epoch && anchor.admits(header.key),
        };
        if !fits {
            return Err(MalformedEncoding("its header is not that of an epoch").into());
        }
        let servers =
            if let GroupKeyAnchor::Rsa(_) = anchor { header.group.members().len() } else { 0 };
        let count = usize::from(reader.u8()?);
        if count != 0 && count != servers {
            return Err(MalformedEncoding("it does not have a share for each server").into());
        }
        let mut sealed = Vec::with_capacity(count);
        for _ in 0..count {
            let share = reader.counted()?;
            if share.len() as u64 > MAX_SHARE_FILE_LEN + 1024 {
                return Err(MalformedEncoding("a share is too long").into());
            }
            sealed.push(share.to_vec());
        }
        reader.finish()?;
        Ok(Self { anchor, header, sealed })
    }
}

fn read_rsa_key(reader: &mut FieldReader<'_>) -> Result<RsaPublicKey, QuorumBundleError> {
    let modulus = RsaModulus::from_be_bytes(reader.counted()?)
        .map_err(|_| MalformedEncoding("its modulus is not one of a key"))?;
    let key = RsaPublicKey::danger_of_any_size(&modulus.to_be_bytes());
    Ok(key.map_err(|_| MalformedEncoding("its modulus is not one of a key"))?)
}

fn read_ed25519_anchor(reader: &mut FieldReader<'_>) -> Result<GroupKeyAnchor, QuorumBundleError> {
    let (kind, bytes) = (reader.u8()?, reader.take()?);
    match kind {
        FOUNDING => Ok(GroupKeyAnchor::Founding(Sha256Digest(bytes))),
        ED25519 => {
            let key = Ed25519PublicKey::from_bytes(&bytes);
            let key = key.map_err(|_| MalformedEncoding("its key is not a point of Ed25519"))?;
            Ok(GroupKeyAnchor::Ed25519(key))
        }
        _ => Err(MalformedEncoding("neither a founding header nor a key").into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::testing::{group, identity, share_files};

    fn sealed() -> QuorumBundle {
        QuorumBundle::seal(&share_files(), &mut RandomGenerator::seeded().unwrap()).unwrap()
    }

    #[test]
    fn each_server_gets_its_shares_from_the_bundle() {
        let files = share_files();
        let bundle = QuorumBundle::seal(&files, &mut RandomGenerator::seeded().unwrap()).unwrap();
        let bundle = QuorumBundle::parse(&bundle.to_bytes()).unwrap();
        assert!(bundle.has_shares() && !bundle.public_part().has_shares());
        for (number, file) in (1..=4).zip(&files) {
            let found = bundle.share_of(&identity(number)).unwrap();
            assert_eq!((found.server, &found.header), (file.server, &file.header));
        }
        let other = bundle.share_of(&identity(5)).err();
        assert_eq!(other, Some(QuorumBundleError::NotListed));
        let joining = QuorumBundle::parse(&bundle.public_part().to_bytes()).unwrap();
        assert_eq!(joining.anchor(), bundle.anchor());
        assert_eq!(joining.share_of(&identity(1)).err(), Some(QuorumBundleError::NoShares));
    }

    /// Whoever exchanges shares, or replaces the list, cannot make the digest at the end right for
    /// the encryption.
    #[test]
    fn exchanged_shares_and_other_lists_are_refused() {
        let mut bundle = sealed();
        bundle.sealed.swap(0, 1);
        let swapped = QuorumBundle::parse(&bundle.to_bytes()).unwrap();
        for number in [1, 2] {
            assert_eq!(swapped.share_of(&identity(number)).err(), Some(QuorumBundleError::Sealed));
        }
        assert!(swapped.share_of(&identity(3)).is_ok());
        let mut other = sealed();
        other.header.witnesses = Sha256Digest([7; 32]);
        let other = QuorumBundle::parse(&other.to_bytes()).unwrap();
        assert_eq!(other.share_of(&identity(1)).err(), Some(QuorumBundleError::Sealed));
        let mut short = sealed();
        short.sealed[0].truncate(SEALED_KEY_LEN - 1);
        let short = QuorumBundle::parse(&short.to_bytes()).unwrap();
        assert_eq!(short.share_of(&identity(1)).err(), Some(QuorumBundleError::Sealed));
        let mut few = sealed();
        few.sealed.pop();
        let few = QuorumBundle::parse(&few.to_bytes()).err();
        assert!(matches!(few, Some(QuorumBundleError::Malformed(_))), "{few:?}");
    }

    /// The digest of a founding header is that of the header in the bundle.
    #[test]
    fn bundles_of_an_ed25519_key_are_read_as_written() {
        let founding = QuorumBundle::founding(group(10, 1), UnixSeconds(7));
        let read = QuorumBundle::parse(&founding.to_bytes()).unwrap();
        assert_eq!((read.anchor(), read.header()), (founding.anchor(), founding.header()));
        assert!(!read.has_shares() && read.public().is_none());
        let other = GroupKeyAnchor::Founding(Sha256Digest([7; 32]));
        let other = QuorumBundle::without_shares(other, founding.header().clone());
        assert!(QuorumBundle::parse(&other.to_bytes()).is_err());
        let key = Ed25519PublicKey::from_bytes(&identity(9).public().to_bytes()).unwrap();
        let anchor = GroupKeyAnchor::Ed25519(key);
        let unsigned = QuorumBundle::without_shares(anchor.clone(), founding.header().clone());
        assert!(QuorumBundle::parse(&unsigned.to_bytes()).is_err(), "not of an epoch");
        let header = GroupHeader {
            kind: GroupHeaderKind::Epoch,
            epoch: 1,
            previous: founding.header().digest(),
            ..founding.header().clone()
        };
        let joining = QuorumBundle::without_shares(anchor.clone(), header);
        assert_eq!(QuorumBundle::parse(&joining.to_bytes()).unwrap().anchor(), &anchor);
    }

    #[test]
    fn changed_or_truncated_bundles_are_refused() {
        let bytes = sealed().to_bytes();
        for index in (0..bytes.len()).step_by(7).chain(0..80) {
            let mut changed = bytes.clone();
            changed[index] ^= 1;
            assert!(QuorumBundle::parse(&changed).is_err(), "byte {index}");
            assert!(QuorumBundle::parse(&bytes[..index]).is_err(), "{index} bytes");
        }
    }

    #[test]
    fn shares_are_not_in_the_bundle_in_plaintext() {
        let files = share_files();
        let bundle = QuorumBundle::seal(&files, &mut RandomGenerator::seeded().unwrap()).unwrap();
        let bytes = bundle.to_bytes();
        for file in &files {
            for (_, share) in &file.shares {
                let part = &share[share.len() - 16..];
                assert!(!bytes.windows(16).any(|window| window == part));
            }
        }
    }
}
