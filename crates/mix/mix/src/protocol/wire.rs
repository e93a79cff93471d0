//! The messages between a member and the proxy, and their encoding.
//!
//! A connection carries whole messages and has authenticated the keys of both ends. The member's
//! first message is a [`MixHello`], which the proxy answers with [`ProxyToMember::Welcome`] or
//! [`ProxyToMember::Refused`]. A decoded message is well formed and within the bounds that the
//! [`MixTerms`] of the group set. Each message has exactly one encoding. Messages between members
//! and the administrators are opaque bytes to the proxy. The layout is in
//! `docs/protocols/mix-messages.md`.

pub(crate) mod fields;
mod past;
mod refusal;
mod terms;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;

use self::fields::MixFields as _;
pub use self::past::{ArchiveRecord, ArchivedRound};
pub(crate) use self::past::{GAP_LEN, framed, is_incomplete, unframed};
pub use self::refusal::ProxyRefusal;
pub use self::terms::{MAX_BODY_LEN, MixTerms, MixTermsError};
use crate::MailboxShape;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::round::{NONCE_LEN, Participant, ReadRound, RoundPosition, RoundStart};

/// The version of the protocol, the first byte of a greeting.
pub const VERSION: u8 = 4;
/// The longest message until the proxy has answered the greeting, in bytes, in both directions.
pub const MAX_GREETING_LEN: usize = 256;
/// The longest name of a group, in bytes.
pub const MAX_GROUP_NAME_LEN: usize = 32;
/// The longest request to join, and the longest answer to one, in bytes.
pub const MAX_JOIN_LEN: usize = 1024;
/// The longest notice of a member to the administrators, in bytes.
pub const MAX_NOTICE_LEN: usize = 256;
/// The longest message that sets an engine up, in bytes.
pub const MAX_SET_UP_LEN: usize = 256 << 10;

/// The records of a [`ProxyToMember::Past`] have about this many bytes, or are one round.
pub const MAX_PAST_LEN: usize = 64 << 10;

/// Why bytes could not be decoded as a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixWireError {
    /// The greeting is of another version.
    #[error("a greeting of version {0}, and not {VERSION}")]
    Version(u8),
    /// The kind is unknown, or not allowed here.
    #[error("a message of kind {0}, which is unknown here")]
    Kind(u8),
    /// The message is too short or too long.
    #[error("a message has a wrong length")]
    Length,
    /// A field has an invalid value.
    #[error("{0} is not valid")]
    Invalid(&'static str),
}

/// The name of a group: 1 to [`MAX_GROUP_NAME_LEN`] small letters, digits and hyphens.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupName(String);

/// A string is not the name of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a group's name has 1 to {MAX_GROUP_NAME_LEN} small letters, digits and hyphens")]
pub struct GroupNameError;

impl GroupName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for GroupName {
    type Err = GroupNameError;

    fn from_str(text: &str) -> Result<Self, GroupNameError> {
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_name =
            (1..=MAX_GROUP_NAME_LEN).contains(&text.len()) && text.bytes().all(is_allowed);
        if is_name { Ok(Self(text.to_owned())) } else { Err(GroupNameError) }
    }
}

impl fmt::Display for GroupName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// The first message of a connection. It names the group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MixHello {
    /// The name of the group.
    pub group: GroupName,
}

impl MixHello {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        [&[VERSION], self.group.as_str().as_bytes()].concat()
    }

    /// The message that `bytes` are.
    ///
    /// # Errors
    /// If they are of another version or not a greeting.
    pub fn decode(bytes: &[u8]) -> Result<Self, MixWireError> {
        let mut reader = FieldReader::new(bytes);
        match reader.u8()? {
            VERSION => {}
            other => return Err(MixWireError::Version(other)),
        }
        let name = std::str::from_utf8(reader.rest_up_to(MAX_GROUP_NAME_LEN)?).ok();
        let group = name.and_then(|name| name.parse().ok());
        Ok(Self { group: group.ok_or(MixWireError::Invalid("the name of a group"))? })
    }
}

