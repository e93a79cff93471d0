//! The state from which a server starts to follow its group: the chain of epochs, the witnesses or
//! the sharing of the last epoch, and the height of the log at which that epoch began, or a refresh
//! of it was opened.
//!
//! The ceremony writes the first start. For an Ed25519 key it has only the founding header. A
//! server sends its own start, as an *invite*, to servers without one: those of a new group, and
//! those that missed the end of a refresh.

use std::sync::Arc;

use encoding::{FieldReader, FieldWrite as _};
use keys::{Ed25519PublicKey, RsaPublicKey};
use rsa_arithmetic::key::{GroupPublicKey, GroupPublicKeyError};
use rsa_arithmetic::modulus::{RsaModulus, RsaModulusError};
use schnorr::SharingCommitment;

use crate::protocol::group::{
    GroupHeader, GroupHeaderKind, GroupKeyAnchor, GroupKeyKind, HeaderChainError, QuorumGroup,
    verify_chain, verify_refresh,
};
use crate::protocol::key_sharing::KeySharing;
use crate::protocol::log_types::{Height, ServerSet};
use crate::protocol::refresh::ShareWitnesses;
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// The largest number of headers in a chain: one a day for 27 years. No server could read a longer
/// one, not even its own after a restart.
pub(super) const MAX_EPOCHS: u32 = 10_000;

/// The last epoch that begins without an operator. The remaining ones are for other lists.
pub(crate) const LAST_DUE_EPOCH: u64 = 9_000;

/// A header with its group's signature. For an epoch that has just begun, the signature is empty
/// until the group has signed. A founding header has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedGroupHeader {
    /// The header.
    pub header: GroupHeader,
    /// Its signature (PKCS #1 v1.5, or Ed25519), or empty.
    pub signature: Vec<u8>,
}

impl SignedGroupHeader {
    /// Whether the group has signed it, or need not.
    pub fn is_signed(&self) -> bool {
        !self.signature.is_empty() || self.header.kind == GroupHeaderKind::Founding
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.put_counted(&self.header.to_bytes());
        out.put_counted(&self.signature);
    }

    fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let header = GroupHeader::parse(reader.counted()?)?;
        Ok(Self { header, signature: reader.counted()?.to_vec() })
    }
}

/// The state from which a server starts to follow its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupStart {
    /// The epochs from the first to the current one.
    pub chain: Vec<SignedGroupHeader>,
    /// The header of the open refresh, if this is the start of a server of a new group.
    pub refresh: Option<SignedGroupHeader>,
    /// The last height of the log that is included in this state.
    pub height: Height,
    /// The witnesses of the current epoch, or its sharing by a polynomial, encoded. Empty in the
    /// epoch of a founding header.
    pub witnesses: Vec<u8>,
}

