//! The client of one handshake.
//!
//! It collects cookies until enough channels have one, and then shares the points over exactly
//! these, the *members*. From then on all members are needed. A client that has an association may
//! extend it: it sends Hello on the missing channels, and starts the rest when one of them answers.
//!
//! Datagrams with a wrong nonce or proof, or that are no answers, are ignored: only an attacker
//! that reads a channel, and has the key if there is one, can make the handshake fail. After a
//! failure, or when the peer is gone, a new client is created, which uses nothing of the old one.

use std::time::Duration;

use association::{
    AssociationClientEvent as Association, AssociationMessage, ClientHandshakeAbort,
    ConfirmCollector, ConnectionCookie, CookieList,
};
use keys::SharedKey;
use model::ChannelSubset;
use random::{RandomError, RandomGenerator};
use thiserror::Error;

use super::proof::{is_proven, prove};
use super::secrets::{self, HandshakeSecrets};
use super::timing::{
    CONFIRM_TIMEOUT, EXTEND_COLLECT_TIMEOUT, HANDSHAKE_TIMEOUT, MISSING_POLL_INTERVAL,
    MISSING_POLL_TIMEOUT, RETRY_INTERVAL, START_COLLECT_TIMEOUT,
};
use crate::protocol::wire::channel_index::{ConfiguredIndex, LiveIndex};
use crate::protocol::wire::handshake::{
    HandshakeBody, HandshakeDatagram, HandshakeNonce, TunnelKeyShare,
};
use crate::protocol::wire::keys::TunnelKeys;
use crate::protocol::wire::terms::TunnelTerms;

/// The result of a handshake.
#[derive(Debug)]
pub enum TunnelClientEvent {
    /// Both ends have the keys, and symbols may be sent.
    Associated(TunnelKeys),
    /// It failed. A server does not use its association before it receives a symbol of this client.
    Failed(TunnelClientFailure),
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TunnelClientFailure {
    /// The server has not answered on any channel.
    #[error(
        "the server does not answer on any channel: check that it runs, that its ports are open, and \
         that key and order of channels are the same at both ends"
    )]
    Silent,
    /// The server has not answered on these channels, but on others.
    #[error(
        "the server does not answer on {}: {} must work, in the same order at both ends, for an \
         association to begin",
        listed(.channels),
        needed(*.min_channels, *.all)
    )]
    NoAnswer {
        /// The channels' indices.
        channels: Vec<usize>,
        /// The number of channels that must answer.
        min_channels: u8,
        /// The number of channels.
        all: u8,
    },
    /// The server has answered on all members, but not confirmed on these.
    #[error(
        "the server answers, but does not confirm on {}: its settings differ, as its log shows, \
         or datagrams were lost or changed",
        listed(.channels)
    )]
    NoConfirm {
        /// The channels' indices.
        channels: Vec<usize>,
        /// The number of members.
        members: usize,
    },
    /// A message violated the protocol.
    #[error(transparent)]
    Association(#[from] ClientHandshakeAbort),
}

/// The client of one handshake.
#[derive(Debug)]
pub struct TunnelHandshakeClient {
    terms: TunnelTerms,
    key: Option<SharedKey>,
    channels: Vec<ClientHandshakeChannel>,
    secrets: HandshakeSecrets,
    sets: MemberCandidates,
    phase: TunnelClientPhase,
    began: Duration,
    event: Option<TunnelClientEvent>,
}

/// The channels from which the members are selected.
#[derive(Clone, Copy, Debug)]
struct MemberCandidates {
    /// The channels that may be members.
    tried: ChannelSubset,
    /// If an association is extended: its missing channels, one of which must be a member.
    missing: ChannelSubset,
    /// And the channels that must all be members.
    needed: ChannelSubset,
}

#[derive(Debug)]
enum TunnelClientPhase {
    /// Cookies are missing, and there have been enough since this time.
    Collecting {
        enough_since: Option<Duration>,
    },
    /// The List was sent on these channels.
    Confirming {
        members: ChannelSubset,
        association: ConfirmCollector,
    },
    Over,
}