/// The client's membership, as the proxy knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MembershipStatus {
    /// Not a member, and without a pending join request. It may join.
    Unknown,
    /// Its join request is waiting for the administrator.
    Waiting,
    /// A member of the current epoch.
    Member,
    /// An administrator: a member, except before the first epoch.
    Administrator,
}

/// A message after the greeting from a member or from a client that wants to join.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberToProxy {
    /// Asks an administrator to be admitted.
    Join(Vec<u8>),
    /// A member's notice to the administrators: its prekey, or that it leaves. It replaces the
    /// member's previous notice.
    Notice(Vec<u8>),
    /// An administrator's announcement of the next epoch.
    Announce(Vec<u8>),
    /// An administrator's answer to a join request, which is then no longer pending.
    JoinAnswer {
        /// The key of the client that sent the request.
        key: IdentityPublicKey,
        /// The answer, for the client.
        answer: Vec<u8>,
    },
    /// The engine's set-up.
    SetUp(Vec<u8>),
    /// The exchange of a round.
    Request {
        /// The round.
        round: u64,
        /// The nonce of the member's mask or seals.
        nonce: [u8; NONCE_LEN],
        /// The engine's request. In an exchange by broadcast: the member's own slots.
        body: Vec<u8>,
    },
    /// An auditor's set-up message.
    AuditSetUp(Vec<u8>),
    /// An auditor's garbled circuit.
    AuditTables(Vec<u8>),
    /// Begins exchanges by broadcast: the member has the key of the epoch. If the proxy keeps
    /// rounds, it asks for those after this one. The proxy answers with [`ProxyToMember::Past`].
    CatchUp(RoundPosition),
    /// To a proxy that has lost its state, or has an old one: the newest announcement that the
    /// member has, and the last round of its epoch that the member knows.
    Restore {
        /// The round. The proxy does not open this one or an earlier one.
        round: u64,
        /// The announcement.
        announcement: Vec<u8>,
    },
}

/// A message of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProxyToMember {
    /// The answer to the greeting.
    Welcome {
        /// The terms of the group's exchanges.
        terms: MixTerms,
        /// The client's membership, as the proxy knows it.
        status: MembershipStatus,
        /// The current epoch; 0 before the first one.
        epoch: u32,
        /// The last round that was opened, or 0. A member that knows a later one sends
        /// [`MemberToProxy::Restore`].
        round: u64,
        /// Whether a member has restored this epoch at the proxy, which had lost it.
        is_restored: bool,
    },
    /// The proxy ends the connection.
    Refused(ProxyRefusal),
    /// To the administrators: a join request. It is pending until an answer or an announcement.
    JoinRequest {
        /// The key of the client, which the connection has authenticated.
        key: IdentityPublicKey,
        /// The sealed join request.
        request: Vec<u8>,
    },
    /// To the administrators: a member's last notice.
    Notice {
        /// The member's key, which the connection has authenticated.
        key: IdentityPublicKey,
        /// The notice.
        notice: Vec<u8>,
    },
    /// An administrator's answer to the client's request to join.
    JoinAnswer(Vec<u8>),
    /// The announcement of the epoch that begins with the next round, or of the current one after
    /// the greeting.
    Announcement(Vec<u8>),
    /// The engine's set-up.
    SetUp(Vec<u8>),
    /// A round is open. The member answers with its request.
    Round {
        /// The round.
        start: RoundStart,
        /// What the engine needs for the request. In an exchange by broadcast: the slots of the
        /// participants of the round that is read, in the order of the participants.
        opening: Vec<u8>,
    },
    /// The answer to the request of this round. The member is a participant of the round.
    Answer {
        /// The round.
        round: u64,
        /// The engine's answer. Empty in an exchange by broadcast.
        body: Vec<u8>,
    },
    /// The request came after the round was closed. The member is not a participant of the round.
    Late {
        /// The round.
        round: u64,
    },
    /// Asks the member to be the auditor of an update of another one.
    Audit {
        /// The epoch.
        epoch: u32,
        /// A round of this epoch. The member was told its participants.
        round: u64,
        /// The participant whose update is audited.
        subject: Participant,
    },
    /// The proxy's choices in the audit that it has requested.
    AuditChoices(Vec<u8>),
    /// To the administrators: two auditors have found that a member has written into slots that are
    /// not its own, or into more than it may.
    AuditFailed {
        /// The member's key.
        key: IdentityPublicKey,
        /// The round.
        round: u64,
    },
    /// Rounds that the proxy has kept, in ascending order, with the announcements of their epochs.
    Past {
        /// Whether there are no more. If there are, the member asks again.
        is_last: bool,
        /// The records.
        records: Vec<ArchiveRecord>,
    },
}

