//! The client's end of one handshake.
//!
//! Datagrams whose nonce or proof is not right, and those that are no answer to a client, are as good
//! as lost: only who sees a channel, and has the key if there is one, can make the handshake fail.
//! After a failure, or when the peer is gone, a new client is made; nothing of the old one is used.

use std::time::Duration;

use association::{ClientAbort, ClientEvent as Association, Message};
use sharing::{Generator, RandomError};
use thiserror::Error;

use super::message::{Body, Datagram, Nonce};
use super::proof::{SharedKey, is_proven, prove};
use super::secrets::{self, KeyShare, SecretPair};
use super::{PATIENCE, REPEAT, Terms};
use crate::keys::Keys;

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
        "the server does not answer on {}: all channels must work, in the same order at both ends, \
         for an association to begin",
        listed(.channels)
    )]
    NoAnswer {
        /// The channels' indices.
        channels: Vec<usize>,
    },
    /// The server was heard on all channels, but did not confirm on these.
    #[error(
        "the server answers, but does not confirm on {}: its settings differ, which its log tells, \
         or datagrams were lost or changed",
        listed(.channels)
    )]
    NoConfirm {
        /// The channels' indices.
        channels: Vec<usize>,
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
    association: association::Client,
    channels: Vec<Channel>,
    secrets: SecretPair,
    event: Option<ClientEvent>,
}

#[derive(Debug)]
struct Channel {
    nonce: Nonce,
    key_share: KeyShare,
    has_cookie: bool,
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
                has_cookie: false,
                is_confirmed: false,
                send_at: now,
            });
        }
        let association = association::Client::new(terms.wire(), now.saturating_add(PATIENCE));
        Ok(Self { terms, key, association, channels, secrets, event: None })
    }

    /// A datagram of the handshake came on a channel.
    pub fn handle_datagram(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        if let Some(message) = self.read(channel, bytes) {
            self.association.handle_message(channel, &message, now);
            self.follow(now);
        }
    }

    /// Gives up if it has taken too long.
    pub fn handle_timeout(&mut self, now: Duration) {
        self.association.handle_timeout(now);
        self.follow(now);
    }

    /// The next datagram to send now, and the channel's index. Ask until there is none.
    pub fn poll_transmit(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        self.association.poll_timeout()?;
        let due = |channel: &usize| self.channels[*channel].send_at <= now;
        let index = (0..self.channels.len()).filter(due).find(|&index| self.is_waiting(index))?;
        self.channels[index].send_at = now.saturating_add(REPEAT);
        Some((index, self.datagram(index)))
    }

    /// When to call [`Self::handle_timeout`] and [`Self::poll_transmit`] next, while the handshake
    /// runs.
    pub fn poll_timeout(&self) -> Option<Duration> {
        let deadline = self.association.poll_timeout()?;
        let waiting = (0..self.channels.len()).filter(|&index| self.is_waiting(index));
        let repeats = waiting.map(|index| self.channels[index].send_at);
        Some(repeats.fold(deadline, Duration::min))
    }

    /// What came of the handshake, once.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.event.take()
    }

    /// What the server says to the association, if it does.
    fn read(&mut self, channel: usize, bytes: &[u8]) -> Option<Message> {
        let datagram = Datagram::parse(bytes).ok()?;
        let known = self.channels.get_mut(channel)?;
        if datagram.nonce != known.nonce || !is_proven(self.key.as_ref(), channel, bytes) {
            return None;
        }
        match datagram.body {
            // The same Hello has another cookie in the server's next period. The first is kept.
            Body::Cookie { cookie } if !known.has_cookie => {
                known.has_cookie = true;
                Some(Message::Cookie(cookie))
            }
            Body::Confirm { list } => {
                known.is_confirmed = true;
                Some(Message::Confirm(list))
            }
            Body::Hello | Body::Cookie { .. } | Body::List { .. } => None,
        }
    }

    /// Does what the association says.
    fn follow(&mut self, now: Duration) {
        while let Some(event) = self.association.poll_event() {
            match event {
                // The list is due on all channels.
                Association::Transmit { channel, .. } => self.channels[channel].send_at = now,
                Association::Associated { .. } => {
                    self.event = Some(ClientEvent::Associated(self.keys()));
                }
                Association::Aborted { reason } => {
                    self.event = Some(ClientEvent::Failed(self.failure(reason)));
                }
            }
        }
    }

    /// True if a channel has something that was not answered.
    fn is_waiting(&self, channel: usize) -> bool {
        !self.channels[channel].has_cookie || self.association.outgoing(channel).is_some()
    }

    fn datagram(&self, index: usize) -> Vec<u8> {
        let channel = &self.channels[index];
        let body = match self.association.outgoing(index) {
            Some(Message::List(list)) => Body::List { key_share: channel.key_share.clone(), list },
            _ => Body::Hello,
        };
        let mut bytes = Datagram { nonce: channel.nonce, body }.encode();
        prove(self.key.as_ref(), index, &mut bytes);
        bytes
    }

    fn keys(&self) -> Keys {
        let (channels, tags) = (self.terms.channels(), self.terms.tags());
        Keys {
            outgoing: self.secrets.to_server.direction(channels, tags),
            incoming: self.secrets.to_client.direction(channels, tags),
            floor: self.terms.floor(),
        }
    }

    fn failure(&self, reason: ClientAbort) -> ClientFailure {
        if reason != ClientAbort::TimedOut {
            return reason.into();
        }
        let channels = || 0..self.channels.len();
        let silent: Vec<usize> =
            channels().filter(|&channel| !self.channels[channel].has_cookie).collect();
        if silent.len() == self.channels.len() {
            return ClientFailure::Silent;
        }
        if !silent.is_empty() {
            return ClientFailure::NoAnswer { channels: silent };
        }
        let unconfirmed =
            channels().filter(|&channel| !self.channels[channel].is_confirmed).collect();
        ClientFailure::NoConfirm { channels: unconfirmed }
    }
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
        let said = ClientFailure::NoAnswer { channels: vec![0, 2] }.to_string();
        assert!(said.starts_with("the server does not answer on channels 1, 3: all"), "{said}");
        let said = ClientFailure::NoConfirm { channels: vec![1] }.to_string();
        assert!(said.contains("does not confirm on channel 2: its settings differ"), "{said}");
    }
}
