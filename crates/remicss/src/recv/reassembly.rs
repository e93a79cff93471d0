//! Shares of symbols come in, symbols that are whole go out.
//!
//! A share waits in its own channel's part of the memory until there are k of its symbol. The kth is
//! joined from where it came. If the tag does not fit, other choices are tried as more shares come,
//! within bounds, and when one fits the channels whose shares are not on its polynomial are named.
//!
//! **Who can be named.** Of s shares whose symbol was verified, up to (s - k + 1) / 2 wrong ones are
//! named rightly: s shares and the symbol, which is right, are s + 1 values of one polynomial of
//! degree k - 1. Where more disagree, nobody is named. Channels that lie together and are more than
//! that, though fewer than k, can have two wrong shares cancel each other and honest ones look
//! wrong. So no more channels are ever put in quarantine than can be named rightly (see
//! `recv/blame.rs`).

pub(super) mod arrival;
mod search;
mod shares;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use zeroize::Zeroize;

use crate::recv::bits::bits;
use crate::recv::blame::Blame;
use crate::recv::numbers::Numbers;
use crate::wire::datagram::Header;
use crate::wire::symbol::{Inside, MAX_SYMBOL_LEN, Tagger};
use arrival::Arrival;
use search::Search;
use shares::{Shares, Survey};

/// One in so many symbols, in the mean, is kept when it is done, to compare with what comes of it late.
const COMPARED: u64 = 64;

/// A symbol that is whole.
pub(crate) struct Completed<'a> {
    pub(crate) inside: Inside<'a>,
    /// The channels whose shares are known to be right: bit i for channel i.
    pub(crate) right: u16,
}

/// What became of shares and their symbols.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reassembled {
    /// Shares that were too old when others of their symbol came.
    pub expired: u64,
    /// Shares whose bytes had given way to later ones.
    pub evicted: u64,
    /// Symbols whose tag did not fit the first k shares.
    pub tampered: u64,
    /// Those of them that other shares gave back.
    pub corrected: u64,
    /// Symbols that came of their shares although some were wrong, but too many to be named.
    pub unattributed: u64,
    /// Joins, those that the tag did not fit among them.
    pub joins: u64,
    /// Joins that the tag did not fit: attempts at it, for all that is known.
    pub failures: u64,
    /// Shares that would have completed their symbols, but were not joined since too many joins had failed
    /// of late.
    pub unjoined: u64,
}

/// Puts shares together.
pub(crate) struct Reassembly {
    shares: Shares,
    search: Search,
    /// Where a symbol is joined.
    symbol: Box<[u8]>,
    /// Where others are, to compare.
    scratch: Box<[u8]>,
    sample: Sample,
    counts: Reassembled,
}

impl Reassembly {
    /// For so many channels, the shares of `span` symbols, a power of two, `log_bytes` of them on each
    /// channel, none of them older than `patience`, and so many failures a second. From `seed` follows
    /// which symbols late shares are compared with: no single channel must know it.
    pub(crate) fn new(
        channels: usize,
        span: usize,
        log_bytes: usize,
        patience: Duration,
        failures_per_second: u32,
        seed: u64,
    ) -> Self {
        Self {
            shares: Shares::new(channels, span, log_bytes, patience),
            search: Search::new(failures_per_second),
            symbol: vec![0; MAX_SYMBOL_LEN].into(),
            scratch: vec![0; MAX_SYMBOL_LEN].into(),
            sample: Sample { seed, taken: 0, left: COMPARED },
            counts: Reassembled::default(),
        }
    }

    pub(crate) fn counts(&self) -> Reassembled {
        self.counts
    }

    /// Notes that a channel brought a share of a number. Returns false if it did so before.
    pub(crate) fn note(&mut self, channel: usize, number: u64, now: Duration) -> bool {
        self.shares.note(channel, number, now)
    }

    /// Keeps a share that was noted, of a symbol that is not verified yet, to be compared with it when it
    /// is: its channel is in quarantine, and nothing is made of what it brings. Returns whether it is
    /// known to be right already.
    pub(crate) fn set_aside(
        &mut self,
        arrival: &Arrival<'_>,
        verified: &Numbers,
        tagger: &Tagger,
    ) -> bool {
        if arrival.header.threshold == 1 {
            return fits(tagger, &arrival.header, arrival.share);
        }
        self.shares.keep(arrival, 0, verified);
        false
    }