impl MemberToProxy {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let parts: &[&[u8]] = match self {
            Self::Join(request) => &[&[1], request],
            Self::Notice(notice) => &[&[2], notice],
            Self::Announce(announcement) => &[&[3], announcement],
            Self::JoinAnswer { key, answer } => &[&[4], &key.to_bytes(), answer],
            Self::SetUp(message) => &[&[5], message],
            Self::Request { round, nonce, body } => &[&[6], &round.to_be_bytes(), nonce, body],
            Self::AuditSetUp(message) => &[&[7], message],
            Self::AuditTables(message) => &[&[8], message],
            Self::CatchUp(RoundPosition { epoch, round }) => {
                &[&[9], &epoch.to_be_bytes(), &round.to_be_bytes()]
            }
            Self::Restore { round, announcement } => &[&[10], &round.to_be_bytes(), announcement],
        };
        parts.concat()
    }

    /// The message that `bytes` are.
    ///
    /// # Errors
    /// If they are not a message of a group with these terms.
    pub fn decode(bytes: &[u8], terms: &MixTerms) -> Result<Self, MixWireError> {
        let mut reader = FieldReader::new(bytes);
        let message = match reader.u8()? {
            1 => Self::Join(reader.body(MAX_JOIN_LEN)?),
            2 => Self::Notice(reader.body(MAX_NOTICE_LEN)?),
            3 => Self::Announce(reader.body(terms.max_announcement_len())?),
            4 => Self::JoinAnswer { key: reader.key()?, answer: reader.body(MAX_JOIN_LEN)? },
            5 => Self::SetUp(reader.body(MAX_SET_UP_LEN)?),
            6 => Self::Request {
                round: reader.u64()?,
                nonce: reader.take()?,
                body: reader.body(terms.max_body_len())?,
            },
            7 => Self::AuditSetUp(reader.body(terms.max_audit_len())?),
            8 => Self::AuditTables(reader.body(terms.max_audit_len())?),
            9 => Self::CatchUp(RoundPosition { epoch: reader.u32()?, round: reader.u64()? }),
            10 => Self::Restore {
                round: reader.u64()?,
                announcement: reader.body(terms.max_announcement_len())?,
            },
            other => return Err(MixWireError::Kind(other)),
        };
        reader.finish()?;
        Ok(message)
    }
}

impl ProxyToMember {
    /// The message's bytes.
    ///
    /// # Panics
    /// If there are more participants than a group can have members, or they are not in ascending
    /// order.
    pub fn encode(&self) -> Vec<u8> {
        let parts: &[&[u8]] = match self {
            Self::Welcome { terms, status, epoch, round, is_restored } => &[
                &[1],
                &encode_terms(terms),
                &[*status as u8],
                &epoch.to_be_bytes(),
                &round.to_be_bytes(),
                &[u8::from(*is_restored)],
            ],
            Self::Refused(refusal) => &[&[2, place(&ProxyRefusal::ALL, refusal)]],
            Self::JoinRequest { key, request } => &[&[3], &key.to_bytes(), request],
            Self::Notice { key, notice } => &[&[4], &key.to_bytes(), notice],
            Self::JoinAnswer(answer) => &[&[5], answer],
            Self::Announcement(announcement) => &[&[6], announcement],
            Self::SetUp(message) => &[&[7], message],
            Self::Round { start, opening } => &[&[8], &encode_start(start), opening],
            Self::Answer { round, body } => &[&[9], &round.to_be_bytes(), body],
            Self::Late { round } => &[&[10], &round.to_be_bytes()],
            Self::Audit { epoch, round, subject } => &[
                &[11],
                &epoch.to_be_bytes(),
                &round.to_be_bytes(),
                &subject.member.to_be_bytes(),
                &subject.nonce,
            ],
            Self::AuditChoices(message) => &[&[12], message],
            Self::AuditFailed { key, round } => &[&[13], &key.to_bytes(), &round.to_be_bytes()],
            Self::Past { is_last, records } => &[&[14, u8::from(*is_last)], &encode_past(records)],
        };
        parts.concat()
    }