/// Why a start does not belong to a group with this key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupStartError {
    /// The chain of epochs is invalid.
    #[error("the chain of epochs: {0}")]
    Chain(HeaderChainError),
    /// The header of the refresh is invalid.
    #[error("the refresh: {0}")]
    Refresh(HeaderChainError),
    /// The witnesses do not match the header.
    #[error("the witnesses are not those of the epoch's header")]
    Witnesses,
    /// The modulus of the key is invalid.
    #[error("the public key: {0}")]
    Modulus(#[from] RsaModulusError),
    /// The key is invalid.
    #[error("the public key: {0}")]
    Key(#[from] GroupPublicKeyError),
    /// It belongs to a group with another key, or of other founding servers.
    #[error("it belongs to another group")]
    OtherGroup,
}

/// The content of a verified start.
pub(super) enum VerifiedStart {
    Combinatorial {
        key: GroupPublicKey,
        witnesses: ShareWitnesses,
    },
    /// The sharing by a polynomial, or `None` while the group generates an Ed25519 key.
    Polynomial(Option<KeySharing>),
}

impl GroupStart {
    /// The start of the servers of the first epoch, from the ceremony, with the encoded witnesses
    /// or sharing.
    pub fn first(header: GroupHeader, witnesses: Vec<u8>) -> Self {
        let chain = vec![SignedGroupHeader { header, signature: Vec::new() }];
        Self { chain, refresh: None, height: Height(0), witnesses }
    }

    /// The start of the servers that generate an Ed25519 key.
    pub fn founding(header: GroupHeader) -> Self {
        let chain = vec![SignedGroupHeader { header, signature: Vec::new() }];
        Self { chain, refresh: None, height: Height(0), witnesses: Vec::new() }
    }

    /// The header of the current epoch.
    ///
    /// # Panics
    /// If the chain is empty. A parsed chain never is.
    pub fn header(&self) -> &GroupHeader {
        &self.chain.last().expect("a chain has an epoch").header
    }

    /// The servers of the first epoch, with the voting keys of its header. `None` if the chain is
    /// empty, which a parsed chain never is.
    pub(crate) fn first_servers(&self) -> Option<ServerSet> {
        let header = &self.chain.first()?.header;
        Some(header.group.voters(&header.voting))
    }

    /// The group of the previous epoch.
    pub(super) fn group_before(&self) -> Option<&QuorumGroup> {
        let before = self.chain.len().checked_sub(2)?;
        Some(&self.chain[before].header.group)
    }

    /// Encodes the chain of epochs for [`Self::parse_chain`].
    pub fn chain_to_bytes(&self) -> Vec<u8> {
        chain_to_bytes(&self.chain)
    }

    /// Parses a chain of epochs without verifying it.
    ///
    /// # Errors
    /// If the bytes are not exactly a chain of at least one epoch.
    pub fn parse_chain(bytes: &[u8]) -> Result<Vec<SignedGroupHeader>, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let chain = read_chain(&mut reader)?;
        reader.finish()?;
        Ok(chain)
    }

    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = self.chain_to_bytes();
        match &self.refresh {
            Some(refresh) => {
                out.push(1);
                refresh.write(&mut out);
            }
            None => out.push(0),
        }
        out.put_u64(self.height.0);
        out.put_counted(&self.witnesses);
        out
    }

    /// Parses a start without verifying it.
    ///
    /// # Errors
    /// If the bytes are not exactly a start.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let chain = read_chain(&mut reader)?;
        Self::read_after(chain, reader)
    }

    fn read_after(
        chain: Vec<SignedGroupHeader>,
        mut reader: FieldReader<'_>,
    ) -> Result<Self, MalformedEncoding> {
        let refresh = match reader.u8()? {
            0 => None,
            1 => Some(SignedGroupHeader::read(&mut reader)?),
            _ => return Err(MalformedEncoding("neither a refresh nor none")),
        };
        let height = Height(reader.u64()?);
        let witnesses = reader.counted()?.to_vec();
        reader.finish()?;
        Ok(Self { chain, refresh, height, witnesses })
    }

    /// The number of epochs in an encoded start.
    pub(super) fn epochs_in(bytes: &[u8]) -> Result<usize, MalformedEncoding> {
        Ok(FieldReader::new(bytes).u32()? as usize)
    }

    /// Parses a start from another server, whose chain must continue `known`. Checks each signature
    /// of the chain before reading on, so that nothing is read that follows an unsigned header.
    /// Signed headers of `known` are not checked again. [`Self::verify`] checks what follows the
    /// chain.
    pub(super) fn receive(
        bytes: &[u8],
        known: &[SignedGroupHeader],
        anchor: &GroupKeyAnchor,
    ) -> Result<Self, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let mut chain: Vec<SignedGroupHeader> = Vec::new();
        for place in 0..read_epochs(&mut reader)? {
            let (header, signature) = (reader.counted()?, reader.counted()?);
            let known = known.get(place as usize).filter(|it| it.is_signed());
            if let Some(known) = known.filter(|it| it.header.to_bytes() == header) {
                chain.push(known.clone());
                continue;
            }
            // The next header, which is signed, has its digest.
            let is_founding = place == 0 && anchor.kind() == GroupKeyKind::Ed25519;
            if !is_founding && !anchor.verify(header, signature) {
                return Err(MalformedEncoding("a chain that the group has not signed"));
            }
            if known.is_some() {
                return Err(MalformedEncoding(
                    "another header of an epoch than the known one, both signed: more than f \
                     servers of an epoch were faulty",
                ));
            }
            let (header, signature) = (GroupHeader::parse(header)?, signature.to_vec());
            let is_next = header.is_next(chain.last().map(|it| &it.header));
            if !is_next || is_founding && !signature.is_empty() {
                return Err(MalformedEncoding("a header that does not follow the one before"));
            }
            chain.push(SignedGroupHeader { header, signature });
        }
        if chain.last().is_some_and(|last| last.header.kind == GroupHeaderKind::Founding) {
            return Err(MalformedEncoding("a chain without an epoch"));
        }
        Self::read_after(chain, reader)
    }

    /// A digest that is equal at all correct servers with the same state, even if signatures are
    /// missing.
    pub(super) fn identity(&self) -> Sha256Digest {
        let mut start = self.clone();
        // An Ed25519 key has many signatures of one header.
        start.chain.iter_mut().chain(&mut start.refresh).for_each(|it| it.signature.clear());
        Sha256Digest::of(&[&start.to_bytes()])
    }

    /// The headers before the first one that is not signed, as the last one briefly is. Nobody
    /// could verify those after a gap.
    pub(crate) fn signed_prefix(&self) -> &[SignedGroupHeader] {
        let is_unsigned = |header: &SignedGroupHeader| !header.is_signed();
        let len = self.chain.iter().position(is_unsigned).unwrap_or(self.chain.len());
        &self.chain[..len]
    }

    /// Whether all epochs' headers are signed.
    pub(super) fn is_chain_signed(&self) -> bool {
        self.chain.iter().all(SignedGroupHeader::is_signed)
    }

    /// Whether this is the saved start of a server of the group with this key.
    pub fn is_of(&self, anchor: &GroupKeyAnchor) -> bool {
        self.verify(anchor, true).is_ok()
    }

    /// The public Ed25519 key of the group. `None` if it has an RSA key, or has not generated its
    /// key yet.
    pub fn ed25519_key(&self) -> Option<Ed25519PublicKey> {
        let is_ed25519 = self.header().key == GroupKeyKind::Ed25519;
        let sharing = SharingCommitment::from_bytes(&self.witnesses).ok().filter(|_| is_ed25519)?;
        Ed25519PublicKey::from_bytes(&sharing.public_key().to_bytes()).ok()
    }

    /// Checks headers, signatures and witnesses. In a server's own start signatures may be missing,
    /// because it may not have been a member of a group that signed its header later.
    pub(super) fn verify(
        &self,
        anchor: &GroupKeyAnchor,
        is_own: bool,
    ) -> Result<VerifiedStart, GroupStartError> {
        if !anchor.admits(self.header().key) {
            return Err(GroupStartError::OtherGroup);
        }
        let learnt;
        let known = match anchor {
            GroupKeyAnchor::Founding(digest) => {
                if !is_own || self.chain[0].header.digest() != *digest {
                    return Err(GroupStartError::OtherGroup);
                }
                if self.header().kind == GroupHeaderKind::Founding {
                    let is_first = self.chain.len() == 1 && self.header().is_next(None);
                    let first = is_first.then_some(VerifiedStart::Polynomial(None));
                    return first.ok_or(GroupStartError::Chain(HeaderChainError::Order(0)));
                }
                // This server has followed the log from the founding header to here.
                let key = self.ed25519_key().ok_or(GroupStartError::Witnesses)?;
                learnt = GroupKeyAnchor::Ed25519(key);
                &learnt
            }
            known => known,
        };
        let headers: Vec<Vec<u8>> = self.chain.iter().map(|it| it.header.to_bytes()).collect();
        let verify = |message: &[u8], signature: &[u8]| {
            is_own && signature.is_empty() || known.verify(message, signature)
        };
        let pairs = headers.iter().zip(&self.chain);
        let pairs = pairs.map(|(bytes, it)| (&bytes[..], &it.signature[..]));
        verify_chain(pairs, verify).map_err(GroupStartError::Chain)?;
        self.verify_after_chain(known)
    }

    /// Checks the rest of a start whose chain has been verified.
    pub(super) fn verify_after_chain(
        &self,
        anchor: &GroupKeyAnchor,
    ) -> Result<VerifiedStart, GroupStartError> {
        let header = self.header();
        if let Some(refresh) = &self.refresh {
            let bytes = refresh.header.to_bytes();
            verify_refresh(header, &bytes, &refresh.signature, |message, signature| {
                anchor.verify(message, signature)
            })
            .map_err(GroupStartError::Refresh)?;
        }
        // Before anything that is costly.
        let is_signed = || KeySharing::digest_of(&self.witnesses) == header.witnesses;
        let sharing = match (anchor, header.key) {
            (GroupKeyAnchor::Rsa(public), GroupKeyKind::Rsa) => {
                return self.verify_witnesses(public);
            }
            (GroupKeyAnchor::Rsa(public), GroupKeyKind::RsaPolynomial) if is_signed() => {
                KeySharing::parse_rsa(public, &self.witnesses)
            }
            (GroupKeyAnchor::Ed25519(public), _) if is_signed() => {
                let sharing = SharingCommitment::from_bytes(&self.witnesses).ok();
                let is_key =
                    |it: &SharingCommitment| it.public_key().to_bytes() == public.to_bytes();
                sharing.filter(is_key).map(|it| KeySharing::Ed25519(Arc::new(it)))
            }
            (GroupKeyAnchor::Founding(_), _) => return Err(GroupStartError::OtherGroup),
            _ => None,
        };
        let sharing = sharing.filter(|sharing| sharing.size() == header.group.size());
        Ok(VerifiedStart::Polynomial(Some(sharing.ok_or(GroupStartError::Witnesses)?)))
    }

    fn verify_witnesses(&self, public: &RsaPublicKey) -> Result<VerifiedStart, GroupStartError> {
        let header = self.header();
        let modulus = RsaModulus::of(public)?;
        let labels = header.group.combination().label_count();
        let witnesses = ShareWitnesses::parse(&self.witnesses, labels, &modulus)
            .filter(|it| it.digest() == header.witnesses)
            .ok_or(GroupStartError::Witnesses)?;
        let g_0 =
            modulus.product(header.group.combination().labels().map(|it| witnesses.witness(it)));
        Ok(VerifiedStart::Combinatorial { key: GroupPublicKey::new(modulus, g_0)?, witnesses })
    }
}

