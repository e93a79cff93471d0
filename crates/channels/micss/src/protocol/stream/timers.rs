//! The deadlines of a stream.

use std::io;
use std::time::Duration;

use super::{
    ApplicationReadState, StreamEndpoint, StreamFailure, StreamPhase, StreamProtocolError,
};
use crate::protocol::incoming::{
    ANSWER_TIMEOUT, ChannelLossReason, LATE_CHANNEL_TIMEOUT, LATE_SHARE_TIMEOUT,
    STALLED_CHANNEL_TIMEOUT,
};
use crate::protocol::on_lost_channel::end_of_stream;

/// How long a direction may be idle before it frees its memory.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval of checks whether a peer acknowledges data that it does not take.
const SILENCE_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// How long a peer may leave sent data unacknowledged, on a channel that can be lost. This is
/// longer than a failure detector takes, which observes a channel only while there are connections
/// on it.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(3);

/// How long bytes may wait to be taken before their senders may find the connections full.
const FULL_AFTER: Duration = Duration::from_secs(1);

/// How long a stream waits for channels whose paths are lost, if it needs them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LostChannelTimeouts {
    /// Once it is open.
    pub(crate) open: Duration,
    /// Before that.
    pub(crate) opening: Duration,
}

/// The times on which the deadlines depend.
pub(super) struct StreamDeadlines {
    /// The deadline of the phase.
    limit: Option<Duration>,
    /// The deadline until which sealed records wait for the application's first bytes.
    hold: Option<Duration>,
    /// The time when bytes were last received, or space for more was made.
    received_at: Duration,
    /// The deadline of the next bytes.
    due: Option<Duration>,
    /// The time since when enough channels have brought the next record, and others have not.
    enough_since: Option<Duration>,
    /// The time since when bytes have waited to be taken, and none were.
    waiting_since: Option<Duration>,
    /// For each channel that is behind and can be lost: a time, and the number of late bytes that
    /// it must have brought since to have delivered its share of the record that was the last one
    /// at that time.
    behind_since: Vec<Option<(Duration, u64)>>,
    /// The time when bytes were last sent.
    sent_at: Duration,
    /// The time since when channels that can be lost have not taken the sealed records, or of the
    /// last check.
    untaken_since: Option<Duration>,
    /// Which directions have freed their memory: receiving, then sending.
    is_shrunk: [bool; 2],
    lost_channel: LostChannelTimeouts,
}

/// The timers of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StreamTimer {
    /// The phase ends.
    Limit,
    /// The wait for the application's first bytes ends.
    Coalesce,
    /// The wait for the Confirms of channels that are not needed ends.
    Confirm,
    /// The next bytes of the channels are due.
    Receive,
    /// Shares are too late.
    Behind,
    /// The next check whether peers are silent is due.
    Silence,
    /// The wait for channels whose paths are lost ends.
    LostChannel,
    /// The next attempt to replace a channel's connection is due.
    Rejoin,
    /// An idle receiving direction frees its memory.
    ShrinkIncoming,
    /// An idle sending direction frees its memory.
    ShrinkOutgoing,
}

impl StreamDeadlines {
    pub(super) fn new(channels: u8, lost_channel: LostChannelTimeouts, now: Duration) -> Self {
        Self {
            limit: Some(now + ANSWER_TIMEOUT),
            hold: None,
            received_at: now,
            due: None,
            enough_since: None,
            waiting_since: None,
            behind_since: vec![None; channels.into()],
            sent_at: now,
            untaken_since: None,
            is_shrunk: [false; 2],
            lost_channel,
        }
    }

    pub(super) fn limit(&mut self, until: Option<Duration>) {
        self.limit = until;
    }

    pub(super) fn start_coalescing(&mut self, until: Duration) {
        self.hold = Some(until);
    }

    pub(super) fn stop_coalescing(&mut self) {
        self.hold = None;
    }

