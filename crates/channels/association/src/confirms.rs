//! The client's second state: it waits for the confirms of its list.
//!
//! It completes only if every channel that is not excluded, and so the honest one, has confirmed
//! the list. One deviation on any channel aborts the handshake; the caller must then close all
//! channels.

use std::time::Duration;

use subtle::ConstantTimeEq;

use crate::abort::ClientHandshakeAbort;
use crate::framer::AssociationFramer;
use crate::message::{AssociationMessage, AssociationMessageKind, CookieList, list_body_len};

/// The result of a handshake.
#[derive(Clone, Debug)]
pub enum AssociationClientEvent {
    /// All channels except the excluded ones are confirmed. They now belong to the transport.
    Associated {
        /// The list that both ends have.
        list: CookieList,
    },
    /// Close all channels.
    Aborted {
        /// The reason.
        reason: ClientHandshakeAbort,
    },
}

/// A client that has sent its list, or is about to, and waits for the confirmations.
#[derive(Debug)]
pub struct ConfirmCollector {
    list: CookieList,
    deadline: Duration,
    channels: Vec<ConfirmChannel>,
    phase: ConfirmPhase,
    event: Option<AssociationClientEvent>,
}

#[derive(Debug)]
struct ConfirmChannel {
    framer: AssociationFramer,
    confirmed: bool,
    /// Its confirm is not waited for.
    excluded: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ConfirmPhase {
    Waiting,
    Associated,
    Aborted,
}

impl ConfirmCollector {
    /// A client whose channels have the cookies in this list. It aborts at `deadline`. The caller
    /// must send the list on every channel.
    pub fn new(list: CookieList, deadline: Duration) -> Self {
        let body_len = list_body_len(list.terms().channels());
        let channel = |_| ConfirmChannel {
            framer: AssociationFramer::new(body_len),
            confirmed: false,
            excluded: false,
        };
        let channels = list.cookies().iter().map(channel).collect();
        Self { list, deadline, channels, phase: ConfirmPhase::Waiting, event: None }
    }

    /// The list, the same for every channel.
    pub fn list(&self) -> &CookieList {
        &self.list
    }