/// Whether two chains have the same headers.
pub(super) fn has_same_headers(one: &[SignedGroupHeader], other: &[SignedGroupHeader]) -> bool {
    one.iter().map(|it| &it.header).eq(other.iter().map(|it| &it.header))
}

/// Encodes a chain of epochs for [`GroupStart::parse_chain`].
pub(crate) fn chain_to_bytes(chain: &[SignedGroupHeader]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_count(chain.len());
    for it in chain {
        it.write(&mut out);
    }
    out
}

fn read_epochs(reader: &mut FieldReader<'_>) -> Result<u32, MalformedEncoding> {
    let epochs = reader.u32()?;
    let is_possible = (1..=MAX_EPOCHS).contains(&epochs);
    if is_possible { Ok(epochs) } else { Err(MalformedEncoding("too many epochs, or none")) }
}

fn read_chain(reader: &mut FieldReader<'_>) -> Result<Vec<SignedGroupHeader>, MalformedEncoding> {
    let epochs = read_epochs(reader)?;
    let chain: Vec<_> =
        (0..epochs).map(|_| SignedGroupHeader::read(reader)).collect::<Result<_, _>>()?;
    let are_epochs = chain.iter().all(|it| it.header.kind != GroupHeaderKind::Refresh);
    if are_epochs { Ok(chain) } else { Err(MalformedEncoding("not the header of an epoch")) }
}
