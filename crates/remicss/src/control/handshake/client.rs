//! The client's end of one handshake.
//!
//! It collects cookies until enough channels have one, and then shares the points over exactly these: the
//! *members*. From there on all members are needed. A client that has an association already may extend it
//! so: it asks on the channels that are missing from it, and begins the rest when one of them answers.
//!
//! Datagrams whose nonce or proof is not right, and those that are no answer to a client, are as good
//! as lost: only who sees a channel, and has the key if there is one, can make the handshake fail.
//! After a failure, or when the peer is gone, a new client is made; nothing of the old one is used.

use std::time::Duration;

use association::{ClientAbort, ClientEvent as Association, Cookie, Message};
use keys::SharedKey;
use model::Subset;
use sharing::{Generator, RandomError};
use thiserror::Error;

use super::proof::{is_proven, prove};
use super::secrets::{self, SecretPair};
use super::timing::{
    CONFIRM_PATIENCE, EXTEND_PATIENCE, KNOCK, KNOCK_PATIENCE, PATIENCE, REPEAT, START_PATIENCE,
};
use crate::wire::handshake::{Body, Datagram, KeyShare, Nonce};
use crate::wire::keys::Keys;
use crate::wire::terms::Terms;

/// What came of a handshake.
#[derive(Debug)]
pub enum ClientEvent {
    /// Both ends have the keys, and symbols may be sent.
    Associated(Keys),
    /// It failed. Nothing was agreed that a server would use without hearing from this client.
    Failed(ClientFailure),
}

/// Why a handshake failed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientFailure {
    /// The server has not been heard on any channel.
    #[error(
        "the server does not answer on any channel: check that it runs, that its ports are open, and \
         that key and order of channels are the same at both ends"
    )]
    Silent,
    /// The server has not been heard on these channels, but on others.
    #[error(
        "the server does not answer on {}: {} must work, in the same order at both ends, for an \
         association to begin",
        listed(.channels),
        needed(*.least, *.all)
    )]
    NoAnswer {
        /// The channels' indices.
        channels: Vec<usize>,
        /// How many channels must answer, of how many.
        least: u8,
        /// How many there are.
        all: u8,
    },
    /// The server was heard on all members, but did not confirm on these.
    #[error(
        "the server answers, but does not confirm on {}: its settings differ, which its log tells, \
         or datagrams were lost or changed",
        listed(.channels)
    )]
    NoConfirm {
        /// The channels' indices.
        channels: Vec<usize>,
        /// How many channels it was to confirm on.
        members: usize,
    },
    /// Somebody said what no server says.
    #[error(transparent)]
    Association(#[from] ClientAbort),
}

/// The client's end of one handshake.
#[derive(Debug)]
pub struct Client {
    terms: Terms,
    key: Option<SharedKey>,
    channels: Vec<Channel>,
    secrets: SecretPair,
    goal: Goal,
    phase: Phase,
    began: Duration,
    event: Option<ClientEvent>,
}

/// Which channels the members are to be.
#[derive(Clone, Copy, Debug)]
struct Goal {
    /// The channels that may be among them.
    tried: Subset,
    /// Where an association is extended: the channels that are missing from it, one of which must be among
    /// them.
    missing: Subset,
    /// And those that must be all.
    needed: Subset,
}

#[derive(Debug)]
enum Phase {
    /// Cookies are missing. Enough are there since then.
    Collecting {
        enough_since: Option<Duration>,
    },
    /// The list was sent on these channels.
    Confirming {
        members: Subset,
        association: association::Client,
    },
    Over,
}

#[derive(Debug)]
struct Channel {
    nonce: Nonce,
    key_share: KeyShare,
    /// The server's name for it, once that has come.
    cookie: Option<Cookie>,
    is_confirmed: bool,
    send_at: Duration,
}