    /// Takes a share that was noted, of a symbol that is not verified yet. Returns the symbol if that
    /// completes it and its tag fits.
    pub(crate) fn complete<'a>(
        &'a mut self,
        arrival: &Arrival<'a>,
        verified: &Numbers,
        tagger: &Tagger,
        blame: &mut Blame,
    ) -> Option<Completed<'a>> {
        if arrival.header.threshold == 1 {
            return self.open(arrival, tagger, blame);
        }
        let survey = self.shares.survey(arrival);
        self.counts.expired += u64::from(survey.expired);
        self.counts.evicted += u64::from(survey.evicted);
        let usable = survey.alike & !blame.excluded();
        if usable.count_ones() + 1 < u32::from(arrival.header.threshold) {
            self.shares.keep(arrival, 0, verified);
            return None;
        }
        let group = self.shares.group(arrival, usable);
        let symbol = &mut self.symbol[..arrival.share.len()];
        let found = self.search.find(
            &group,
            arrival,
            (survey.tried, blame.suspects()),
            symbol,
            |channel| blame.faults(channel),
            |symbol| fits(tagger, &arrival.header, symbol),
        );
        let (trials, is_found) = (u64::from(found.trials), found.members.is_some());
        self.counts.joins += trials;
        self.counts.failures += trials - u64::from(is_found);
        self.counts.unjoined += u64::from(trials == 0);
        let is_first = survey.tried == 0;
        let Some(members) = found.members else {
            self.counts.tampered += u64::from(is_first && trials > 0);
            self.shares.keep(arrival, found.trials, verified);
            return None;
        };
        self.counts.corrected += u64::from(!is_first);
        let right = self.judge(arrival, &survey, members, tagger, blame);
        if self.sample.takes_next() || arrival.is_control() {
            self.shares.keep(arrival, 0, verified);
            self.shares.preserve(arrival.number, members);
        }
        let symbol = &self.symbol[..arrival.share.len()];
        let (&previous, content) = symbol[..symbol.len() - tagger.tag_len()].split_first()?;
        Some(Completed { inside: Inside { previous, content }, right })
    }

    /// Compares a share that was noted with those of its symbol, which is done, if enough were kept: of
    /// control symbols they always are, for as long as shares are used. Returns whether it is right, if that
    /// is known.
    pub(crate) fn compare(
        &mut self,
        arrival: &Arrival<'_>,
        tagger: &Tagger,
        blame: &mut Blame,
    ) -> Option<bool> {
        if arrival.header.threshold == 1 {
            let agrees = arrival.is_control().then(|| fits(tagger, &arrival.header, arrival.share));
            return Self::note_fault(arrival, agrees, blame);
        }
        let Survey { alike, .. } = self.shares.survey(arrival);
        // One less is what every symbol leaves behind.
        if alike.count_ones() < u32::from(arrival.header.threshold) {
            return None;
        }
        // Any threshold's worth of them: they were all verified.
        let members = bits(alike).take(usize::from(arrival.header.threshold));
        let members = members.fold(0, |set, channel| set | 1 << channel);
        let accept = |symbol: &[u8]| fits(tagger, &arrival.header, symbol);
        let group = self.shares.group(arrival, alike);
        let scratch = &mut self.scratch[..arrival.share.len()];
        let (channel, now) = (arrival.channel, arrival.now);
        let needed = (now, arrival.is_control());
        let agrees = self.search.agrees(&group, (members, channel), needed, scratch, accept);
        Self::note_fault(arrival, agrees, blame)
    }

    /// Notes it if a share does not agree with its symbol. One in quarantine is not judged again.
    fn note_fault(arrival: &Arrival<'_>, agrees: Option<bool>, blame: &mut Blame) -> Option<bool> {
        if agrees == Some(false) && blame.excluded() >> arrival.channel & 1 == 0 {
            blame.fault(arrival.channel, arrival.now);
        }
        agrees
    }

    /// Takes a share that is a symbol by itself, and is not copied.
    fn open<'a>(
        &mut self,
        arrival: &Arrival<'a>,
        tagger: &Tagger,
        blame: &mut Blame,
    ) -> Option<Completed<'a>> {
        let Header { kind, threshold, sequence, .. } = arrival.header;
        let opened = tagger.open(kind, threshold, sequence, arrival.share);
        let Ok(inside) = opened else {
            self.counts.tampered += 1;
            blame.fault(arrival.channel, arrival.now);
            return None;
        };
        Some(Completed { inside, right: 1 << arrival.channel })
    }

    /// Names the channels whose shares of a symbol disagree with `members`, which gave it. Returns those
    /// whose shares agree.
    fn judge(
        &mut self,
        arrival: &Arrival<'_>,
        survey: &Survey,
        members: u16,
        tagger: &Tagger,
        blame: &mut Blame,
    ) -> u16 {
        let others = (survey.alike | 1 << arrival.channel) & !members;
        if others | survey.unlike == 0 {
            return members;
        }
        let accept = |symbol: &[u8]| fits(tagger, &arrival.header, symbol);
        let group = self.shares.group(arrival, survey.alike);
        let scratch = &mut self.scratch[..arrival.share.len()];
        let needed = (arrival.now, arrival.is_control());
        let (mut right, mut wrong, mut is_judged) = (members, survey.unlike, true);
        for channel in bits(others) {
            match self.search.agrees(&group, (members, channel), needed, scratch, accept) {
                Some(true) => right |= 1 << channel,
                Some(false) => wrong |= 1 << channel,
                None => is_judged = false,
            }
        }
        // Those in quarantine are not judged again for what is not used.
        let heard = !blame.excluded();
        let shares = ((survey.alike | survey.unlike) & heard).count_ones() + 1;
        let most = (shares - u32::from(arrival.header.threshold)).div_ceil(2);
        let wrong = wrong & heard;
        if is_judged && wrong.count_ones() <= most {
            bits(wrong).for_each(|channel| blame.fault(channel, arrival.now));
        } else {
            self.counts.unattributed += 1;
        }
        self.shares.forget_but(arrival.number, members);
        right
    }
}

/// Which symbols are kept when they are done.
struct Sample {
    seed: u64,
    taken: u64,
    /// How many symbols until the next.
    left: u64,
}

impl Sample {
    fn takes_next(&mut self) -> bool {
        self.left -= 1;
        let takes = self.left == 0;
        if takes {
            let mut hasher = DefaultHasher::new();
            (self.seed, self.taken).hash(&mut hasher);
            self.taken += 1;
            self.left = 1 + hasher.finish() % (2 * COMPARED - 1);
        }
        takes
    }
}

impl Drop for Reassembly {
    fn drop(&mut self) {
        self.symbol.zeroize();
        self.scratch.zeroize();
    }
}

/// Whether a symbol's tag fits.
fn fits(tagger: &Tagger, header: &Header, symbol: &[u8]) -> bool {
    tagger.open(header.kind, header.threshold, header.sequence, symbol).is_ok()
}
