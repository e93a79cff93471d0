//! When and how a channel's connection is replaced by a new one: when the channel is lost, or its
//! path was lost while the stream needs it. The client reconnects, and tries once a second.
//! [`rejoin`](crate::protocol::rejoin) defines the messages.

use std::time::Duration;

use association::{AssociationMessage, ChannelPositions, ConnectionCookie, Rejoin};

use super::{StreamEndpoint, StreamPhase, StreamProtocolEvent};
use crate::protocol::incoming::ChannelLossReason;
use crate::protocol::record::MAX_RECORD;
use crate::protocol::rejoin::RejoinKeys;

/// The interval of attempts, and the longest one, after the server has refused several.
const ATTEMPT_INTERVAL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How long after an outage the break of a connection counts as its consequence.
const AFTERMATH: Duration = Duration::from_secs(30);

/// How far a needed channel may be behind before a new connection is faster.
const MAX_BEHIND: u64 = 2 * MAX_RECORD as u64;

/// The state of the connections of a stream's channels.
pub(super) struct StreamRejoinState {
    /// The keys, once both ends have them.
    keys: Option<RejoinKeys>,
    is_client: bool,
    channels: Vec<ChannelRejoinState>,
    has_rejoined: bool,
}

/// The state of one channel's connection.
#[derive(Clone, Default)]
struct ChannelRejoinState {
    /// Whether it was lost because it carried wrong bytes: then it stays lost.
    is_barred: bool,
    /// Whether its path was lost, so that the time to the next retransmission may be long.
    is_stale: bool,
    /// Since when the connection is closed although the stream needs the channel.
    dead_since: Option<Duration>,
    /// Until when a break of it counts as the consequence of an outage.
    aftermath: Duration,
    /// Whether a new one is being established, and the client's offer on it.
    is_attempting: bool,
    offer: Option<(ConnectionCookie, ChannelPositions)>,
    /// When the next attempt may begin, and how many in a row were refused.
    next_attempt: Duration,
    refused: u32,
}

impl StreamRejoinState {
    pub(super) fn new(is_client: bool, channels: usize) -> Self {
        Self {
            keys: None,
            is_client,
            channels: vec![ChannelRejoinState::default(); channels],
            has_rejoined: false,
        }
    }

    pub(super) fn set_keys(&mut self, keys: Option<RejoinKeys>) {
        self.keys = keys;
    }

    /// Whether a channel's connection was replaced since the stream began.
    pub(super) fn has_rejoined(&self) -> bool {
        self.has_rejoined
    }

    /// Since when a channel that the stream needs has had no connection.
    pub(super) fn dead_since(&self, channel: usize) -> Option<Duration> {
        self.channels[channel].dead_since
    }

    /// Whether a new connection was offered to the server, which may have accepted it.
    pub(super) fn has_offer(&self, channel: usize) -> bool {
        self.channels[channel].offer.is_some()
    }

    /// Records that a channel was lost.
    pub(super) fn lost(&mut self, channel: usize, why: ChannelLossReason) {
        let own = &mut self.channels[channel];
        own.is_barred |= why == ChannelLossReason::Tampered;
        (own.dead_since, own.is_stale) = (None, false);
    }

    /// Records that the path of a channel is lost, or works again.
    pub(super) fn handle_path(&mut self, channel: usize, is_usable: bool, now: Duration) {
        let own = &mut self.channels[channel];
        if !is_usable {
            own.is_stale = true;
        } else if own.is_stale || now < own.next_attempt {
            (own.next_attempt, own.aftermath) = (now, now + AFTERMATH);
        }
    }
}

impl StreamEndpoint {
    /// The keys by which connections of this stream are replaced, once both ends have them.
    pub(crate) fn rejoin_keys(&self) -> Option<&RejoinKeys> {
        self.rejoining.keys.as_ref().filter(|_| matches!(self.phase, StreamPhase::Open))
    }

