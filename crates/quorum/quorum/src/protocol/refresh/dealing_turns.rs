//! When a server deals in the handover of a key that is shared by a polynomial. f+1 dealings are
//! enough, and a dealing of an RSA key is large and costs every server much time. So the dealers
//! take turns: f+1 deal first, and others only when these are late or faulty. All servers decide
//! this on their own, by their clocks. Which dealings are chosen follows from the log alone.

use std::time::Duration;

use handover::{GroupSize, ParticipantId, ParticipantSet};

/// The shortest time to wait for other servers, and for each new server, to which a dealing has a
/// ciphertext. If it was shorter than a dealing takes, all would deal.
const MIN_WAIT: Duration = Duration::from_secs(1);
const MIN_WAIT_OF_EACH: Duration = Duration::from_millis(100);

/// The turns of the dealers in one run, as one of them sees them.
pub(crate) struct DealingTurns {
    /// The shortest and the longest time to wait for other servers.
    min_wait: Duration,
    max_wait: Duration,
    began_at: Option<Duration>,
    /// When 2f'+1 new servers had registered, and when all had.
    enough_at: Option<Duration>,
    all_at: Option<Duration>,
    /// When the log had a dealing, or a server that holds one, for the last time.
    progress_at: Duration,
    /// The number of dealings and of servers that hold one.
    progress: usize,
}

/// How far a handover is.
pub(crate) struct DealingState {
    pub(crate) new: GroupSize,
    /// The number of new servers that have registered.
    pub(crate) registered: usize,
    /// The number of dealings and of servers that hold one.
    pub(crate) progress: usize,
}

/// The place of a dealer in the order of turns, from 0. Dealers that are proven faulty have none.
/// The `first` ones come before the others, and each by its number.
pub(crate) fn place(
    dealer: ParticipantId,
    dealers: GroupSize,
    faulty: ParticipantSet,
    first: ParticipantSet,
) -> usize {
    let key = |it: ParticipantId| (!first.contains(it), it);
    let others = dealers.participants().filter(|it| !faulty.contains(*it));
    others.filter(|it| key(*it) < key(dealer)).count()
}

impl DealingTurns {
    pub(crate) fn new(max_wait: Duration) -> Self {
        Self {
            min_wait: MIN_WAIT,
            max_wait: max_wait.max(MIN_WAIT),
            began_at: None,
            enough_at: None,
            all_at: None,
            progress_at: Duration::ZERO,
            progress: 0,
        }
    }

    /// Takes note of the state of the log.
    pub(crate) fn observe(&mut self, now: Duration, state: &DealingState) {
        self.began_at.get_or_insert(now);
        let servers = state.new.participants().count();
        let wait = MIN_WAIT_OF_EACH * u32::try_from(servers).unwrap_or(u32::MAX);
        self.min_wait = wait.max(MIN_WAIT).min(self.max_wait);
        if state.registered >= state.new.quorum() {
            self.enough_at.get_or_insert(now);
        }
        if state.registered == servers {
            self.all_at.get_or_insert(now);
        }
        if state.progress != self.progress {
            (self.progress, self.progress_at) = (state.progress, now);
        }
    }

    /// When the dealer at a place deals. `None` while too few new servers have registered.
    ///
    /// It waits for the session keys of all new servers for as long as those of 2f'+1 took: a
    /// server without a ciphertext has to obtain its row from others. Then the first f+1 dealers
    /// deal, f others when there has been no progress for as long as it took before, or as the keys
    /// took, and the rest after that time again. Of the first 2f+1, f+1 are correct.
    pub(crate) fn turn(&self, place: usize, dealers: GroupSize) -> Option<Duration> {
        let enough_at = self.enough_at?;
        let limits = |wait: Duration| wait.clamp(self.min_wait, self.max_wait);
        let registering = limits(enough_at.saturating_sub(self.began_at?));
        let ready_at = self.all_at.unwrap_or(enough_at + registering).min(enough_at + registering);
        let round = match place {
            place if place < dealers.signer_count() => return Some(ready_at),
            place if place < dealers.quorum() => 1,
            _ => 2,
        };
        let progress_at = self.progress_at.max(ready_at);
        // Paths that are slow for keys are slow for dealings, too.
        let wait = limits(progress_at.saturating_sub(ready_at).max(registering));
        // Faulty servers could make a little progress again and again.
        Some((progress_at + round * wait).min(ready_at + round * self.max_wait))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn seven() -> GroupSize {
        GroupSize::of_faulty(2).unwrap()
    }

    fn set(numbers: &[u8]) -> ParticipantSet {
        numbers.iter().map(|it| ParticipantId::new(*it).unwrap()).collect()
    }

    /// The turns of the seven dealers after these observations: when, registered, progress.
    fn turns(observed: &[(u64, usize, usize)]) -> Vec<Option<u64>> {
        let mut turns = DealingTurns::new(seconds(30));
        for &(at, registered, progress) in observed {
            turns.observe(seconds(at), &DealingState { new: seven(), registered, progress });
        }
        (0..7).map(|place| turns.turn(place, seven()).map(|it| it.as_secs())).collect()
    }

    #[test]
    fn others_deal_when_the_first_ones_make_no_progress() {
        let all = |at: [u64; 3]| [[at[0]; 3].to_vec(), [at[1]; 2].to_vec(), [at[2]; 2].to_vec()];
        let all = |at| all(at).concat().into_iter().map(Some).collect::<Vec<_>>();
        assert_eq!(turns(&[(0, 4, 0)]), [None; 7], "too few have registered");
        assert_eq!(turns(&[(0, 7, 0)]), all([0, 1, 2]));
        // The keys of five took 4 seconds, so the others have 4 seconds more.
        assert_eq!(turns(&[(10, 0, 0), (14, 5, 0)]), all([18, 22, 26]));
        assert_eq!(turns(&[(10, 0, 0), (14, 5, 0), (15, 7, 0)]), all([15, 19, 23]));
        // The dealings take 3 seconds each.
        assert_eq!(turns(&[(0, 7, 0), (3, 7, 1), (6, 7, 2)]), all([0, 12, 18]));
        // Faulty servers make progress for an hour.
        assert_eq!(turns(&[(0, 7, 0), (29, 7, 1), (3600, 7, 2)]), all([0, 30, 60]));
        // A dealing for 31 servers takes longer.
        let mut turns = DealingTurns::new(seconds(30));
        let new = GroupSize::of_faulty(10).unwrap();
        turns.observe(seconds(5), &DealingState { new, registered: 31, progress: 0 });
        let turn = |place| turns.turn(place, new).unwrap();
        assert_eq!([turn(10), turn(20)], [seconds(5), Duration::from_millis(8100)]);
    }

    #[test]
    fn a_faulty_dealer_is_replaced_at_once() {
        let places = |faulty: &[u8], first: &[u8]| {
            let of = |it| place(it, seven(), set(faulty), set(first));
            seven().participants().map(of).collect::<Vec<_>>()
        };
        assert_eq!(places(&[], &[]), [0, 1, 2, 3, 4, 5, 6]);
        assert_eq!(places(&[2], &[]), [0, 1, 1, 2, 3, 4, 5]);
        assert_eq!(places(&[], &[4, 6]), [2, 3, 4, 0, 5, 1, 6]);
        assert_eq!(places(&[4], &[4, 6]), [1, 2, 3, 0, 4, 0, 5]);
    }
}
