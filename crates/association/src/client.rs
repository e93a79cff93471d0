//! The client's end: collects a cookie on every channel, sends the list, waits for the confirms.
//!
//! It completes only if every channel, and so the honest one, has said exactly what it must. One
//! deviation anywhere aborts the whole; what is left to do then is to close all channels.

use std::collections::VecDeque;
use std::time::Duration;

use subtle::ConstantTimeEq;
use thiserror::Error;

use crate::framer::Framer;
use crate::message::{Cookie, List, ListError, Message, MessageError, MessageKind, list_body_len};
use crate::terms::Terms;

/// Why a client gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClientAbort {
    /// The bytes on a channel are not a message.
    #[error("channel {}: {source}", .channel + 1)]
    Message {
        /// The channel's index.
        channel: usize,
        /// What is wrong with them.
        source: MessageError,
    },
    /// A message that has no place at this point.
    #[error("channel {}: unexpected {kind:?}", .channel + 1)]
    Unexpected {
        /// The channel's index.
        channel: usize,
        /// The message's kind.
        kind: MessageKind,
    },
    /// Bytes after a channel's cookie, before the list was sent.
    #[error("channel {}: bytes after the cookie and before the list", .channel + 1)]
    ExtraBytes {
        /// The channel's index.
        channel: usize,
    },
    /// A channel's cookie changed between two datagrams.
    #[error("channel {}: a second, different cookie", .channel + 1)]
    ChangedCookie {
        /// The channel's index.
        channel: usize,
    },
    /// Two channels have the same cookie.
    #[error(transparent)]
    Cookies(#[from] ListError),
    /// The server confirmed something other than the list sent.
    #[error("channel {}: the confirmed list is not the one sent", .channel + 1)]
    DifferentConfirm {
        /// The channel's index.
        channel: usize,
    },
    /// A channel closed before all were confirmed.
    #[error("channel {} closed during the handshake", .channel + 1)]
    Closed {
        /// The channel's index.
        channel: usize,
    },
    /// The deadline passed.
    #[error("the handshake took too long")]
    TimedOut,
    /// The caller named a channel that the terms do not have.
    #[error("there is no channel {}", .channel + 1)]
    NoSuchChannel {
        /// The index it named.
        channel: usize,
    },
}

impl ClientAbort {
    /// The index of the channel that it names, if it names one.
    pub fn channel_mut(&mut self) -> Option<&mut usize> {
        match self {
            Self::Message { channel, .. }
            | Self::Unexpected { channel, .. }
            | Self::ExtraBytes { channel }
            | Self::ChangedCookie { channel }
            | Self::DifferentConfirm { channel }
            | Self::Closed { channel }
            | Self::NoSuchChannel { channel } => Some(channel),
            Self::Cookies(_) | Self::TimedOut => None,
        }
    }
}

/// What a client wants done. Take them in order.
#[derive(Clone, Debug)]
pub enum ClientEvent {
    /// Send this on this channel.
    Transmit {
        /// The channel's index.
        channel: usize,
        /// The message.
        message: Message,
    },
    /// All channels are confirmed but those that were lost: they now belong to the transport. Nothing follows.
    Associated {
        /// What both ends hold.
        list: List,
    },
    /// Close all channels. Nothing follows.
    Aborted {
        /// Why.
        reason: ClientAbort,
    },
}

/// The client's end of one handshake.
#[derive(Debug)]
pub struct Client {
    terms: Terms,
    deadline: Duration,
    channels: Vec<Channel>,
    phase: Phase,
    events: VecDeque<ClientEvent>,
}

#[derive(Debug)]
struct Channel {
    framer: Framer,
    cookie: Option<Cookie>,
    confirmed: bool,
    /// Its confirm is not waited for.
    lost: bool,
}

#[derive(Debug)]
enum Phase {
    CollectingCookies,
    AwaitingConfirms(List),
    Associated,
    Aborted,
}

impl Client {
    /// A client that has a connection on each of the terms' channels and gives up at `deadline`.
    pub fn new(terms: Terms, deadline: Duration) -> Self {
        let channel = || Channel {
            framer: Framer::new(list_body_len(terms.channels())),
            cookie: None,
            confirmed: false,
            lost: false,
        };
        Self {
            terms,
            deadline,
            channels: (0..terms.channels()).map(|_| channel()).collect(),
            phase: Phase::CollectingCookies,
            events: VecDeque::new(),
        }
    }

    /// Bytes came on a channel that is a stream. Gives back those that are the transport's.
    ///
    /// A server may speak as soon as it has confirmed, so bytes may follow a channel's confirm while
    /// others still wait for theirs. The caller keeps what it gets back and had better read no more
    /// from that channel until all are confirmed; nothing of it is stored here.
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

    /// A whole message came on a channel that may repeat messages but not change them.
    pub fn handle_message(&mut self, channel: usize, message: &Message, now: Duration) {
        self.handle_timeout(now);
        if self.is_over() {
            return;
        }
        if let Err(reason) = self.read_message(channel, message) {
            self.abort(reason);
        }
    }

