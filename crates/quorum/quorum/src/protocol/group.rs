//! The servers of an epoch, and the chain of headers by which each group names the next.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;

use super::combination::{CombinatorialSharing, GroupTooLarge, MAX_FAULTY, ServerIndex};
use super::log_types::{ServerSet, Voter};
use super::unix_seconds::UnixSeconds;
use super::voting::{read_optional_key, write_key};
use super::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};

/// The first bytes of every header. A message of a user must not begin with them.
pub const HEADER_MAGIC: [u8; 16] = *b"SNDR-QUORUM-HDR\0";

const REFRESH_KIND: u8 = 1;
/// The header of an epoch by an earlier version of this program.
const EPOCH_KIND_WITHOUT_TIME: u8 = 2;
const EPOCH_KIND: u8 = 3;

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
    combination: CombinatorialSharing,
}

/// Why servers do not form a group.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum QuorumGroupError {
    /// The number of servers is not 3f+1 with f from 1 to 4.
    #[error("a group has 4, 7, 10 or 13 servers, not {0}")]
    Size(usize),
    /// The number of servers is 3f+1 with a larger f.
    #[error(transparent)]
    TooLarge(#[from] GroupTooLarge),
    /// Two servers have the same identity.
    #[error("servers {0} and {1} have the same identity key")]
    SameIdentity(ServerIndex, ServerIndex),
}

/// The number of faulty servers that a group of this many servers tolerates.
fn faulty(servers: usize) -> Result<u8, QuorumGroupError> {
    (1..=u8::MAX)
        .find(|&f| servers == 3 * usize::from(f) + 1)
        .ok_or(QuorumGroupError::Size(servers))
}

impl QuorumGroup {
    /// A group of these servers, in the order of their indices.
    ///
    /// # Errors
    /// If their number is not 3f+1 for an f from 1 to 4, or two have the same identity.
    pub fn new(members: Vec<QuorumMember>) -> Result<Self, QuorumGroupError> {
        let combination = CombinatorialSharing::new(faulty(members.len())?)?;
        let mut seen = HashSet::new();
        for (index, member) in combination.servers().zip(&members) {
            if !seen.insert(member.identity.to_bytes()) {
                let mut same = members.iter().zip(combination.servers());
                let first = same.find(|(it, _)| it.identity == member.identity);
                let first = first.map_or(index, |(_, first)| first);
                return Err(QuorumGroupError::SameIdentity(first, index));
            }
        }
        Ok(Self { members, combination })
    }

    /// Whether a group may have this many servers.
    ///
    /// # Errors
    /// If not.
    pub fn check_size(servers: usize) -> Result<(), QuorumGroupError> {
        Ok(CombinatorialSharing::new(faulty(servers)?).map(drop)?)
    }

    /// The servers, in the order of their indices.
    pub fn members(&self) -> &[QuorumMember] {
        &self.members
    }

    /// Which server holds which shares.
    pub fn combination(&self) -> &CombinatorialSharing {
        &self.combination
    }

    /// The server with an index, if there is one.
    pub fn member(&self, server: ServerIndex) -> Option<&QuorumMember> {
        self.members.get(usize::from(server.0))
    }

    /// The index of the server with an identity, if there is one.
    pub fn index_of(&self, identity: &IdentityPublicKey) -> Option<ServerIndex> {
        let mut servers = self.combination.servers().zip(&self.members);
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
        out.push(u8::try_from(self.combination.faulty()).expect("f is at most 4"));
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
            return Err(MalformedEncoding("f is not from 1 to 4"));
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

/// The purpose of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupHeaderKind {
    /// The old group asks the new group to take over. The witnesses are those of the old group.
    Refresh,
    /// The new group has taken over. The witnesses are those of the new group.
    Epoch,
}

/// A statement that a group signs with the group key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// The purpose.
    pub kind: GroupHeaderKind,
    /// The number of the epoch that begins, from 1.
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
    /// The digest of the witnesses.
    pub witnesses: Sha256Digest,
    /// When the epoch began, by the clocks of its servers or of the ceremony. A refresh header has
    /// no time, and neither have the headers that earlier versions of this program made.
    pub time: Option<UnixSeconds>,
}