#[derive(Debug)]
struct ClientHandshakeChannel {
    nonce: HandshakeNonce,
    key_share: TunnelKeyShare,
    /// The server's cookie, once it has arrived.
    cookie: Option<ConnectionCookie>,
    is_confirmed: bool,
    send_at: Duration,
}

impl TunnelHandshakeClient {
    /// A client that starts now. With a `key`, both ends prove that they have it.
    ///
    /// # Errors
    /// If the random source fails.
    pub fn new(
        terms: TunnelTerms,
        key: Option<SharedKey>,
        generator: &mut RandomGenerator,
        now: Duration,
    ) -> Result<Self, RandomError> {
        let (secrets, key_shares) = secrets::split_secrets(terms.channels(), generator)?;
        let mut channels = Vec::with_capacity(key_shares.len());
        for key_share in key_shares {
            let nonce = HandshakeNonce::new(generator.array()?);
            channels.push(ClientHandshakeChannel {
                nonce,
                key_share,
                cookie: None,
                is_confirmed: false,
                send_at: now,
            });
        }
        Ok(Self {
            terms,
            key,
            channels,
            secrets,
            sets: MemberCandidates {
                tried: terms.all(),
                missing: ChannelSubset::EMPTY,
                needed: ChannelSubset::EMPTY,
            },
            phase: TunnelClientPhase::Collecting { enough_since: None },
            began: now,
            event: None,
        })
    }

    /// The same without these channels, as long as enough are left.
    #[must_use]
    pub fn without(mut self, channels: ChannelSubset) -> Self {
        let tried: ChannelSubset =
            self.sets.tried.iter().filter(|i| !channels.contains(*i)).collect();
        if tried.len() >= usize::from(self.terms.min_channels()) {
            self.sets.tried = tried;
        }
        self
    }

    /// The same, to extend an association that these channels are missing from: one of them must be
    /// a member.
    #[must_use]
    pub fn extending(mut self, missing: ChannelSubset) -> Self {
        self.sets.missing = missing;
        self
    }

    /// Sets the channels of the extended association that are up: all of them must be members.
    pub fn set_needed(&mut self, channels: ChannelSubset, now: Duration) {
        self.sets.needed = channels;
        self.advance(now);
    }

    /// Whether it extends an association.
    pub fn extends(&self) -> bool {
        !self.sets.missing.is_empty()
    }

    /// Handles a handshake datagram that arrived on a channel.
    pub fn handle_datagram(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        if !self.sets.tried.contains(channel) {
            return;
        }
        let Some(known) = self.channels.get_mut(channel) else { return };
        let Ok(datagram) = HandshakeDatagram::parse(bytes) else { return };
        if datagram.nonce != known.nonce || !is_proven(self.key.as_ref(), channel, bytes) {
            return;
        }
        match (datagram.body, &mut self.phase) {
            // The server's cookie changes with its period. The first one is kept.
            (HandshakeBody::Cookie { cookie }, TunnelClientPhase::Collecting { .. }) => {
                known.cookie.get_or_insert(cookie);
            }
            (
                HandshakeBody::Confirm { list },
                TunnelClientPhase::Confirming { members, association },
            ) => {
                let Some(place) = ConfiguredIndex(channel).live_index(*members) else { return };
                known.is_confirmed = true;
                association.handle_message(place.0, &AssociationMessage::Confirm(list), now);
            }
            _ => return,
        }
        self.advance(now);
    }

    /// Fails at the deadline, and continues without channels that have not answered in time.
    pub fn handle_timeout(&mut self, now: Duration) {
        if let TunnelClientPhase::Confirming { association, .. } = &mut self.phase {
            association.handle_timeout(now);
        }
        self.advance(now);
        if matches!(self.phase, TunnelClientPhase::Collecting { .. }) && now >= self.deadline() {
            self.end(TunnelClientEvent::Failed(self.no_answer()));
        }
    }