    /// Goes on without a channel, if the confirms of the others are enough: as many as the terms' threshold.
    /// Only once the list was sent. Returns whether it does.
    pub fn lose(&mut self, channel: usize) -> bool {
        let left = self.channels.iter().filter(|channel| !channel.lost).count();
        let possible = matches!(self.phase, Phase::AwaitingConfirms(_))
            && left > usize::from(self.terms.threshold());
        let lost = self.channels.get_mut(channel).filter(|channel| possible && !channel.lost);
        let Some(lost) = lost else { return false };
        lost.lost = true;
        self.finish_if_confirmed();
        true
    }

    /// A channel was closed or broke. After the association that is the transport's concern.
    pub fn handle_closed(&mut self, channel: usize) {
        self.abort(ClientAbort::Closed { channel });
    }

    /// Gives up if the deadline has passed.
    pub fn handle_timeout(&mut self, now: Duration) {
        if now >= self.deadline {
            self.abort(ClientAbort::TimedOut);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), while the handshake runs.
    pub fn poll_timeout(&self) -> Option<Duration> {
        (!self.is_over()).then_some(self.deadline)
    }

    /// What to do next, until `None`.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// What the client is waiting for an answer to on a channel.
    ///
    /// A shell over datagrams sends this again when it has had no answer for a while; one over
    /// streams has no use for it.
    pub fn outgoing(&self, channel: usize) -> Option<Message> {
        let waiting = self.channels.get(channel).is_some_and(|channel| !channel.confirmed);
        match &self.phase {
            Phase::AwaitingConfirms(list) if waiting => Some(Message::List(list.clone())),
            _ => None,
        }
    }

    fn read_stream<'a>(&mut self, index: usize, bytes: &'a [u8]) -> Result<&'a [u8], ClientAbort> {
        let channel = channel_at(&mut self.channels, index)?;
        let expected = match self.phase {
            Phase::Associated => return Ok(bytes),
            Phase::Aborted => return Ok(&[]),
            Phase::CollectingCookies if channel.cookie.is_some() => {
                return nothing_more(index, bytes);
            }
            Phase::CollectingCookies => MessageKind::Cookie,
            Phase::AwaitingConfirms(_) if channel.confirmed => return Ok(bytes),
            Phase::AwaitingConfirms(_) => MessageKind::Confirm,
        };
        let (message, rest) = channel
            .framer
            .push(bytes)
            .map_err(|source| ClientAbort::Message { channel: index, source })?;
        let Some(message) = message else {
            return Ok(rest);
        };
        if message.kind() != expected {
            return Err(ClientAbort::Unexpected { channel: index, kind: message.kind() });
        }
        if expected == MessageKind::Cookie {
            // Looked at before the cookie counts: the last one would set the lists free.
            nothing_more(index, rest)?;
        }
        self.read_message(index, &message)?;
        Ok(rest)
    }

    fn read_message(&mut self, index: usize, message: &Message) -> Result<(), ClientAbort> {
        match (message, &self.phase) {
            (Message::Cookie(cookie), _) => self.read_cookie(index, *cookie),
            (Message::Confirm(confirmed), Phase::AwaitingConfirms(list)) => {
                if !confirmed.matches(list) {
                    return Err(ClientAbort::DifferentConfirm { channel: index });
                }
                channel_at(&mut self.channels, index)?.confirmed = true;
                self.finish_if_confirmed();
                Ok(())
            }
            (unexpected, _) => {
                Err(ClientAbort::Unexpected { channel: index, kind: unexpected.kind() })
            }
        }
    }

    fn read_cookie(&mut self, index: usize, cookie: Cookie) -> Result<(), ClientAbort> {
        let known = &mut channel_at(&mut self.channels, index)?.cookie;
        match known {
            Some(known) if bool::from(known.ct_eq(&cookie)) => Ok(()),
            Some(_) => Err(ClientAbort::ChangedCookie { channel: index }),
            None => {
                *known = Some(cookie);
                self.send_list_if_complete()
            }
        }
    }

    fn send_list_if_complete(&mut self) -> Result<(), ClientAbort> {
        let Some(cookies) = self.channels.iter().map(|channel| channel.cookie).collect() else {
            return Ok(());
        };
        let list = List::new(self.terms, cookies)?;
        for channel in 0..self.channels.len() {
            let message = Message::List(list.clone());
            self.events.push_back(ClientEvent::Transmit { channel, message });
        }
        self.phase = Phase::AwaitingConfirms(list);
        Ok(())
    }

    fn finish_if_confirmed(&mut self) {
        if let Phase::AwaitingConfirms(list) = &self.phase
            && self.channels.iter().all(|channel| channel.confirmed || channel.lost)
        {
            self.events.push_back(ClientEvent::Associated { list: list.clone() });
            self.phase = Phase::Associated;
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Associated | Phase::Aborted)
    }

    fn abort(&mut self, reason: ClientAbort) {
        if self.is_over() {
            return;
        }
        // Lists not yet taken must not go out after all: the shell is to close, and only close.
        self.events.clear();
        self.events.push_back(ClientEvent::Aborted { reason });
        self.phase = Phase::Aborted;
    }
}

fn channel_at(channels: &mut [Channel], index: usize) -> Result<&mut Channel, ClientAbort> {
    channels.get_mut(index).ok_or(ClientAbort::NoSuchChannel { channel: index })
}

fn nothing_more(channel: usize, bytes: &[u8]) -> Result<&[u8], ClientAbort> {
    if bytes.is_empty() { Ok(bytes) } else { Err(ClientAbort::ExtraBytes { channel }) }
}