    /// Handles bytes received on a channel that is a stream. Returns those that belong to the
    /// transport.
    ///
    /// A server may send data as soon as it has confirmed, so bytes can follow the confirmation on
    /// one channel while other channels are not confirmed yet. They are not stored here: the caller
    /// keeps the returned bytes, and should not read more from that channel until all are
    /// confirmed.
    pub fn handle_bytes<'a>(&mut self, channel: usize, bytes: &'a [u8], now: Duration) -> &'a [u8] {
        self.handle_timeout(now);
        match self.read_stream(channel, bytes) {
            Ok(rest) => rest,
            Err(reason) => {
                self.abort(reason);
                &[]
            }
        }
    }

    /// Handles a whole message on a channel that may repeat messages but not change them.
    pub fn handle_message(&mut self, channel: usize, message: &AssociationMessage, now: Duration) {
        self.handle_timeout(now);
        if let Err(reason) = self.read_message(channel, message) {
            self.abort(reason);
        }
    }

    /// Continues without a channel if enough other channels are confirmed: as many as the terms'
    /// threshold. Returns whether the channel was excluded.
    pub fn exclude(&mut self, channel: usize) -> bool {
        let left = self.channels.iter().filter(|channel| !channel.excluded).count();
        let possible = self.phase == ConfirmPhase::Waiting
            && left > usize::from(self.list.terms().threshold());
        let channel = self.channels.get_mut(channel).filter(|other| possible && !other.excluded);
        let Some(channel) = channel else { return false };
        channel.excluded = true;
        self.finish_if_confirmed();
        true
    }

    /// Reports that a channel was closed or broke. After the association, the transport handles
    /// this instead.
    pub fn handle_closed(&mut self, channel: usize) {
        self.abort(ClientHandshakeAbort::Closed { channel });
    }

    /// Aborts if the deadline has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        if now >= self.deadline {
            self.abort(ClientHandshakeAbort::TimedOut);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), while the handshake runs.
    pub fn poll_timeout(&self) -> Option<Duration> {
        (self.phase == ConfirmPhase::Waiting).then_some(self.deadline)
    }

    /// Returns the result of the handshake, once.
    pub fn poll_event(&mut self) -> Option<AssociationClientEvent> {
        self.event.take()
    }

    /// Whether a channel has not confirmed the list yet. Over datagrams, the caller must then
    /// retransmit the list.
    pub fn is_unanswered(&self, channel: usize) -> bool {
        self.phase == ConfirmPhase::Waiting
            && self.channels.get(channel).is_some_and(|channel| !channel.confirmed)
    }

    fn read_stream<'a>(
        &mut self,
        index: usize,
        bytes: &'a [u8],
    ) -> Result<&'a [u8], ClientHandshakeAbort> {
        let channel = self.channel(index)?;
        if channel.confirmed {
            return Ok(if self.phase == ConfirmPhase::Aborted { &[] } else { bytes });
        }
        match self.phase {
            ConfirmPhase::Associated => return Ok(bytes),
            ConfirmPhase::Aborted => return Ok(&[]),
            ConfirmPhase::Waiting => {}
        }
        let framed = self.channel(index)?.framer.push(bytes);
        let (message, rest) =
            framed.map_err(|source| ClientHandshakeAbort::Message { channel: index, source })?;
        if let Some(message) = message {
            if message.kind() != AssociationMessageKind::Confirm {
                return Err(ClientHandshakeAbort::Unexpected {
                    channel: index,
                    kind: message.kind(),
                });
            }
            self.read_message(index, &message)?;
        }
        Ok(rest)
    }

    fn read_message(
        &mut self,
        index: usize,
        message: &AssociationMessage,
    ) -> Result<(), ClientHandshakeAbort> {
        match message {
            AssociationMessage::Cookie(cookie) => {
                let known = self.list.cookies().get(index);
                let known = known.ok_or(ClientHandshakeAbort::NoSuchChannel { channel: index })?;
                let is_same = bool::from(known.ct_eq(cookie));
                if is_same {
                    Ok(())
                } else {
                    Err(ClientHandshakeAbort::ChangedCookie { channel: index })
                }
            }
            AssociationMessage::Confirm(confirmed) if !confirmed.ct_matches(&self.list) => {
                Err(ClientHandshakeAbort::DifferentConfirm { channel: index })
            }
            AssociationMessage::Confirm(_) => {
                self.channel(index)?.confirmed = true;
                self.finish_if_confirmed();
                Ok(())
            }
            AssociationMessage::List(_)
            | AssociationMessage::Rejoin(_)
            | AssociationMessage::Rejoined(_) => {
                Err(ClientHandshakeAbort::Unexpected { channel: index, kind: message.kind() })
            }
        }
    }

    fn channel(&mut self, channel: usize) -> Result<&mut ConfirmChannel, ClientHandshakeAbort> {
        self.channels.get_mut(channel).ok_or(ClientHandshakeAbort::NoSuchChannel { channel })
    }

    fn finish_if_confirmed(&mut self) {
        let is_done = |channel: &ConfirmChannel| channel.confirmed || channel.excluded;
        if self.phase == ConfirmPhase::Waiting && self.channels.iter().all(is_done) {
            self.event = Some(AssociationClientEvent::Associated { list: self.list.clone() });
            self.phase = ConfirmPhase::Associated;
        }
    }

    fn abort(&mut self, reason: ClientHandshakeAbort) {
        if self.phase == ConfirmPhase::Waiting {
            self.event = Some(AssociationClientEvent::Aborted { reason });
            self.phase = ConfirmPhase::Aborted;
        }
    }
}
