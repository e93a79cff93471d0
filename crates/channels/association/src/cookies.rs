//! The client's first state: it collects a cookie on every channel.

use std::time::Duration;

use subtle::ConstantTimeEq;

use crate::abort::ClientHandshakeAbort;
use crate::confirms::ConfirmCollector;
use crate::framer::AssociationFramer;
use crate::message::{
    AssociationMessage, AssociationMessageKind, ConnectionCookie, CookieList, list_body_len,
};
use crate::terms::AssociationTerms;

/// A client that has a connection on each of the terms' channels and waits for their cookies.
///
/// Every method consumes it. After an error the caller must close all channels.
///
/// ```
/// use std::time::Duration;
///
/// use sunder_association::{
///     AssociationMessage, AssociationProtocol, AssociationTerms, ConnectionCookie,
///     CookieCollector, CookieProgress, SharingScheme,
/// };
///
/// let (now, deadline) = (Duration::ZERO, Duration::from_secs(10));
/// let terms =
///     AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Xor, 2, 2, 0)?;
/// let mut collector = CookieCollector::new(terms, deadline);
///
/// // What the sockets of the two channels receive: one cookie comes in two pieces.
/// let [first, second] = [7, 9].map(|byte| {
///     AssociationMessage::Cookie(ConnectionCookie::new([byte; 16])).encode()
/// });
/// let mut received = [(0, &first[..5]), (1, &second[..]), (0, &first[5..])].into_iter();
/// let confirms = loop {
///     let (channel, bytes) = received.next().ok_or("closed")?;
///     match collector.handle_bytes(channel, bytes, now)? {
///         CookieProgress::Some(more) => collector = more,
///         CookieProgress::All(confirms) => break confirms,
///     }
/// };
/// assert_eq!(confirms.list().cookies().len(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CookieCollector {
    terms: AssociationTerms,
    deadline: Duration,
    channels: Vec<CookieChannel>,
}

#[derive(Debug)]
struct CookieChannel {
    framer: AssociationFramer,
    cookie: Option<ConnectionCookie>,
}

/// The client's state after a message or a part of one.
#[derive(Debug)]
pub enum CookieProgress {
    /// Cookies are missing.
    Some(CookieCollector),
    /// All cookies. The [list](ConfirmCollector::list) is to be sent on every channel.
    All(ConfirmCollector),
}

impl CookieCollector {
    /// A client that aborts at `deadline` if the handshake is not complete by then.
    pub fn new(terms: AssociationTerms, deadline: Duration) -> Self {
        let body_len = list_body_len(terms.channels());
        let channel = |_| CookieChannel { framer: AssociationFramer::new(body_len), cookie: None };
        Self { terms, deadline, channels: (0..terms.channels()).map(channel).collect() }
    }

    /// Handles bytes received on a channel that is a stream.
    ///
    /// # Errors
    /// When they are not exactly a cookie, when all cookies are there and two are equal, when there
    /// is no such channel, or when the deadline has passed.
    pub fn handle_bytes(
        mut self,
        channel: usize,
        bytes: &[u8],
        now: Duration,
    ) -> Result<CookieProgress, ClientHandshakeAbort> {
        self.check_deadline(now)?;
        let CookieChannel { framer, cookie } = self.channel(channel)?;
        if cookie.is_some() {
            nothing_more(channel, bytes)?;
            return Ok(CookieProgress::Some(self));
        }
        let framed = framer.push(bytes);
        let (message, rest) =
            framed.map_err(|source| ClientHandshakeAbort::Message { channel, source })?;
        let Some(message) = message else { return Ok(CookieProgress::Some(self)) };
        if message.kind() == AssociationMessageKind::Cookie {
            nothing_more(channel, rest)?;
        }
        self.read(channel, &message)
    }

    /// Handles a whole message on a channel that may repeat messages but not change them.
    ///
    /// # Errors
    /// When it is not a cookie or differs from the channel's earlier cookie, when all cookies are
    /// there and two are equal, when there is no such channel, or when the deadline has passed.
    pub fn handle_message(
        self,
        channel: usize,
        message: &AssociationMessage,
        now: Duration,
    ) -> Result<CookieProgress, ClientHandshakeAbort> {
        self.check_deadline(now)?;
        self.read(channel, message)
    }

    /// Reports that a channel was closed or broke.
    pub fn handle_closed(self, channel: usize) -> ClientHandshakeAbort {
        ClientHandshakeAbort::Closed { channel }
    }

    /// Aborts if the deadline has passed.
    ///
    /// # Errors
    /// If it has.
    pub fn handle_timeout(self, now: Duration) -> Result<Self, ClientHandshakeAbort> {
        self.check_deadline(now)?;
        Ok(self)
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    pub fn poll_timeout(&self) -> Duration {
        self.deadline
    }

    fn check_deadline(&self, now: Duration) -> Result<(), ClientHandshakeAbort> {
        if now >= self.deadline { Err(ClientHandshakeAbort::TimedOut) } else { Ok(()) }
    }

    fn channel(&mut self, channel: usize) -> Result<&mut CookieChannel, ClientHandshakeAbort> {
        self.channels.get_mut(channel).ok_or(ClientHandshakeAbort::NoSuchChannel { channel })
    }

    fn read(
        mut self,
        channel: usize,
        message: &AssociationMessage,
    ) -> Result<CookieProgress, ClientHandshakeAbort> {
        let AssociationMessage::Cookie(new) = message else {
            return Err(ClientHandshakeAbort::Unexpected { channel, kind: message.kind() });
        };
        let known = self.channel(channel)?.cookie.get_or_insert(*new);
        if !bool::from(known.ct_eq(new)) {
            return Err(ClientHandshakeAbort::ChangedCookie { channel });
        }
        match self.channels.iter().map(|channel| channel.cookie).collect() {
            None => Ok(CookieProgress::Some(self)),
            Some(cookies) => {
                let list = CookieList::new(self.terms, cookies)?;
                Ok(CookieProgress::All(ConfirmCollector::new(list, self.deadline)))
            }
        }
    }
}

/// No bytes may follow a cookie: the server sends nothing more before it has the lists.
fn nothing_more(channel: usize, bytes: &[u8]) -> Result<(), ClientHandshakeAbort> {
    if bytes.is_empty() { Ok(()) } else { Err(ClientHandshakeAbort::ExtraBytes { channel }) }
}