    /// The next datagram to send now, and the channel's index. Call it until it returns `None`.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        let due = |channel: &usize| self.channels[*channel].send_at <= now;
        let index =
            (0..self.channels.len()).filter(due).find(|&index| self.is_unanswered(index))?;
        let is_polling = self.extends() && !self.is_answered();
        let repeat = if is_polling { MISSING_POLL_INTERVAL } else { RETRY_INTERVAL };
        self.channels[index].send_at = now.saturating_add(repeat);
        Some((index, self.datagram(index)))
    }

    /// When to call [`Self::handle_timeout`] and [`Self::poll_transmit`] next, while the handshake
    /// runs.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let deadline = match &self.phase {
            TunnelClientPhase::Collecting { enough_since } => {
                let timeout =
                    enough_since.map(|since| since.saturating_add(self.collect_timeout()));
                timeout.map_or(self.deadline(), |timeout| timeout.min(self.deadline()))
            }
            TunnelClientPhase::Confirming { association, .. } => association.poll_timeout()?,
            TunnelClientPhase::Over => return None,
        };
        let pending = (0..self.channels.len()).filter(|&index| self.is_unanswered(index));
        let repeats = pending.map(|index| self.channels[index].send_at);
        Some(repeats.fold(deadline, Duration::min))
    }

    /// The result of the handshake, once.
    pub fn poll_event(&mut self) -> Option<TunnelClientEvent> {
        self.event.take()
    }

    /// The channels that have answered.
    fn answered(&self) -> ChannelSubset {
        let answered = |channel: &usize| self.channels[*channel].cookie.is_some();
        self.sets.tried.iter().filter(answered).collect()
    }

    /// Whether one of the missing channels has answered.
    fn is_answered(&self) -> bool {
        self.sets.missing.iter().any(|channel| self.answered().contains(channel))
    }

    /// Whether the channels that have answered suffice.
    fn is_enough(&self) -> bool {
        let answered = self.answered();
        answered.len() >= usize::from(self.terms.min_channels())
            && answered.includes(self.sets.needed)
            && (!self.extends() || self.is_answered())
    }

    fn collect_timeout(&self) -> Duration {
        if self.extends() { EXTEND_COLLECT_TIMEOUT } else { START_COLLECT_TIMEOUT }
    }

    /// The deadline for collecting cookies.
    fn deadline(&self) -> Duration {
        self.began.saturating_add(if self.extends() {
            MISSING_POLL_TIMEOUT
        } else {
            HANDSHAKE_TIMEOUT
        })
    }

    /// Advances the handshake as far as possible.
    fn advance(&mut self, now: Duration) {
        let (is_enough, answered) = (self.is_enough(), self.answered());
        if let TunnelClientPhase::Collecting { enough_since } = &mut self.phase {
            *enough_since = is_enough.then(|| enough_since.unwrap_or(now));
            if let Some(since) = *enough_since
                && (answered == self.sets.tried
                    || since.saturating_add(self.collect_timeout()) <= now)
            {
                self.send_list(answered, now);
            }
        }
        while let TunnelClientPhase::Confirming { association, members } = &mut self.phase
            && let Some(event) = association.poll_event()
        {
            let members = *members;
            match event {
                Association::Associated { .. } => {
                    self.end(TunnelClientEvent::Associated(self.keys(members)));
                }
                Association::Aborted { reason } => {
                    self.end(TunnelClientEvent::Failed(self.failure(members, reason)));
                }
            }
        }
    }

    /// Sends the List on these channels, the members. From then on all of them are needed.
    fn send_list(&mut self, members: ChannelSubset, now: Duration) {
        // The shares of the other channels were not sent to anyone. They are added to the share of
        // the first member, so that all members' shares, and no fewer, reconstruct the secrets.
        let first = members.iter().next().expect("a floor is one channel at least");
        for left_out in self.terms.all().iter().filter(|channel| !members.contains(*channel)) {
            let share = self.channels[left_out].key_share.clone();
            self.channels[first].key_share.add(&share);
        }
        let most = self.began.saturating_add(HANDSHAKE_TIMEOUT);
        let has_choice = self.terms.min_channels() < self.terms.channels();
        let soon = if has_choice { now.saturating_add(CONFIRM_TIMEOUT) } else { most };
        let cookies = members.iter().filter_map(|channel| self.channels[channel].cookie).collect();
        match CookieList::new(self.terms.association_terms(members), cookies) {
            Ok(list) => {
                let mut association = ConfirmCollector::new(list, soon.min(most));
                association.handle_timeout(now);
                self.phase = TunnelClientPhase::Confirming { members, association };
                // The List is due on all members.
                members.iter().for_each(|channel| self.channels[channel].send_at = now);
            }
            Err(error) => self.end(TunnelClientEvent::Failed(self.failure(members, error.into()))),
        }
    }

    fn end(&mut self, event: TunnelClientEvent) {
        self.phase = TunnelClientPhase::Over;
        self.event = Some(event);
    }

    /// Whether a channel has a datagram that was not answered.
    fn is_unanswered(&self, channel: usize) -> bool {
        match &self.phase {
            TunnelClientPhase::Collecting { .. } => {
                let is_asked =
                    !self.extends() || self.is_answered() || self.sets.missing.contains(channel);
                is_asked
                    && self.sets.tried.contains(channel)
                    && self.channels[channel].cookie.is_none()
            }
            TunnelClientPhase::Confirming { members, association } => {
                let place = ConfiguredIndex(channel).live_index(*members);
                place.is_some_and(|place| association.is_unanswered(place.0))
            }
            TunnelClientPhase::Over => false,
        }
    }

    fn datagram(&self, index: usize) -> Vec<u8> {
        let channel = &self.channels[index];
        let body = match &self.phase {
            TunnelClientPhase::Confirming { association, .. } if self.is_unanswered(index) => {
                let list = association.list().clone();
                HandshakeBody::List { key_share: channel.key_share.clone(), list }
            }
            _ => HandshakeBody::Hello,
        };
        let mut bytes = HandshakeDatagram { nonce: channel.nonce, body }.encode();
        prove(self.key.as_ref(), index, &mut bytes);
        bytes
    }

    fn keys(&self, members: ChannelSubset) -> TunnelKeys {
        let (channels, tags) = (self.terms.channels(), self.terms.tags());
        TunnelKeys {
            outgoing: self.secrets.to_server.direction(channels, tags),
            incoming: self.secrets.to_client.direction(channels, tags),
            floor: self.terms.floor(),
            members,
        }
    }

    fn no_answer(&self) -> TunnelClientFailure {
        let answered = self.answered();
        if answered.is_empty() {
            return TunnelClientFailure::Silent;
        }
        let silent = self.sets.tried.iter().filter(|channel| !answered.contains(*channel));
        let (min_channels, all) = (self.terms.min_channels(), self.terms.channels());
        TunnelClientFailure::NoAnswer { channels: silent.collect(), min_channels, all }
    }

    fn failure(
        &self,
        members: ChannelSubset,
        mut reason: ClientHandshakeAbort,
    ) -> TunnelClientFailure {
        if reason == ClientHandshakeAbort::TimedOut {
            let unconfirmed =
                members.iter().filter(|&channel| !self.channels[channel].is_confirmed);
            return TunnelClientFailure::NoConfirm {
                channels: unconfirmed.collect(),
                members: members.len(),
            };
        }
        // The association counts the members; the report is of configured channels.
        if let Some(channel) = reason.channel_mut()
            && let Some(ConfiguredIndex(configured)) = LiveIndex(*channel).configured_index(members)
        {
            *channel = configured;
        }
        reason.into()
    }
}

/// The number of channels that must answer, as text.
fn needed(min_channels: u8, all: u8) -> String {
    if min_channels == all {
        "all channels".into()
    } else {
        format!("{min_channels} of {all} channels")
    }
}

/// A list of channels for messages, counted from 1.
fn listed(channels: &[usize]) -> String {
    let numbers: Vec<String> = channels.iter().map(|index| (index + 1).to_string()).collect();
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("channel{plural} {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_count_channels_from_1() {
        let no_answer = |min_channels| TunnelClientFailure::NoAnswer {
            channels: vec![0, 2],
            min_channels,
            all: 3,
        };
        let message = no_answer(3).to_string();
        assert!(
            message.contains("not answer on channels 1, 3: all channels must work, "),
            "{message}"
        );
        let message = no_answer(2).to_string();
        assert!(message.contains("channels 1, 3: 2 of 3 channels must work, "), "{message}");
        let message = TunnelClientFailure::NoConfirm { channels: vec![1], members: 3 }.to_string();
        assert!(
            message.contains("does not confirm on channel 2: its settings differ"),
            "{message}"
        );
    }
}
