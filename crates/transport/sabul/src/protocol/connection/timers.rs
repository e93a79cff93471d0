//! The timers of a connection.

use std::collections::VecDeque;
use std::ops::Range;
use std::time::Duration;

use super::super::ranges::SabulNumberRanges;

/// The shortest and the longest time without a word of the peer until something is done.
const MIN_SILENCE: Duration = Duration::from_millis(300);
const MAX_SILENCE: Duration = Duration::from_secs(1);

/// What the peer may wait before it acknowledges.
const ACK_DELAY: Duration = Duration::from_millis(10);

/// The longest pause between two attempts to make the peer answer.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// When something is due. `None` if never.
#[derive(Debug)]
pub(crate) struct SabulTimers {
    acknowledge_at: Option<Duration>,
    /// Disjoint ranges of packets that were reported lost, and when they are reported again.
    reported: VecDeque<(Duration, Range<u64>)>,
    /// When the last packets are taken for lost, and how often that has happened in turn.
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

    /// The time of the next one.
    pub(crate) fn next(&self) -> Duration {
        let losses_at = self.reported.front().map(|(at, _)| *at);
        [self.acknowledge_at, losses_at, self.tail_at]
            .into_iter()
            .flatten()
            .fold(self.silence_at, Duration::min)
    }

    /// A full acknowledgement is due after `wait` at the latest.
    pub(crate) fn acknowledge(&mut self, now: Duration, wait: Duration) {
        let at = now + wait;
        self.acknowledge_at = Some(self.acknowledge_at.map_or(at, |before| before.min(at)));
    }

    pub(crate) fn take_acknowledge(&mut self, now: Duration) -> bool {
        take(&mut self.acknowledge_at, now)
    }

    /// Losses were reported. What is still missing after `interval` is reported again.
    pub(crate) fn reported(&mut self, now: Duration, losses: Range<u64>, interval: Duration) {
        self.reported.push_back((now + interval, losses));
    }

    /// What is to be reported again now, and after `interval` once more.
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

    /// A data packet was sent.
    pub(crate) fn sent(&mut self, now: Duration, late: Duration) {
        self.tail_at = Some(now + self.tail_loss_delay(late));
    }

    /// The peer has acknowledged something; something new if `has_progress`.
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

    /// Something was heard from the peer.
    pub(crate) fn heard(&mut self, now: Duration, late: Duration) {
        self.silences = 0;
        self.silence_at = now + silence(late);
    }

    /// How often the peer has been silent in turn, if it is for so long; else 0.
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

/// How long the peer may take to answer what was sent again so often. It grows: a busy peer drops
/// what it has no time for, and must not get ever more of it.
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
