//! When a stream has something to do although nothing comes.

use std::io;
use std::time::Duration;

use super::{Application, Failure, Phase, Stream};
use crate::protocol::incoming::{ANSWER_TIMEOUT, Incoming, LATE_CHANNEL_TIMEOUT, Loss};
use crate::protocol::on_lost_channel::end_of_stream;

/// After how long without a byte a direction gives its memory back.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// How often it is examined whether a peer acknowledges what it does not take.
const SILENCE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a peer may leave sent data unacknowledged, on a channel that can be lost.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a stream waits for channels whose paths are lost, if it needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostChannelTimeouts {
    /// Once it is open.
    pub(crate) open: Duration,
    /// Until then.
    pub(crate) opening: Duration,
}

/// The times that deadlines follow from.
pub(super) struct Timers {
    /// Until when the phase may last.
    limit: Option<Duration>,
    /// Until when what is sealed waits for the application's first bytes.
    hold: Option<Duration>,
    /// When bytes were received last, or room was made for more.
    received_at: Duration,
    /// Until when the next bytes must be received.
    due: Option<Duration>,
    /// In a phase that waits for the first record: since when enough channels have brought it.
    enough_since: Option<Duration>,
    /// When bytes were sent last.
    sent_at: Duration,
    /// Since when channels that can be lost have not taken what is sealed, or were examined.
    untaken_since: Option<Duration>,
    /// Which directions have given their memory back: receiving, sending.
    is_shrunk: [bool; 2],
    lost_channel: LostChannelTimeouts,
}

impl Timers {
    pub(super) fn new(now: Duration, lost_channel: LostChannelTimeouts) -> Self {
        Self {
            limit: Some(now + ANSWER_TIMEOUT),
            hold: None,
            received_at: now,
            due: None,
            enough_since: None,
            sent_at: now,
            untaken_since: None,
            is_shrunk: [false; 2],
            lost_channel,
        }
    }

    pub(super) fn limit(&mut self, until: Option<Duration>) {
        self.limit = until;
    }

    pub(super) fn hold(&mut self, until: Duration) {
        self.hold = Some(until);
    }

    pub(super) fn release(&mut self) {
        self.hold = None;
    }

    pub(super) fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    pub(super) fn received(&mut self, now: Duration) {
        (self.received_at, self.is_shrunk[0]) = (now, false);
    }

    pub(super) fn sent(&mut self, now: Duration) {
        (self.sent_at, self.is_shrunk[1]) = (now, false);
    }

    /// Channels that can be lost have not taken what is sealed, or all have.
    pub(super) fn set_untaken(&mut self, is_untaken: bool, now: Duration) {
        self.untaken_since = is_untaken.then(|| self.untaken_since.unwrap_or(now));
    }

    /// What is expected on the channels from now on.
    pub(super) fn expect(&mut self, incoming: &Incoming, is_first: bool, now: Duration) {
        self.due = if is_first {
            let since = incoming.can_lose_stalled().then(|| self.enough_since.unwrap_or(now));
            self.enough_since = since;
            since.map(|since| since + LATE_CHANNEL_TIMEOUT)
        } else {
            incoming.patience().map(|patience| self.received_at + patience)
        };
    }
}

