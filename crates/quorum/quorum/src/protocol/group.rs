//! The servers of an epoch, and the chain of headers by which each group names the next.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use encoding::{FieldReader, FieldWrite as _};
use handover::GroupSize;
use keys::IdentityPublicKey;

use super::combination::{CombinatorialSharing, GroupTooLarge, ServerIndex};
use super::log_types::{MAX_FAULTY, ServerSet, Voter};
use super::unix_seconds::UnixSeconds;
use super::voting::{read_optional_key, write_key};
use super::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};

pub use super::group_key::{GroupKeyAnchor, GroupKeyKind};

/// The first bytes of every header. A message of a user must not begin with them.
pub const HEADER_MAGIC: [u8; 16] = *b"SNDR-QUORUM-HDR\0";

/// The headers of a group with combinatorial shares of an RSA key.
const REFRESH_CODE: u8 = 1;
/// The header of an epoch by an earlier version of this program.
const EPOCH_CODE_WITHOUT_TIME: u8 = 2;
const EPOCH_CODE: u8 = 3;
/// The headers of a group with an Ed25519 key.
const FOUNDING_CODE: u8 = 4;
const ED25519_REFRESH_CODE: u8 = 5;
const ED25519_EPOCH_CODE: u8 = 6;
/// The headers of a group that shares an RSA key by a polynomial.
const POLYNOMIAL_REFRESH_CODE: u8 = 7;
const POLYNOMIAL_EPOCH_CODE: u8 = 8;

/// A server of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuorumMember {
    /// The key by which other servers authenticate it.
    pub identity: IdentityPublicKey,
    /// The address on which it accepts links.
    pub address: SocketAddr,
}

/// The servers that are responsible for the key in one epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumGroup {
    members: Vec<QuorumMember>,
    size: GroupSize,
    /// Which server holds which combinatorial shares. `None` if the group is too large for them.
    combination: Option<CombinatorialSharing>,
}

/// Why servers do not form a group.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum QuorumGroupError {
    /// The number of servers is not 3f+1 with f from 1 to 10.
    #[error(
        "a group has 4, 7, 10 or 13 servers, not {0}; one with a key that is shared by a polynomial \
         may also have 16, 19 and so on up to 31"
    )]
    Size(usize),
    /// Two servers have the same identity.
    #[error("servers {0} and {1} have the same identity key")]
    SameIdentity(ServerIndex, ServerIndex),
}

/// The size of a group of this many servers.
fn size_of(servers: usize) -> Result<GroupSize, QuorumGroupError> {
    let faulty = (1..=MAX_FAULTY).find(|&f| servers == 3 * usize::from(f) + 1);
    faulty.and_then(GroupSize::of_faulty).ok_or(QuorumGroupError::Size(servers))
}

impl QuorumGroup {
    /// A group of these servers, in the order of their indices.
    ///
    /// # Errors
    /// If their number is not 3f+1 for an f from 1 to 10, or two have the same
    /// identity.
    pub fn new(members: Vec<QuorumMember>) -> Result<Self, QuorumGroupError> {
        let size = size_of(members.len())?;
        let mut seen = HashSet::new();
        for (index, member) in servers(size).zip(&members) {
            if !seen.insert(member.identity.to_bytes()) {
                let mut same = members.iter().zip(servers(size));
                let first = same.find(|(it, _)| it.identity == member.identity);
                let first = first.map_or(index, |(_, first)| first);
                return Err(QuorumGroupError::SameIdentity(first, index));
            }
        }
        let combination = CombinatorialSharing::new(size.to_byte()).ok();
        Ok(Self { members, size, combination })
    }

    /// Whether a group may have this many servers, with some kind of key.
    ///
    /// # Errors
    /// If not.
    pub fn check_size(servers: usize) -> Result<(), QuorumGroupError> {
        size_of(servers).map(drop)
    }