    /// Whether the sending direction has been idle, and has freed its memory.
    pub(super) fn is_idle(&self) -> bool {
        self.is_shrunk[1]
    }

    pub(super) fn is_coalescing(&self) -> bool {
        self.hold.is_some()
    }

    pub(super) fn received(&mut self, now: Duration) {
        (self.received_at, self.is_shrunk[0]) = (now, false);
    }

    pub(super) fn sent(&mut self, now: Duration) {
        (self.sent_at, self.is_shrunk[1]) = (now, false);
    }

    /// Records whether channels that can be lost have not taken the sealed records.
    pub(super) fn set_untaken(&mut self, is_untaken: bool, now: Duration) {
        self.untaken_since = is_untaken.then(|| self.untaken_since.unwrap_or(now));
    }

    /// Records that a record was taken. Returns whether bytes had waited for so long that channels
    /// may have been full.
    pub(super) fn taken(&mut self, now: Duration) -> bool {
        self.enough_since = None;
        let since = self.waiting_since.take();
        since.is_some_and(|since| now.saturating_sub(since) >= FULL_AFTER)
    }

    /// Records whether bytes wait to be taken.
    pub(super) fn set_waiting(&mut self, is_waiting: bool, now: Duration) {
        self.waiting_since = is_waiting.then(|| self.waiting_since.unwrap_or(now));
    }
}

impl StreamEndpoint {
    /// Sets the deadline of the next record.
    pub(super) fn expect(&mut self, now: Duration) {
        let is_first = matches!(self.phase, StreamPhase::Answer | StreamPhase::Request);
        let is_enough = self.is_receiving() && self.incoming.can_lose_stalled();
        self.timers.enough_since = is_enough.then(|| self.timers.enough_since.unwrap_or(now));
        let timeout = self.incoming.next_record_timeout();
        self.timers.due = match self.timers.enough_since {
            Some(since) if self.awaits_only_unusable() => Some(since + LATE_SHARE_TIMEOUT),
            Some(since) if is_first && self.incoming.is_contradicted() => {
                Some(since + LATE_CHANNEL_TIMEOUT)
            }
            Some(since) => timeout.map(|timeout| since + timeout),
            None if is_first => None,
            None => timeout.map(|timeout| self.timers.received_at + timeout),
        };
    }

    /// Whether the paths of all channels that have not brought the next record are lost.
    pub(super) fn awaits_only_unusable(&self) -> bool {
        self.incoming.stalled().all(|channel| self.is_unusable(channel))
    }

    /// Records which channels are behind. A channel that only has a longer delay than the others is
    /// always behind.
    pub(super) fn note_behind(&mut self, now: Duration) {
        let has_spare = self.outgoing.has_spare();
        for (channel, since) in self.timers.behind_since.iter_mut().enumerate() {
            let (brought, all) = self.incoming.late_bytes(channel);
            *since = match *since {
                _ if !has_spare || brought == all => None,
                Some((at, awaited)) if brought < awaited => Some((at, awaited)),
                _ => Some((now, all)),
            };
        }
    }

    /// How long a channel may be behind.
    fn behind_timeout(&self) -> Duration {
        if self.has_received_all { LATE_CHANNEL_TIMEOUT } else { STALLED_CHANNEL_TIMEOUT }
    }

    /// When a channel is lost because its shares are too late. While the application takes
    /// delivered bytes, none are read.
    fn behind_deadline(&self) -> Option<Duration> {
        let (since, _) = self.timers.behind_since.iter().flatten().min()?;
        let is_reading = self.is_receiving() || self.awaits_late();
        is_reading.then(|| *since + self.behind_timeout())
    }

    /// Whether the path of a channel is lost.
    fn is_unusable(&self, channel: usize) -> bool {
        self.unusable_since[channel].is_some()
    }

