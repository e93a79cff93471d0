//! The archive of a group: the closed rounds that the proxy keeps for members that are away.
//!
//! The archive is a sequence of *segments*, each a file to which records are appended. The oldest
//! segment is removed when there are too many bytes, or when it is too old. This module decides
//! what is appended, removed and read, and does no input or output. [`ArchiveIndex`] has the
//! positions of all rounds.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use keys::IdentityPublicKey;

use super::MixGroupSettings;
use super::epoch::AnnouncedEpoch;
use crate::protocol::cost::ArchiveCost;
use crate::protocol::round::RoundPosition;
use crate::protocol::wire::{
    ArchiveRecord, ArchivedRound, GAP_LEN, MAX_PAST_LEN, MixTerms, framed, is_incomplete, unframed,
};

/// An archive has about this many segments when it is full.
const SEGMENTS: u64 = 16;
/// The range of the length of a segment in bytes.
const SEGMENT_LEN: std::ops::RangeInclusive<u64> = 64 << 10..=16 << 20;
/// What a message with one round has in addition to the round and the announcement, at most: the
/// lengths of the records, and a gap.
const PAST_OVERHEAD: usize = 64;

/// How much an archive keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// How long a round is kept; zero for no archive.
    pub keep: Duration,
    /// The maximum number of bytes.
    pub keep_bytes: u64,
}

impl ArchiveLimits {
    /// How long a round is kept in a group with these terms, if all members take part in each: for
    /// less than `keep` if there are too many bytes before. Whole segments are removed, so it may
    /// be up to a sixteenth less. At least a second, because zero is no archive: the last round is
    /// always kept.
    pub fn period(&self, terms: &MixTerms) -> Duration {
        let allowed = ArchiveCost::new(terms).period(self.keep_bytes);
        self.keep.min(allowed.max(Duration::from_secs(1)))
    }
}

/// What is in an archive, and where.
pub struct ArchiveIndex {
    settings: MixGroupSettings,
    segments: VecDeque<ArchiveSegment>,
    /// All rounds in ascending order.
    rounds: VecDeque<IndexedRound>,
    /// The members of the epochs of these rounds, and of the current epoch.
    epochs: BTreeMap<u32, AnnouncedEpoch>,
    /// Whether rounds are of the last of these epochs or an earlier one, and not of another epoch
    /// with such a number, which these epochs have replaced.
    is_of_these: bool,
    /// The last round that was closed, even if it was not kept.
    last_closed: RoundPosition,
    /// The number of the next segment.
    next_segment: u64,
    /// The last append: its bytes, whether it began a segment, and whether it is a round.
    appended: Option<(u64, bool, bool)>,
    /// Whether the next record begins a segment, because rounds after the last segment are not
    /// kept, or because this segment ends with bytes that cannot be read.
    is_broken: bool,
}

struct ArchiveSegment {
    number: u64,
    /// The last round that was closed before it began.
    after: RoundPosition,
    len: u64,
    /// When its first and its last round were closed, in seconds since 1970.
    began_s: u64,
    ended_s: u64,
}

struct IndexedRound {
    position: RoundPosition,
    segment: u64,
    place: RecordPlace,
}

/// The place of a record in its segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordPlace {
    /// Its first byte.
    pub offset: u64,
    /// Its length in bytes.
    pub len: usize,
}

/// What is to be written.
#[derive(Debug, PartialEq, Eq)]
pub struct ArchiveAppend {
    /// The number of the segment, which is greater than all before if it is new.
    pub segment: u64,
    /// The length of the segment before; 0 if it is new.
    pub start: u64,
    /// What is appended to it.
    pub bytes: Vec<u8>,
}

/// How a segment that was written before ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentEnd {
    /// With its last record.
    Whole,
    /// It is the last segment, and its last record was written in part; or it is empty.
    Torn {
        /// The length to which the segment is to be cut. If it is 0, it is to be removed.
        used: u64,
    },
    /// With bytes that cannot be read. They stay until the segment is removed.
    Unreadable {
        /// The number of bytes before them.
        used: u64,
    },
}

/// An archive has an announcement that no administrator of the group has signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the members announced in it are those of another group, or of another administrator")]
pub struct ForeignArchiveError;

/// A part of the answer to a member that catches up.
#[derive(Debug, PartialEq, Eq)]
pub enum PastPart {
    /// This record.
    Record(ArchiveRecord),
    /// The record at this place of a segment.
    Stored {
        /// The number of the segment.
        segment: u64,
        /// Its place.
        place: RecordPlace,
        /// Its round.
        position: RoundPosition,
    },
}

