//! The queue of packets that wait for the channels: a FIFO with controlled delay (RFC 8289).
//!
//! TCP fills any queue. In the device's queue, packets would wait half a second at 20 Mbit/s. So
//! they are fetched while the channels are busy, and a persistent queue is signalled to senders by
//! drops: one packet when all have waited longer than the target for an interval, and then more and
//! more often until they no longer do.

use std::collections::VecDeque;
use std::time::Duration;

use zeroize::Zeroizing;

/// The target: how long packets may wait persistently. Longer than in the RFC, because a sender
/// that was not scheduled for some milliseconds needs a while to make up for them.
const TARGET: Duration = Duration::from_millis(15);

/// How long they may wait longer than that: a round trip of most connections, in which a burst
/// drains.
const INTERVAL: Duration = Duration::from_millis(200);

/// Frames that have waited longer are dropped, for senders that do not react to losses.
pub(crate) const MAX_WAIT: Duration = Duration::from_millis(100);

/// The maximum number of frames, and of bytes. Further frames stay in the device.
const MAX_FRAMES: usize = 2000;
const MAX_BYTES: usize = 8 << 20;

/// A queue of the device's frames: packets, or superpackets.
#[derive(Debug, Default)]
pub(crate) struct CoDelQueue {
    frames: VecDeque<QueuedFrame>,
    bytes: usize,
    /// Since when all frames have waited longer than the target.
    above_target_since: Option<Duration>,
    /// When the next packet is dropped, while the queue is congested.
    next_drop: Option<Duration>,
    /// The number of drops in this congestion, on which the drop interval depends.
    drops: u32,
    last_drop: Option<Duration>,
}

#[derive(Debug)]
struct QueuedFrame {
    queued_at: Duration,
    frame: Zeroizing<Vec<u8>>,
}

/// The next frame, and what was dropped before it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct DequeuedFrame {
    /// The frame.
    pub(crate) frame: Zeroizing<Vec<u8>>,
    /// Whether its first packet must be dropped.
    pub(crate) drop_first_packet: bool,
    /// The number of whole frames that were dropped before it.
    pub(crate) dropped_frames: u64,
}

impl CoDelQueue {
    /// Whether there is no frame.
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Whether the queue is full: nothing should be added.
    pub(crate) fn is_full(&self) -> bool {
        self.frames.len() >= MAX_FRAMES || self.bytes >= MAX_BYTES
    }

    /// Adds a frame that was read now.
    pub(crate) fn push(&mut self, frame: Zeroizing<Vec<u8>>, now: Duration) {
        self.bytes += frame.len();
        self.frames.push_back(QueuedFrame { queued_at: now, frame });
    }

    /// The next frame, if there is one.
    pub(crate) fn pop(&mut self, now: Duration) -> Option<DequeuedFrame> {
        let mut dropped_frames = 0;
        loop {
            let QueuedFrame { queued_at, frame } = self.frames.pop_front()?;
            self.bytes -= frame.len();
            let waited = now.saturating_sub(queued_at);
            // The last frame does not delay others.
            if waited > MAX_WAIT && !self.frames.is_empty() {
                dropped_frames += 1;
                continue;
            }
            let drop_first_packet = self.is_congested(waited, now) && self.is_drop_due(now);
            return Some(DequeuedFrame { frame, drop_first_packet, dropped_frames });
        }
    }

    /// The same if the next frame is accepted, and has not waited for so long that it would be
    /// dropped.
    pub(crate) fn pop_if(
        &mut self,
        now: Duration,
        accept: impl FnOnce(&[u8]) -> bool,
    ) -> Option<DequeuedFrame> {
        let QueuedFrame { queued_at, frame } = self.frames.front()?;
        let is_stale = now.saturating_sub(*queued_at) > MAX_WAIT;
        if is_stale || !accept(frame) { None } else { self.pop(now) }
    }

    /// Whether frames have waited longer than the target for an interval.
    fn is_congested(&mut self, waited: Duration, now: Duration) -> bool {
        if waited < TARGET || self.frames.is_empty() {
            self.above_target_since = None;
            self.next_drop = None;
            return false;
        }
        let since = *self.above_target_since.get_or_insert(now);
        now.saturating_sub(since) >= INTERVAL
    }