    /// When [`StreamEndpoint::handle_timeout`] must be called, if nothing happens before.
    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.next_timer().map(|(at, _)| at)
    }

    /// The timer that is due first.
    pub(super) fn next_timer(&self) -> Option<(Duration, StreamTimer)> {
        if matches!(self.phase, StreamPhase::Over) {
            return None;
        }
        let timers = [
            (self.timers.limit, StreamTimer::Limit),
            (self.timers.hold, StreamTimer::Coalesce),
            (self.confirm_deadline(), StreamTimer::Confirm),
            (self.receive_deadline(), StreamTimer::Receive),
            (self.behind_deadline(), StreamTimer::Behind),
            (self.inspection(), StreamTimer::Silence),
            (self.lost_channel().map(|(end, _)| end), StreamTimer::LostChannel),
            (self.rejoin_deadline(), StreamTimer::Rejoin),
            (self.shrink_deadline(0), StreamTimer::ShrinkIncoming),
            (self.shrink_deadline(1), StreamTimer::ShrinkOutgoing),
        ];
        timers.into_iter().filter_map(|(at, timer)| Some((at?, timer))).min_by_key(|(at, _)| *at)
    }

    /// The deadline of the Confirms that are not needed. Channels whose paths are lost are not
    /// awaited.
    fn confirm_deadline(&self) -> Option<Duration> {
        let StreamPhase::Confirming(confirming) = &self.phase else { return None };
        let since = confirming.enough_since()?;
        let is_known = confirming.wanted().into_iter().all(|channel| self.is_unusable(channel));
        Some(if is_known { since } else { since + LATE_CHANNEL_TIMEOUT })
    }

    /// The deadline of the next record. While the application takes delivered bytes, none are read.
    fn receive_deadline(&self) -> Option<Duration> {
        let is_receiving = self.is_receiving() && !self.has_work;
        self.timers.due.filter(|_| is_receiving && !matches!(self.phase, StreamPhase::Refused))
    }

    /// The time of the next check whether the peer acknowledges: while channels that can be lost do
    /// not take sealed records.
    fn inspection(&self) -> Option<Duration> {
        self.timers.untaken_since.map(|since| since + SILENCE_POLL_INTERVAL)
    }

    /// When the stream ends because the paths of channels that it needs are lost, and which of
    /// them.
    pub(super) fn lost_channel(&self) -> Option<(Duration, usize)> {
        let unusable_since = |channel: usize| {
            self.unusable_since[channel].or_else(|| self.rejoining.dead_since(channel))
        };
        if self.channels().all(|channel| unusable_since(channel).is_none()) {
            return None;
        }
        let LostChannelTimeouts { open, opening } = self.timers.lost_channel;
        let timeout = match self.phase {
            StreamPhase::Confirming(_) | StreamPhase::Answer => opening,
            StreamPhase::Open => open,
            _ => return None,
        };
        let live: Vec<usize> = self.live().collect();
        let spare = live.len() - usize::from(self.terms.threshold());
        let unusable = live.iter().map(|&channel| unusable_since(channel));
        end_of_stream(unusable, spare, timeout).map(|(end, place)| (end, live[place]))
    }

    /// When a direction (0: receiving, 1: sending) frees its memory.
    fn shrink_deadline(&self, direction: usize) -> Option<Duration> {
        let (is_idle, since) = match direction {
            0 => (
                matches!(self.phase, StreamPhase::Open)
                    && self.is_receiving()
                    && !self.has_work
                    && self.timers.due.is_none(),
                self.timers.received_at,
            ),
            _ => (
                self.application == ApplicationReadState::Reading && self.outgoing.is_sent_on_all(),
                self.timers.sent_at,
            ),
        };
        (is_idle && !self.timers.is_shrunk[direction]).then(|| since + IDLE_TIMEOUT)
    }

    /// Handles the timers that are due. `silence` returns how long the peer has left sent data
    /// unacknowledged on a channel; zero if it has not.
    pub(crate) fn handle_timeout(&mut self, now: Duration, silence: impl Fn(usize) -> Duration) {
        let is_due = |at: Option<Duration>| at.is_some_and(|at| at <= now);
        for direction in [0, 1] {
            if is_due(self.shrink_deadline(direction)) {
                self.timers.is_shrunk[direction] = true;
                if direction == 0 {
                    self.incoming.shrink();
                } else {
                    self.shrink_outgoing(now);
                }
            }
        }
        if is_due(self.timers.hold) {
            self.timers.stop_coalescing();
        }
        if is_due(self.behind_deadline()) {
            self.lose_behind(now);
        }
        if is_due(self.inspection()) {
            self.timers.untaken_since = None;
            self.lose_silent(&silence);
        }
        if is_due(self.confirm_deadline()) {
            self.lose_unconfirmed();
        }
        if is_due(self.receive_deadline()) {
            if self.incoming.skip_late() || self.incoming.lose_stalled() {
                // The others may have brought only its header.
                self.timers.enough_since = None;
                self.timers.received(now);
            } else {
                self.fail(StreamProtocolError::Stalled.into(), now);
            }
        }
        if let Some((end, channel)) = self.lost_channel()
            && end <= now
        {
            self.fail(StreamFailure::Lost(channel), now);
        }
        if is_due(self.rejoin_deadline()) {
            self.begin_rejoins(now);
        }
        if is_due(self.timers.limit) {
            self.handle_limit(now, &silence);
        }
        self.update(now);
    }

    /// Frees the memory of an idle sending direction, once what it keeps is acknowledged.
    fn shrink_outgoing(&mut self, now: Duration) {
        match self.outgoing.request_acknowledgement() {
            Ok(_) => self.outgoing.shrink(),
            Err(error) => self.fail(error.into(), now),
        }
    }

    /// Drops the channels that do not take sealed records and whose path is lost or whose peer is
    /// silent.
    fn lose_silent(&mut self, silence: impl Fn(usize) -> Duration) {
        for channel in self.channels() {
            let is_silent = || self.is_unusable(channel) || silence(channel) >= SILENCE_TIMEOUT;
            if !self.outgoing.unsent(channel).is_empty() && is_silent() {
                self.lose(channel, ChannelLossReason::Stalled);
            }
        }
    }

    /// Drops the channels that were behind for too long.
    fn lose_behind(&mut self, now: Duration) {
        for channel in self.channels() {
            let since = self.timers.behind_since[channel];
            if since.is_some_and(|(since, _)| since + self.behind_timeout() <= now) {
                self.lose(channel, ChannelLossReason::Stalled);
            }
        }
    }

    /// Drops the channels that have not confirmed in time after the others.
    fn lose_unconfirmed(&mut self) {
        let late = self.wanted();
        for channel in late {
            self.lose(channel, ChannelLossReason::Stalled);
        }
    }

    /// Handles the deadline of the phase.
    fn handle_limit(&mut self, now: Duration, silence: impl Fn(usize) -> Duration) {
        self.timers.limit(None);
        match self.phase {
            StreamPhase::Confirming(_) | StreamPhase::Answer => {
                self.fail(self.no_answer(silence), now);
            }
            StreamPhase::Request => self.fail(StreamProtocolError::Stalled.into(), now),
            StreamPhase::Refused => self.close(false),
            StreamPhase::Aborting => self.close(true),
            StreamPhase::Connecting | StreamPhase::Open | StreamPhase::Over => {}
        }
    }

    /// The cause of a missing answer: a channel whose peer is silent. If all channels are silent,
    /// no single channel is the cause.
    fn no_answer(&self, silence: impl Fn(usize) -> Duration) -> StreamFailure {
        let is_silent = |channel: &usize| silence(*channel) >= ANSWER_TIMEOUT;
        match self.live().find(is_silent) {
            Some(channel) if !self.live().all(|channel| is_silent(&channel)) => {
                StreamFailure::Channel { channel, kind: io::ErrorKind::TimedOut }
            }
            _ => StreamProtocolError::NotOpened.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use association::AssociationMessage;

    use super::*;
    use crate::protocol::stream::StreamProtocolEvent;
    use crate::protocol::stream::pair::{client, events, list, open, server, transfer};

    const SECOND: Duration = Duration::from_secs(1);

    fn timers(stream: &mut StreamEndpoint, at: Duration) -> Vec<StreamTimer> {
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
        let confirm = AssociationMessage::Confirm(list(1)).encode();
        stream.space(0).copy_from_slice(&confirm);
        stream.handle_received(0, confirm.len(), SECOND);
        assert_eq!(stream.confirm_deadline(), Some(3 * SECOND));
        stream.handle_broken(0, io::ErrorKind::ConnectionReset, SECOND);
        assert!(!timers(&mut stream, 20 * SECOND).contains(&StreamTimer::Confirm));
        stream.space(1).copy_from_slice(&confirm);
        stream.handle_received(1, confirm.len(), 20 * SECOND);
        assert_eq!(stream.confirm_deadline(), Some(22 * SECOND));
        assert!(timers(&mut stream, 22 * SECOND).contains(&StreamTimer::Confirm));
        assert_eq!(stream.live().collect::<Vec<_>>(), [1]);
    }

    /// All channels take what there is to send.
    fn send_all(stream: &mut StreamEndpoint) {
        for channel in 0..3 {
            let len = stream.to_send(channel).len();
            stream.handle_sent(channel, len, Duration::ZERO);
        }
    }

    /// The deadline of the next timer of this kind.
    fn deadline(stream: &StreamEndpoint, timer: StreamTimer) -> Option<Duration> {
        stream.next_timer().filter(|&(_, next)| next == timer).map(|(at, _)| at)
    }

    #[test]
    fn a_channel_whose_path_is_lost_is_not_waited_for() {
        let mut stream = client(2);
        send_all(&mut stream);
        let confirm = AssociationMessage::Confirm(list(2)).encode();
        for channel in [0, 1] {
            stream.space(channel).copy_from_slice(&confirm);
            stream.handle_received(channel, confirm.len(), SECOND);
        }
        assert_eq!(deadline(&stream, StreamTimer::Confirm), Some(3 * SECOND));
        stream.handle_path(2, Some(SECOND), 2 * SECOND);
        assert_eq!(deadline(&stream, StreamTimer::Confirm), Some(SECOND));
        timers(&mut stream, 2 * SECOND);
        assert!(matches!(
            events(&mut stream)[..],
            [StreamProtocolEvent::Lost(2, ChannelLossReason::Stalled)]
        ));
    }

    #[test]
    fn a_sender_does_not_wait_for_a_channel_whose_path_is_lost() {
        let mut stream = client(2);
        for channel in [0, 1] {
            let len = stream.to_send(channel).len();
            stream.handle_sent(channel, len, Duration::ZERO);
        }
        timers(&mut stream, SECOND);
        assert!(events(&mut stream).is_empty(), "its peer acknowledges");
        stream.handle_path(2, Some(SECOND), SECOND);
        timers(&mut stream, SECOND + SILENCE_POLL_INTERVAL);
        assert!(matches!(
            events(&mut stream)[..],
            [StreamProtocolEvent::Lost(2, ChannelLossReason::Stalled)]
        ));
    }

    /// The timeout starts when enough other channels have brought their shares, and bytes on them
    /// do not restart it.
    #[test]
    fn a_late_share_is_waited_for_from_when_enough_others_have_come() {
        let mut client = client(2);
        let mut server = server(&mut client, 2, |_| ());
        events(&mut server);
        server.accept(Duration::ZERO);
        timers(&mut server, Duration::from_millis(2));
        client.connect_application(Duration::ZERO);
        transfer(&mut server, &mut client, Duration::ZERO);
        assert!(matches!(events(&mut client)[..], [StreamProtocolEvent::Opened]));
        for line in 1..20 {
            let now = line * SECOND / 10;
            client.application_space(20)[..20].fill(7);
            client.handle_application(20, false, now);
            for channel in [0, 1] {
                let bytes = client.to_send(channel).to_vec();
                client.handle_sent(channel, bytes.len(), now);
                server.space(channel)[..bytes.len()].copy_from_slice(&bytes);
                server.handle_received(channel, bytes.len(), now);
            }
            let len = client.to_send(2).len();
            client.handle_sent(2, len, now);
            timers(&mut server, now);
            let due = LATE_SHARE_TIMEOUT + SECOND / 10;
            let is_taken = server.to_deliver().len() == 20;
            assert_eq!(is_taken, now >= due, "{now:?}");
            while !server.to_deliver().is_empty() {
                server.handle_delivered(server.to_deliver().len(), now);
            }
        }
        assert!(events(&mut server).is_empty());
        assert!(!server.is_reusable());
        let behind_since = LATE_SHARE_TIMEOUT + SECOND / 10;
        assert_eq!(server.behind_deadline(), Some(behind_since + STALLED_CHANNEL_TIMEOUT));
        timers(&mut server, behind_since + STALLED_CHANNEL_TIMEOUT);
        assert!(matches!(
            events(&mut server)[..],
            [StreamProtocolEvent::Lost(2, ChannelLossReason::Stalled)]
        ));
    }

    /// All three channels are needed, and one brings nothing for a while: then the client sends
    /// something on all of them, because TCP may have lost the window update.
    #[test]
    fn bytes_that_have_waited_for_long_are_acknowledged_without_a_request() {
        let (mut client, mut server) = open(3);
        send_all(&mut client);
        for (begin, wait, is_sent) in [(1, 0, false), (3, 5, true), (10, 0, false)] {
            let (begin, end) = (begin * SECOND, (begin + wait) * SECOND);
            server.application_space(20)[..20].fill(7);
            server.handle_application(20, false, begin);
            for (channel, now) in [(0, begin), (1, begin), (2, end)] {
                let bytes = server.to_send(channel).to_vec();
                server.handle_sent(channel, bytes.len(), now);
                client.space(channel)[..bytes.len()].copy_from_slice(&bytes);
                client.handle_received(channel, bytes.len(), now);
            }
            assert_eq!(client.to_deliver().len(), 20);
            client.handle_delivered(20, end);
            assert!((0..3).all(|channel| client.to_send(channel).is_empty() != is_sent));
            transfer(&mut client, &mut server, end);
        }
    }

    #[test]
    fn a_stream_whose_last_channel_is_lost_ends() {
        let mut stream = client(1);
        send_all(&mut stream);
        stream.handle_path(2, Some(SECOND), SECOND);
        stream.handle_broken(0, io::ErrorKind::ConnectionReset, SECOND);
        assert!(!timers(&mut stream, 5 * SECOND).contains(&StreamTimer::LostChannel), "1 is left");
        stream.handle_broken(1, io::ErrorKind::ConnectionReset, 6 * SECOND);
        assert!(timers(&mut stream, 7 * SECOND).contains(&StreamTimer::LostChannel));
        let is_lost = |event: &StreamProtocolEvent| {
            matches!(event, StreamProtocolEvent::Failed(StreamFailure::Lost(2)))
        };
        assert!(events(&mut stream).iter().any(is_lost));
    }

    #[test]
    fn channels_are_reset_if_they_do_not_take_an_abort() {
        let mut stream = client(1);
        stream.handle_application_error(SECOND);
        assert!(timers(&mut stream, 2 * SECOND).contains(&StreamTimer::Limit));
        assert!(matches!(
            events(&mut stream)[..],
            [
                StreamProtocolEvent::Failed(StreamFailure::Application),
                StreamProtocolEvent::Closed { reset: true }
            ]
        ));
    }
}