impl Client {
    /// A client that begins now. With a `key`, both ends prove that they have it.
    ///
    /// # Errors
    /// When there are no random bytes.
    pub fn new(
        terms: Terms,
        key: Option<SharedKey>,
        generator: &mut Generator,
        now: Duration,
    ) -> Result<Self, RandomError> {
        let (secrets, key_shares) = secrets::deal(terms.channels(), generator)?;
        let mut channels = Vec::with_capacity(key_shares.len());
        for key_share in key_shares {
            let nonce = Nonce::new(generator.array()?);
            channels.push(Channel {
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
            goal: Goal { tried: terms.all(), missing: Subset::EMPTY, needed: Subset::EMPTY },
            phase: Phase::Collecting { enough_since: None },
            began: now,
            event: None,
        })
    }

    /// The same without these channels, as long as enough are left.
    #[must_use]
    pub fn leaving_out(mut self, channels: Subset) -> Self {
        let tried: Subset = self.goal.tried.iter().filter(|i| !channels.contains(*i)).collect();
        if tried.len() >= usize::from(self.terms.least()) {
            self.goal.tried = tried;
        }
        self
    }

    /// The same to extend an association that these channels are missing from: one of them will be among the
    /// members, or there is no other association.
    #[must_use]
    pub fn extending(mut self, missing: Subset) -> Self {
        self.goal.missing = missing;
        self
    }

    /// Says which channels of the association that is extended are up: without them it is not.
    pub fn set_needed(&mut self, channels: Subset, now: Duration) {
        self.goal.needed = channels;
        self.advance(now);
    }

    /// Whether it extends an association.
    pub fn extends(&self) -> bool {
        !self.goal.missing.is_empty()
    }

    /// A datagram of the handshake came on a channel.
    pub fn handle_datagram(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        if !self.goal.tried.contains(channel) {
            return;
        }
        let Some(known) = self.channels.get_mut(channel) else { return };
        let Ok(datagram) = Datagram::parse(bytes) else { return };
        if datagram.nonce != known.nonce || !is_proven(self.key.as_ref(), channel, bytes) {
            return;
        }
        match (datagram.body, &mut self.phase) {
            // The same Hello has another cookie in the server's next period. The first is kept.
            (Body::Cookie { cookie }, Phase::Collecting { .. }) => {
                known.cookie.get_or_insert(cookie);
            }
            (Body::Confirm { list }, Phase::Confirming { members, association }) => {
                let Some(place) = place(*members, channel) else { return };
                known.is_confirmed = true;
                association.handle_message(place, &Message::Confirm(list), now);
            }
            _ => return,
        }
        self.advance(now);
    }

    /// Gives up if it has taken too long, and goes on without channels that have taken too long.
    pub fn handle_timeout(&mut self, now: Duration) {
        if let Phase::Confirming { association, .. } = &mut self.phase {
            association.handle_timeout(now);
        }
        self.advance(now);
        if matches!(self.phase, Phase::Collecting { .. }) && now >= self.deadline() {
            self.end(ClientEvent::Failed(self.no_answer()));
        }
    }

    /// The next datagram to send now, and the channel's index. Ask until there is none.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        let due = |channel: &usize| self.channels[*channel].send_at <= now;
        let index = (0..self.channels.len()).filter(due).find(|&index| self.is_waiting(index))?;
        let is_knocking = self.extends() && !self.is_answered();
        let repeat = if is_knocking { KNOCK } else { REPEAT };
        self.channels[index].send_at = now.saturating_add(repeat);
        Some((index, self.datagram(index)))
    }