    /// Whether to drop a packet now, in a congested queue: the nth drop follows the one before it
    /// after an interval divided by the square root of n, so that TCP's rate falls linearly.
    fn is_drop_due(&mut self, now: Duration) -> bool {
        let due = match self.next_drop {
            Some(due) if now < due => return false,
            Some(due) => due,
            None => {
                // After a recent congestion, the drop rate starts where it was.
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

    /// Packets that leave at one a millisecond.
    struct Scenario {
        queue: CoDelQueue,
        now: Duration,
        /// The times at which a single packet was dropped, in ms.
        drop_times_ms: Vec<u128>,
        /// The number of whole frames that were dropped.
        dropped_frames: u64,
    }

    impl Scenario {
        fn new() -> Self {
            Self {
                queue: CoDelQueue::default(),
                now: Duration::ZERO,
                drop_times_ms: Vec::new(),
                dropped_frames: 0,
            }
        }

        fn send(&mut self, packets: u32) {
            (0..packets).for_each(|_| self.queue.push(frame(&[0; 100]), self.now));
        }

        /// Lets a millisecond pass, and one packet leave.
        fn tick(&mut self) {
            self.now += MS;
            let Some(next) = self.queue.pop(self.now) else { return };
            self.dropped_frames += next.dropped_frames;
            if next.drop_first_packet {
                self.drop_times_ms.push(self.now.as_millis());
            }
        }
    }

    #[test]
    fn frames_leave_in_their_order() {
        let mut queue = CoDelQueue::default();
        assert!(queue.frames.is_empty() && queue.pop(MS).is_none());
        queue.push(frame(&[1]), MS);
        queue.push(frame(&[2]), MS);
        let next = |byte| {
            Some(DequeuedFrame {
                frame: frame(&[byte]),
                drop_first_packet: false,
                dropped_frames: 0,
            })
        };
        assert_eq!(queue.pop(2 * MS), next(1));
        assert_eq!(queue.pop(2 * MS), next(2));
        assert!(queue.frames.is_empty());
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn pop_if_takes_only_an_accepted_frame_in_time() {
        let mut queue = CoDelQueue::default();
        assert!(queue.pop_if(MS, |_| true).is_none());
        queue.push(frame(&[1]), MS);
        queue.push(frame(&[2]), MS);
        assert!(queue.pop_if(MS, |frame| frame == [2]).is_none());
        assert_eq!(queue.pop_if(MS, |frame| frame == [1]).unwrap().frame, frame(&[1]));
        let late = MS + MAX_WAIT;
        assert!(queue.pop_if(late + MS, |_| true).is_none());
        assert_eq!(queue.pop_if(late, |_| true).unwrap().frame, frame(&[2]));
        assert_eq!(queue.bytes, 0);
    }

    #[test]
    fn a_burst_drains_without_drops() {
        let mut scenario = Scenario::new();
        for _ in 0..20 {
            scenario.send(90);
            (0..150).for_each(|_| scenario.tick());
        }
        assert!(scenario.queue.frames.is_empty());
        assert_eq!((scenario.drop_times_ms.len(), scenario.dropped_frames), (0, 0));
    }

    #[test]
    fn a_persistent_queue_delay_is_signalled_by_increasingly_frequent_drops() {
        let mut scenario = Scenario::new();
        scenario.send(40);
        for _ in 0..1000 {
            scenario.send(1);
            scenario.tick();
        }
        let gaps: Vec<u128> =
            scenario.drop_times_ms.windows(2).map(|pair| pair[1] - pair[0]).collect();
        // All have waited for longer than the target from the 15th on.
        assert_eq!(scenario.drop_times_ms[0], 215);
        assert_eq!(gaps[..4], [200, 142, 115, 100]);
        assert_eq!(scenario.dropped_frames, 0);
    }

    #[test]
    fn drops_end_with_the_queue_and_resume_at_the_same_rate() {
        let mut scenario = Scenario::new();
        scenario.send(40);
        for _ in 0..1000 {
            scenario.send(1);
            scenario.tick();
        }
        (0..100).for_each(|_| scenario.tick());
        let before = scenario.drop_times_ms.len();
        for _ in 0..1000 {
            scenario.send(1);
            scenario.tick();
        }
        assert_eq!(scenario.drop_times_ms.len(), before);
        // The same again: it takes as long to begin, but then it is as often as before.
        scenario.send(40);
        for _ in 0..300 {
            scenario.send(1);
            scenario.tick();
        }
        let again = &scenario.drop_times_ms[before..];
        assert!(again[1] - again[0] < 100, "{again:?}");
    }

    #[test]
    fn the_queue_is_bounded_for_senders_that_ignore_drops() {
        let mut scenario = Scenario::new();
        let mut longest = 0;
        for _ in 0..5000 {
            scenario.send(3);
            scenario.tick();
            longest = longest.max(scenario.queue.frames.len());
        }
        // A hundred milliseconds of what comes.
        assert!((295..=305).contains(&longest), "{longest}");
        assert!(scenario.dropped_frames > 9000);
    }

    #[test]
    fn the_queue_is_full_by_frames_or_by_bytes() {
        let mut queue = CoDelQueue::default();
        (0..MAX_FRAMES).for_each(|_| queue.push(frame(&[0]), MS));
        assert!(queue.is_full());
        queue.pop(MS);
        assert!(!queue.is_full());
        (0..127).for_each(|_| queue.push(frame(&vec![0; 1 << 16]), MS));
        assert!(queue.is_full());
    }
}