/// The next part of an archive for a member that catches up.
#[derive(Debug, PartialEq, Eq)]
pub struct PastBatch {
    /// The parts, in order.
    pub parts: Vec<PastPart>,
    /// Whether nothing follows.
    pub is_last: bool,
}

impl ArchiveIndex {
    /// The index of an archive without segments.
    pub fn new(settings: MixGroupSettings) -> Self {
        Self {
            settings,
            segments: VecDeque::new(),
            rounds: VecDeque::new(),
            epochs: BTreeMap::new(),
            is_of_these: true,
            last_closed: RoundPosition::default(),
            next_segment: 1,
            appended: None,
            is_broken: false,
        }
    }

    /// Adds a segment that was written before, at last at a time since 1970. Segments are added in
    /// ascending order of their numbers. Returns how it ends.
    ///
    /// # Errors
    /// If it belongs to another group. The index is then not to be used.
    pub fn load(
        &mut self,
        number: u64,
        bytes: &[u8],
        written_s: u64,
        is_last: bool,
    ) -> Result<SegmentEnd, ForeignArchiveError> {
        let mut used = 0;
        while let Some((record, len)) = unframed(&bytes[used..]) {
            let place = RecordPlace { offset: used as u64, len };
            if !self.load_record(number, record, place)? {
                break;
            }
            used += len;
        }
        let rest = &bytes[used..];
        let is_whole = rest.is_empty() && used > 0;
        // More than a round of the present terms is not the rest of one write.
        let is_short = rest.len() <= self.settings.terms.max_past_len();
        let is_torn = !is_whole && (bytes.is_empty() || is_last && is_short && is_incomplete(rest));
        let used = used as u64;
        if is_torn && used == 0 {
            return Ok(SegmentEnd::Torn { used });
        }
        self.next_segment = number + 1;
        self.is_broken = !is_whole && !is_torn;
        if self.is_broken && used == 0 {
            let after = self.last_closed;
            let [began_s, ended_s] = [written_s; 2];
            self.segments.push_back(ArchiveSegment { number, after, len: 0, began_s, ended_s });
        }
        if let Some(segment) = self.segments.back_mut() {
            segment.len = if self.is_broken { bytes.len() as u64 } else { used };
            if self.is_broken {
                // The rounds that cannot be read are removed with the others of their time.
                segment.ended_s = segment.ended_s.max(written_s);
            }
        }
        Ok(match (is_whole, is_torn) {
            (true, _) => SegmentEnd::Whole,
            (_, true) => SegmentEnd::Torn { used },
            _ => SegmentEnd::Unreadable { used },
        })
    }

    /// Adds a record at its place. Returns whether it can be there.
    fn load_record(
        &mut self,
        number: u64,
        record: ArchiveRecord,
        place: RecordPlace,
    ) -> Result<bool, ForeignArchiveError> {
        let is_first = place.offset == 0;
        Ok(match record {
            ArchiveRecord::Gap(after) if is_first => {
                let segment = ArchiveSegment { number, after, len: 0, began_s: 0, ended_s: 0 };
                self.segments.push_back(segment);
                self.last_closed = self.last_closed.max(after);
                true
            }
            _ if is_first => false,
            ArchiveRecord::Gap(_) => false,
            ArchiveRecord::Announcement(announcement) => {
                let epoch = self.verify(&announcement).ok_or(ForeignArchiveError)?;
                self.add_epoch(epoch).is_some()
            }
            ArchiveRecord::Round(round) => {
                let is_next = round.position() > self.last_closed;
                if is_next {
                    self.add_round(&round, place);
                }
                is_next
            }
        })
    }