    /// When to call [`Self::handle_timeout`] and [`Self::poll_transmit`] next, while the handshake
    /// runs.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let deadline = match &self.phase {
            Phase::Collecting { enough_since } => {
                let patience = enough_since.map(|since| since.saturating_add(self.patience()));
                patience.map_or(self.deadline(), |patience| patience.min(self.deadline()))
            }
            Phase::Confirming { association, .. } => association.poll_timeout()?,
            Phase::Over => return None,
        };
        let waiting = (0..self.channels.len()).filter(|&index| self.is_waiting(index));
        let repeats = waiting.map(|index| self.channels[index].send_at);
        Some(repeats.fold(deadline, Duration::min))
    }

    /// What came of the handshake, once.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.event.take()
    }

    /// The channels that have answered.
    fn answered(&self) -> Subset {
        let answered = |channel: &usize| self.channels[*channel].cookie.is_some();
        self.goal.tried.iter().filter(answered).collect()
    }

    /// Whether one of the channels that are missing has answered.
    fn is_answered(&self) -> bool {
        self.goal.missing.iter().any(|channel| self.answered().contains(channel))
    }

    /// Whether those that have answered are enough.
    fn is_enough(&self) -> bool {
        let answered = self.answered();
        answered.len() >= usize::from(self.terms.least())
            && answered.includes(self.goal.needed)
            && (!self.extends() || self.is_answered())
    }

    fn patience(&self) -> Duration {
        if self.extends() { EXTEND_PATIENCE } else { START_PATIENCE }
    }

    /// Until when cookies are collected.
    fn deadline(&self) -> Duration {
        self.began.saturating_add(if self.extends() { KNOCK_PATIENCE } else { PATIENCE })
    }

    /// Goes as far as it can now.
    fn advance(&mut self, now: Duration) {
        let (is_enough, answered) = (self.is_enough(), self.answered());
        if let Phase::Collecting { enough_since } = &mut self.phase {
            *enough_since = is_enough.then(|| enough_since.unwrap_or(now));
            if let Some(since) = *enough_since
                && (answered == self.goal.tried || since.saturating_add(self.patience()) <= now)
            {
                self.send_list(answered, now);
            }
        }
        while let Phase::Confirming { association, members } = &mut self.phase
            && let Some(event) = association.poll_event()
        {
            let members = *members;
            match event {
                // The list is due on all members.
                Association::Transmit { .. } => {
                    members.iter().for_each(|channel| self.channels[channel].send_at = now);
                }
                Association::Associated { .. } => {
                    self.end(ClientEvent::Associated(self.keys(members)));
                }
                Association::Aborted { reason } => {
                    self.end(ClientEvent::Failed(self.failure(members, reason)));
                }
            }
        }
    }

    /// From here on these channels are the association, and all of them are needed.
    fn send_list(&mut self, members: Subset, now: Duration) {
        // Nobody has seen the shares of the others: what they say is said by one of the members' from now
        // on, so that all members', and no fewer, say the points.
        let first = members.iter().next().expect("a floor is one channel at least");
        for left_out in self.terms.all().iter().filter(|channel| !members.contains(*channel)) {
            let share = self.channels[left_out].key_share.clone();
            self.channels[first].key_share.add(&share);
        }
        let most = self.began.saturating_add(PATIENCE);
        let has_choice = self.terms.least() < self.terms.channels();
        let soon = if has_choice { now.saturating_add(CONFIRM_PATIENCE) } else { most };
        let mut association = association::Client::new(self.terms.wire(members), soon.min(most));
        for (place, channel) in members.iter().enumerate() {
            if let Some(cookie) = self.channels[channel].cookie {
                association.handle_message(place, &Message::Cookie(cookie), now);
            }
        }
        self.phase = Phase::Confirming { members, association };
    }

    fn end(&mut self, event: ClientEvent) {
        self.phase = Phase::Over;
        self.event = Some(event);
    }

    /// True if a channel has something that was not answered.
    fn is_waiting(&self, channel: usize) -> bool {
        match &self.phase {
            Phase::Collecting { .. } => {
                let is_asked =
                    !self.extends() || self.is_answered() || self.goal.missing.contains(channel);
                is_asked
                    && self.goal.tried.contains(channel)
                    && self.channels[channel].cookie.is_none()
            }
            Phase::Confirming { members, association } => {
                place(*members, channel).is_some_and(|place| association.outgoing(place).is_some())
            }
            Phase::Over => false,
        }
    }

    fn datagram(&self, index: usize) -> Vec<u8> {
        let channel = &self.channels[index];
        let outgoing = match &self.phase {
            Phase::Confirming { members, association } => {
                place(*members, index).and_then(|place| association.outgoing(place))
            }
            _ => None,
        };
        let body = match outgoing {
            Some(Message::List(list)) => Body::List { key_share: channel.key_share.clone(), list },
            _ => Body::Hello,
        };
        let mut bytes = Datagram { nonce: channel.nonce, body }.encode();
        prove(self.key.as_ref(), index, &mut bytes);
        bytes
    }

    fn keys(&self, members: Subset) -> Keys {
        let (channels, tags) = (self.terms.channels(), self.terms.tags());
        Keys {
            outgoing: self.secrets.to_server.direction(channels, tags),
            incoming: self.secrets.to_client.direction(channels, tags),
            floor: self.terms.floor(),
            members,
        }
    }

    fn no_answer(&self) -> ClientFailure {
        let answered = self.answered();
        if answered.is_empty() {
            return ClientFailure::Silent;
        }
        let silent = self.goal.tried.iter().filter(|channel| !answered.contains(*channel));
        let (least, all) = (self.terms.least(), self.terms.channels());
        ClientFailure::NoAnswer { channels: silent.collect(), least, all }
    }

    fn failure(&self, members: Subset, mut reason: ClientAbort) -> ClientFailure {
        if reason == ClientAbort::TimedOut {
            let unconfirmed =
                members.iter().filter(|&channel| !self.channels[channel].is_confirmed);
            return ClientFailure::NoConfirm {
                channels: unconfirmed.collect(),
                members: members.len(),
            };
        }
        // The association counts the members.
        if let Some(place) = reason.channel_mut() {
            *place = members.iter().nth(*place).unwrap_or(*place);
        }
        reason.into()
    }
}

/// The place of a channel among the members, if it is one.
fn place(members: Subset, channel: usize) -> Option<usize> {
    members.iter().position(|member| member == channel)
}

/// How many channels must answer.
fn needed(least: u8, all: u8) -> String {
    if least == all { "all channels".into() } else { format!("{least} of {all} channels") }
}

/// Channels for a person to read, who counts from 1.
fn listed(channels: &[usize]) -> String {
    let numbers: Vec<String> = channels.iter().map(|index| (index + 1).to_string()).collect();
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("channel{plural} {}", numbers.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_person_reads_of_channels_from_1() {
        let no_answer = |least| ClientFailure::NoAnswer { channels: vec![0, 2], least, all: 3 };
        let said = no_answer(3).to_string();
        assert!(said.contains("not answer on channels 1, 3: all channels must work, "), "{said}");
        let said = no_answer(2).to_string();
        assert!(said.contains("channels 1, 3: 2 of 3 channels must work, "), "{said}");
        let said = ClientFailure::NoConfirm { channels: vec![1], members: 3 }.to_string();
        assert!(said.contains("does not confirm on channel 2: its settings differ"), "{said}");
    }
}
