//! What waits for the channels: first in, first out, and never for long.
//!
//! Left in the device's queue, packets would wait for as long as that is deep: half a second at 20
//! Mbit/s, and TCP fills any queue. So they are fetched while the channels are busy, and a queue that
//! does not empty by itself is told to senders by dropping packets: one as soon as all have waited for
//! more than the target for an interval, and then more and more often until they do not (controlled
//! delay, RFC 8289).

use std::collections::VecDeque;
use std::time::Duration;

use zeroize::Zeroizing;

/// How long packets may wait for ever. Longer than in the RFC: a sender that the machine let down
/// for some milliseconds needs a while to make up for them, and that is no reason to drop.
const TARGET: Duration = Duration::from_millis(15);

/// For how long they may wait longer: a round trip of most connections, in which a burst leaves.
const INTERVAL: Duration = Duration::from_millis(200);

/// What has waited for longer is dropped, whoever sends and does not listen to losses.
pub(crate) const LONGEST: Duration = Duration::from_millis(100);

/// How much waits at most. Beyond it, it stays in the device.
const MOST_FRAMES: usize = 2000;
const MOST_BYTES: usize = 8 << 20;

/// The queue. What it holds are frames of the device: packets, or superpackets.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Since when all frames have waited for longer than the target.
    slow_since: Option<Duration>,
    /// When the next packet is dropped, while that goes on.
    next_drop: Option<Duration>,
    /// How many have been dropped since it began, less what was forgiven.
    drops: u32,
    last_drop: Option<Duration>,
}

#[derive(Debug)]
struct Waiting {
    since: Duration,
    frame: Zeroizing<Vec<u8>>,
}

/// The frame whose turn it is, and those before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Next {
    /// The frame.
    pub(crate) frame: Zeroizing<Vec<u8>>,
    /// Whether its first packet is to be dropped.
    pub(crate) drops_first: bool,
    /// How many frames before it were dropped as a whole.
    pub(crate) dropped: u64,
}

