//! MICSS: several TCP connections, each with a share of every byte, so that an attacker who reads
//! all but one of them learns nothing.
//!
//! A connection uses a MICSS client at one end and the listener's MICSS server at the other. Each
//! is connected to its end by a TCP connection on loopback. The client's connections begin with
//! [`PREAMBLE`], by which the listener recognises them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use micss::client::MicssClient;
use micss::config::{MicssClientConfig, MicssServerConfig};
use micss::server::{MicssServer, MicssServerHandle};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Transport, tcp};
use crate::options::{ConnectionOptions, ConnectionSecurity};
use crate::stream::{ByteStream, PathStatistics};

/// The first bytes of a channel's connection.
pub(crate) const PREAMBLE: &[u8; 10] = b"SNDRMICSS1";

/// The target address that the client requests. The server ignores it and connects to its listener.
const TARGET: &str = "127.0.0.1:1";

/// How long a channel may be silent before the stream fails.
const LOST_CHANNEL_TIMEOUT_S: u32 = 30;

const CHANNEL_FAILED: &str =
    "a channel of micss has failed, was refused, or was changed on the path";

/// The time limit for checking whether a channel's server can be reached.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the last written data may take to be sent after the connection is dropped.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(5);

/// See [the module](self).
pub(super) struct MicssTransport;

impl Transport for MicssTransport {
    fn name(&self) -> &'static str {
        "micss"
    }

    fn about(&self) -> &'static str {
        "shares over several TCP connections; give an address for each, separated by commas"
    }

    fn connect(
        &self,
        _to: SocketAddr,
        _options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let text = "micss needs an address for each channel, at least two: HOST:PORT,HOST:PORT";
        Err(io::Error::new(io::ErrorKind::InvalidInput, text))
    }
}

/// Connects over these channels.
pub(crate) fn connect(
    channels: &[SocketAddr],
    options: &ConnectionOptions,
) -> io::Result<Arc<dyn ByteStream>> {
    use std::fmt::Write as _;
    let mut text = format!("lost_channel_timeout_s = {LOST_CHANNEL_TIMEOUT_S}\n");
    let _ = write!(text, "[[forward]]\nlisten = '127.0.0.1:0'\ntarget = '{TARGET}'\n");
    for address in channels {
        let _ = write!(text, "[[channel]]\nserver = '{address}'\n");
    }
    let mut config = MicssClientConfig::from_toml(&text).map_err(io::Error::other)?;
    for channel in config.gateway.iter_mut().flat_map(|remote| &mut remote.channels) {
        channel.preamble = PREAMBLE;
        channel.max_segment = tcp::max_segment(options);
    }
    // The client carries only one stream.
    (config.pool.size, config.pool.keep) = (0, 0);
    let runtime = runtime()?;
    let client = runtime.block_on(MicssClient::bind(config))?;
    let forward = client.local_addresses()?.first().copied();
    let forward = forward.ok_or(io::ErrorKind::AddrNotAvailable)?;
    let (stop, stopped) = oneshot::channel::<()>();
    let task = runtime.spawn(client.run(async { _ = stopped.await }));
    let stream = tcp::TcpByteStream::to_loopback(forward)?;
    let peer = channels.first().copied().unwrap_or(forward);
    let running = RunningMicssEndpoint { runtime: Some(runtime), stop: Some(stop), task };
    let addresses = channels.to_vec();
    Ok(Arc::new(MicssByteStream { stream, peer, addresses, _running: Arc::new(running) }))
}

fn runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("transport-micss")
        .enable_all()
        .build()
}

/// One end of a stream, and the MICSS client or server that carries it.
struct MicssByteStream<R: Send + Sync> {
    stream: tcp::TcpByteStream,
    peer: SocketAddr,
    /// The addresses of the channels, at the connecting end.
    addresses: Vec<SocketAddr>,
    _running: Arc<R>,
}

