//! One connection: its handshake and its data transfer.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keys::noise::EphemeralKey;
use keys::{IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator};
use service::listening::set_options;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::{Instant, sleep_until};
use zeroize::Zeroizing;

use super::{LinkConnectError, LinkEvent, LinkMessage, QuorumPeer};
use crate::protocol::link::handshake::{
    CONFIRM_LEN, HELLO_LEN, LinkDialer, LinkSession, REPLY_LEN, answer as answer_hello,
};
use crate::protocol::link::records::QuorumLink;
use crate::protocol::link::{LinkLane, LinkSendError, LinkTopic, QuorumLinkError};

/// The limit on encrypted bytes before they are written, and on unsent bytes in the kernel. An
/// urgent message waits for these bytes.
const MAX_UNSENT: u32 = 32 << 10;

/// Connects to a server.
pub(super) async fn dial(
    own: &IdentitySecretKey,
    peer: &QuorumPeer,
    generator: &mut RandomGenerator,
) -> Result<(TcpStream, LinkSession), LinkConnectError> {
    let mut stream = peer.address.connect().await?;
    set_options(&stream);
    let (dialer, hello) = LinkDialer::new(own, &peer.key, ephemeral(generator)?);
    stream.write_all(&hello).await?;
    let mut reply = [0; REPLY_LEN];
    stream.read_exact(&mut reply).await?;
    let (session, confirm) = dialer.finish(&reply)?;
    stream.write_all(&confirm).await?;
    Ok((stream, session))
}

/// Answers an incoming connection.
pub(super) async fn answer(
    own: &IdentitySecretKey,
    mut stream: TcpStream,
    expects: impl FnOnce(&IdentityPublicKey) -> bool,
) -> Result<(TcpStream, LinkSession), LinkConnectError> {
    let mut hello = [0; HELLO_LEN];
    stream.read_exact(&mut hello).await?;
    let answered = answer_hello(own, &hello, expects, ephemeral(&mut RandomGenerator::system())?);
    let (unconfirmed, reply) = match answered {
        Ok(answered) => answered,
        Err(refused) => {
            if let Some(reply) = refused.reply {
                stream.write_all(&reply).await?;
                stream.shutdown().await?;
            }
            return Err(refused.error.into());
        }
    };
    stream.write_all(&reply).await?;
    let mut confirm = [0; CONFIRM_LEN];
    stream.read_exact(&mut confirm).await?;
    Ok((stream, unconfirmed.confirm(&confirm)?))
}

pub(super) fn ephemeral(generator: &mut RandomGenerator) -> Result<EphemeralKey, RandomError> {
    let mut bytes = Zeroizing::new([0; 32]);
    generator.fill(&mut *bytes)?;
    Ok(EphemeralKey(bytes))
}

/// A link, and the task that transfers its bytes.
#[derive(Debug)]
pub(super) struct LinkConnection {
    peer: IdentityPublicKey,
    link: Mutex<QuorumLink>,
    /// Notified when there is something to send.
    wake: Notify,
}

/// Why a link has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum LinkEnd {
    #[error("the other end has closed the connection")]
    Closed,
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error(transparent)]
    Link(#[from] QuorumLinkError),
}

/// A message's part of the window, which returns to its sender when this is dropped.
pub(super) struct MessageCredit {
    connection: Arc<LinkConnection>,
    lane: LinkLane,
    len: usize,
}

impl MessageCredit {
    pub(super) fn sender(&self) -> &IdentityPublicKey {
        &self.connection.peer
    }
}

impl fmt::Debug for MessageCredit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} bytes", self.len)
    }
}

impl Drop for MessageCredit {
    fn drop(&mut self) {
        if self.connection.link().consumed(self.lane, self.len) {
            self.connection.wake.notify_one();
        }
    }
}

impl LinkConnection {
    pub(super) fn new(session: LinkSession, now: Duration) -> Self {
        let peer = session.peer;
        Self { peer, link: Mutex::new(QuorumLink::new(session, now)), wake: Notify::new() }
    }

    fn link(&self) -> MutexGuard<'_, QuorumLink> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(
        &self,
        topic: LinkTopic,
        lane: LinkLane,
        bytes: Bytes,
    ) -> Result<(), LinkSendError> {
        self.link().send(topic, lane, bytes)?;
        self.wake.notify_one();
        Ok(())
    }

    pub(super) fn round_trip_and_queued(&self) -> (Option<Duration>, usize) {
        let link = self.link();
        (link.round_trip(), LinkLane::ALL.map(|lane| link.queued(lane)).iter().sum())
    }

    /// The number of bytes that wait to be sent on a lane.
    pub(super) fn queued(&self, lane: LinkLane) -> usize {
        self.link().queued(lane)
    }

    /// Transfers bytes until the link ends.
    pub(super) async fn run(
        self: &Arc<Self>,
        mut stream: TcpStream,
        start: Instant,
        inboxes: &[UnboundedSender<LinkEvent>; 3],
    ) -> LinkEnd {
        // Without it, urgent messages wait longer.
        let _ = SockRef::from(&stream).set_tcp_notsent_lowat(MAX_UNSENT);
        let (mut reader, mut writer) = stream.split();
        let mut input = vec![0; 64 << 10];
        let (mut output, mut written) = (Vec::new(), 0);
        loop {
            let deadline = {
                let mut link = self.link();
                if written == output.len() {
                    output.clear();
                    written = 0;
                    while output.len() < MAX_UNSENT as usize && link.poll_transmit(&mut output) {}
                }
                start + link.poll_timeout()
            };
            let is_idle = output.is_empty();
            tokio::select! {
                read = reader.read(&mut input) => match read {
                    Ok(0) => return LinkEnd::Closed,
                    Ok(len) => {
                        if let Err(error) = self.arrived(start.elapsed(), &input[..len], inboxes) {
                            return error.into();
                        }
                    }
                    Err(error) => return error.into(),
                },
                sent = writer.write(&output[written..]), if !is_idle => match sent {
                    Ok(len) => written += len,
                    Err(error) => return error.into(),
                },
                () = self.wake.notified(), if is_idle => {}
                () = sleep_until(deadline) => {
                    if let Err(error) = self.link().handle_timeout(start.elapsed()) {
                        return error.into();
                    }
                }
            }
        }
    }

    /// Passes on the messages in received bytes.
    fn arrived(
        self: &Arc<Self>,
        now: Duration,
        bytes: &[u8],
        inboxes: &[UnboundedSender<LinkEvent>; 3],
    ) -> Result<(), QuorumLinkError> {
        let received: Vec<_> = {
            let mut link = self.link();
            link.handle_bytes(now, bytes)?;
            std::iter::from_fn(|| link.poll_received()).collect()
        };
        for message in received {
            let (topic, lane, len) = (message.topic, message.lane, message.bytes.len());
            let credit = MessageCredit { connection: Arc::clone(self), lane, len };
            let message = LinkMessage { bytes: message.bytes, credit };
            // Topics count from 1. An inbox is closed if nothing reads it.
            let _ = inboxes[topic as usize - 1].send(LinkEvent::Message(message));
        }
        Ok(())
    }
}
