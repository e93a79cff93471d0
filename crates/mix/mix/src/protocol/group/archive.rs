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
use crate::protocol::round::RoundPosition;
use crate::protocol::wire::{
    ArchiveRecord, ArchivedRound, GAP_LEN, MAX_PAST_LEN, framed, unframed,
};

/// An archive has about this many segments when it is full.
const SEGMENTS: u64 = 16;
/// The range of the length of a segment in bytes.
const SEGMENT_LEN: std::ops::RangeInclusive<u64> = 64 << 10..=16 << 20;

/// How much an archive keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveLimits {
    /// How long a round is kept; zero for no archive.
    pub keep: Duration,
    /// The maximum number of bytes.
    pub keep_bytes: u64,
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
    /// Whether the last segment may end with something that was written in part.
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
    /// What is appended to it.
    pub bytes: Vec<u8>,
    /// Segments to remove afterwards.
    pub removed: Vec<u64>,
}

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

    /// Adds a segment that was written before. Segments are added in ascending order of their
    /// numbers. Returns how many of the bytes are used: the rest was written in part, and is to be
    /// cut off. If it is 0, the segment is to be removed.
    pub fn load(&mut self, number: u64, bytes: &[u8]) -> usize {
        let mut used = 0;
        while let Some((record, len)) = unframed(&bytes[used..]) {
            let is_first = used == 0;
            let place = RecordPlace { offset: used as u64, len };
            let is_valid = match record {
                ArchiveRecord::Gap(after) if is_first => {
                    let segment = ArchiveSegment { number, after, len: 0, began_s: 0, ended_s: 0 };
                    self.segments.push_back(segment);
                    self.next_segment = number + 1;
                    self.last_closed = self.last_closed.max(after);
                    true
                }
                _ if is_first => false,
                ArchiveRecord::Gap(_) => false,
                ArchiveRecord::Announcement(announcement) => {
                    self.add_epoch(&announcement).is_some()
                }
                ArchiveRecord::Round(round) => {
                    let is_next = round.position() > self.last_closed;
                    if is_next {
                        self.add_round(&round, place);
                    }
                    is_next
                }
            };
            if !is_valid {
                break;
            }
            used += len;
            if let Some(segment) = self.segments.back_mut() {
                segment.len = used as u64;
            }
        }
        used
    }

    /// Appends an announcement or a round, which was closed at a time since 1970. Returns what is
    /// to be written, or `None` if nothing is.
    pub fn append(&mut self, now_s: u64, mut record: ArchiveRecord) -> Option<ArchiveAppend> {
        if let ArchiveRecord::Announcement(announcement) = &record {
            let added = self.add_epoch(announcement);
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
        let number = segment.number;
        let start = segment.len + bytes.len() as u64;
        if let ArchiveRecord::Round(round) = &mut record {
            round.closed_s = now_s;
        }
        let body = framed(&record);
        if let ArchiveRecord::Round(round) = &record {
            self.add_round(round, RecordPlace { offset: start, len: body.len() });
        }
        bytes.extend(body);
        let segment = self.segments.back_mut()?;
        segment.len += bytes.len() as u64;
        let is_round = matches!(record, ArchiveRecord::Round(_));
        self.appended = Some((bytes.len() as u64, is_new, is_round));
        Some(ArchiveAppend { segment: number, bytes, removed: self.remove_old(now_s) })
    }

    /// What [`Self::append`] returned last could not be written. The round is then not kept.
    pub fn handle_not_written(&mut self) {
        self.is_broken = true;
        let Some((len, is_new, is_round)) = self.appended.take() else { return };
        if is_round {
            self.rounds.pop_back();
        }
        if is_new {
            self.segments.pop_back();
        } else if let Some(segment) = self.segments.back_mut() {
            segment.len -= len;
        }
    }

    /// The next records for a member that has read all rounds up to `after`. They have about
    /// [`MAX_PAST_LEN`] bytes, or are one round. Only rounds of epochs in which the client is a
    /// member are included: others are passed an epoch at a time, because a member can ask for all
    /// rounds at any time, and the group waits for the answer.
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
            at += 1;
            if len > 0 && len + round.place.len > MAX_PAST_LEN {
                return PastBatch { parts, is_last: false };
            }
            let before = self.segment(round.segment).map_or(seen, |segment| segment.after);
            if before > seen {
                len += GAP_LEN;
                parts.push(PastPart::Record(ArchiveRecord::Gap(before)));
            }
            seen = round.position;
            if number > epoch {
                epoch = number;
                let announcement = announced.announcement().to_vec();
                len += announcement.len();
                parts.push(PastPart::Record(ArchiveRecord::Announcement(announcement)));
            }
            if round.place.len > self.settings.terms.max_past_round_len() {
                // It is of a time in which slots were longer.
                len += GAP_LEN;
                parts.push(PastPart::Record(ArchiveRecord::Gap(round.position)));
                continue;
            }
            len += round.place.len;
            let IndexedRound { position, segment, place } = *round;
            parts.push(PastPart::Stored { segment, place, position });
        }
        if self.last_closed > seen {
            parts.push(PastPart::Record(ArchiveRecord::Gap(self.last_closed)));
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

    /// Adds the members of an epoch. Returns whether it is new; `None` if the announcement is not
    /// valid, or older than the last one.
    fn add_epoch(&mut self, announcement: &[u8]) -> Option<bool> {
        let last = self.epochs.values().last();
        let epoch = AnnouncedEpoch::verify_after(last, announcement, &self.settings).ok()?;
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

    /// Removes the oldest segments, but not the last one. Returns their numbers.
    fn remove_old(&mut self, now_s: u64) -> Vec<u64> {
        let ArchiveLimits { keep, keep_bytes } = self.settings.archive;
        let mut removed = Vec::new();
        while self.segments.len() > 1
            && let Some(oldest) = self.segments.front()
            && (self.bytes() > keep_bytes || oldest.ended_s.saturating_add(keep.as_secs()) < now_s)
        {
            removed.push(oldest.number);
            self.segments.pop_front();
        }
        if let Some(last) = removed.last() {
            let kept = self.rounds.partition_point(|round| round.segment <= *last);
            self.rounds.drain(..kept);
            let current = self.epochs.keys().last().copied().unwrap_or(0);
            let oldest = self.rounds.front().map_or(current, |round| round.position.epoch);
            self.epochs.retain(|number, _| *number >= oldest);
        }
        removed
    }
}

/// Reads a record at its place.
pub fn read_record(bytes: &[u8]) -> Option<ArchiveRecord> {
    let (record, len) = unframed(bytes)?;
    (len == bytes.len()).then_some(record)
}

#[cfg(test)]
mod batch_tests;