    /// Whether the group can have a key of this kind.
    ///
    /// # Errors
    /// If it has too many servers.
    pub fn check_key(&self, kind: GroupKeyKind) -> Result<(), GroupTooLarge> {
        match kind {
            GroupKeyKind::Rsa => CombinatorialSharing::new(self.size.to_byte()).map(drop),
            GroupKeyKind::Ed25519 | GroupKeyKind::RsaPolynomial => Ok(()),
        }
    }

    /// The number of servers, and how many of them may be faulty.
    pub fn size(&self) -> GroupSize {
        self.size
    }

    /// All servers.
    pub fn servers(&self) -> impl Iterator<Item = ServerIndex> + use<> {
        servers(self.size)
    }

    /// The servers, in the order of their indices.
    pub fn members(&self) -> &[QuorumMember] {
        &self.members
    }

    /// Which server holds which combinatorial shares.
    ///
    /// # Panics
    /// If the group is too large for them. A group in a header of a key with such shares is not.
    pub fn combination(&self) -> &CombinatorialSharing {
        self.combination.as_ref().expect("a group with combinatorial shares has at most 13 servers")
    }

    /// The server with an index, if there is one.
    pub fn member(&self, server: ServerIndex) -> Option<&QuorumMember> {
        self.members.get(usize::from(server.0))
    }

    /// The index of the server with an identity, if there is one.
    pub fn index_of(&self, identity: &IdentityPublicKey) -> Option<ServerIndex> {
        let mut servers = self.servers().zip(&self.members);
        servers.find(|(_, member)| member.identity == *identity).map(|(index, _)| index)
    }

    /// The set of these servers for the agreement log, with their voting keys.
    ///
    /// # Panics
    /// If the number of `keys` is not the number of servers.
    pub(crate) fn voters(&self, keys: &[Option<IdentityPublicKey>]) -> ServerSet {
        assert_eq!(keys.len(), self.members.len(), "a key, or none, for each server");
        let servers = self.members.iter().zip(keys);
        let voters = servers.map(|(member, &key)| Voter { identity: member.identity, key });
        ServerSet::new(voters).expect("a group is a set of servers")
    }

    /// Whether `signature` is a signature of `message` by this server of the group.
    pub(crate) fn verify(&self, server: ServerIndex, message: &[u8], signature: &[u8; 64]) -> bool {
        self.member(server).is_some_and(|member| member.identity.verify(message, signature))
    }

    /// A digest of the servers, which names the group in the audit log.
    pub fn digest(&self) -> Sha256Digest {
        let keys = vec![None; self.members.len()];
        GroupHeader::first(self.clone(), keys, Sha256Digest([0; 32]), None).digest()
    }

    /// Writes f and the servers.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(self.size.to_byte());
        for QuorumMember { identity, address } in &self.members {
            out.extend(identity.to_bytes());
            match address.ip() {
                IpAddr::V4(ip) => {
                    out.push(4);
                    out.extend(ip.octets());
                }
                IpAddr::V6(ip) => {
                    out.push(6);
                    out.extend(ip.octets());
                }
            }
            out.put_u16(address.port());
        }
    }

    /// Reads f and the servers.
    pub(crate) fn read(reader: &mut FieldReader<'_>) -> Result<Self, MalformedEncoding> {
        let faulty = reader.u8()?;
        if !(1..=MAX_FAULTY).contains(&faulty) {
            return Err(MalformedEncoding("f is not from 1 to 10"));
        }
        let member = |_| {
            let identity = IdentityPublicKey::from_bytes(&reader.take()?)
                .map_err(|_| MalformedEncoding("an identity is not a public key"))?;
            let ip = match reader.u8()? {
                4 => IpAddr::from(reader.take::<4>()?),
                6 => IpAddr::from(reader.take::<16>()?),
                _ => return Err(MalformedEncoding("the kind of an address is neither 4 nor 6")),
            };
            Ok(QuorumMember { identity, address: SocketAddr::new(ip, reader.u16()?) })
        };
        let members = (0..=3 * faulty).map(member).collect::<Result<_, _>>()?;
        Self::new(members).map_err(|_| MalformedEncoding("servers do not make a group"))
    }
}