impl GroupHeader {
    /// The header of the first epoch, whose shares and voting keys come from the ceremony, at this
    /// time.
    pub fn first(
        group: QuorumGroup,
        voting: Vec<Option<IdentityPublicKey>>,
        witnesses: Sha256Digest,
        time: Option<UnixSeconds>,
    ) -> Self {
        let (kind, previous) = (GroupHeaderKind::Epoch, Sha256Digest([0; 32]));
        Self { kind, epoch: 1, run: 0, previous, group, voting, witnesses, time }
    }

    /// The message that the group signs.
    ///
    /// # Panics
    /// If there are more voting keys than the largest group has servers. A parsed header never has.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = HEADER_MAGIC.to_vec();
        out.push(match (self.kind, self.time) {
            (GroupHeaderKind::Refresh, _) => REFRESH_KIND,
            (GroupHeaderKind::Epoch, None) => EPOCH_KIND_WITHOUT_TIME,
            (GroupHeaderKind::Epoch, Some(_)) => EPOCH_KIND,
        });
        out.put_u64(self.epoch);
        out.put_u32(self.run);
        out.extend(self.previous.0);
        self.group.write(&mut out);
        out.push(u8::try_from(self.voting.len()).expect("a group has 13 servers"));
        self.voting.iter().for_each(|key| write_key(key.as_ref(), &mut out));
        out.extend(self.witnesses.0);
        if let (GroupHeaderKind::Epoch, Some(time)) = (self.kind, self.time) {
            out.put_u64(time.0);
        }
        out
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
            REFRESH_KIND => GroupHeaderKind::Refresh,
            EPOCH_KIND_WITHOUT_TIME | EPOCH_KIND => GroupHeaderKind::Epoch,
            _ => return Err(MalformedEncoding("unknown kind of header")),
        };
        let (epoch, run, previous) = (reader.u64()?, reader.u32()?, reader.digest()?);
        let group = QuorumGroup::read(&mut reader)?;
        let count = reader.u8()?;
        let is_count = match kind {
            GroupHeaderKind::Refresh => matches!(count, 4 | 7 | 10 | 13),
            GroupHeaderKind::Epoch => usize::from(count) == group.members().len(),
        };
        if !is_count {
            return Err(MalformedEncoding("not as many voting keys as servers"));
        }
        let voting =
            (0..count).map(|_| read_optional_key(&mut reader)).collect::<Result<_, _>>()?;
        let witnesses = reader.digest()?;
        let time = if code == EPOCH_KIND { Some(UnixSeconds(reader.u64()?)) } else { None };
        reader.finish()?;
        Ok(Self { kind, epoch, run, previous, group, voting, witnesses, time })
    }

    /// The digest of the header. The digest of a refresh header identifies the run.
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(&[&self.to_bytes()])
    }

    /// Whether this refresh or epoch header may follow the header of `epoch`.
    fn follows(&self, epoch: &Self) -> bool {
        epoch.epoch.checked_add(1) == Some(self.epoch) && self.previous == epoch.digest()
    }

    /// Whether this header of an epoch may follow `last` in a chain. The first header follows none.
    /// Once a header has a time, the following ones have one, which is never earlier.
    pub(crate) fn is_next(&self, last: Option<&Self>) -> bool {
        match last {
            Some(last) => self.follows(last) && self.time >= last.time,
            None => self.epoch == 1 && self.previous == Sha256Digest([0; 32]),
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
    /// A header does not follow the previous one. The first header must have epoch 1.
    #[error("header {0} does not follow the one before")]
    Order(usize),
    /// A signature is not the group key's.
    #[error("the signature of header {0} is wrong")]
    Signature(usize),
}

/// Verifies the chain of epoch headers from the first on. `verify` checks a signature of a message
/// with the group key. Returns the header of the last epoch.
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
        if header.kind != GroupHeaderKind::Epoch {
            return Err(HeaderChainError::Kind(i));
        }
        if !header.is_next(last.as_ref()) {
            return Err(HeaderChainError::Order(i));
        }
        if !verify(bytes, signature) {
            return Err(HeaderChainError::Signature(i));
        }
        last = Some(header);
    }
    last.ok_or(HeaderChainError::Empty)
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
