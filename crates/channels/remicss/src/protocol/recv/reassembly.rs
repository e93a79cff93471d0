//! Reassembles symbols from shares.
//!
//! A share waits in its own channel's part of the memory until there are k of its symbol. The kth
//! share is joined without being copied. If the tag does not match, other subsets are tried as more
//! shares arrive, within limits. When one matches, faults are attributed to the channels whose
//! shares are not on its polynomial.
//!
//! **Attribution.** Of s shares whose symbol was verified, up to (s - k + 1) / 2 wrong ones are
//! attributed correctly: s shares and the symbol, which is right, are s + 1 values of one
//! polynomial of degree k - 1. If more disagree, no channel is charged. If more channels collude,
//! though fewer than k, their errors can cancel and honest channels look wrong. So no more channels
//! are in quarantine than can be attributed correctly (see `recv/fault_tracker.rs`).

pub(super) mod arrival;
mod search;
mod shares;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use zeroize::Zeroize;

use crate::protocol::recv::channel_bits::channels_in;
use crate::protocol::recv::fault_tracker::FaultTracker;
use crate::protocol::recv::sequence_window::SequenceWindow;
use crate::protocol::wire::datagram::SymbolShareHeader;
use crate::protocol::wire::symbol::{MAX_SYMBOL_LEN, SymbolContents, SymbolTagger};
use arrival::ShareArrival;
use search::JoinSearch;
use shares::{JoinableShares, ShareStore};

/// On average, one symbol in this many is kept after it is verified, to be compared with its late
/// shares.
const COMPARISON_INTERVAL: u64 = 64;

/// A verified symbol.
pub(crate) struct CompletedSymbol<'a> {
    pub(crate) contents: SymbolContents<'a>,
    /// The channels whose shares are known to be right: bit i for channel i.
    pub(crate) right_channels: u16,
}

/// Counts of shares and their symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReassemblyCounts {
    /// Shares that were too old when others of their symbol arrived.
    pub expired: u64,
    /// Shares that were overwritten by later ones.
    pub evicted: u64,
    /// Symbols whose tag did not match with the first k shares.
    pub tampered: u64,
    /// Those of them that were recovered from other shares.
    pub corrected: u64,
    /// Symbols that were recovered, but with too many wrong shares to attribute faults.
    pub unattributed: u64,
    /// All joins.
    pub joins: u64,
    /// Joins whose tag did not match: each may be an attempt at a forgery.
    pub failures: u64,
    /// Shares that would have completed their symbols, but were not joined, because too many joins
    /// had failed recently.
    pub unjoined: u64,
}

/// Reassembles symbols.
pub(crate) struct SymbolReassembly {
    shares: ShareStore,
    search: JoinSearch,
    /// The buffer in which a symbol is joined.
    symbol: Box<[u8]>,
    /// The buffer for comparisons.
    scratch: Box<[u8]>,
    sample: ComparisonSampler,
    counts: ReassemblyCounts,
}

impl SymbolReassembly {
    /// For the shares of `span` symbols (a power of two) on each channel, `log_bytes` bytes of
    /// them, none older than `max_age`, with a limit of failed joins a second. `seed` determines
    /// which symbols late shares are compared with. It must be secret from any single channel.
    pub(crate) fn new(
        channels: usize,
        span: usize,
        log_bytes: usize,
        patience: Duration,
        failures_per_second: u32,
        seed: u64,
    ) -> Self {
        Self {
            shares: ShareStore::new(channels, span, log_bytes, patience),
            search: JoinSearch::new(failures_per_second),
            symbol: vec![0; MAX_SYMBOL_LEN].into(),
            scratch: vec![0; MAX_SYMBOL_LEN].into(),
            sample: ComparisonSampler { seed, taken: 0, left: COMPARISON_INTERVAL },
            counts: ReassemblyCounts::default(),
        }
    }

    pub(crate) fn counts(&self) -> ReassemblyCounts {
        self.counts
    }

    /// Records a share of a number on a channel. Returns false for a duplicate.
    pub(crate) fn note(&mut self, channel: usize, number: u64, now: Duration) -> bool {
        self.shares.note(channel, number, now)
    }