/// A running client or server. When dropped, it accepts no more streams, and has a short time to
/// send the last data.
struct RunningMicssEndpoint {
    runtime: Option<Runtime>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Drop for RunningMicssEndpoint {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(runtime) = self.runtime.take() else { return };
        let task = &mut self.task;
        runtime.block_on(async {
            // After that time, data in flight is lost, as when a connection is closed.
            let _ = timeout(LAST_BYTES_TIMEOUT, task).await;
        });
        runtime.shutdown_background();
    }
}

impl<R: Send + Sync> ByteStream for MicssByteStream<R> {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.read(to).map_err(|error| self.explain(error))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes).map_err(|error| self.explain(error))
    }

    /// The client continues for a while after this is dropped.
    fn finish(&self) -> io::Result<()> {
        self.stream.finish()
    }

    fn close(&self) {
        self.stream.close();
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.stream.set_timeout(timeout)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn transport(&self) -> &'static str {
        "micss"
    }

    /// The kernel only knows the loopback connection, and nothing about the path.
    fn statistics(&self) -> PathStatistics {
        PathStatistics::default()
    }
}

impl<R: Send + Sync> MicssByteStream<R> {
    /// The client resets its connection when a channel fails. If there is a channel whose server
    /// cannot be reached, the error names the first one.
    fn explain(&self, error: io::Error) -> io::Error {
        if !matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe) {
            return error;
        }
        for (place, address) in self.addresses.iter().enumerate() {
            if let Err(failed) = TcpStream::connect_timeout(address, CHECK_TIMEOUT) {
                let why = match failed.kind() {
                    io::ErrorKind::ConnectionRefused => String::from("nobody listens there"),
                    _ => failed.to_string(),
                };
                let text = format!("{CHANNEL_FAILED}: channel {} ({address}): {why}", place + 1);
                return io::Error::new(failed.kind(), text);
            }
        }
        io::Error::new(error.kind(), CHANNEL_FAILED)
    }
}

/// The MICSS server of a listener.
pub(crate) struct MicssStreamListener {
    running: RunningMicssEndpoint,
    handle: MicssServerHandle,
    /// The socket to which the server connects its clients' streams.
    service: tcp::TcpTransportListener,
}

impl MicssStreamListener {
    pub(crate) fn start() -> io::Result<Self> {
        let plain = ConnectionOptions::new(ConnectionSecurity::Insecure);
        let service = tcp::TcpTransportListener::bind((Ipv4Addr::LOCALHOST, 0).into(), &plain)?;
        let text = format!(
            "listen = ['127.0.0.1:0']\nallow = ['{TARGET}']\nmax_channels = 16\n\
             max_waiting = 256\nmax_streams = 256\n\
             lost_channel_timeout_s = {LOST_CHANNEL_TIMEOUT_S}\n"
        );
        let mut config = MicssServerConfig::from_toml(&text).map_err(io::Error::other)?;
        config.service = Some(service.local_addr()?);
        let runtime = runtime()?;
        let server = runtime.block_on(MicssServer::bind(config))?;
        let (stop, stopped) = oneshot::channel();
        let handle = server.handle();
        let task = runtime.spawn(server.run(async { _ = stopped.await }));
        let running = RunningMicssEndpoint { runtime: Some(runtime), stop: Some(stop), task };
        Ok(Self { running, handle, service })
    }

    /// Passes a connection that has sent the preamble to the server.
    pub(crate) fn hand_over(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let runtime = self.running.runtime.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        runtime.block_on(async {
            self.handle.hand_over(tokio::net::TcpStream::from_std(stream)?, peer).await
        })
    }

    /// The next stream.
    pub(crate) fn accept(self: &Arc<Self>) -> io::Result<Arc<dyn ByteStream>> {
        let stream = self.service.accept(&ConnectionOptions::new(ConnectionSecurity::Insecure))?;
        // Only the server knows which clients the channels belong to.
        let peer = stream.peer_addr();
        let addresses = Vec::new();
        Ok(Arc::new(MicssByteStream { stream, peer, addresses, _running: self.clone() }))
    }

    /// Stops accepting: [`Self::accept`] fails.
    pub(crate) fn close(&self) {
        self.service.close();
    }
}
