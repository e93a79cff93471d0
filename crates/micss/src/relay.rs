//! Moves an application's bytes between its connection and the channels, in both directions,
//! until both have finished. The same at the client and at the server.

use std::time::Duration;

use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::time::timeout;

use crate::StreamError;
use crate::channel;
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
        channel::send(&mut self.streams, &mut self.outgoing).await
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
                channel::receive(&mut self.streams, &mut self.incoming).await?;
            }
        };
        timeout(within, receive).await.map_err(|_| StreamError::Stalled)?
    }

    /// Relays between the application and the channels until both directions have finished.
    ///
    /// # Errors
    /// When the stream breaks. The application's connection has been reset then, and the peer
    /// told, as far as it can be.
    pub(crate) async fn relay(mut self, mut application: TcpStream) -> Result<(), StreamError> {
        reset_when_dropped(&application);
        let (from_application, to_application) = application.split();
        let (from_channels, to_channels) = self.streams.iter_mut().map(TcpStream::split).unzip();
        let result = tokio::try_join!(
            forward(from_application, to_channels, &mut self.outgoing),
            deliver(from_channels, to_application, &mut self.incoming),
        );
        if let Err(error) = result {
            drop(application);
            self.abort().await;
            return Err(error);
        }
        self.streams.iter().chain([&application]).for_each(end_when_dropped);
        Ok(())
    }

    /// From here on, payloads are shared without a header: `integrity = "none"`. An end is then
    /// the channels' own end, so whatever breaks this off must reset them.
    pub(crate) fn drop_records(&mut self) {
        self.outgoing.drop_records();
        self.incoming.drop_records();
        self.streams.iter().for_each(reset_when_dropped);
    }

    /// Tells the peer that what was sent is incomplete. Should that not be possible, the channels
    /// end without a last record, which says the same. Without records, only a reset says so.
    async fn abort(mut self) {
        if !self.outgoing.has_records() {
            drop(self.streams);
        } else if self.outgoing.is_taken() && self.outgoing.seal_payload(Kind::Abort, &[]).is_ok() {
            let send = channel::send(&mut self.streams, &mut self.outgoing);
            // Whether it got through makes no difference to this end.
            let _ = timeout(ABORT_TIMEOUT, send).await;
        }
    }
}

/// From the application to the channels.
async fn forward(
    mut application: ReadHalf<'_>,
    mut channels: Vec<WriteHalf<'_>>,
    outgoing: &mut Outgoing,
) -> Result<(), StreamError> {
    loop {
        let read = match timeout(IDLE, application.read(outgoing.payload_mut())).await {
            Ok(read) => read,
            Err(_idle) => {
                outgoing.shrink();
                application.read(outgoing.payload_mut()).await
            }
        };
        match read.map_err(StreamError::Application)? {
            0 => break,
            len => outgoing.seal(Kind::Data, len)?,
        }
        channel::send(&mut channels, outgoing).await?;
    }
    outgoing.finish()?;
    channel::send(&mut channels, outgoing).await?;
    for (channel, writer) in channels.iter_mut().enumerate() {
        let error = |source| StreamError::Channel { channel, source };
        writer.shutdown().await.map_err(error)?;
    }
    Ok(())
}

/// From the channels to the application.
async fn deliver(
    mut channels: Vec<ReadHalf<'_>>,
    mut application: WriteHalf<'_>,
    incoming: &mut Incoming,
) -> Result<(), StreamError> {
    loop {
        while let Some(received) = incoming.take_next()? {
            match received.kind {
                Kind::Data => application.write_all(received.payload).await,
                Kind::Finish => {
                    return application.shutdown().await.map_err(StreamError::Application);
                }
                Kind::Abort => return Err(StreamError::PeerAborted),
                kind => return Err(StreamError::Unexpected(kind)),
            }
            .map_err(StreamError::Application)?;
        }
        wait(&mut channels, incoming).await?;
    }
}

/// Waits for bytes on the channels: as long as the protocol has patience while a record is under
/// way, for ever between two.
async fn wait(channels: &mut [ReadHalf<'_>], incoming: &mut Incoming) -> Result<(), StreamError> {
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

/// Closes a connection such that its peer sees an error, not an end.
pub(crate) fn reset(stream: TcpStream) {
    reset_when_dropped(&stream);
    drop(stream);
}

/// Has a connection's peer see an error, not an end, however this end of it is closed: also when
/// its task is stopped or panics, and when the whole process is killed.
pub(crate) fn reset_when_dropped(stream: &TcpStream) {
    // If that fails the connection is broken already.
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}

/// Has a connection end as usual again, now that all has been said.
fn end_when_dropped(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(None);
}