impl Stream {
    /// When [`Stream::handle_timeout`] is to be called, if nothing happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        if matches!(self.phase, Phase::Over) {
            return None;
        }
        let deadlines = [
            self.timers.limit,
            self.timers.hold,
            self.confirm_deadline(),
            self.receive_deadline(),
            self.inspection(),
            self.lost_channel().map(|(end, _)| end),
            self.shrink_deadline(0),
            self.shrink_deadline(1),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// Until when the Confirms of some channels are waited for.
    fn confirm_deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Confirming(confirming) => confirming.deadline(),
            _ => None,
        }
    }

    /// Until when the next bytes must come. While the application takes what has come, none are read.
    fn receive_deadline(&self) -> Option<Duration> {
        let is_receiving = self.is_receiving() && !self.has_work;
        self.timers.due.filter(|_| is_receiving && !matches!(self.phase, Phase::Refused))
    }

    /// When it is examined next whether the peer acknowledges: while channels that can be lost do not
    /// take what is sent.
    fn inspection(&self) -> Option<Duration> {
        self.timers.untaken_since.map(|since| since + SILENCE_POLL_INTERVAL)
    }

    /// When the stream ends because the paths of channels that it needs are lost, and which of them.
    fn lost_channel(&self) -> Option<(Duration, usize)> {
        let LostChannelTimeouts { open, opening } = self.timers.lost_channel;
        let patience = match self.phase {
            Phase::Confirming(_) | Phase::Answer => opening,
            Phase::Open => open,
            _ => return None,
        };
        end_of_stream(self.unusable_since.iter().copied(), self.spare, patience)
    }

    /// When a direction (0: receiving, 1: sending) gives its memory back.
    fn shrink_deadline(&self, direction: usize) -> Option<Duration> {
        let (is_idle, since) = match direction {
            0 => (
                matches!(self.phase, Phase::Open)
                    && self.is_receiving()
                    && !self.has_work
                    && self.timers.due.is_none(),
                self.timers.received_at,
            ),
            _ => (
                self.application == Application::Reading && self.outgoing.is_taken(),
                self.timers.sent_at,
            ),
        };
        (is_idle && !self.timers.is_shrunk[direction]).then(|| since + IDLE_TIMEOUT)
    }

    /// Does what is due. `silence` tells for how long the peer has left sent data unacknowledged on a
    /// channel: zero where it has not.
    pub(crate) fn handle_timeout(&mut self, now: Duration, silence: impl Fn(usize) -> Duration) {
        let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        for direction in [0, 1] {
            if is_due(self.shrink_deadline(direction)) {
                self.timers.is_shrunk[direction] = true;
                if direction == 0 { self.incoming.shrink() } else { self.outgoing.shrink() }
            }
        }
        if is_due(self.timers.hold) {
            self.timers.release();
        }
        if is_due(self.inspection()) {
            self.timers.untaken_since = None;
            self.lose_silent(&silence);
        }
        if is_due(self.confirm_deadline()) {
            self.lose_unconfirmed();
        }
        if is_due(self.receive_deadline()) {
            if self.incoming.lose_stalled() {
                self.timers.received(now);
            } else {
                self.fail(Failure::Stalled, now);
            }
        }
        if let Some((end, channel)) = self.lost_channel()
            && end <= now
        {
            self.fail(Failure::Lost(channel), now);
        }
        if is_due(self.timers.limit) {
            self.handle_limit(now, &silence);
        }
        self.update(now);
    }

    /// Loses the channels that do not take what is sent and whose peer is silent.
    fn lose_silent(&mut self, silence: impl Fn(usize) -> Duration) {
        for channel in self.channels() {
            if !self.outgoing.rest(channel).is_empty() && silence(channel) >= SILENCE_TIMEOUT {
                self.lose(channel, Loss::Stalled);
            }
        }
    }

    /// Loses the channels that have not confirmed, as the others have, for long enough.
    fn lose_unconfirmed(&mut self) {
        let late = self.wanted();
        for channel in late {
            self.lose(channel, Loss::Stalled);
        }
    }

    /// The phase has lasted for as long as it may.
    fn handle_limit(&mut self, now: Duration, silence: impl Fn(usize) -> Duration) {
        self.timers.limit(None);
        match self.phase {
            Phase::Confirming(_) | Phase::Answer => self.fail(self.no_answer(silence), now),
            Phase::Request => self.fail(Failure::Stalled, now),
            Phase::Refused => self.close(false),
            Phase::Aborting => self.close(true),
            Phase::Connecting | Phase::Open | Phase::Over => {}
        }
    }

    /// Why there was no answer for so long: a channel whose peer is silent. If all are, it is not the
    /// channels.
    fn no_answer(&self, silence: impl Fn(usize) -> Duration) -> Failure {
        let is_silent = |channel: &usize| silence(*channel) >= ANSWER_TIMEOUT;
        let live = || self.channels().filter(|&channel| self.outgoing.is_live(channel));
        match live().find(is_silent) {
            Some(channel) if !live().all(|channel| is_silent(&channel)) => {
                Failure::Channel { channel, kind: io::ErrorKind::TimedOut }
            }
            _ => Failure::NotOpened,
        }
    }
}
