//! New connections of a stream's channels, which replace others: at a client the connections that
//! it opens, at a server those that arrive. [`Stream`](crate::protocol::stream::Stream) decides.

use std::future::pending;
use std::pin::Pin;
use std::time::Duration;

use association::{ConnectionCookie, Rejoin};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::net::stream::connection::ChannelConnection;
use crate::protocol::rejoin::ANSWER_LEN;

/// The time limit for a connection to be established and receive its cookie, and for the answer on
/// it. Each takes two round trips.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection that is being established. `None` if that fails.
pub(crate) type ChannelConnectFuture =
    Pin<Box<dyn Future<Output = Option<(TcpStream, ConnectionCookie)>> + Send>>;

/// Connects the channel with this index in the configuration, and reads its cookie.
pub(crate) type ChannelConnector = Box<dyn Fn(usize) -> ChannelConnectFuture + Send + Sync>;

/// A connection whose client has proven that it may replace a channel's.
pub(crate) struct RejoinClaim {
    pub(crate) rejoin: Rejoin,
    pub(crate) cookie: ConnectionCookie,
    pub(crate) connection: ChannelConnection,
}

/// A step of a new connection.
pub(super) enum RejoinEvent {
    /// At a client: it has a cookie.
    Greeted(usize, TcpStream, ConnectionCookie),
    /// At a client: the server has answered on it.
    Answered(usize, TcpStream, Vec<u8>),
    /// At a client: it has failed, possibly because the server has closed it instead of answering.
    Failed { channel: usize, is_refused: bool },
    /// At a server: it has arrived.
    Claimed(Box<RejoinClaim>),
}

/// The new connections of a stream.
#[derive(Default)]
pub(super) struct RejoinAttempts {
    connect: Option<ChannelConnector>,
    attempts: JoinSet<RejoinEvent>,
    claims: Option<mpsc::Receiver<RejoinClaim>>,
}

impl RejoinAttempts {
    /// At a client: sets the function that connects channels.
    pub(super) fn connect_by(&mut self, connect: ChannelConnector) {
        self.connect = Some(connect);
    }

    /// At a server: sets the receiver of connections.
    pub(super) fn receive(&mut self, claims: mpsc::Receiver<RejoinClaim>) {
        self.claims = Some(claims);
    }

    /// Starts to connect a channel of the stream, which has index `place` in the configuration.
    pub(super) fn begin(&mut self, channel: usize, place: usize) {
        let connecting = self.connect.as_ref().map(|connect| connect(place));
        self.attempts.spawn(async move {
            let failed = RejoinEvent::Failed { channel, is_refused: false };
            let Some(connecting) = connecting else { return failed };
            match timeout(ATTEMPT_TIMEOUT, connecting).await {
                Ok(Some((stream, cookie))) => RejoinEvent::Greeted(channel, stream, cookie),
                _ => failed,
            }
        });
    }

    /// Sends an offer on a new connection, and waits for the answer.
    pub(super) fn offer(&mut self, channel: usize, mut stream: TcpStream, offer: Vec<u8>) {
        self.attempts.spawn(async move {
            let mut answer = vec![0; ANSWER_LEN];
            let exchange = async {
                stream.write_all(&offer).await?;
                stream.read_exact(&mut answer).await
            };
            match timeout(ATTEMPT_TIMEOUT, exchange).await {
                Ok(Ok(_)) => RejoinEvent::Answered(channel, stream, answer),
                answered => RejoinEvent::Failed { channel, is_refused: answered.is_ok() },
            }
        });
    }

    /// The next step of any of them. Cancellation-safe.
    pub(super) async fn next(&mut self) -> RejoinEvent {
        let Self { attempts, claims, .. } = self;
        tokio::select! {
            Some(Ok(step)) = attempts.join_next() => step,
            Some(claim) = receive(claims.as_mut()) => RejoinEvent::Claimed(Box::new(claim)),
            else => pending().await,
        }
    }
}

async fn receive(claims: Option<&mut mpsc::Receiver<RejoinClaim>>) -> Option<RejoinClaim> {
    claims?.recv().await
}
