//! The client's end of a stream that opens. The list, the request and what the application says at once go
//! out together, and the server's confirms and its answer come back together.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use association::{ClientAbort, ClientEvent, ConfirmCollector, Cookie, List, Message, Terms};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::StreamError;
use crate::net::stream::channel_io;
use crate::net::stream::channel_stream::ChannelStream;
use crate::net::tcp_info::is_silent;
use crate::protocol::incoming::{ANSWER_TIMEOUT, Incoming, LATE_CHANNEL_TIMEOUT, Loss};
use crate::protocol::options::OPTION_NO_RECORDS;
use crate::protocol::record::Kind;
use crate::protocol::target::Refusal;

/// A stream whose list and request have been made.
pub(crate) struct ClientHandshake {
    handshake: ConfirmCollector,
    terms: Terms,
    since: Instant,
    /// What the server says on each channel, if it says what it must.
    confirm: Vec<u8>,
}

impl ClientHandshake {
    /// Begins on channels that have these cookies. Returns also the list, which is to be sent on each.
    ///
    /// # Errors
    /// When the cookies make no list.
    pub(crate) fn new(terms: Terms, cookies: &[Cookie]) -> Result<(Self, Vec<u8>), StreamError> {
        let list = List::new(terms, cookies.to_vec()).map_err(ClientAbort::from)?;
        let handshake = ConfirmCollector::new(list.clone(), ANSWER_TIMEOUT);
        let confirm = Message::Confirm(list.clone()).encode();
        let list = Message::List(list).encode();
        Ok((Self { handshake, terms, since: Instant::now(), confirm }, list))
    }

    /// Waits for the confirms and for the server's answer. Goes on without channels that are not as they must
    /// be, if that is possible.
    ///
    /// # Errors
    /// When these do not come, or are not as they must be, or the server refuses.
    pub(crate) async fn complete<R: AsyncRead + Unpin + AsRef<TcpStream>>(
        self,
        channels: &mut BTreeMap<usize, ChannelStream<R>>,
        incoming: &mut Incoming,
    ) -> Result<(), StreamError> {
        let raw = self.terms.options() & OPTION_NO_RECORDS != 0;
        let deadline = self.since + ANSWER_TIMEOUT;
        let answer = async {
            self.receive_confirms(channels, incoming).await?;
            channel_io::receive_first(channels, incoming).await
        };
        let Ok(answer) = timeout_at(deadline, answer).await else {
            return Err(timeout_cause(channels));
        };
        match answer? {
            (Kind::Opened, _) => {}
            (Kind::Refused, reason) => {
                let refusal = reason.first().copied().and_then(Refusal::from_byte);
                return Err(refusal.unwrap_or(Refusal::Unreachable).into());
            }
            (kind, _) => return Err(StreamError::Unexpected(kind)),
        }
        if raw {
            incoming.drop_records();
        }
        Ok(())
    }

    /// Waits for the confirms (paper 001, III-D, step 5). Goes on without channels that break or say
    /// something else, if that is possible, and without those that say nothing for a moment after enough
    /// others have confirmed.
    async fn receive_confirms<R: AsyncRead + Unpin + AsRef<TcpStream>>(
        mut self,
        channels: &mut BTreeMap<usize, ChannelStream<R>>,
        incoming: &mut Incoming,
    ) -> Result<(), StreamError> {
        let mut reading: Vec<_> = channels.keys().map(|_| Some(Vec::new())).collect();
        let needed = usize::from(self.terms.threshold());
        let (mut confirms, mut deadline) = (0, None);
        loop {
            let next = next_confirm(channels, &mut reading, self.confirm.len());
            let next = match deadline {
                None => Ok(next.await),
                Some(deadline) => timeout_at(deadline, next).await,
            };
            let Ok((channel, read)) = next else {
                let is_silent = |channel: &usize| reading[*channel].is_some();
                for channel in (0..reading.len()).filter(is_silent) {
                    if self.handshake.exclude(channel) {
                        incoming.lose(channel, Loss::Stalled);
                    }
                }
                return self.outcome().unwrap_or(Err(StreamError::NotOpened));
            };
            let is_right = read.as_ref().is_some_and(|bytes| *bytes == self.confirm);
            if !is_right && self.handshake.exclude(channel) {
                let why = if read.is_some() { Loss::Tampered } else { Loss::Ended };
                incoming.lose(channel, why);
            } else if let Some(bytes) = read {
                confirms += 1;
                self.handshake.handle_bytes(channel, &bytes, self.since.elapsed());
            } else {
                self.handshake.handle_closed(channel);
            }
            if let Some(outcome) = self.outcome() {
                return outcome;
            }
            if confirms == needed {
                deadline.get_or_insert_with(|| Instant::now() + LATE_CHANNEL_TIMEOUT);
            }
        }
    }

    /// What came of the handshake, if it is over.
    fn outcome(&mut self) -> Option<Result<(), StreamError>> {
        Some(match self.handshake.poll_event()? {
            ClientEvent::Aborted { reason } => Err(reason.into()),
            ClientEvent::Associated { .. } => Ok(()),
        })
    }
}

/// Why there was no answer for so long: a channel that is dead. If all are, it is not the channels.
fn timeout_cause<R: AsRef<TcpStream>>(channels: &BTreeMap<usize, ChannelStream<R>>) -> StreamError {
    let is_dead = |channel: &ChannelStream<R>| is_silent(channel.as_ref(), ANSWER_TIMEOUT);
    let dead = channels.iter().find(|(_, channel)| is_dead(channel));
    match dead {
        Some((&channel, _)) if !channels.values().all(is_dead) => {
            StreamError::Channel { channel, source: io::ErrorKind::TimedOut.into() }
        }
        _ => StreamError::NotOpened,
    }
}

/// Waits until one of the channels has brought so many bytes. Returns which and the bytes, or nothing if it
/// broke or ended before. Reading no further leaves the records where they are.
async fn next_confirm<R: AsyncRead + Unpin>(
    channels: &mut BTreeMap<usize, R>,
    reading: &mut [Option<Vec<u8>>],
    len: usize,
) -> (usize, Option<Vec<u8>>) {
    poll_fn(|context| {
        for (&index, channel) in &mut *channels {
            while let Some(bytes) = &mut reading[index] {
                let mut piece = [0; 1024];
                let missing = (len - bytes.len()).min(piece.len());
                let mut space = ReadBuf::new(&mut piece[..missing]);
                match Pin::new(&mut *channel).poll_read(context, &mut space) {
                    Poll::Pending => break,
                    Poll::Ready(Ok(())) if !space.filled().is_empty() => {
                        bytes.extend_from_slice(space.filled());
                        if bytes.len() == len {
                            return Poll::Ready((index, reading[index].take()));
                        }
                    }
                    Poll::Ready(_) => {
                        reading[index] = None;
                        return Poll::Ready((index, None));
                    }
                }
            }
        }
        Poll::Pending
    })
    .await
}
