//! The records of a group's archive, in its segments and in messages to members.

use encoding::{FieldReader, FieldWrite as _};
use sha2::{Digest, Sha256};

use super::{MixWireError, decode_participants, encode_participants};
use crate::protocol::exchange::MAX_BROADCAST_SLOTS;
use crate::protocol::round::{ReadRound, RoundPosition};
use crate::protocol::shape::{MEMBERS, SLOT_LEN};

const GAP: u8 = 0;
const ANNOUNCEMENT: u8 = 1;
const ROUND: u8 = 2;

/// The bytes of a check in a segment.
const CHECK_LEN: usize = 8;
/// The bytes of a gap in a message, with its length.
pub(crate) const GAP_LEN: usize = 4 + 1 + 4 + 8;
/// The longest record in a segment, in bytes: more than a mailbox.
const MAX_RECORD_LEN: usize = 128 << 20;

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ArchiveRecord {
    /// Rounds up to this one are missing. At the beginning of a segment: the last round that was
    /// closed before.
    Gap(RoundPosition),
    /// The announcement of the epoch of the rounds that follow.
    Announcement(Vec<u8>),
    /// A closed round.
    Round(ArchivedRound),
}

/// A closed round. The participants' numbers are those in its epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedRound {
    /// The epoch.
    pub epoch: u32,
    /// When it was closed, in seconds since 1970, as the proxy says.
    pub closed_s: u64,
    /// The number of slots of a member.
    pub slots_per_member: u16,
    /// The bytes of a slot.
    pub slot_len: u16,
    /// The round and its participants.
    pub read: ReadRound,
    /// Their slots, in the same order.
    pub mailbox: Vec<u8>,
}

impl ArchivedRound {
    /// Its position.
    pub fn position(&self) -> RoundPosition {
        RoundPosition { epoch: self.epoch, round: self.read.round }
    }
}

impl ArchiveRecord {
    /// The round of the record, or the last one that it says is missing; `None` of an announcement.
    pub fn position(&self) -> Option<RoundPosition> {
        match self {
            Self::Gap(position) => Some(*position),
            Self::Round(round) => Some(round.position()),
            Self::Announcement(_) => None,
        }
    }

    /// The bytes of the record.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            Self::Gap(RoundPosition { epoch, round }) => {
                [&[GAP][..], &epoch.to_be_bytes(), &round.to_be_bytes()].concat()
            }
            Self::Announcement(announcement) => [&[ANNOUNCEMENT][..], announcement].concat(),
            Self::Round(round) => {
                let mut out = vec![ROUND];
                out.extend(round.epoch.to_be_bytes());
                out.extend(round.read.round.to_be_bytes());
                out.extend(round.closed_s.to_be_bytes());
                out.extend(round.slots_per_member.to_be_bytes());
                out.extend(round.slot_len.to_be_bytes());
                encode_participants(&round.read.participants, &mut out);
                out.extend_from_slice(&round.mailbox);
                out
            }
        }
    }

    /// The record that `bytes` are.
    ///
    /// # Errors
    /// If they are malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, MixWireError> {
        let mut reader = FieldReader::new(bytes);
        let record = match reader.u8()? {
            GAP => Self::Gap(RoundPosition { epoch: reader.u32()?, round: reader.u64()? }),
            ANNOUNCEMENT => Self::Announcement(reader.rest().to_vec()),
            ROUND => {
                let (epoch, round, closed_s) = (reader.u32()?, reader.u64()?, reader.u64()?);
                let (slots_per_member, slot_len) = (reader.u16()?, reader.u16()?);
                let (slots, len) = (usize::from(slots_per_member), usize::from(slot_len));
                if !(1..=MAX_BROADCAST_SLOTS).contains(&slots) || !SLOT_LEN.contains(&len) {
                    return Err(MixWireError::Invalid("the shape of a past round"));
                }
                let participants = decode_participants(&mut reader, *MEMBERS.end())?;
                let mailbox = reader.bytes(participants.len() * slots * len)?.to_vec();
                let read = ReadRound { round, participants };
                let round =
                    ArchivedRound { epoch, closed_s, slots_per_member, slot_len, read, mailbox };
                Self::Round(round)
            }
            _ => return Err(MixWireError::Invalid("a record of a past round")),
        };
        reader.finish()?;
        Ok(record)
    }
}

/// The bytes of a record in a segment: its length, a check of its bytes, and its bytes.
pub(crate) fn framed(record: &ArchiveRecord) -> Vec<u8> {
    let body = record.encode();
    let mut out = Sha256::digest(&body)[..CHECK_LEN].to_vec();
    out.put_counted(&body);
    out
}

/// The first record of these bytes, and its length in them; `None` if it is damaged or incomplete.
pub(crate) fn unframed(bytes: &[u8]) -> Option<(ArchiveRecord, usize)> {
    let mut reader = FieldReader::new(bytes);
    let check: [u8; CHECK_LEN] = reader.take().ok()?;
    let body = reader.counted_up_to(MAX_RECORD_LEN).ok()?;
    if Sha256::digest(body)[..CHECK_LEN] != check {
        return None;
    }
    Some((ArchiveRecord::decode(body).ok()?, CHECK_LEN + 4 + body.len()))
}

/// Whether these bytes are the first of a record that goes on: of one that was written in part.
pub(crate) fn is_incomplete(bytes: &[u8]) -> bool {
    let after_check = bytes.split_at_checked(CHECK_LEN);
    let head = after_check.and_then(|(_, rest)| rest.split_first_chunk::<4>());
    let Some((len, body)) = head else { return true };
    let len = usize::try_from(u32::from_be_bytes(*len)).unwrap_or(usize::MAX);
    len <= MAX_RECORD_LEN && body.len() < len
}
