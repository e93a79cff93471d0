//! Joins shares, and tries others where some are wrong.

use std::time::Duration;

use sharing::{Joiner, Sharing};

use super::{Arrival, bits};
use crate::MAX_CHANNELS;

/// How many joins are tried for one symbol, the first not counted. That is every choice of shares
/// where there are no more than 7.
const TRIALS: u32 = 64;

/// Shares of one symbol, of the same header and length.
pub(super) struct Group<'a> {
    threshold: u8,
    /// Bit i for channel i.
    present: u16,
    shares: [&'a [u8]; MAX_CHANNELS],
}

impl<'a> Group<'a> {
    /// No shares yet, of which a threshold of 1 to [`MAX_CHANNELS`] will be joined.
    pub(super) fn new(threshold: u8) -> Self {
        Self { threshold, present: 0, shares: [&[]; MAX_CHANNELS] }
    }

    /// Adds a channel's share.
    pub(super) fn add(&mut self, channel: usize, share: &'a [u8]) {
        self.shares[channel] = share;
        self.present |= 1 << channel;
    }
}

/// What came of a search.
pub(super) struct Found {
    /// The channels whose shares made up a symbol that was accepted.
    pub(super) members: Option<u16>,
    /// How many joins were tried.
    pub(super) trials: u8,
}

/// Joins shares.
pub(super) struct Search {
    /// By threshold, from 1.
    joiners: Vec<Joiner>,
    budget: Budget,
}

impl Search {
    /// A search that tries so many joins a second beside those that every symbol takes.
    pub(super) fn new(trials_per_second: u32) -> Self {
        let most = u8::try_from(MAX_CHANNELS).expect("16");
        let sharings = (1..=most).map(|k| Sharing::shamir(k, most).expect("1 <= k <= m"));
        Self {
            joiners: sharings.map(Joiner::new).collect(),
            budget: Budget::new(trials_per_second),
        }
    }

    /// Joins a share with others of its group into `symbol`, until the symbol is accepted. Shares come
    /// the sooner the fewer `faults` their channels have. `tried` says how many joins of the others
    /// were tried before.
    pub(super) fn find(
        &mut self,
        group: &Group<'_>,
        arrival: &Arrival<'_>,
        tried: u32,
        symbol: &mut [u8],
        faults: impl Fn(usize) -> u64,
        accept: impl Fn(&[u8]) -> bool,
    ) -> Found {
        let newest = 1 << arrival.channel;
        let mut order = [0; MAX_CHANNELS];
        let mut count = 0;
        for channel in bits(group.present & !newest) {
            order[count] = channel;
            count += 1;
        }
        let others = usize::from(group.threshold) - 1;
        if count > others {
            order[..count].sort_by_key(|&channel| faults(channel));
        }
        let mut trials = 0;
        for chosen in choices(count, others) {
            let trial = tried + u32::from(trials);
            if trial > TRIALS || trial > 0 && !self.budget.take(arrival.now) {
                break;
            }
            let members = bits(chosen).fold(newest, |set, i| set | 1 << order[i]);
            trials += 1;
            if self.join(group, members, symbol) && accept(symbol) {
                self.budget.earn();
                return Found { members: Some(members), trials };
            }
        }
        Found { members: None, trials }
    }

    /// Whether a channel's share is on the polynomial of `members`: in the place of one of them, it
    /// gives an accepted symbol too. `None` if there were too many trials of late, and `is_needed` is
    /// not set.
    pub(super) fn agrees(
        &mut self,
        group: &Group<'_>,
        (members, channel): (u16, usize),
        (now, is_needed): (Duration, bool),
        scratch: &mut [u8],
        accept: impl Fn(&[u8]) -> bool,
    ) -> Option<bool> {
        let rest = members & (members - 1);
        if !is_needed && !self.budget.take_spare(now) {
            return None;
        }
        Some(self.join(group, rest | 1 << channel, scratch) && accept(scratch))
    }

    /// Joins the shares of `members`, as many as the threshold.
    fn join(&mut self, group: &Group<'_>, members: u16, symbol: &mut [u8]) -> bool {
        let mut coordinates = [0; MAX_CHANNELS];
        let mut shares: [&[u8]; MAX_CHANNELS] = [&[]; MAX_CHANNELS];
        let mut x = 0;
        for channel in bits(members) {
            coordinates[x] = coordinate(channel);
            shares[x] = group.shares[channel];
            x += 1;
        }
        let joiner = &mut self.joiners[usize::from(group.threshold) - 1];
        joiner.join(&coordinates[..x], &shares[..x], symbol).is_ok()
    }
}

/// The coordinate of a channel's shares.
#[expect(clippy::cast_possible_truncation, reason = "there are at most 16")]
fn coordinate(channel: usize) -> u8 {
    channel as u8 + 1
}

/// All ways to choose `k` of `n`, at most 16, as sets of bits. Those of the first come first.
fn choices(n: usize, k: usize) -> impl Iterator<Item = u16> {
    let first: u32 = (1 << k) - 1;
    let next = |&set: &u32| {
        // Gosper: the lowest run of bits moves its highest up by one, and the rest down.
        let lowest = set & set.wrapping_neg();
        let moved = set + lowest;
        Some((((moved ^ set) >> 2) / lowest.max(1)) | moved)
    };
    let sets = std::iter::successors(Some(first), next);
    sets.take_while(move |set| set >> n == 0).filter_map(|set| u16::try_from(set).ok())
}

/// Allows so many trials a second, and another for each symbol that was found. So a channel that lies
/// and is not in quarantine costs no symbols where there are enough good shares, and at most doubles
/// the work.
struct Budget {
    per_second: u32,
    left: u32,
    /// When it was full.
    since: Duration,
}

impl Budget {
    fn new(per_second: u32) -> Self {
        Self { per_second, left: per_second, since: Duration::ZERO }
    }

    fn take(&mut self, now: Duration) -> bool {
        self.fill(now);
        let is_left = self.left > 0;
        self.left = self.left.saturating_sub(1);
        is_left
    }

    /// For what can be left undone: half is kept for what cannot.
    fn take_spare(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.left > self.per_second / 2 && self.take(now)
    }

    fn fill(&mut self, now: Duration) {
        if now.saturating_sub(self.since) >= Duration::from_secs(1) {
            (self.left, self.since) = (self.per_second, now);
        }
    }

    fn earn(&mut self) {
        self.left = self.left.saturating_add(1).min(self.per_second);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_all_and_once() {
        let found: Vec<u16> = choices(4, 2).collect();
        assert_eq!(found, [0b0011, 0b0101, 0b0110, 0b1001, 0b1010, 0b1100]);
        assert_eq!(choices(16, 8).count(), 12_870);
        assert_eq!(choices(15, 15).collect::<Vec<_>>(), [0x7fff]);
        assert_eq!(choices(2, 3).count(), 0);
        assert!((2..=7).all(|k| choices(7, k).count() <= TRIALS as usize));
    }

    #[test]
    fn a_budget_fills_up_every_second_and_is_earned() {
        let mut budget = Budget::new(2);
        let takes = |budget: &mut Budget, ms| budget.take(Duration::from_millis(ms));
        assert!(takes(&mut budget, 0) && takes(&mut budget, 500));
        assert!(!takes(&mut budget, 999));
        assert!(takes(&mut budget, 1000) && takes(&mut budget, 1000) && !takes(&mut budget, 1999));
        budget.earn();
        assert!(takes(&mut budget, 1999) && !takes(&mut budget, 1999));
    }
}