    /// Whether a channel that is not lost has a connection.
    pub(super) fn has_connection(&self, channel: usize) -> bool {
        self.rejoining.channels[channel].dead_since.is_none()
    }

    /// How many more channels the stream can lose now. `None`: it waits for one.
    pub(crate) fn spare(&self) -> Option<usize> {
        let is_usable = |channel: &usize| {
            self.unusable_since[*channel].is_none() && self.rejoining.dead_since(*channel).is_none()
        };
        let usable = self.live().filter(is_usable).count();
        let needed = if self.is_raw() { self.terms.channels() } else { self.terms.threshold() };
        usable.checked_sub(needed.into())
    }

    /// Decides whether the stream waits for another connection after that of a channel that it
    /// needs has broken or ended: it does if the path is lost, or was shortly before.
    pub(super) fn wait_for_rejoin(&mut self, channel: usize, now: Duration) -> bool {
        let own = &self.rejoining.channels[channel];
        let is_outage = self.unusable_since[channel].is_some() || now < own.aftermath;
        // The server resets it when it accepts another.
        let may_wait = (is_outage || own.offer.is_some()) && self.rejoin_keys().is_some();
        if may_wait && self.rejoining.channels[channel].dead_since.is_none() {
            self.rejoining.channels[channel].dead_since = Some(now);
            self.events.push_back(StreamProtocolEvent::Detached(channel));
        }
        may_wait
    }

    /// Gives up the channels without a connection that are no longer needed, and those that are too
    /// far behind.
    pub(super) fn lose_dispensable(&mut self) {
        for channel in self.channels() {
            let is_dead = self.rejoining.dead_since(channel).is_some();
            if is_dead && !self.rejoining.has_offer(channel) && self.incoming.has_spare() {
                self.lose(channel, ChannelLossReason::Broken);
            }
        }
        while !self.is_raw()
            && let Some(channel) = self.outgoing.lagging_channel()
            && self.lose(channel, ChannelLossReason::Slow)
        {}
    }

    /// Whether a client wants a new connection on a channel.
    fn wants_rejoin(&self, channel: usize) -> bool {
        let own = &self.rejoining.channels[channel];
        let is_lost = !self.outgoing.is_live(channel);
        let is_needed =
            !self.outgoing.has_spare() && self.terms.threshold() < self.terms.channels();
        let is_behind = || {
            self.incoming.behind(channel) > MAX_BEHIND || self.outgoing.lag(channel) > MAX_BEHIND
        };
        let is_wanted =
            is_lost || own.is_stale || own.dead_since.is_some() || is_needed && is_behind();
        is_wanted && !own.is_barred && !own.is_attempting
    }

    /// When the next attempt begins.
    pub(super) fn rejoin_deadline(&self) -> Option<Duration> {
        if !self.rejoining.is_client || self.rejoin_keys().is_none() {
            return None;
        }
        let wanted = self.channels().filter(|&channel| self.wants_rejoin(channel));
        wanted.map(|channel| self.rejoining.channels[channel].next_attempt).min()
    }

    /// Begins the attempts that are due. On a lost path none can succeed, so the path is probed
    /// instead.
    pub(super) fn begin_rejoins(&mut self, now: Duration) {
        for channel in self.channels() {
            if !self.wants_rejoin(channel) || self.rejoining.channels[channel].next_attempt > now {
                continue;
            }
            let own = &mut self.rejoining.channels[channel];
            own.next_attempt = now + ATTEMPT_INTERVAL.0;
            if self.unusable_since[channel].is_some() {
                self.events.push_back(StreamProtocolEvent::Probe(channel));
            } else {
                own.is_attempting = true;
                self.events.push_back(StreamProtocolEvent::Rejoin(channel));
            }
        }
    }