/// The servers of a group of this size.
fn servers(size: GroupSize) -> impl Iterator<Item = ServerIndex> {
    size.participants().map(ServerIndex::of)
}

/// The purpose of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupHeaderKind {
    /// These servers are to generate an Ed25519 key. It is not signed, and has the digest of no
    /// witnesses.
    Founding,
    /// The old group asks the new group to take over. The witnesses are those of the old group.
    Refresh,
    /// The new group has taken over. The witnesses are those of the new group.
    Epoch,
}

/// A statement that a group signs with the group key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The kind of the group's key.
    pub key: GroupKeyKind,
    /// The purpose.
    pub kind: GroupHeaderKind,
    /// The number of the epoch that begins, from 1. The founding header has 0.
    pub epoch: u64,
    /// The number of the run of the refresh, or 0 in the first epoch.
    pub run: u32,
    /// The digest of the previous epoch's header, or zeros in the first epoch.
    pub previous: Sha256Digest,
    /// The servers of the epoch.
    pub group: QuorumGroup,
    /// Voting keys by server index. The header of an epoch has the keys with which its servers
    /// begin. A refresh header has the keys that the previous group had when the run was opened.
    pub voting: Vec<Option<IdentityPublicKey>>,
    /// The digest of the witnesses of combinatorial shares, or of the sharing by a polynomial.
    /// Zeros if there is none yet.
    pub witnesses: Sha256Digest,
    /// When the epoch began, by the clocks of its servers or of the ceremony. A refresh header has
    /// no time, and neither have the headers that earlier versions of this program made.
    pub time: Option<UnixSeconds>,
}

impl GroupHeader {
    /// The header of the first epoch of combinatorial shares, which come from the ceremony as the
    /// voting keys, at this time.
    pub fn first(
        group: QuorumGroup,
        voting: Vec<Option<IdentityPublicKey>>,
        witnesses: Sha256Digest,
        time: Option<UnixSeconds>,
    ) -> Self {
        let (kind, previous) = (GroupHeaderKind::Epoch, Sha256Digest([0; 32]));
        let key = GroupKeyKind::Rsa;
        Self { key, kind, epoch: 1, run: 0, previous, group, voting, witnesses, time }
    }

    /// The founding header: its servers generate an Ed25519 key. Their identity keys sign their
    /// votes meanwhile.
    pub fn founding(group: QuorumGroup, time: UnixSeconds) -> Self {
        let voting = group.members().iter().map(|member| Some(member.identity)).collect();
        Self {
            key: GroupKeyKind::Ed25519,
            kind: GroupHeaderKind::Founding,
            epoch: 0,
            run: 0,
            previous: Sha256Digest([0; 32]),
            group,
            voting,
            witnesses: Sha256Digest([0; 32]),
            time: Some(time),
        }
    }