    /// The message that `bytes` are. `terms` are those of the proxy's welcome, if it has arrived.
    ///
    /// # Errors
    /// If they are not a message of a group with these terms. Without terms, only a welcome and a
    /// refusal are messages; with them, a welcome is not.
    pub fn decode(bytes: &[u8], terms: Option<&MixTerms>) -> Result<Self, MixWireError> {
        let mut reader = FieldReader::new(bytes);
        let message = match (reader.u8()?, terms) {
            (1, None) => Self::Welcome {
                terms: decode_terms(&mut reader)?,
                status: decode_membership_status(reader.u8()?)?,
                epoch: reader.u32()?,
                round: reader.u64()?,
                is_restored: at(&[false, true], reader.u8()?, "whether an epoch is restored")?,
            },
            (2, _) => Self::Refused(at(&ProxyRefusal::ALL, reader.u8()?, "a refusal")?),
            (3, Some(_)) => {
                Self::JoinRequest { key: reader.key()?, request: reader.body(MAX_JOIN_LEN)? }
            }
            (4, Some(_)) => {
                Self::Notice { key: reader.key()?, notice: reader.body(MAX_NOTICE_LEN)? }
            }
            (5, Some(_)) => Self::JoinAnswer(reader.body(MAX_JOIN_LEN)?),
            (6, Some(terms)) => Self::Announcement(reader.body(terms.max_announcement_len())?),
            (7, Some(_)) => Self::SetUp(reader.body(MAX_SET_UP_LEN)?),
            (8, Some(terms)) => Self::Round {
                start: decode_start(&mut reader, terms.shape())?,
                opening: reader.body(terms.max_body_len())?,
            },
            (9, Some(terms)) => {
                Self::Answer { round: reader.u64()?, body: reader.body(terms.max_body_len())? }
            }
            (10, Some(_)) => Self::Late { round: reader.u64()? },
            (11, Some(_)) => Self::Audit {
                epoch: reader.u32()?,
                round: reader.u64()?,
                subject: Participant { member: reader.u16()?, nonce: reader.take()? },
            },
            (12, Some(terms)) => Self::AuditChoices(reader.body(terms.max_audit_len())?),
            (13, Some(_)) => Self::AuditFailed { key: reader.key()?, round: reader.u64()? },
            (14, Some(terms)) => Self::Past {
                is_last: at(&[false, true], reader.u8()?, "the end of past rounds")?,
                records: decode_past(&mut reader, terms)?,
            },
            (other, _) => return Err(MixWireError::Kind(other)),
        };
        reader.finish()?;
        Ok(message)
    }
}

/// The kind of exchange, how long rounds are kept in seconds, the intervals in milliseconds, and
/// the numbers of the group.
fn encode_terms(terms: &MixTerms) -> Vec<u8> {
    let shape = terms.shape();
    let mut out = vec![terms.exchange().number()];
    out.extend(u32::try_from(terms.keep().as_secs()).unwrap_or(u32::MAX).to_be_bytes());
    for interval in [terms.interval(), terms.least_interval()] {
        let milliseconds = u32::try_from(interval.as_millis()).expect("at most an hour");
        out.extend(milliseconds.to_be_bytes());
    }
    for number in
        [shape.members(), shape.slots_per_member(), shape.writes(), shape.reads(), shape.slot_len()]
    {
        out.extend(u16::try_from(number).expect("at most 4096").to_be_bytes());
    }
    out
}