    /// At a client: the offer to send on a new connection of a channel, which has this cookie.
    pub(crate) fn offer(&mut self, channel: usize, cookie: ConnectionCookie) -> Option<Vec<u8>> {
        let state = self.channel_state(channel);
        let keys = self.rejoin_keys()?;
        let rejoin = keys.rejoin(index(channel), state, cookie);
        self.rejoining.channels[channel].offer = Some((cookie, state));
        Some(AssociationMessage::Rejoin(rejoin).encode())
    }

    /// At a client: handles the server's answer to an [offer](Self::offer). Returns whether the new
    /// connection replaces the channel's. If not, the attempt has failed.
    pub(crate) fn handle_answer(&mut self, channel: usize, answer: &[u8], now: Duration) -> bool {
        let is_accepted = self.accept_answer(channel, answer, now);
        if is_accepted {
            self.update(now);
        } else {
            self.handle_rejoin_failed(channel, true, now);
        }
        is_accepted
    }

    fn accept_answer(&mut self, channel: usize, answer: &[u8], now: Duration) -> bool {
        let Some((cookie, own)) = self.rejoining.channels[channel].offer else { return false };
        let (Some(keys), Ok(AssociationMessage::Rejoined(answer))) =
            (self.rejoin_keys(), AssociationMessage::parse(answer))
        else {
            return false;
        };
        keys.verify_answer(index(channel), &answer, cookie)
            && self.replace(channel, own, answer.positions, now)
    }

    /// At a client: records that no new connection replaces a channel's for now, possibly because
    /// the server has refused it.
    pub(crate) fn handle_rejoin_failed(&mut self, channel: usize, is_refused: bool, now: Duration) {
        let own = &mut self.rejoining.channels[channel];
        (own.is_attempting, own.offer) = (false, None);
        own.refused = if is_refused { own.refused + 1 } else { 0 };
        let (first, longest) = ATTEMPT_INTERVAL;
        if is_refused {
            let pause = first * 2_u32.saturating_pow(own.refused.min(10) - 1);
            own.next_attempt = now + pause.min(longest);
        }
        self.update(now);
    }

    /// At a server: replaces a channel's connection by that of a client that has proven that it has
    /// the channel's key. Returns the answer to be sent on it, or nothing if it is refused.
    pub(crate) fn handle_rejoin(
        &mut self,
        rejoin: &Rejoin,
        cookie: ConnectionCookie,
        now: Duration,
    ) -> Option<Vec<u8>> {
        let channel = usize::from(rejoin.channel);
        let keys = self.rejoin_keys()?;
        let own = self.rejoining.channels.get(channel)?;
        if own.is_barred {
            return None;
        }
        let state = self.channel_state(channel);
        let answer =
            AssociationMessage::Rejoined(keys.rejoined(rejoin.channel, state, cookie)).encode();
        let is_replaced = self.replace(channel, state, rejoin.positions, now);
        self.update(now);
        is_replaced.then_some(answer)
    }

    fn channel_state(&self, channel: usize) -> ChannelPositions {
        let (received, kept_from) = (self.incoming.received(channel), self.outgoing.kept_from());
        ChannelPositions { received, kept_from }
    }

    /// Continues with a new connection on a channel, at the positions that both ends have stated.
    /// Each end sends from the position up to which the other has received everything, or from its
    /// own oldest share. Returns false, and changes nothing, if that is not possible.
    fn replace(
        &mut self,
        channel: usize,
        own: ChannelPositions,
        peer: ChannelPositions,
        now: Duration,
    ) -> bool {
        if own.received > self.incoming.received(channel) {
            // The channel was lost since, and its received bytes with it.
            return false;
        }
        let sends_from = peer.received.max(own.kept_from);
        let receives_from = own.received.max(peer.kept_from);
        if !self.outgoing.can_rejoin(sends_from) || !self.incoming.rejoin(channel, receives_from) {
            return false;
        }
        self.outgoing.rejoin(channel, sends_from);
        self.rejoining.has_rejoined = true;
        let is_stale = self.unusable_since[channel].is_some();
        let own = &mut self.rejoining.channels[channel];
        let (aftermath, next_attempt) = (now + AFTERMATH, now + ATTEMPT_INTERVAL.0);
        *own = ChannelRejoinState {
            is_stale,
            aftermath,
            next_attempt,
            ..ChannelRejoinState::default()
        };
        self.timers.received(now);
        self.timers.sent(now);
        true
    }
}