    /// Appends an announcement or a round, which was closed at a time since 1970. Returns what is
    /// to be written, or `None` if nothing is.
    pub fn append(&mut self, now_s: u64, mut record: ArchiveRecord) -> Option<ArchiveAppend> {
        if let ArchiveRecord::Announcement(announcement) = &record {
            let added = self.verify(announcement).and_then(|epoch| self.add_epoch(epoch));
            self.is_of_these = added.is_some();
            if added != Some(true) {
                return None;
            }
        }
        let mut bytes = Vec::new();
        let is_new = self.needs_segment(now_s);
        if is_new {
            let after = self.last_closed;
            let number = self.next_segment;
            self.next_segment += 1;
            let segment = ArchiveSegment { number, after, len: 0, began_s: now_s, ended_s: now_s };
            self.segments.push_back(segment);
            self.is_broken = false;
            bytes.extend(framed(&ArchiveRecord::Gap(after)));
            // So a segment can be read when those before it were removed.
            if let (ArchiveRecord::Round(round), Some(epoch)) =
                (&record, self.epochs.values().last())
                && epoch.number() == round.epoch
            {
                let announcement = epoch.announcement().to_vec();
                bytes.extend(framed(&ArchiveRecord::Announcement(announcement)));
            }
        }
        let segment = self.segments.back_mut()?;
        segment.ended_s = now_s;
        let (number, start) = (segment.number, segment.len);
        let offset = start + bytes.len() as u64;
        if let ArchiveRecord::Round(round) = &mut record {
            round.closed_s = now_s;
        }
        let body = framed(&record);
        if let ArchiveRecord::Round(round) = &record {
            self.add_round(round, RecordPlace { offset, len: body.len() });
        }
        bytes.extend(body);
        let segment = self.segments.back_mut()?;
        segment.len += bytes.len() as u64;
        let is_round = matches!(record, ArchiveRecord::Round(_));
        self.appended = Some((bytes.len() as u64, is_new, is_round));
        Some(ArchiveAppend { segment: number, start, bytes })
    }

    /// What [`Self::append`] returned last could not be written. The round is then not kept, and
    /// the segment is as before: a new one does not exist, and its number is used again.
    pub fn handle_not_written(&mut self) {
        self.is_broken = true;
        let Some((len, is_new, is_round)) = self.appended.take() else { return };
        if is_round {
            self.rounds.pop_back();
        }
        if is_new {
            self.segments.pop_back();
            self.next_segment -= 1;
        } else if let Some(segment) = self.segments.back_mut() {
            segment.len -= len;
        }
    }