impl Queue {
    /// Whether there is no frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether nothing more is taken for now.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting.len() >= MOST_FRAMES || self.bytes >= MOST_BYTES
    }

    /// Takes a frame, which was sent now.
    pub(crate) fn push(&mut self, frame: Zeroizing<Vec<u8>>, now: Duration) {
        self.bytes += frame.len();
        self.waiting.push_back(Waiting { since: now, frame });
    }

    /// The next frame, if there is one.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<Next> {
        let mut dropped = 0;
        loop {
            let Waiting { since, frame } = self.waiting.pop_front()?;
            self.bytes -= frame.len();
            let waited = now.saturating_sub(since);
            // The last one does not wait for others to leave.
            if waited > LONGEST && !self.waiting.is_empty() {
                dropped += 1;
                continue;
            }
            let drops_first = self.is_slow(waited, now) && self.drops_one(now);
            return Some(Next { frame, drops_first, dropped });
        }
    }

    /// The same if the next frame is wanted, and did not wait for so long that it is dropped.
    pub(crate) fn pop_if(
        &mut self,
        now: Duration,
        is_wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<Next> {
        let Waiting { since, frame } = self.waiting.front()?;
        let is_stale = now.saturating_sub(*since) > LONGEST;
        if is_stale || !is_wanted(frame) { None } else { self.pop(now) }
    }

    /// Whether frames have waited for longer than the target for an interval.
    fn is_slow(&mut self, waited: Duration, now: Duration) -> bool {
        if waited < TARGET || self.waiting.is_empty() {
            self.slow_since = None;
            self.next_drop = None;
            return false;
        }
        let since = *self.slow_since.get_or_insert(now);
        now.saturating_sub(since) >= INTERVAL
    }

    /// Whether to drop one now, in a queue that is slow: the nth follows the one before it after an
    /// interval divided by the square root of n, so that TCP's rate falls linearly.
    fn drops_one(&mut self, now: Duration) -> bool {
        let due = match self.next_drop {
            Some(due) if now < due => return false,
            Some(due) => due,
            None => {
                // What was often enough a moment ago is where to begin now.
                let recently = self.last_drop.is_some_and(|last| now < last + 16 * INTERVAL);
                self.drops = if recently { self.drops.saturating_sub(2) } else { 0 };
                now
            }
        };
        self.drops = self.drops.saturating_add(1);
        self.last_drop = Some(now);
        self.next_drop = Some(due + INTERVAL.div_f64(f64::from(self.drops).sqrt()));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn frame(bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        Zeroizing::new(bytes.to_vec())
    }

    /// A source of packets that leave one a millisecond, and how long the last one waited.
    struct World {
        queue: Queue,
        now: Duration,
        /// When packets were dropped one by one, in ms, and how many frames as a whole.
        dropped: Vec<u128>,
        whole: u64,
    }

    impl World {
        fn new() -> Self {
            Self { queue: Queue::default(), now: Duration::ZERO, dropped: Vec::new(), whole: 0 }
        }

        fn send(&mut self, packets: u32) {
            (0..packets).for_each(|_| self.queue.push(frame(&[0; 100]), self.now));
        }

        /// Lets a millisecond pass, and one packet leave.
        fn tick(&mut self) {
            self.now += MS;
            let Some(next) = self.queue.pop(self.now) else { return };
            self.whole += next.dropped;
            if next.drops_first {
                self.dropped.push(self.now.as_millis());
            }
        }
    }

    #[test]
    fn frames_leave_in_their_order() {
        let mut queue = Queue::default();
        assert!(queue.waiting.is_empty() && queue.pop(MS).is_none());
        queue.push(frame(&[1]), MS);
        queue.push(frame(&[2]), MS);
        let next = |byte| Some(Next { frame: frame(&[byte]), drops_first: false, dropped: 0 });
        assert_eq!(queue.pop(2 * MS), next(1));
        assert_eq!(queue.pop(2 * MS), next(2));
        assert!(queue.waiting.is_empty());
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn only_the_next_is_taken_if_it_is_wanted_and_in_time() {
        let mut queue = Queue::default();
        assert!(queue.pop_if(MS, |_| true).is_none());
        queue.push(frame(&[1]), MS);
        queue.push(frame(&[2]), MS);
        assert!(queue.pop_if(MS, |frame| frame == [2]).is_none());
        assert_eq!(queue.pop_if(MS, |frame| frame == [1]).unwrap().frame, frame(&[1]));
        let late = MS + LONGEST;
        assert!(queue.pop_if(late + MS, |_| true).is_none());
        assert_eq!(queue.pop_if(late, |_| true).unwrap().frame, frame(&[2]));
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn a_burst_leaves_and_nothing_is_dropped() {
        let mut world = World::new();
        for _ in 0..20 {
            world.send(90);
            (0..150).for_each(|_| world.tick());
        }
        assert!(world.queue.waiting.is_empty());
        assert_eq!((world.dropped.len(), world.whole), (0, 0));
    }

    #[test]
    fn a_queue_that_stands_is_told_of_more_and_more_often() {
        let mut world = World::new();
        world.send(40);
        for _ in 0..1000 {
            world.send(1);
            world.tick();
        }
        let gaps: Vec<u128> = world.dropped.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // All have waited for longer than the target from the 15th on.
        assert_eq!(world.dropped[0], 215);
        assert_eq!(gaps[..4], [200, 142, 115, 100]);
        assert_eq!(world.whole, 0);
    }

    #[test]
    fn dropping_ends_with_the_queue_and_goes_on_where_it_was() {
        let mut world = World::new();
        world.send(40);
        for _ in 0..1000 {
            world.send(1);
            world.tick();
        }
        (0..100).for_each(|_| world.tick());
        let before = world.dropped.len();
        for _ in 0..1000 {
            world.send(1);
            world.tick();
        }
        assert_eq!(world.dropped.len(), before);
        // The same again: it takes as long to begin, but then it is as often as before.
        world.send(40);
        for _ in 0..300 {
            world.send(1);
            world.tick();
        }
        let again = &world.dropped[before..];
        assert!(again[1] - again[0] < 100, "{again:?}");
    }

    #[test]
    fn whoever_does_not_listen_has_a_short_queue_all_the_same() {
        let mut world = World::new();
        let mut longest = 0;
        for _ in 0..5000 {
            world.send(3);
            world.tick();
            longest = longest.max(world.queue.waiting.len());
        }
        // A hundred milliseconds of what comes.
        assert!((295..=305).contains(&longest), "{longest}");
        assert!(world.whole > 9000);
    }

    #[test]
    fn it_is_full_by_number_or_by_bytes() {
        let mut queue = Queue::default();
        (0..MOST_FRAMES).for_each(|_| queue.push(frame(&[0]), MS));
        assert!(queue.is_full());
        queue.pop(MS);
        assert!(!queue.is_full());
        (0..127).for_each(|_| queue.push(frame(&vec![0; 1 << 16]), MS));
        assert!(queue.is_full());
    }
}