    /// Keeps a recorded share of a symbol that is not verified yet, to be compared with it later:
    /// its channel is in quarantine, and its shares are not joined. Returns whether it is already
    /// known to be right.
    pub(crate) fn keep_for_comparison(
        &mut self,
        arrival: &ShareArrival<'_>,
        verified: &SequenceWindow,
        tagger: &SymbolTagger,
    ) -> bool {
        if arrival.header.threshold == 1 {
            return fits(tagger, &arrival.header, arrival.share);
        }
        self.shares.keep(arrival, 0, verified);
        false
    }

    /// Takes a recorded share of a symbol that is not verified yet. Returns the symbol if this
    /// share completes it and its tag matches.
    pub(crate) fn complete<'a>(
        &'a mut self,
        arrival: &ShareArrival<'a>,
        verified: &SequenceWindow,
        tagger: &SymbolTagger,
        fault_tracker: &mut FaultTracker,
    ) -> Option<CompletedSymbol<'a>> {
        if arrival.header.threshold == 1 {
            return self.open(arrival, tagger, fault_tracker);
        }
        let survey = self.shares.survey(arrival);
        self.counts.expired += u64::from(survey.expired);
        self.counts.evicted += u64::from(survey.evicted);
        let usable = survey.matching & !fault_tracker.quarantined();
        if usable.count_ones() + 1 < u32::from(arrival.header.threshold) {
            self.shares.keep(arrival, 0, verified);
            return None;
        }
        let group = self.shares.group(arrival, usable);
        let symbol = &mut self.symbol[..arrival.share.len()];
        let found = self.search.find(
            &group,
            arrival,
            (survey.failed_joins, fault_tracker.candidates()),
            symbol,
            |channel| fault_tracker.faults(channel),
            |symbol| fits(tagger, &arrival.header, symbol),
        );
        let (trials, is_found) = (u64::from(found.joins), found.members.is_some());
        self.counts.joins += trials;
        self.counts.failures += trials - u64::from(is_found);
        self.counts.unjoined += u64::from(trials == 0);
        let is_first = survey.failed_joins == 0;
        let Some(members) = found.members else {
            self.counts.tampered += u64::from(is_first && trials > 0);
            self.shares.keep(arrival, found.joins, verified);
            return None;
        };
        self.counts.corrected += u64::from(!is_first);
        let right = self.attribute_faults(arrival, &survey, members, tagger, fault_tracker);
        if self.sample.selects_next() || arrival.is_control() {
            self.shares.keep(arrival, 0, verified);
            self.shares.preserve(arrival.number, members);
        }
        let symbol = &self.symbol[..arrival.share.len()];
        let (&previous, content) = symbol[..symbol.len() - tagger.tag_len()].split_first()?;
        Some(CompletedSymbol {
            contents: SymbolContents { previous, content },
            right_channels: right,
        })
    }

    /// Compares a recorded share with those of its verified symbol, if enough of these were kept.
    /// Of control symbols they always are, for the maximum age of shares. Returns whether it is
    /// right, if that is known.
    pub(crate) fn compare(
        &mut self,
        arrival: &ShareArrival<'_>,
        tagger: &SymbolTagger,
        fault_tracker: &mut FaultTracker,
    ) -> Option<bool> {
        if arrival.header.threshold == 1 {
            let agrees = arrival.is_control().then(|| fits(tagger, &arrival.header, arrival.share));
            return Self::note_fault(arrival, agrees, fault_tracker);
        }
        let JoinableShares { matching: alike, .. } = self.shares.survey(arrival);
        // Every symbol leaves one fewer behind.
        if alike.count_ones() < u32::from(arrival.header.threshold) {
            return None;
        }
        // Any k of them: they were all verified.
        let members = channels_in(alike).take(usize::from(arrival.header.threshold));
        let members = members.fold(0, |set, channel| set | 1 << channel);
        let accept = |symbol: &[u8]| fits(tagger, &arrival.header, symbol);
        let group = self.shares.group(arrival, alike);
        let scratch = &mut self.scratch[..arrival.share.len()];
        let (channel, now) = (arrival.channel, arrival.now);
        let needed = (now, arrival.is_control());
        let agrees = self.search.is_consistent(&group, (members, channel), needed, scratch, accept);
        Self::note_fault(arrival, agrees, fault_tracker)
    }

    /// Records a fault if a share does not agree with its symbol, unless its channel is in
    /// quarantine.
    fn note_fault(
        arrival: &ShareArrival<'_>,
        agrees: Option<bool>,
        fault_tracker: &mut FaultTracker,
    ) -> Option<bool> {
        if agrees == Some(false) && fault_tracker.quarantined() >> arrival.channel & 1 == 0 {
            fault_tracker.record_fault(arrival.channel, arrival.now);
        }
        agrees
    }

    /// Takes a share that is a whole symbol (k = 1), without copying it.
    fn open<'a>(
        &mut self,
        arrival: &ShareArrival<'a>,
        tagger: &SymbolTagger,
        fault_tracker: &mut FaultTracker,
    ) -> Option<CompletedSymbol<'a>> {
        let SymbolShareHeader { kind, threshold, sequence, .. } = arrival.header;
        let opened = tagger.open(kind, threshold, sequence, arrival.share);
        let Ok(contents) = opened else {
            self.counts.tampered += 1;
            fault_tracker.record_fault(arrival.channel, arrival.now);
            return None;
        };
        Some(CompletedSymbol { contents, right_channels: 1 << arrival.channel })
    }

    /// Records faults of the channels whose shares of a symbol disagree with those of `members`,
    /// from which it was joined. Returns the channels whose shares agree.
    fn attribute_faults(
        &mut self,
        arrival: &ShareArrival<'_>,
        survey: &JoinableShares,
        members: u16,
        tagger: &SymbolTagger,
        fault_tracker: &mut FaultTracker,
    ) -> u16 {
        let others = (survey.matching | 1 << arrival.channel) & !members;
        if others | survey.mismatching == 0 {
            return members;
        }
        let accept = |symbol: &[u8]| fits(tagger, &arrival.header, symbol);
        let group = self.shares.group(arrival, survey.matching);
        let scratch = &mut self.scratch[..arrival.share.len()];
        let needed = (arrival.now, arrival.is_control());
        let (mut right, mut wrong, mut is_judged) = (members, survey.mismatching, true);
        for channel in channels_in(others) {
            match self.search.is_consistent(&group, (members, channel), needed, scratch, accept) {
                Some(true) => right |= 1 << channel,
                Some(false) => wrong |= 1 << channel,
                None => is_judged = false,
            }
        }
        // Channels in quarantine are not charged for shares that are not used.
        let heard = !fault_tracker.quarantined();
        let shares = ((survey.matching | survey.mismatching) & heard).count_ones() + 1;
        let most = (shares - u32::from(arrival.header.threshold)).div_ceil(2);
        let wrong = wrong & heard;
        if is_judged && wrong.count_ones() <= most {
            channels_in(wrong).for_each(|channel| fault_tracker.record_fault(channel, arrival.now));
        } else {
            self.counts.unattributed += 1;
        }
        self.shares.forget_except(arrival.number, members);
        right
    }
}

/// Selects the symbols that are kept for comparison.
struct ComparisonSampler {
    seed: u64,
    taken: u64,
    /// The number of symbols until the next one.
    left: u64,
}

impl ComparisonSampler {
    fn selects_next(&mut self) -> bool {
        self.left -= 1;
        let takes = self.left == 0;
        if takes {
            let mut hasher = DefaultHasher::new();
            (self.seed, self.taken).hash(&mut hasher);
            self.taken += 1;
            self.left = 1 + hasher.finish() % (2 * COMPARISON_INTERVAL - 1);
        }
        takes
    }
}

impl Drop for SymbolReassembly {
    fn drop(&mut self) {
        self.symbol.zeroize();
        self.scratch.zeroize();
    }
}

/// Whether a symbol's tag matches.
fn fits(tagger: &SymbolTagger, header: &SymbolShareHeader, symbol: &[u8]) -> bool {
    tagger.open(header.kind, header.threshold, header.sequence, symbol).is_ok()
}