fn decode_terms(reader: &mut FieldReader<'_>) -> Result<MixTerms, MixWireError> {
    let exchange = MixExchangeKind::from_number(reader.u8()?)
        .ok_or(MixWireError::Invalid("the kind of exchange"))?;
    let keep = Duration::from_secs(reader.u32()?.into());
    let mut interval = || reader.u32().map(|count| Duration::from_millis(count.into()));
    let (interval, least_interval) = (interval()?, interval()?);
    let mut number = || reader.u16().map(usize::from);
    let shape = MailboxShape::new(number()?, number()?, number()?, number()?, number()?)
        .map_err(|_| MixWireError::Invalid("the shape of the group"))?;
    MixTerms::new(exchange, shape, interval, least_interval)
        .ok()
        .map(|terms| terms.with_keep(keep))
        .filter(|terms| terms.keep() == keep)
        .ok_or(MixWireError::Invalid("the intervals or the kind of exchange"))
}

fn decode_membership_status(byte: u8) -> Result<MembershipStatus, MixWireError> {
    let all = [
        MembershipStatus::Unknown,
        MembershipStatus::Waiting,
        MembershipStatus::Member,
        MembershipStatus::Administrator,
    ];
    at(&all, byte, "the standing of a client")
}

/// Epoch, round, and the round that is read with its participants, or 0.
fn encode_start(start: &RoundStart) -> Vec<u8> {
    let mut out = start.epoch.to_be_bytes().to_vec();
    out.extend(start.round.to_be_bytes());
    let Some(read) = &start.read else {
        out.extend(0_u64.to_be_bytes());
        return out;
    };
    let ascending = read.participants.is_sorted_by(|one, next| one.member < next.member);
    assert!(ascending, "participants have ascending numbers");
    out.extend(read.round.to_be_bytes());
    encode_participants(&read.participants, &mut out);
    out
}

fn encode_participants(participants: &[Participant], out: &mut Vec<u8>) {
    let count = u16::try_from(participants.len()).expect("a group has 1,024 members at most");
    out.extend(count.to_be_bytes());
    for Participant { member, nonce } in participants {
        out.extend(member.to_be_bytes());
        out.extend(nonce);
    }
}

/// Each record after its length.
fn encode_past(records: &[ArchiveRecord]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.put_counted(&record.encode());
    }
    out
}

fn decode_past(
    reader: &mut FieldReader<'_>,
    terms: &MixTerms,
) -> Result<Vec<ArchiveRecord>, MixWireError> {
    let mut records = Vec::new();
    while !reader.is_empty() {
        records.push(ArchiveRecord::decode(reader.counted_up_to(terms.max_past_len())?)?);
    }
    Ok(records)
}

fn decode_start(
    reader: &mut FieldReader<'_>,
    shape: &MailboxShape,
) -> Result<RoundStart, MixWireError> {
    let (epoch, round) = (reader.u32()?, reader.u64()?);
    let read = match reader.u64()? {
        0 => None,
        read if read >= round => return Err(MixWireError::Invalid("the round that is read")),
        read => {
            let participants = decode_participants(reader, shape.members())?;
            Some(ReadRound { round: read, participants })
        }
    };
    Ok(RoundStart { epoch, round, read })
}

fn decode_participants(
    reader: &mut FieldReader<'_>,
    members: usize,
) -> Result<Vec<Participant>, MixWireError> {
    let count = usize::from(reader.u16()?);
    if count > members {
        return Err(MixWireError::Invalid("the number of participants"));
    }
    let participants = (0..count)
        .map(|_| Ok(Participant { member: reader.u16()?, nonce: reader.take()? }))
        .collect::<Result<Vec<_>, MixWireError>>()?;
    let are_members = participants.iter().all(|it| usize::from(it.member) < members);
    if !are_members || !participants.is_sorted_by(|one, next| one.member < next.member) {
        return Err(MixWireError::Invalid("the list of participants"));
    }
    Ok(participants)
}

/// The index of a value among all values of its type, which is its encoding.
fn place<T: PartialEq>(all: &[T], value: &T) -> u8 {
    let place = all.iter().position(|it| it == value).expect("all values are there");
    u8::try_from(place).expect("there are few")
}

fn at<T: Copy>(all: &[T], place: u8, what: &'static str) -> Result<T, MixWireError> {
    all.get(usize::from(place)).copied().ok_or(MixWireError::Invalid(what))
}

#[cfg(test)]
mod tests;
