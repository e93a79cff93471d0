//! The client's end of a stream that opens. The list, the request and what the application says at once go
//! out together; the server's confirms and its answer come back together.

use std::time::Duration;

use association::{Client as Handshake, ClientEvent, Cookie, Message, Terms};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::{Instant, timeout};

use crate::StreamError;
use crate::channel;
use crate::incoming::Incoming;
use crate::record::Kind;
use crate::server::{ANSWER_TIMEOUT, OPTION_NO_RECORDS};
use crate::target::Refusal;

/// A stream whose list and request have been made.
pub(crate) struct Opening {
    handshake: Handshake,
    terms: Terms,
    since: Instant,
    /// How long a confirm is: as long as the list.
    confirm_len: usize,
}

impl Opening {
    /// Begins on channels that have these cookies. Returns also the list, which is to be sent on each.
    ///
    /// # Errors
    /// When the cookies make no list.
    pub(crate) fn new(terms: Terms, cookies: &[Cookie]) -> Result<(Self, Vec<u8>), StreamError> {
        let mut handshake = Handshake::new(terms, ANSWER_TIMEOUT);
        for (channel, &cookie) in cookies.iter().enumerate() {
            handshake.handle_message(channel, &Message::Cookie(cookie), Duration::ZERO);
        }
        let mut list = Vec::new();
        while let Some(event) = handshake.poll_event() {
            match event {
                // The same on every channel.
                ClientEvent::Transmit { message, .. } => list = message.encode(),
                ClientEvent::Aborted { reason } => return Err(reason.into()),
                ClientEvent::Associated { .. } => {}
            }
        }
        let opening = Self { handshake, terms, since: Instant::now(), confirm_len: list.len() };
        Ok((opening, list))
    }

    /// Waits for the confirm on every channel, and then for the server's answer.
    ///
    /// # Errors
    /// When they do not come, or are not as they must be, or the server refuses.
    pub(crate) async fn answered<R: AsyncRead + Unpin>(
        self,
        channels: &mut [R],
        incoming: &mut Incoming,
    ) -> Result<(), StreamError> {
        let raw = self.terms.options() & OPTION_NO_RECORDS != 0;
        let answer = timeout(ANSWER_TIMEOUT, async {
            self.confirmed(channels).await?;
            loop {
                if let Some(received) = incoming.take_next()? {
                    return match received.kind {
                        Kind::Opened => Ok(()),
                        Kind::Refused => {
                            let reason = received.payload.first().copied();
                            let refusal = reason.and_then(Refusal::from_byte);
                            Err(refusal.unwrap_or(Refusal::Unreachable).into())
                        }
                        kind => Err(StreamError::Unexpected(kind)),
                    };
                }
                channel::receive(channels, incoming).await?;
            }
        });
        answer.await.map_err(|_| StreamError::NotOpened)??;
        if raw {
            incoming.drop_records();
        }
        Ok(())
    }

    /// Waits for the confirms (paper 001, III-D, step 5).
    async fn confirmed<R: AsyncRead + Unpin>(
        mut self,
        channels: &mut [R],
    ) -> Result<(), StreamError> {
        // Reading no further than the message ends leaves the records where they are.
        let mut bytes = vec![0; self.confirm_len];
        // One after the other, since all are needed.
        for (index, channel) in channels.iter_mut().enumerate() {
            match channel.read_exact(&mut bytes).await {
                Ok(_) => _ = self.handshake.handle_bytes(index, &bytes, self.since.elapsed()),
                Err(_) => self.handshake.handle_closed(index),
            }
            while let Some(event) = self.handshake.poll_event() {
                match event {
                    ClientEvent::Aborted { reason } => return Err(reason.into()),
                    ClientEvent::Associated { .. } => return Ok(()),
                    ClientEvent::Transmit { .. } => {}
                }
            }
        }
        Err(StreamError::NotOpened)
    }
}
