//! The timers of a connection.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::super::ranges::SabulNumberRanges;

/// The shortest silence of the peer after which the connection reacts, and the longest time between
/// reactions.
const MIN_SILENCE: Duration = Duration::from_millis(300);
const MAX_SILENCE: Duration = Duration::from_secs(1);

/// How long the peer may delay an acknowledgement.
const ACK_DELAY: Duration = Duration::from_millis(10);

/// The longest pause between two attempts to elicit an answer from the peer.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// When a timer is due. `None` if it is not set.
#[derive(Debug)]
pub(crate) struct SabulTimers {
    acknowledge_at: Option<Duration>,
    /// Disjoint ranges of packets that were reported lost, and when to report them again.
    reported: VecDeque<(Duration, Range<u64>)>,
    /// When the last packets count as lost, and how many times in a row that has happened.
    tail_at: Option<Duration>,
    tail_loss_repetitions: u32,
    silence_at: Duration,
    silences: u32,
}

impl SabulTimers {
    pub(crate) fn new(now: Duration) -> Self {
        Self {
            acknowledge_at: None,
            reported: VecDeque::new(),
            tail_at: None,
            tail_loss_repetitions: 0,
            silence_at: now + MIN_SILENCE,
            silences: 0,
        }
    }

    /// When the next timer is due.
    pub(crate) fn next(&self) -> Duration {
        let losses_at = self.reported.front().map(|(at, _)| *at);
        [self.acknowledge_at, losses_at, self.tail_at]
            .into_iter()
            .flatten()
            .fold(self.silence_at, Duration::min)
    }

    /// Schedules a full acknowledgement after at most `wait`.
    pub(crate) fn acknowledge(&mut self, now: Duration, wait: Duration) {
        let at = now + wait;
        self.acknowledge_at = Some(self.acknowledge_at.map_or(at, |before| before.min(at)));
    }

    pub(crate) fn take_acknowledge(&mut self, now: Duration) -> bool {
        take(&mut self.acknowledge_at, now)
    }

    /// Records reported losses. What is still missing after `interval` is to be reported again.
    pub(crate) fn reported(&mut self, now: Duration, losses: Range<u64>, interval: Duration) {
        self.reported.push_back((now + interval, losses));
    }

    /// Returns what is to be reported again now, and schedules the next report after `interval`.
    pub(crate) fn take_losses(
        &mut self,
        now: Duration,
        missing: &SabulNumberRanges,
        interval: Duration,
    ) -> SabulNumberRanges {
        let mut again = SabulNumberRanges::default();
        while self.reported.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, losses)) = self.reported.pop_front()
        {
            let before = again.len();
            for range in missing.within(&losses) {
                again.insert(range);
            }
            if again.len() > before {
                self.reported.push_back((now + interval, losses));
            }
        }
        again
    }

    /// Records that a data packet was sent.
    pub(crate) fn sent(&mut self, now: Duration, late: Duration) {
        self.tail_at = Some(now + self.tail_loss_delay(late));
    }

    /// Records an acknowledgement; `has_progress` if it acknowledges new packets.
    pub(crate) fn acknowledged(&mut self, now: Duration, late: Duration, has_progress: bool) {
        if has_progress {
            self.tail_loss_repetitions = 0;
            self.tail_at = Some(now + self.tail_loss_delay(late));
        }
    }

    pub(crate) fn take_tail_loss(&mut self, now: Duration) -> bool {
        let is_due = take(&mut self.tail_at, now);
        if is_due {
            self.tail_loss_repetitions += 1;
        }
        is_due
    }

    /// Records that something was received from the peer.
    pub(crate) fn heard(&mut self, now: Duration, late: Duration) {
        self.silences = 0;
        self.silence_at = now + silence(late);
    }

    /// If the peer has been silent for too long, the number of times in a row; else 0.
    pub(crate) fn take_silence(&mut self, now: Duration, late: Duration) -> u32 {
        if now < self.silence_at {
            return 0;
        }
        self.silences += 1;
        self.silence_at = now + (silence(late) * (self.silences + 1)).min(MAX_SILENCE.max(late));
        self.silences
    }

    fn tail_loss_delay(&self, late: Duration) -> Duration {
        pause(late, self.tail_loss_repetitions)
    }
}

/// The time for the peer to answer after this many retransmissions. It grows: a busy peer drops
/// packets, and must not receive more and more of them.
pub(super) fn pause(late: Duration, repetitions: u32) -> Duration {
    ((late + ACK_DELAY) * (1 << repetitions.min(6))).min(MAX_PAUSE.max(late))
}

fn silence(late: Duration) -> Duration {
    (late + ACK_DELAY).max(MIN_SILENCE)
}

fn take(timer: &mut Option<Duration>, now: Duration) -> bool {
    let is_due = timer.is_some_and(|at| at <= now);
    if is_due {
        *timer = None;
    }
    is_due
}
