//! Joins shares, and tries others where some are wrong.

use std::collections::HashMap;
use std::time::Duration;

use sharing::{Joiner, Sharing};

use super::arrival::Arrival;
use crate::recv::bits::bits;
use crate::wire::datagram::MAX_CHANNELS;

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
    /// How many joins were tried. None if too many have failed of late.
    pub(super) trials: u8,
}

/// Joins shares.
pub(super) struct Search {
    /// By threshold, from 1.
    joiners: Vec<Joiner>,
    /// For joins that fail.
    failures: Budget,
    /// When shares of these channels were last joined in vain.
    failed: HashMap<u16, Duration>,
    /// For comparisons, which deliver nothing, whatever comes of them.
    comparisons: Budget,
}

/// How many comparisons there may be for each join that may fail.
const COMPARISONS: u32 = 10;

/// For how long channels are not joined whose shares were joined in vain, while many joins have failed of late.
const PAUSE: Duration = Duration::from_secs(1);

/// How many sets of channels that failed are remembered, before those are forgotten whose pause is over.
const REMEMBERED: usize = 4096;

impl Search {
    /// A search of which so many joins a second may fail.
    pub(super) fn new(failures_per_second: u32) -> Self {
        let most = u8::try_from(MAX_CHANNELS).expect("16");
        let sharings = (1..=most).map(|k| Sharing::shamir(k, most).expect("1 <= k <= m"));
        Self {
            joiners: sharings.map(Joiner::new).collect(),
            failures: Budget::new(failures_per_second),
            failed: HashMap::new(),
            comparisons: Budget::new(failures_per_second.saturating_mul(COMPARISONS)),
        }
    }

    /// Joins a share with others of its group into `symbol`, until the symbol is accepted. Shares come
    /// the sooner the fewer `faults` their channels have. While many joins have failed of late, those of
    /// `suspects` are not joined at all, and no channels that have failed together within a second: who
    /// spoils shares so uses up its own attempts, and not those of channels that it is not among. `tried` says how many joins of the others were tried before.
    pub(super) fn find(
        &mut self,
        group: &Group<'_>,
        arrival: &Arrival<'_>,
        (tried, suspects): (u32, u16),
        symbol: &mut [u8],
        faults: impl Fn(usize) -> u64,
        accept: impl Fn(&[u8]) -> bool,
    ) -> Found {
        let newest = 1 << arrival.channel;
        let is_low = self.failures.is_low(arrival.now);
        let avoided = if is_low { suspects } else { 0 };
        if newest & avoided != 0 {
            return Found { members: None, trials: 0 };
        }
        let mut order = [0; MAX_CHANNELS];
        let mut count = 0;
        for channel in bits(group.present & !newest & !avoided) {
            order[count] = channel;
            count += 1;
        }
        let others = usize::from(group.threshold) - 1;
        if count > others {
            order[..count].sort_by_key(|&channel| faults(channel));
        }
        let mut trials = 0;
        // Those that are passed over count, too: there may be thousands.
        for chosen in choices(count, others).take(TRIALS as usize + 1) {
            let trial = tried + u32::from(trials);
            if trial > TRIALS || !self.failures.has_left(arrival.now) {
                break;
            }
            let members = bits(chosen).fold(newest, |set, i| set | 1 << order[i]);
            if is_low && self.has_failed(members, arrival.now) {
                continue;
            }
            trials += 1;
            if self.join(group, members, symbol) && accept(symbol) {
                return Found { members: Some(members), trials };
            }
            self.failures.spend();
            self.note_failure(members, arrival.now);
        }
        Found { members: None, trials }
    }

    /// Whether shares of these channels were joined in vain within a second.
    fn has_failed(&self, members: u16, now: Duration) -> bool {
        self.failed.get(&members).is_some_and(|at| now.saturating_sub(*at) < PAUSE)
    }

    fn note_failure(&mut self, members: u16, now: Duration) {
        if self.failed.len() >= REMEMBERED {
            self.failed.retain(|_, at| now.saturating_sub(*at) < PAUSE);
        }
        self.failed.insert(members, now);
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
        if !is_needed && !self.comparisons.has_left(now) {
            return None;
        }
        self.comparisons.spend();
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

/// For how many seconds' failures there is room, when there were none for as long.
const BURST_S: u32 = 10;

/// Allows so many failures a second, and a burst of ten times as many, but not at the beginning: who has
/// associations begin anew gets no more by it than a second's.
///
/// Each join that fails is an attempt at the tag. All of them count, the first of a symbol among them, and
/// what succeeds costs nothing.
struct Budget {
    per_second: u32,
    /// After how many nanoseconds there is one more, rounded down.
    interval_ns: u128,
    left: u32,
    /// Until when what came is counted in `left`; `None` before the first question.
    since: Option<Duration>,
}

impl Budget {
    fn new(per_second: u32) -> Self {
        let interval_ns = 1_000_000_000 / u128::from(per_second.max(1));
        Self { per_second, interval_ns, left: per_second, since: None }
    }

    fn has_left(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.left > 0
    }

    fn spend(&mut self) {
        self.left = self.left.saturating_sub(1);
    }

    /// Whether what is left is kept for those who have done no wrong.
    fn is_low(&mut self, now: Duration) -> bool {
        self.fill(now);
        self.left <= self.per_second / 2
    }

    fn fill(&mut self, now: Duration) {
        let most = self.per_second.saturating_mul(BURST_S);
        let since = *self.since.get_or_insert(now);
        if self.left == most {
            self.since = Some(since.max(now));
            return;
        }
        let nanos = now.saturating_sub(since).as_nanos();
        if nanos < self.interval_ns {
            return;
        }
        let (per_second, second) = (u128::from(self.per_second), 1_000_000_000);
        let whole = nanos.saturating_mul(per_second) / second;
        let left = u128::from(self.left) + whole;
        if left >= u128::from(most) {
            (self.left, self.since) = (most, Some(now));
        } else if whole > 0 {
            // What is less than one more stays where it is.
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
        assert!((2..=7).all(|k| choices(7, k).count() <= TRIALS as usize));
    }

    #[test]
    fn a_budget_fills_up_evenly_and_for_ten_seconds_at_most() {
        let ms = Duration::from_millis;
        let mut budget = Budget::new(2);
        let takes = |budget: &mut Budget, at: u64| {
            let has_left = budget.has_left(ms(at));
            budget.spend();
            has_left
        };
        assert!(takes(&mut budget, 5000) && takes(&mut budget, 5000) && !takes(&mut budget, 5499));
        assert!(takes(&mut budget, 5500) && !takes(&mut budget, 5999) && takes(&mut budget, 6000));
        assert!(!takes(&mut budget, 100), "time that goes back gives nothing");
        let burst = (0..100).take_while(|_| takes(&mut budget, 60_000)).count();
        assert_eq!(burst, 20);
        assert!(!Budget::new(0).has_left(ms(60_000)));
        // However late the association is that it begins with.
        let mut late = Budget::new(2);
        assert_eq!((0..100).take_while(|_| takes(&mut late, 3_600_000)).count(), 2);
    }

    #[test]
    fn over_a_long_time_no_more_fails_than_is_allowed() {
        let mut budget = Budget::new(2000);
        let mut failed = 0;
        for us in (0..60_000_000).step_by(37) {
            if budget.has_left(Duration::from_micros(us)) {
                budget.spend();
                failed += 1;
            }
        }
        assert!((121_900..=122_000).contains(&failed), "{failed}");
    }
}