    /// The message that the group signs.
    ///
    /// # Panics
    /// If there are more voting keys than the largest group has servers. A parsed header never has.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = HEADER_MAGIC.to_vec();
        out.push(self.code());
        out.put_u64(self.epoch);
        out.put_u32(self.run);
        out.extend(self.previous.0);
        self.group.write(&mut out);
        out.push(u8::try_from(self.voting.len()).expect("a group has at most 31 servers"));
        self.voting.iter().for_each(|key| write_key(key.as_ref(), &mut out));
        out.extend(self.witnesses.0);
        if let (GroupHeaderKind::Epoch | GroupHeaderKind::Founding, Some(time)) =
            (self.kind, self.time)
        {
            out.put_u64(time.0);
        }
        out
    }

    fn code(&self) -> u8 {
        match (self.key, self.kind, self.time) {
            (_, GroupHeaderKind::Founding, _) => FOUNDING_CODE,
            (GroupKeyKind::Rsa, GroupHeaderKind::Refresh, _) => REFRESH_CODE,
            (GroupKeyKind::Rsa, GroupHeaderKind::Epoch, None) => EPOCH_CODE_WITHOUT_TIME,
            (GroupKeyKind::Rsa, GroupHeaderKind::Epoch, Some(_)) => EPOCH_CODE,
            (GroupKeyKind::Ed25519, GroupHeaderKind::Refresh, _) => ED25519_REFRESH_CODE,
            (GroupKeyKind::Ed25519, GroupHeaderKind::Epoch, _) => ED25519_EPOCH_CODE,
            (GroupKeyKind::RsaPolynomial, GroupHeaderKind::Refresh, _) => POLYNOMIAL_REFRESH_CODE,
            (GroupKeyKind::RsaPolynomial, GroupHeaderKind::Epoch, _) => POLYNOMIAL_EPOCH_CODE,
        }
    }

    /// Parses a header.
    ///
    /// # Errors
    /// If the bytes are not exactly a header.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        if reader.take()? != HEADER_MAGIC {
            return Err(MalformedEncoding("not a header"));
        }
        let code = reader.u8()?;
        let kind = match code {
            REFRESH_CODE | ED25519_REFRESH_CODE | POLYNOMIAL_REFRESH_CODE => {
                GroupHeaderKind::Refresh
            }
            EPOCH_CODE_WITHOUT_TIME | EPOCH_CODE | ED25519_EPOCH_CODE | POLYNOMIAL_EPOCH_CODE => {
                GroupHeaderKind::Epoch
            }
            FOUNDING_CODE => GroupHeaderKind::Founding,
            _ => return Err(MalformedEncoding("unknown kind of header")),
        };
        let key = match code {
            ..FOUNDING_CODE => GroupKeyKind::Rsa,
            FOUNDING_CODE..POLYNOMIAL_REFRESH_CODE => GroupKeyKind::Ed25519,
            _ => GroupKeyKind::RsaPolynomial,
        };
        let (epoch, run, previous) = (reader.u64()?, reader.u32()?, reader.digest()?);
        let group = QuorumGroup::read(&mut reader)?;
        group.check_key(key).map_err(|_| MalformedEncoding("f is not from 1 to 4"))?;
        let count = reader.u8()?;
        let max_count = if key == GroupKeyKind::Rsa { 13 } else { 3 * MAX_FAULTY + 1 };
        let is_count = match kind {
            GroupHeaderKind::Refresh => {
                count <= max_count && QuorumGroup::check_size(count.into()).is_ok()
            }
            GroupHeaderKind::Epoch | GroupHeaderKind::Founding => {
                usize::from(count) == group.members().len()
            }
        };
        if !is_count {
            return Err(MalformedEncoding("not as many voting keys as servers"));
        }
        let voting =
            (0..count).map(|_| read_optional_key(&mut reader)).collect::<Result<_, _>>()?;
        let witnesses = reader.digest()?;
        let has_time =
            matches!(code, EPOCH_CODE | FOUNDING_CODE | ED25519_EPOCH_CODE | POLYNOMIAL_EPOCH_CODE);
        let time = if has_time { Some(UnixSeconds(reader.u64()?)) } else { None };
        reader.finish()?;
        Ok(Self { key, kind, epoch, run, previous, group, voting, witnesses, time })
    }

    /// The digest of the header. The digest of a refresh header identifies the run.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(&[&self.to_bytes()])
    }

    /// Whether this refresh or epoch header may follow the header of `epoch`.
    fn follows(&self, epoch: &Self) -> bool {
        epoch.epoch.checked_add(1) == Some(self.epoch)
            && self.previous == epoch.digest()
            && self.key == epoch.key
    }

    /// Whether this header may follow `last` in a chain of epochs. The first header follows none:
    /// it is that of the first epoch of an RSA key, or the founding header. Once a header has a
    /// time, the following ones have one, which is never earlier.
    pub(crate) fn is_next(&self, last: Option<&Self>) -> bool {
        match last {
            Some(last) => {
                self.kind == GroupHeaderKind::Epoch && self.follows(last) && self.time >= last.time
            }
            None if self.kind == GroupHeaderKind::Founding => {
                self.time.is_some_and(|time| *self == Self::founding(self.group.clone(), time))
            }
            None => {
                self.key != GroupKeyKind::Ed25519
                    && self.kind == GroupHeaderKind::Epoch
                    && self.epoch == 1
                    && self.previous == Sha256Digest([0; 32])
            }
        }
    }
}

