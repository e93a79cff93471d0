//! The parameters that a seed determines before a run.

use std::collections::BTreeSet;
use std::time::Duration;

use sim::SeededRng;

use super::ms;
use crate::protocol::group::QuorumGroup;
use crate::protocol::testing::group;

/// The identity key of process i is that of this number and i.
pub(super) const FIRST_IDENTITY: u8 = 1;

/// The participants, the faulty processes, and the faults until the network heals.
pub(super) struct RefreshScenario {
    pub(super) old: QuorumGroup,
    /// The group that correct old servers approve in each run; all but the last are cancelled.
    pub(super) candidates: Vec<QuorumGroup>,
    /// The number of processes: a process is a server of some of the groups.
    pub(super) processes: usize,
    /// The faulty processes: at most f of each group.
    pub(super) byzantine: BTreeSet<usize>,
    /// When messages are no longer lost and servers no longer crash.
    pub(super) heals_at: Duration,
    pub(super) loss_permille: u64,
    pub(super) duplication_permille: u64,
    pub(super) max_delay: Duration,
    /// The probability of a crash per output of a correct server, in permille.
    pub(super) crash_permille: u64,
    /// The percentage of slow jobs, and their longest duration.
    pub(super) slow_jobs: u64,
    pub(super) max_job: Duration,
    /// A correct process that is cut off until the network heals.
    pub(super) isolated: Option<usize>,
    /// How long a run lasts before it is cancelled.
    pub(super) cancel_after: Duration,
    /// The number of the adversary's actions.
    pub(super) attacks: u64,
}

impl RefreshScenario {
    pub(super) fn random(rng: &mut SeededRng) -> Self {
        let (old_faulty, new_faulty) = match rng.index(20) {
            0..14 => (1, 1),
            14..16 => (2, 1),
            16..19 => (1, 2),
            _ => (2, 2),
        };
        let old = group(old_faulty, FIRST_IDENTITY);
        let count = old.members().len();
        // Any number of servers are in both groups.
        let mut candidate = |faulty| {
            let offset = if rng.chance(50) { count } else { rng.index(count + 1) };
            group(faulty, FIRST_IDENTITY + u8::try_from(offset).expect("it is small"))
        };
        let last = candidate(new_faulty);
        let mut candidates = vec![last];
        if rng.chance(20) {
            let faulty = 1;
            let offset = u8::try_from(rng.index(count + 1)).expect("it is small");
            candidates.insert(0, group(faulty, FIRST_IDENTITY + offset));
        }
        let processes = candidates.iter().chain([&old]).map(end).max().expect("there are groups");
        let byzantine = byzantine(&old, &candidates, processes, rng);
        let correct: Vec<_> = (0..processes).filter(|it| !byzantine.contains(it)).collect();
        let is_calm = rng.chance(20);
        let some = |rng: &mut SeededRng, values: &[u64]| {
            if is_calm { 0 } else { *rng.pick(values).expect("there are some") }
        };
        Self {
            old,
            candidates,
            processes,
            byzantine,
            heals_at: ms(1_000 + rng.below(60_000)),
            loss_permille: some(rng, &[0, 50, 300, 600]),
            duplication_permille: some(rng, &[0, 100, 400]),
            max_delay: ms([2, 50, 500, 3_000][rng.index(4)]),
            crash_permille: some(rng, &[0, 0, 5, 20, 60]),
            slow_jobs: some(rng, &[0, 0, 20, 80]),
            max_job: ms([100, 3_000, 40_000][rng.index(3)]),
            isolated: rng.chance(15).then(|| *rng.pick(&correct).expect("most are correct")),
            cancel_after: ms(rng.below(20_000)),
            attacks: rng.below(60),
        }
    }
}

/// The process of the first server of a group.
pub(super) fn first(group: &QuorumGroup) -> usize {
    // The addresses of test groups have the numbers of identities.
    usize::from(group.members()[0].address.port() - 5000 - u16::from(FIRST_IDENTITY))
}

/// The process after the last server of a group.
fn end(group: &QuorumGroup) -> usize {
    first(group) + group.members().len()
}

/// Draws as many processes as may be faulty.
fn byzantine(
    old: &QuorumGroup,
    candidates: &[QuorumGroup],
    processes: usize,
    rng: &mut SeededRng,
) -> BTreeSet<usize> {
    let mut order: Vec<usize> = (0..processes).collect();
    rng.shuffle(&mut order);
    let mut byzantine = BTreeSet::new();
    for process in order {
        let fits = |group: &QuorumGroup| {
            let range = first(group)..end(group);
            let among = byzantine.iter().chain([&process]).filter(|it| range.contains(it));
            among.count() <= group.combination().faulty()
        };
        if candidates.iter().chain([old]).all(fits) {
            byzantine.insert(process);
        }
    }
    byzantine
}