fn index(channel: usize) -> u8 {
    u8::try_from(channel).expect("at most MAX_CHANNELS")
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::protocol::stream::pair::{events, open, transfer};

    const SECOND: Duration = Duration::from_secs(1);

    fn say(stream: &mut StreamEndpoint, text: &[u8], now: Duration) {
        stream.application_space(text.len())[..text.len()].copy_from_slice(text);
        stream.handle_application(text.len(), false, now);
    }

    fn hear(stream: &mut StreamEndpoint, now: Duration) -> Vec<u8> {
        let heard = stream.to_deliver().to_vec();
        stream.handle_delivered(heard.len(), now);
        heard
    }

    /// Which channels a client wants to connect now.
    fn wanted(client: &mut StreamEndpoint, now: Duration) -> Vec<usize> {
        client.handle_timeout(now, |_| Duration::ZERO);
        let channel = |event| {
            if let StreamProtocolEvent::Rejoin(channel) = event { Some(channel) } else { None }
        };
        events(client).into_iter().filter_map(channel).collect()
    }

    fn rejoin(
        client: &mut StreamEndpoint,
        server: &mut StreamEndpoint,
        channel: usize,
        now: Duration,
    ) {
        let cookie = ConnectionCookie::new([9; 16]);
        let offer = client.offer(channel, cookie).unwrap();
        let Ok(AssociationMessage::Rejoin(rejoin)) = AssociationMessage::parse(&offer) else {
            panic!("no offer")
        };
        assert!(server.rejoin_keys().unwrap().verify(&rejoin, cookie));
        let answer = server.handle_rejoin(&rejoin, cookie, now).expect("it is accepted");
        assert!(client.handle_answer(channel, &answer, now));
    }

    #[test]
    fn a_lost_channel_carries_what_follows_when_it_has_rejoined() {
        let (mut client, mut server) = open(2);
        client.handle_broken(0, io::ErrorKind::ConnectionReset, SECOND);
        server.handle_broken(0, io::ErrorKind::ConnectionReset, SECOND);
        assert_eq!((client.spare(), server.spare()), (Some(0), Some(0)));
        say(&mut client, b"without", SECOND);
        transfer(&mut client, &mut server, SECOND);
        assert_eq!(hear(&mut server, SECOND), b"without");
        assert_eq!(wanted(&mut client, SECOND), [0]);
        rejoin(&mut client, &mut server, 0, SECOND);
        assert_eq!((client.spare(), server.spare()), (Some(1), Some(1)));
        // Another one is lost, and the stream needs the first.
        client.handle_broken(1, io::ErrorKind::ConnectionReset, 2 * SECOND);
        server.handle_broken(1, io::ErrorKind::ConnectionReset, 2 * SECOND);
        say(&mut client, b"with", 2 * SECOND);
        transfer(&mut client, &mut server, 2 * SECOND);
        assert_eq!(hear(&mut server, 2 * SECOND), b"with");
        assert!(!client.is_reusable() && !server.is_reusable());
    }

    /// What was in flight is sent again on the new connection, and nothing is delivered twice.
    #[test]
    fn a_stream_that_needs_all_channels_goes_on_after_an_outage() {
        let (mut client, mut server) = open(3);
        say(&mut client, b"lost on one channel", SECOND);
        // Two channels carry it. The third loses it.
        for channel in [0, 2] {
            let bytes = client.to_send(channel).to_vec();
            client.handle_sent(channel, bytes.len(), SECOND);
            server.space(channel)[..bytes.len()].copy_from_slice(&bytes);
            server.handle_received(channel, bytes.len(), SECOND);
        }
        let lost = client.to_send(1).len();
        client.handle_sent(1, lost, SECOND);
        for end in [&mut client, &mut server] {
            end.handle_path(1, Some(SECOND), 4 * SECOND);
            end.handle_broken(1, io::ErrorKind::ConnectionReset, 5 * SECOND);
            assert!(matches!(events(end)[..], [StreamProtocolEvent::Detached(1)]), "it waits");
            assert_eq!(end.spare(), None);
            end.handle_path(1, None, 30 * SECOND);
        }
        assert_eq!(wanted(&mut client, 30 * SECOND), [1]);
        assert!(hear(&mut server, 30 * SECOND).is_empty());
        rejoin(&mut client, &mut server, 1, 30 * SECOND);
        assert_eq!(client.to_send(1).len(), lost);
        transfer(&mut client, &mut server, 30 * SECOND);
        assert_eq!(hear(&mut server, 30 * SECOND), b"lost on one channel");
        assert!(wanted(&mut client, 32 * SECOND).is_empty());
        assert_eq!((client.spare(), server.spare()), (Some(0), Some(0)));
    }

    #[test]
    fn without_an_outage_a_break_ends_a_stream_that_needs_the_channel() {
        let (mut client, _) = open(3);
        client.handle_broken(1, io::ErrorKind::ConnectionReset, SECOND);
        assert!(
            events(&mut client).iter().any(|event| matches!(event, StreamProtocolEvent::Failed(_)))
        );
    }

    #[test]
    fn a_channel_that_carried_changed_bytes_stays_lost() {
        let (mut client, mut server) = open(2);
        for end in [&mut client, &mut server] {
            assert!(end.lose(0, ChannelLossReason::Tampered));
            end.update(SECOND);
        }
        assert!(wanted(&mut client, 60 * SECOND).is_empty());
        let cookie = ConnectionCookie::new([9; 16]);
        let offer = client.offer(0, cookie).unwrap();
        let Ok(AssociationMessage::Rejoin(rejoin)) = AssociationMessage::parse(&offer) else {
            panic!("no offer")
        };
        assert!(server.handle_rejoin(&rejoin, cookie, SECOND).is_none());
    }

    /// A client states a position that it cannot have.
    #[test]
    fn a_position_that_was_not_sent_is_refused_and_changes_nothing() {
        let (mut client, mut server) = open(3);
        let cookie = ConnectionCookie::new([9; 16]);
        for state in [
            ChannelPositions { received: u64::MAX, kept_from: 0 },
            ChannelPositions { received: 1 << 20, kept_from: 0 },
            ChannelPositions { received: 0, kept_from: 1 << 20 },
        ] {
            let rejoin = server.rejoin_keys().unwrap().rejoin(1, state, cookie);
            assert!(server.handle_rejoin(&rejoin, cookie, SECOND).is_none(), "{state:?}");
        }
        say(&mut client, b"as before", SECOND);
        transfer(&mut client, &mut server, SECOND);
        assert_eq!(hear(&mut server, SECOND), b"as before");
    }

    /// The server refuses: the attempts become rarer.
    #[test]
    fn attempts_follow_each_other_after_a_second_and_later_if_they_are_refused() {
        let (mut client, _) = open(2);
        client.handle_broken(0, io::ErrorKind::ConnectionReset, SECOND);
        assert_eq!(wanted(&mut client, SECOND), [0]);
        assert!(wanted(&mut client, 10 * SECOND).is_empty(), "one at a time");
        client.handle_rejoin_failed(0, false, 10 * SECOND);
        assert_eq!(wanted(&mut client, 10 * SECOND), [0]);
        let mut now = 10 * SECOND;
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            client.handle_rejoin_failed(0, true, now);
            let before = now + pause * SECOND / 2;
            now += pause * SECOND;
            assert!(wanted(&mut client, before).is_empty());
            assert_eq!(wanted(&mut client, now), [0]);
        }
    }
}