/// Why a chain of headers is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderChainError {
    /// There are no headers.
    #[error("no headers")]
    Empty,
    /// A header is malformed.
    #[error("header {0} is {1}")]
    Malformed(usize, MalformedEncoding),
    /// A header is not the header of an epoch.
    #[error("header {0} is not that of an epoch")]
    Kind(usize),
    /// A header does not follow the previous one. The first header must have epoch 1, or be a
    /// founding header.
    #[error("header {0} does not follow the one before")]
    Order(usize),
    /// A signature is not the group key's.
    #[error("the signature of header {0} is wrong")]
    Signature(usize),
}

/// Verifies the chain of epoch headers from the first on. `verify` checks a signature of a message
/// with the group key. A founding header has no signature. The next header, which is signed, has
/// its digest, so it cannot be the last one. Returns the header of the last epoch.
///
/// # Errors
/// If the chain is not valid. Headers are numbered from 0.
pub fn verify_chain<'a>(
    chain: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
    verify: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<GroupHeader, HeaderChainError> {
    let mut last: Option<GroupHeader> = None;
    for (i, (bytes, signature)) in chain.into_iter().enumerate() {
        let header =
            GroupHeader::parse(bytes).map_err(|why| HeaderChainError::Malformed(i, why))?;
        if header.kind == GroupHeaderKind::Refresh {
            return Err(HeaderChainError::Kind(i));
        }
        if !header.is_next(last.as_ref()) {
            return Err(HeaderChainError::Order(i));
        }
        let is_signed = match header.kind {
            GroupHeaderKind::Founding => signature.is_empty(),
            _ => verify(bytes, signature),
        };
        if !is_signed {
            return Err(HeaderChainError::Signature(i));
        }
        last = Some(header);
    }
    last.filter(|last| last.kind == GroupHeaderKind::Epoch).ok_or(HeaderChainError::Empty)
}

