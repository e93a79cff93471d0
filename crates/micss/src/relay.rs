//! Moves an application's bytes between its connection and the channels, in both directions,
//! until both have finished. The same at the client and at the server.

use std::future::poll_fn;
use std::io;
use std::net::Shutdown;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::StreamError;
use crate::channel::{self, poll_read};
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::record::Kind;

/// After how long without a byte a direction gives its buffers back.
const IDLE: Duration = Duration::from_secs(1);

/// How long an abort may take to be sent.
const ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Both halves of a stream and the channels they run over.
pub(crate) struct Channels {
    pub(crate) streams: Vec<TcpStream>,
    pub(crate) outgoing: Outgoing,
    pub(crate) incoming: Incoming,
}

impl Channels {
    /// Sends one record.
    pub(crate) async fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), StreamError> {
        self.outgoing.seal_payload(kind, payload)?;
        channel::send(&self.streams, &mut self.outgoing).await
    }

    /// Waits for one record, which must come within the given time.
    pub(crate) async fn receive(
        &mut self,
        within: Duration,
    ) -> Result<(Kind, Vec<u8>), StreamError> {
        let receive = async {
            loop {
                if let Some(received) = self.incoming.take_next()? {
                    return Ok((received.kind, received.payload.to_vec()));
                }
                channel::receive(&self.streams, &mut self.incoming).await?;
            }
        };
        timeout(within, receive).await.map_err(|_| StreamError::Stalled)?
    }

    /// Relays between the application and the channels until both directions have finished.
    ///
    /// # Errors
    /// When the stream breaks. The application's connection has been reset then, and the peer
    /// told, as far as it can be.
    pub(crate) async fn relay(mut self, application: TcpStream) -> Result<(), StreamError> {
        let result = tokio::try_join!(
            forward(&application, &self.streams, &mut self.outgoing),
            deliver(&application, &self.streams, &mut self.incoming),
        );
        if let Err(error) = result {
            reset(application);
            self.abort().await;
            return Err(error);
        }
        Ok(())
    }

    /// Tells the peer that what was sent is incomplete. Should that not be possible, the channels
    /// end without a last record, which says the same. Without records, only a reset says so.
    async fn abort(mut self) {
        if !self.outgoing.has_records() {
            self.streams.into_iter().for_each(reset);
        } else if self.outgoing.is_taken() && self.outgoing.seal_payload(Kind::Abort, &[]).is_ok() {
            let send = channel::send(&self.streams, &mut self.outgoing);
            // Whether it got through makes no difference to this end.
            let _ = timeout(ABORT_TIMEOUT, send).await;
        }
    }
}

/// From the application to the channels.
async fn forward(
    application: &TcpStream,
    channels: &[TcpStream],
    outgoing: &mut Outgoing,
) -> Result<(), StreamError> {
    loop {
        let len = if let Ok(result) = timeout(IDLE, read(application, outgoing)).await {
            result
        } else {
            outgoing.shrink();
            read(application, outgoing).await
        };
        let len = len.map_err(StreamError::Application)?;
        if len == 0 {
            break;
        }
        outgoing.seal(Kind::Data, len)?;
        channel::send(channels, outgoing).await?;
    }
    outgoing.finish()?;
    channel::send(channels, outgoing).await?;
    for (channel, stream) in channels.iter().enumerate() {
        end_writing(stream).map_err(|source| StreamError::Channel { channel, source })?;
    }
    Ok(())
}

/// From the channels to the application.
async fn deliver(
    application: &TcpStream,
    channels: &[TcpStream],
    incoming: &mut Incoming,
) -> Result<(), StreamError> {
    loop {
        while let Some(received) = incoming.take_next()? {
            match received.kind {
                Kind::Data => {
                    write_all(application, received.payload)
                        .await
                        .map_err(StreamError::Application)?;
                }
                Kind::Finish => {
                    return end_writing(application).map_err(StreamError::Application);
                }
                Kind::Abort => return Err(StreamError::PeerAborted),
                kind => return Err(StreamError::Unexpected(kind)),
            }
        }
        wait(channels, incoming).await?;
    }
}

/// Waits for bytes on the channels: as long as the protocol has patience while a record is under
/// way, for ever between two.
async fn wait(channels: &[TcpStream], incoming: &mut Incoming) -> Result<(), StreamError> {
    if let Some(patience) = incoming.patience() {
        let receive = channel::receive(channels, incoming);
        return timeout(patience, receive).await.map_err(|_| StreamError::Stalled)?;
    }
    if let Ok(result) = timeout(IDLE, channel::receive(channels, incoming)).await {
        return result;
    }
    incoming.shrink();
    channel::receive(channels, incoming).await
}

async fn read(stream: &TcpStream, outgoing: &mut Outgoing) -> io::Result<usize> {
    poll_fn(|context| poll_read(stream, context, outgoing.payload_mut())).await
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.ready(Interest::WRITABLE).await?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Half-closes: says that no more bytes follow. A peer that is gone already need not be told.
fn end_writing(stream: &TcpStream) -> io::Result<()> {
    match SockRef::from(stream).shutdown(Shutdown::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotConnected => Ok(()),
        result => result,
    }
}

/// Closes a connection such that its peer sees an error, not an end.
pub(crate) fn reset(stream: TcpStream) {
    // If that fails the connection is broken already.
    let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
    drop(stream);
}
