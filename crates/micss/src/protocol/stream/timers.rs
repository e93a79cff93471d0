//! The deadlines of a stream.

use std::io;
use std::time::Duration;

use super::{Application, Failure, Phase, ProtocolError, Stream};
use crate::protocol::incoming::{ANSWER_TIMEOUT, Incoming, LATE_CHANNEL_TIMEOUT, Loss};
use crate::protocol::on_lost_channel::end_of_stream;

/// How long a direction may be idle before it frees its memory.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval of checks whether a peer acknowledges data that it does not take.
const SILENCE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// How long a peer may leave sent data unacknowledged, on a channel that can be lost.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a stream waits for channels whose paths are lost, if it needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostChannelTimeouts {
    /// Once it is open.
    pub(crate) open: Duration,
    /// Before that.
    pub(crate) opening: Duration,
}

/// The times on which the deadlines depend.
pub(super) struct Timers {
    /// The deadline of the phase.
    limit: Option<Duration>,
    /// The deadline until which sealed records wait for the application's first bytes.
    hold: Option<Duration>,
    /// The time when bytes were last received, or space for more was made.
    received_at: Duration,
    /// The deadline of the next bytes.
    due: Option<Duration>,
    /// In a phase that waits for the first record: the time since when enough channels have brought
    /// it.
    enough_since: Option<Duration>,
    /// The time when bytes were last sent.
    sent_at: Duration,
    /// The time since when channels that can be lost have not taken the sealed records, or of the
    /// last check.
    untaken_since: Option<Duration>,
    /// Which directions have freed their memory: receiving, sending.
    is_shrunk: [bool; 2],
    lost_channel: LostChannelTimeouts,
}

