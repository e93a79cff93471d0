//! Joins shares, and tries other subsets if some are wrong.

use std::collections::HashMap;
use std::time::Duration;

use sharing::{Joiner, SharingParameters};

use super::arrival::ShareArrival;
use crate::protocol::recv::channel_bits::channels_in;
use crate::protocol::wire::datagram::MAX_CHANNELS;

/// The maximum number of joins for one symbol, after the first. It covers every subset of up to 7
/// shares.
const MAX_TRIALS: u32 = 64;

/// Shares of one symbol, with the same header and length.
pub(super) struct ShareGroup<'a> {
    threshold: u8,
    /// Bit i for channel i.
    present: u16,
    shares: [&'a [u8]; MAX_CHANNELS],
}

impl<'a> ShareGroup<'a> {
    /// An empty group for a threshold of 1 to [`MAX_CHANNELS`].
    pub(super) fn new(threshold: u8) -> Self {
        Self { threshold, present: 0, shares: [&[]; MAX_CHANNELS] }
    }

    /// Adds a channel's share.
    pub(super) fn add(&mut self, channel: usize, share: &'a [u8]) {
        self.shares[channel] = share;
        self.present |= 1 << channel;
    }
}

/// The result of a search.
pub(super) struct JoinSearchResult {
    /// The channels whose shares gave an accepted symbol.
    pub(super) members: Option<u16>,
    /// The number of joins. 0 if too many have failed recently.
    pub(super) joins: u8,
}

/// Joins shares.
pub(super) struct JoinSearch {
    /// By threshold, from 1.
    joiners: Vec<Joiner>,
    /// The budget of failed joins.
    failures: JoinFailureBudget,
    /// When a join of the shares of these channels last failed.
    failed: HashMap<u16, Duration>,
    /// The budget of comparisons, which deliver nothing.
    comparisons: JoinFailureBudget,
}

/// The number of comparisons allowed for each allowed failure.
const COMPARISONS_PER_FAILURE: u32 = 10;

/// For how long a set of channels is not joined after its join failed, while the budget is low.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The number of remembered failed sets at which old ones are removed.
const MAX_FAILED_SETS: usize = 4096;

impl JoinSearch {
    /// A search with a limit of failed joins a second.
    pub(super) fn new(failures_per_second: u32) -> Self {
        let most = u8::try_from(MAX_CHANNELS).expect("16");
        let sharings = (1..=most).map(|k| SharingParameters::shamir(k, most).expect("1 <= k <= m"));
        Self {
            joiners: sharings.map(Joiner::new).collect(),
            failures: JoinFailureBudget::new(failures_per_second),
            failed: HashMap::new(),
            comparisons: JoinFailureBudget::new(
                failures_per_second.saturating_mul(COMPARISONS_PER_FAILURE),
            ),
        }
    }

    /// Joins a share with others of its group into `symbol`, until the symbol is accepted. Channels
    /// with fewer `faults` are tried first. While the budget is low, shares of `candidates` are not
    /// joined, and no set of channels whose join failed within the last second. So a channel that
    /// spoils shares uses up the attempts of the sets that include it, and not of others. `tried`
    /// is the number of earlier joins of the others.
    pub(super) fn find(
        &mut self,
        group: &ShareGroup<'_>,
        arrival: &ShareArrival<'_>,
        (tried, candidates): (u32, u16),
        symbol: &mut [u8],
        faults: impl Fn(usize) -> u64,
        accept: impl Fn(&[u8]) -> bool,
    ) -> JoinSearchResult {
        let newest = 1 << arrival.channel;
        self.failures.refill(arrival.now);
        let is_low = self.failures.is_low();
        let avoided = if is_low { candidates } else { 0 };
        if newest & avoided != 0 {
            return JoinSearchResult { members: None, joins: 0 };
        }
        let mut order = [0; MAX_CHANNELS];
        let mut count = 0;
        for channel in channels_in(group.present & !newest & !avoided) {
            order[count] = channel;
            count += 1;
        }
        let others = usize::from(group.threshold) - 1;
        if count > others {
            order[..count].sort_by_key(|&channel| faults(channel));
        }
        let mut trials = 0;
        // Skipped subsets count, too: there may be thousands.
        for chosen in choices(count, others).take(MAX_TRIALS as usize + 1) {
            let trial = tried + u32::from(trials);
            if trial > MAX_TRIALS || !self.failures.has_left() {
                break;
            }
            let members = channels_in(chosen).fold(newest, |set, i| set | 1 << order[i]);
            if is_low && self.has_failed(members, arrival.now) {
                continue;
            }
            trials += 1;
            if self.join(group, members, symbol) && accept(symbol) {
                return JoinSearchResult { members: Some(members), joins: trials };
            }
            self.failures.spend();
            self.note_failure(members, arrival.now);
        }
        JoinSearchResult { members: None, joins: trials }
    }

    /// Whether a join of the shares of these channels failed within the last second.
    fn has_failed(&self, members: u16, now: Duration) -> bool {
        self.failed.get(&members).is_some_and(|at| now.saturating_sub(*at) < RETRY_INTERVAL)
    }

    fn note_failure(&mut self, members: u16, now: Duration) {
        if self.failed.len() >= MAX_FAILED_SETS {
            self.failed.retain(|_, at| now.saturating_sub(*at) < RETRY_INTERVAL);
        }
        self.failed.insert(members, now);
    }

