//! MICSS as a library: a program opens and accepts streams itself, without the two proxies.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use random::RandomSource;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::config::{
    ConnectionPoolConfig, Integrity, LostChannelPolicy, MicssServerConfig, RemoteServerConfig,
};
use crate::net::client::opening::open;
use crate::net::client::pool::ConnectionPool;
use crate::net::server::{MicssServer, MicssServerHandle};
use crate::net::stream::program::{MicssStream, StreamAcceptor};
use crate::protocol::on_lost_channel::LostChannelAction;
use crate::protocol::open_request::OpenRequest;
use crate::protocol::target::ServiceTarget;
use crate::{MAX_CHANNELS, StreamError};

/// The largest number of streams that the program has not accepted yet.
const MAX_UNACCEPTED: usize = 64;

/// A connecting program has one stream, so no connections are kept for others.
const NO_POOL: ConnectionPoolConfig =
    ConnectionPoolConfig { size: 0, keep: 0, idle: Duration::ZERO };

/// Opens a stream to a service behind a server, or to a program that [listens](MicssListener). The
/// program may write at once. Must be called in a tokio runtime with time and network enabled.
///
/// # Errors
/// If the channels or the threshold are out of range, if fewer channels than the threshold can be
/// connected, or if there are no random bytes.
pub async fn connect(
    server: RemoteServerConfig,
    target: &ServiceTarget,
    lost_channel_timeout: Duration,
) -> Result<MicssStream, StreamError> {
    let threshold = usize::from(server.threshold);
    if server.channels.len() > MAX_CHANNELS.into()
        || !(1..=server.channels.len()).contains(&threshold)
    {
        return Err(StreamError::ChannelCount);
    }
    let policy =
        LostChannelPolicy { new_streams: LostChannelAction::Fail, timeout: lost_channel_timeout };
    let pool = ConnectionPool::new(server, None, NO_POOL, policy);
    let (integrity, rng) = (Integrity::TamperCode, RandomSource::Seeded);
    let set = pool.take().await?;
    let mut driver =
        open(&pool, set, integrity, rng, &OpenRequest::service(target.clone()), false)?;
    let (stream, application, failure) = MicssStream::new().await?;
    driver.report_failure_to(failure);
    driver.connect(application);
    tokio::spawn(async move {
        // The pool monitors the channels. The program has the reason if the stream breaks.
        let (_pool, _result) = (pool, driver.run().await);
    });
    Ok(stream)
}

/// Accepts streams for a program. When it is dropped, it accepts no more, and its streams may run
/// for a limited time ([`MicssServer::run`]).
pub struct MicssListener {
    handle: MicssServerHandle,
    addresses: Vec<SocketAddr>,
    accepted: Mutex<mpsc::Receiver<(MicssStream, SocketAddr)>>,
    is_closed: watch::Sender<bool>,
    stop: oneshot::Sender<()>,
    server: JoinHandle<()>,
}

impl MicssListener {
    /// Accepts streams at the addresses of a [configuration](MicssServerConfig::new), one for each
    /// channel. Without addresses, all connections are [handed over](Self::hand_over). The
    /// program serves all targets. Must be called in a tokio runtime with time and network enabled.
    ///
    /// # Errors
    /// If an address is not available; the error names it.
    pub async fn bind(config: MicssServerConfig) -> io::Result<Self> {
        let (sender, accepted) = mpsc::channel(MAX_UNACCEPTED);
        let server = MicssServer::bind_for(config, Some(StreamAcceptor(sender))).await?;
        let (handle, addresses) = (server.handle(), server.local_addresses()?);
        let (stop, stopped) = oneshot::channel();
        let server = tokio::spawn(server.run(async { _ = stopped.await }));
        let (accepted, is_closed) = (Mutex::new(accepted), watch::Sender::new(false));
        Ok(Self { handle, addresses, accepted, is_closed, stop, server })
    }

    /// The addresses on which it listens, in the order of the configuration.
    pub fn local_addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Takes a connection that the program has accepted, after its preamble.
    ///
    /// # Errors
    /// If the server has stopped.
    pub async fn hand_over(&self, connection: TcpStream, peer: SocketAddr) -> io::Result<()> {
        self.handle.hand_over(connection, peer).await
    }

    /// The next stream, and the address of the client's first channel. `None` once it is
    /// [closed](Self::close).
    pub async fn accept(&self) -> Option<(MicssStream, SocketAddr)> {
        let mut is_closed = self.is_closed.subscribe();
        tokio::select! {
            biased;
            _ = is_closed.wait_for(|is_closed| *is_closed) => None,
            next = async { self.accepted.lock().await.recv().await } => next,
        }
    }

    /// Accepts no more streams. Those that it has accepted are not affected.
    pub fn close(&self) {
        self.is_closed.send_replace(true);
    }

    /// Accepts no more connections, and waits for its streams for a limited time.
    pub async fn stop(self) {
        drop(self.stop);
        // It only fails if the server has panicked.
        let _ = self.server.await;
    }
}