/// The timers of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The end of the phase.
    Limit,
    /// The application's first bytes.
    Coalesce,
    /// The Confirms of the channels that are not needed.
    Confirm,
    /// The next bytes of the channels.
    Receive,
    /// The next check whether peers are silent.
    Silence,
    /// Channels whose paths are lost.
    LostChannel,
    /// The end of the time for which an idle direction keeps its memory.
    ShrinkIncoming,
    /// See there.
    ShrinkOutgoing,
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

    /// Channels that can be lost have not taken the sealed records, or all have.
    pub(super) fn set_untaken(&mut self, is_untaken: bool, now: Duration) {
        self.untaken_since = is_untaken.then(|| self.untaken_since.unwrap_or(now));
    }

    /// Sets the deadline of the next bytes.
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
    /// When [`Stream::handle_timeout`] must be called, if nothing happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.next_timer().map(|(at, _)| at)
    }

    /// The timer that is due first.
    pub(super) fn next_timer(&self) -> Option<(Duration, Timer)> {
        if matches!(self.phase, Phase::Over) {
            return None;
        }
        let timers = [
            (self.timers.limit, Timer::Limit),
            (self.timers.hold, Timer::Coalesce),
            (self.confirm_deadline(), Timer::Confirm),
            (self.receive_deadline(), Timer::Receive),
            (self.inspection(), Timer::Silence),
            (self.lost_channel().map(|(end, _)| end), Timer::LostChannel),
            (self.shrink_deadline(0), Timer::ShrinkIncoming),
            (self.shrink_deadline(1), Timer::ShrinkOutgoing),
        ];
        timers.into_iter().filter_map(|(at, timer)| Some((at?, timer))).min_by_key(|(at, _)| *at)
    }

    /// The deadline of the confirms that are not needed.
    fn confirm_deadline(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Confirming(confirming) => confirming.deadline(),
            _ => None,
        }
    }

    /// The deadline of the next bytes. While the application takes delivered bytes, none are read.
    fn receive_deadline(&self) -> Option<Duration> {
        let is_receiving = self.is_receiving() && !self.has_work;
        self.timers.due.filter(|_| is_receiving && !matches!(self.phase, Phase::Refused))
    }

    /// The time of the next check whether the peer acknowledges: while channels that can be lost do
    /// not take sealed records.
    fn inspection(&self) -> Option<Duration> {
        self.timers.untaken_since.map(|since| since + SILENCE_POLL_INTERVAL)
    }

    /// When the stream ends because the paths of channels that it needs are lost, and which of
    /// them.
    pub(super) fn lost_channel(&self) -> Option<(Duration, usize)> {
        if self.unusable_since.iter().all(Option::is_none) {
            return None;
        }
        let LostChannelTimeouts { open, opening } = self.timers.lost_channel;
        let patience = match self.phase {
            Phase::Confirming(_) | Phase::Answer => opening,
            Phase::Open => open,
            _ => return None,
        };
        let live: Vec<usize> = self.live().collect();
        let spare = live.len() - usize::from(self.terms.threshold());
        let unusable = live.iter().map(|&channel| self.unusable_since[channel]);
        end_of_stream(unusable, spare, patience).map(|(end, place)| (end, live[place]))
    }

    /// When a direction (0: receiving, 1: sending) frees its memory.
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

    /// Handles the timers that are due. `silence` returns for how long the peer has left sent data
    /// unacknowledged on a channel; zero if it has not.
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
                self.fail(ProtocolError::Stalled.into(), now);
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

    /// Drops the channels that do not take sealed records and whose peer is silent.
    fn lose_silent(&mut self, silence: impl Fn(usize) -> Duration) {
        for channel in self.channels() {
            if !self.outgoing.rest(channel).is_empty() && silence(channel) >= SILENCE_TIMEOUT {
                self.lose(channel, Loss::Stalled);
            }
        }
    }

    /// Drops the channels that have not confirmed in time after the others.
    fn lose_unconfirmed(&mut self) {
        let late = self.wanted();
        for channel in late {
            self.lose(channel, Loss::Stalled);
        }
    }

    /// The deadline of the phase has passed.
    fn handle_limit(&mut self, now: Duration, silence: impl Fn(usize) -> Duration) {
        self.timers.limit(None);
        match self.phase {
            Phase::Confirming(_) | Phase::Answer => self.fail(self.no_answer(silence), now),
            Phase::Request => self.fail(ProtocolError::Stalled.into(), now),
            Phase::Refused => self.close(false),
            Phase::Aborting => self.close(true),
            Phase::Connecting | Phase::Open | Phase::Over => {}
        }
    }

    /// The cause of a missing answer: a channel whose peer is silent. If all are, it is not a
    /// channel.
    fn no_answer(&self, silence: impl Fn(usize) -> Duration) -> Failure {
        let is_silent = |channel: &usize| silence(*channel) >= ANSWER_TIMEOUT;
        match self.live().find(is_silent) {
            Some(channel) if !self.live().all(|channel| is_silent(&channel)) => {
                Failure::Channel { channel, kind: io::ErrorKind::TimedOut }
            }
            _ => ProtocolError::NotOpened.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use association::Message;

    use super::*;
    use crate::protocol::stream::Event;
    use crate::protocol::stream::pair::{client, events, list};

    const SECOND: Duration = Duration::from_secs(1);

    fn timers(stream: &mut Stream, at: Duration) -> Vec<Timer> {
        let mut fired = Vec::new();
        while let Some((due, timer)) = stream.next_timer()
            && due <= at
        {
            fired.push(timer);
            assert!(fired.len() < 100, "{timer:?} fires for ever");
            stream.handle_timeout(due, |_| Duration::ZERO);
        }
        fired
    }

    #[test]
    fn others_are_waited_for_if_a_channel_that_has_confirmed_is_lost() {
        let mut stream = client(1);
        let confirm = Message::Confirm(list(1)).encode();
        stream.space(0).copy_from_slice(&confirm);
        stream.handle_received(0, confirm.len(), SECOND);
        assert_eq!(stream.confirm_deadline(), Some(3 * SECOND));
        stream.handle_broken(0, io::ErrorKind::ConnectionReset, SECOND);
        assert!(!timers(&mut stream, 20 * SECOND).contains(&Timer::Confirm));
        stream.space(1).copy_from_slice(&confirm);
        stream.handle_received(1, confirm.len(), 20 * SECOND);
        assert_eq!(stream.confirm_deadline(), Some(22 * SECOND));
        assert!(timers(&mut stream, 22 * SECOND).contains(&Timer::Confirm));
        assert_eq!(stream.live().collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_stream_whose_last_channel_is_lost_ends() {
        let mut stream = client(1);
        stream.handle_path(2, Some(SECOND));
        stream.handle_broken(0, io::ErrorKind::ConnectionReset, SECOND);
        assert!(!timers(&mut stream, 5 * SECOND).contains(&Timer::LostChannel), "1 is left");
        stream.handle_broken(1, io::ErrorKind::ConnectionReset, 6 * SECOND);
        assert!(timers(&mut stream, 7 * SECOND).contains(&Timer::LostChannel));
        let is_lost = |event: &Event| matches!(event, Event::Failed(Failure::Lost(2)));
        assert!(events(&mut stream).iter().any(is_lost));
    }

    #[test]
    fn channels_are_reset_if_they_do_not_take_an_abort() {
        let mut stream = client(1);
        stream.handle_application_error(SECOND);
        assert!(timers(&mut stream, 2 * SECOND).contains(&Timer::Limit));
        assert!(matches!(
            events(&mut stream)[..],
            [Event::Failed(Failure::Application), Event::Closed { reset: true }]
        ));
    }
}