    /// Whether a channel's share is on the polynomial of `members`: in the place of one of them, it
    /// gives an accepted symbol too. `None` if the budget is used up, and `is_needed` is not set.
    pub(super) fn is_consistent(
        &mut self,
        group: &ShareGroup<'_>,
        (members, channel): (u16, usize),
        (now, is_needed): (Duration, bool),
        scratch: &mut [u8],
        accept: impl Fn(&[u8]) -> bool,
    ) -> Option<bool> {
        let rest = members & (members - 1);
        self.comparisons.refill(now);
        if !is_needed && !self.comparisons.has_left() {
            return None;
        }
        self.comparisons.spend();
        Some(self.join(group, rest | 1 << channel, scratch) && accept(scratch))
    }

    /// Joins the shares of `members`, as many as the threshold.
    fn join(&mut self, group: &ShareGroup<'_>, members: u16, symbol: &mut [u8]) -> bool {
        let mut coordinates = [0; MAX_CHANNELS];
        let mut shares: [&[u8]; MAX_CHANNELS] = [&[]; MAX_CHANNELS];
        let mut x = 0;
        for channel in channels_in(members) {
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

/// All subsets of size `k` of `n` elements (at most 16), as bits. Subsets of the first elements
/// come first.
fn choices(n: usize, k: usize) -> impl Iterator<Item = u16> {
    let first: u32 = (1 << k) - 1;
    let next = move |&set: &u32| {
        // Gosper: the lowest run of bits moves its highest up by one, and the rest down.
        let lowest = set & set.wrapping_neg();
        let moved = set + lowest;
        // The run without two of its bits, shifted to the bottom. The empty set has no other.
        Some((moved ^ set).checked_shr(set.trailing_zeros() + 2).unwrap_or(1 << n) | moved)
    };
    let sets = std::iter::successors(Some(first), next);
    sets.take_while(move |set| set >> n == 0).filter_map(|set| u16::try_from(set).ok())
}

/// The size of the budget, in seconds of its rate.
const BURST_SECONDS: u32 = 10;

/// Allows a number of failures a second, and a burst of ten times as many, but initially only of
/// one second: an attacker that forces new associations gets no more than that.
///
/// Each join that fails may be an attempt at a forgery. All of them count, including the first of a
/// symbol. Joins that succeed do not count.
struct JoinFailureBudget {
    per_second: u32,
    /// After how long there is one more, rounded down.
    interval: Duration,
    left: u32,
    /// The time up to which `left` was refilled; `None` before the first use.
    since: Option<Duration>,
}

impl JoinFailureBudget {
    fn new(per_second: u32) -> Self {
        let interval = Duration::from_nanos(1_000_000_000 / u64::from(per_second.max(1)));
        Self { per_second, interval, left: per_second, since: None }
    }

    fn has_left(&self) -> bool {
        self.left > 0
    }

    fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Whether the rest is reserved for channels without faults.
    fn is_low(&self) -> bool {
        self.left <= self.per_second / 2
    }

    fn refill(&mut self, now: Duration) {
        let most = self.per_second.saturating_mul(BURST_SECONDS);
        let since = *self.since.get_or_insert(now);
        if self.left == most {
            self.since = Some(since.max(now));
            return;
        }
        let passed = now.saturating_sub(since);
        if passed < self.interval {
            return;
        }
        let (per_second, second) = (u128::from(self.per_second), 1_000_000_000);
        let whole = passed.as_nanos().saturating_mul(per_second) / second;
        let left = u128::from(self.left) + whole;
        if left >= u128::from(most) {
            (self.left, self.since) = (most, Some(now));
        } else if whole > 0 {
            // The fraction of the next one is kept.
            let used = u64::try_from(whole * second / per_second).unwrap_or(u64::MAX);
            self.left = u32::try_from(left).unwrap_or(most);
            self.since = Some(since.saturating_add(Duration::from_nanos(used)));
        }
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
        assert_eq!(choices(16, 0).collect::<Vec<_>>(), [0]);
        assert!((2..=7).all(|k| choices(7, k).count() <= MAX_TRIALS as usize));
    }

    #[test]
    fn a_budget_refills_evenly_up_to_ten_seconds() {
        let ms = Duration::from_millis;
        let mut budget = JoinFailureBudget::new(2);
        let takes = |budget: &mut JoinFailureBudget, at: u64| {
            budget.refill(ms(at));
            let has_left = budget.has_left();
            budget.spend();
            has_left
        };
        assert!(takes(&mut budget, 5000) && takes(&mut budget, 5000) && !takes(&mut budget, 5499));
        assert!(takes(&mut budget, 5500) && !takes(&mut budget, 5999) && takes(&mut budget, 6000));
        assert!(!takes(&mut budget, 100), "time that goes back gives nothing");
        let burst = (0..100).take_while(|_| takes(&mut budget, 60_000)).count();
        assert_eq!(burst, 20);
        let mut none = JoinFailureBudget::new(0);
        none.refill(ms(60_000));
        assert!(!none.has_left());
        // Whenever the association began.
        let mut late = JoinFailureBudget::new(2);
        assert_eq!((0..100).take_while(|_| takes(&mut late, 3_600_000)).count(), 2);
    }

    #[test]
    fn over_a_long_time_no_more_fails_than_is_allowed() {
        let mut budget = JoinFailureBudget::new(2000);
        let mut failed = 0;
        for us in (0..60_000_000).step_by(37) {
            budget.refill(Duration::from_micros(us));
            if budget.has_left() {
                budget.spend();
                failed += 1;
            }
        }
        assert!((121_900..=122_000).contains(&failed), "{failed}");
    }
}