    /// The next records for a member that has read all rounds up to `after`. They have about
    /// [`MAX_PAST_LEN`] bytes, or are one round and its announcement. Only rounds of epochs in
    /// which the client is a member are included: others are passed an epoch at a time, because a
    /// member can ask for all rounds at any time, and the group waits for the answer.
    pub fn batch(&self, member: &IdentityPublicKey, after: RoundPosition) -> PastBatch {
        let mut parts = Vec::new();
        let (mut seen, mut epoch, mut len) = (after, after.epoch, 0);
        let mut at = self.rounds.partition_point(|round| round.position <= after);
        while let Some(round) = self.rounds.get(at) {
            let number = round.position.epoch;
            let announced = self.epochs.get(&number);
            let announced = announced.filter(|epoch| epoch.number_of(member).is_some());
            let Some(announced) = announced else {
                at = self.rounds.partition_point(|round| round.position.epoch <= number);
                seen = self.rounds.get(at - 1).map_or(seen, |last| last.position);
                continue;
            };
            let is_new = number > epoch;
            let announcement = announced.announcement();
            let most = announcement.len() + round.place.len;
            // It is of a time in which slots were longer, or members more.
            let is_too_long = PAST_OVERHEAD + most > self.settings.terms.max_past_len();
            let is_announced =
                is_new && PAST_OVERHEAD + announcement.len() <= self.settings.terms.max_past_len();
            let announcement_len = if is_announced { announcement.len() } else { 0 };
            let added = announcement_len + if is_too_long { GAP_LEN } else { round.place.len };
            if len > 0 && len + added > MAX_PAST_LEN {
                return PastBatch { parts, is_last: false };
            }
            at += 1;
            len += added;
            let before = self.segment(round.segment).map_or(seen, |segment| segment.after);
            if before > seen {
                len += GAP_LEN;
                push_gap(&mut parts, before);
            }
            seen = round.position;
            if is_announced {
                // Before a gap as well: the next request may go on after it.
                epoch = number;
                let announcement = ArchiveRecord::Announcement(announcement.to_vec());
                parts.push(PastPart::Record(announcement));
            }
            if is_too_long {
                push_gap(&mut parts, round.position);
                continue;
            }
            let IndexedRound { position, segment, place } = *round;
            parts.push(PastPart::Stored { segment, place, position });
        }
        if self.last_closed > seen {
            push_gap(&mut parts, self.last_closed);
        }
        PastBatch { parts, is_last: true }
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.len).sum()
    }

    /// The number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds.len()
    }

    fn segment(&self, number: u64) -> Option<&ArchiveSegment> {
        let at = self.segments.binary_search_by_key(&number, |segment| segment.number).ok()?;
        self.segments.get(at)
    }

    /// Whether a record comes after those of the archive. A proxy that was restored from an old
    /// state opens rounds of an epoch that is over, until a member gives it the newest one: they
    /// are not kept.
    pub fn is_next(&self, record: &ArchiveRecord) -> bool {
        match record {
            ArchiveRecord::Round(round) => self.is_of_these && round.position() > self.last_closed,
            _ => true,
        }
    }

    /// The epoch of an announcement, if it is valid.
    fn verify(&self, announcement: &[u8]) -> Option<AnnouncedEpoch> {
        let last = self.epochs.values().last();
        AnnouncedEpoch::verify_past(last, announcement, &self.settings).ok()
    }

    /// Adds the members of an epoch. Returns whether it is new; `None` if its announcement is older
    /// than the last one.
    fn add_epoch(&mut self, epoch: AnnouncedEpoch) -> Option<bool> {
        let last = self.epochs.values().last();
        let number = epoch.number();
        if self.epochs.get(&number).is_some_and(|known| known.is_same_as(&epoch)) {
            return Some(false);
        }
        if let Some(last) = last {
            // One with a higher number may be older: of a branch that was left.
            if !epoch.replaces(last) {
                return None;
            }
            if number <= last.number() {
                self.forget_epochs_from(number);
            }
        }
        self.epochs.insert(number, epoch);
        Some(true)
    }

    /// The epochs from this number on were replaced by another one. Nobody reads their rounds any
    /// more: with the members of the other one, they would not be those that took part.
    fn forget_epochs_from(&mut self, number: u32) {
        self.epochs.retain(|known, _| *known < number);
        let kept = self.rounds.partition_point(|round| round.position.epoch < number);
        self.rounds.truncate(kept);
        // Rounds that were missing before are missing still.
        let missing = self.segments.front().map(|first| first.after);
        let missing = missing.filter(|after| after.epoch < number).unwrap_or_default();
        let last = self.rounds.back().map_or(missing, |round| round.position.max(missing));
        self.last_closed = self.last_closed.min(last);
        for segment in &mut self.segments {
            segment.after = segment.after.min(last);
        }
    }

    fn add_round(&mut self, round: &ArchivedRound, place: RecordPlace) {
        let Some(segment) = self.segments.back_mut() else { return };
        if segment.began_s == 0 {
            segment.began_s = round.closed_s;
        }
        segment.ended_s = round.closed_s;
        let position = round.position();
        self.rounds.push_back(IndexedRound { position, segment: segment.number, place });
        self.last_closed = position;
    }

    fn needs_segment(&self, now_s: u64) -> bool {
        let Some(last) = self.segments.back() else { return true };
        let ArchiveLimits { keep, keep_bytes } = self.settings.archive;
        let most = (keep_bytes / SEGMENTS).clamp(*SEGMENT_LEN.start(), *SEGMENT_LEN.end());
        let is_old = now_s.saturating_sub(last.began_s) > keep.as_secs() / SEGMENTS;
        self.is_broken || last.len >= most || is_old
    }

    /// The oldest segment, if it is to be removed now. The last one never is.
    pub fn poll_removal(&self, now_s: u64) -> Option<u64> {
        let ArchiveLimits { keep, keep_bytes } = self.settings.archive;
        let oldest = self.segments.front().filter(|_| self.segments.len() > 1)?;
        let is_old = oldest.ended_s.saturating_add(keep.as_secs()) < now_s;
        (self.bytes() > keep_bytes || is_old).then_some(oldest.number)
    }

    /// The oldest segment was removed.
    pub fn handle_removed(&mut self) {
        let Some(removed) = self.segments.pop_front() else { return };
        let kept = self.rounds.partition_point(|round| round.segment <= removed.number);
        self.rounds.drain(..kept);
        let current = self.epochs.keys().last().copied().unwrap_or(0);
        let oldest = self.rounds.front().map_or(current, |round| round.position.epoch);
        self.epochs.retain(|number, _| *number >= oldest);
    }
}

/// Adds that the rounds up to this one are missing. One gap says it for all before it.
fn push_gap(parts: &mut Vec<PastPart>, position: RoundPosition) {
    if let Some(PastPart::Record(ArchiveRecord::Gap(before))) = parts.last_mut() {
        *before = position;
    } else {
        parts.push(PastPart::Record(ArchiveRecord::Gap(position)));
    }
}

/// Reads a record at its place.
pub fn read_record(bytes: &[u8]) -> Option<ArchiveRecord> {
    let (record, len) = unframed(bytes)?;
    (len == bytes.len()).then_some(record)
}

#[cfg(test)]
mod batch_tests;