/// Verifies the header by which the group of `epoch` requests a refresh (new node, step 1), as
/// [`verify_chain`] does.
///
/// # Errors
/// As [`verify_chain`].
pub fn verify_refresh(
    epoch: &GroupHeader,
    bytes: &[u8],
    signature: &[u8],
    verify: impl Fn(&[u8], &[u8]) -> bool,
) -> Result<GroupHeader, HeaderChainError> {
    let header = GroupHeader::parse(bytes).map_err(|why| HeaderChainError::Malformed(0, why))?;
    if header.kind != GroupHeaderKind::Refresh {
        return Err(HeaderChainError::Kind(0));
    }
    // The witnesses and voting keys of a refresh header belong to the previous epoch.
    let is_about = header.witnesses == epoch.witnesses && header.voting.len() == epoch.voting.len();
    if !header.follows(epoch) || !is_about {
        return Err(HeaderChainError::Order(0));
    }
    if verify(bytes, signature) { Ok(header) } else { Err(HeaderChainError::Signature(0)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::testing::{group, identity};

    fn chain() -> Vec<GroupHeader> {
        let keys = vec![Some(identity(9).public()); 4];
        let mut chain = vec![GroupHeader::first(group(1, 0), keys, Sha256Digest([7; 32]), None)];
        for (epoch, faulty, time) in [(2, 2, 1_000), (3, 1, 2_000)] {
            chain.push(GroupHeader {
                key: GroupKeyKind::Rsa,
                kind: GroupHeaderKind::Epoch,
                epoch,
                run: 1,
                previous: chain.last().unwrap().digest(),
                group: group(faulty, 100),
                voting: vec![None; 3 * usize::from(faulty) + 1],
                witnesses: Sha256Digest([8; 32]),
                time: Some(UnixSeconds(time)),
            });
        }
        chain
    }

    /// In these tests the signature of a message is its digest.
    fn verify(message: &[u8], signature: &[u8]) -> bool {
        Sha256Digest::of(&[message]).0 == signature
    }

    fn check(chain: &[GroupHeader]) -> Result<GroupHeader, HeaderChainError> {
        let bytes: Vec<_> = chain.iter().map(|it| (it.to_bytes(), it.digest().0)).collect();
        verify_chain(bytes.iter().map(|(bytes, digest)| (&bytes[..], &digest[..])), verify)
    }

    #[test]
    fn group_headers_round_trip() {
        for header in chain() {
            let bytes = header.to_bytes();
            assert_eq!(GroupHeader::parse(&bytes), Ok(header));
            for len in 0..bytes.len() {
                assert!(GroupHeader::parse(&bytes[..len]).is_err());
            }
            assert_eq!(
                GroupHeader::parse(&[&bytes[..], &[0]].concat()),
                Err(MalformedEncoding("too long"))
            );
        }
    }

    #[test]
    fn header_chain_is_verified_to_its_last_epoch() {
        let chain = chain();
        assert_eq!(check(&chain), Ok(chain[2].clone()));
        assert_eq!(check(&[]), Err(HeaderChainError::Empty));
        assert_eq!(check(&chain[1..]), Err(HeaderChainError::Order(0)));
        assert_eq!(check(&[chain[0].clone(), chain[2].clone()]), Err(HeaderChainError::Order(1)));
        let mut refresh = chain.clone();
        refresh[1].kind = GroupHeaderKind::Refresh;
        assert_eq!(check(&refresh), Err(HeaderChainError::Kind(1)));
        for time in [None, Some(UnixSeconds(999))] {
            let mut earlier = chain.clone();
            earlier[2].time = time;
            assert_eq!(check(&earlier), Err(HeaderChainError::Order(2)));
        }
        let bytes = chain[0].to_bytes();
        assert_eq!(
            verify_chain([(&bytes[..], &[][..])], verify),
            Err(HeaderChainError::Signature(0))
        );
    }

    #[test]
    fn a_refresh_header_follows_its_epoch() {
        let epoch = &chain()[0];
        let refresh = GroupHeader {
            kind: GroupHeaderKind::Refresh,
            epoch: 2,
            run: 3,
            previous: epoch.digest(),
            ..epoch.clone()
        };
        let check = |it: &GroupHeader| {
            verify_refresh(epoch, &it.to_bytes(), &it.digest().0, verify).map(drop)
        };
        assert_eq!(check(&refresh), Ok(()));
        let later = GroupHeader { epoch: 3, ..refresh.clone() };
        assert_eq!(check(&later), Err(HeaderChainError::Order(0)));
        let other_witnesses = GroupHeader { witnesses: Sha256Digest([0; 32]), ..refresh.clone() };
        assert_eq!(check(&other_witnesses), Err(HeaderChainError::Order(0)));
        let other_size = GroupHeader { voting: vec![None; 7], ..refresh };
        assert_eq!(check(&other_size), Err(HeaderChainError::Order(0)));
    }

    #[test]
    fn a_group_has_3f_plus_1_different_servers() {
        let members = group(2, 0).members().to_vec();
        assert_eq!(QuorumGroup::new(members[..5].to_vec()), Err(QuorumGroupError::Size(5)));
        assert_eq!(QuorumGroup::new(Vec::new()), Err(QuorumGroupError::Size(0)));
        let mut twice = members;
        twice[5] = twice[1];
        let same = QuorumGroupError::SameIdentity(ServerIndex(1), ServerIndex(5));
        assert_eq!(QuorumGroup::new(twice), Err(same));
    }
}
