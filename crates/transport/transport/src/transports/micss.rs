//! MICSS: several TCP connections, each with a share of every byte, so that an attacker who reads
//! all but one of them learns nothing.
//!
//! The client's connections begin with [`PREAMBLE`], by which the listener recognises them. The
//! threads that run a stream are in the network namespace of the thread that has connected, and of
//! the listener.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use micss::config::{MicssServerConfig, RemoteServerConfig, StreamChannelConfig};
use micss::target::ServiceTarget;
use micss::{MicssListener, MicssStreamEnd, StreamError};
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

use super::tcp;
use crate::options::ConnectionOptions;
use crate::stream::{ByteStream, PathStatistics, Transport};

/// The first bytes of a channel's connection.
pub(crate) const PREAMBLE: &[u8; 10] = b"SNDRMICSS1";

/// How long a channel may be silent before the stream fails.
const LOST_CHANNEL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the last written data may take to be sent after the connection is dropped.
const LAST_BYTES_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest number of streams of a listener, and of its connections without an open stream.
const MAX_STREAMS: usize = 256;

/// See [the module](self).
pub(super) struct MicssTransport;

impl Transport for MicssTransport {
    fn name(&self) -> &'static str {
        "micss"
    }

    fn about(&self) -> &'static str {
        "shares over several TCP connections; addresses separated by commas"
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
    let server = server(channels, options)?;
    let peer = channels[0];
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (limit, (connected, connecting)) = (options.connect_timeout, mpsc::channel());
    let (running, ended) = mpsc::channel::<()>();
    let run = async move {
        // The listener serves all targets.
        let target = ServiceTarget::address((Ipv4Addr::LOCALHOST, 1).into());
        let connect = micss::connect(server, &target, LOST_CHANNEL_TIMEOUT);
        let result = match timeout(limit, connect).await {
            Ok(result) => result.map_err(explain).and_then(micss::MicssStream::into_std),
            Err(_) => Err(io::ErrorKind::TimedOut.into()),
        };
        let end = result.as_ref().ok().map(|(_, end)| end.clone());
        // If the receiver is gone, so is the socket, and the stream ends.
        let _ = connected.send(result);
        if let Some(mut end) = end {
            end.wait().await;
        }
        drop(running);
    };
    thread::Builder::new().name("transport-micss".into()).spawn(move || runtime.block_on(run))?;
    let (socket, end) = connecting.recv().unwrap_or_else(|_| Err(io::ErrorKind::Other.into()))?;
    let running = RunningMicssStream(Mutex::new(ended));
    Ok(Arc::new(MicssByteStream::new(socket, end, peer, running)?))
}

/// The listener, with its channels.
fn server(channels: &[SocketAddr], options: &ConnectionOptions) -> io::Result<RemoteServerConfig> {
    let count = u8::try_from(channels.len()).ok();
    let Some(threshold) = count.filter(|count| (2..=micss::MAX_CHANNELS).contains(count)) else {
        let text = format!("give the addresses of 2 to {} channels", micss::MAX_CHANNELS);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let channel = |address: &SocketAddr| StreamChannelConfig {
        preamble: PREAMBLE,
        max_segment: tcp::max_segment(options),
        ..StreamChannelConfig::to(*address)
    };
    Ok(RemoteServerConfig { channels: channels.iter().map(channel).collect(), threshold })
}

/// The error of a stream that does not open.
fn explain(error: StreamError) -> io::Error {
    match error {
        StreamError::Connect { channel, server, source } => {
            let why = match source.kind() {
                io::ErrorKind::ConnectionRefused => String::from("nobody listens there"),
                _ => source.to_string(),
            };
            let text = format!("channel {} ({server}): {why}", channel + 1);
            io::Error::new(source.kind(), text)
        }
        StreamError::NotGreeted { channel } => {
            let text = format!("channel {}: does Sunder listen there?", channel + 1);
            io::Error::new(io::ErrorKind::TimedOut, text)
        }
        error => io::Error::other(error),
    }
}

/// One end of a stream. `R` keeps what carries it running.
struct MicssByteStream<R: Send + Sync> {
    stream: tcp::TcpByteStream,
    end: MicssStreamEnd,
    peer: SocketAddr,
    /// Dropped after the socket.
    _running: R,
}

/// A thread that runs a stream. When dropped, gives the thread a short time to send the last data:
/// the process might end next.
struct RunningMicssStream(Mutex<Receiver<()>>);

impl Drop for RunningMicssStream {
    fn drop(&mut self) {
        let ended = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        // After that time, data in flight is lost, as when a connection is closed.
        let _ = ended.recv_timeout(LAST_BYTES_TIMEOUT);
    }
}

impl<R: Send + Sync> ByteStream for MicssByteStream<R> {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        self.stream.read(to).map_err(|error| self.explain(error))
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes).map_err(|error| self.explain(error))
    }

    /// The driver continues for a while after this is dropped.
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

    /// The kernel only knows the connection within this host, and nothing about the path.
    fn statistics(&self) -> PathStatistics {
        PathStatistics::default()
    }
}

impl<R: Send + Sync> MicssByteStream<R> {
    fn new(
        socket: TcpStream,
        end: MicssStreamEnd,
        peer: SocketAddr,
        running: R,
    ) -> io::Result<Self> {
        let stream = tcp::TcpByteStream::new(socket, peer)?;
        Ok(Self { stream, end, peer, _running: running })
    }

    /// The error of a stream that has broken says why.
    fn explain(&self, error: io::Error) -> io::Error {
        match self.end.failure() {
            Some(why) => {
                let text = format!(
                    "a channel of micss has failed, was refused, or was changed on the path: {why}"
                );
                io::Error::new(error.kind(), text)
            }
            None => error,
        }
    }
}

/// The MICSS streams of a listener.
pub(crate) struct MicssStreamListener {
    runtime: Option<Runtime>,
    listener: Option<MicssListener>,
}

impl MicssStreamListener {
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("transport-micss")
            .enable_all()
            .build()?;
        let config = MicssServerConfig {
            max_streams: MAX_STREAMS,
            max_waiting: MAX_STREAMS,
            lost_channel_timeout: LOST_CHANNEL_TIMEOUT,
            ..MicssServerConfig::new(Vec::new())
        };
        let listener = runtime.block_on(MicssListener::bind(config))?;
        Ok(Self { runtime: Some(runtime), listener: Some(listener) })
    }

    /// Passes a connection that has sent the preamble to the server.
    pub(crate) fn hand_over(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        stream.set_nonblocking(true)?;
        let (runtime, listener) = self.running()?;
        runtime.block_on(async {
            listener.hand_over(tokio::net::TcpStream::from_std(stream)?, peer).await
        })
    }

    /// The next stream.
    pub(crate) fn accept(self: &Arc<Self>) -> io::Result<Arc<dyn ByteStream>> {
        let (runtime, listener) = self.running()?;
        let (stream, peer) =
            runtime.block_on(listener.accept()).ok_or(io::ErrorKind::NotConnected)?;
        let (socket, end) = stream.into_std()?;
        Ok(Arc::new(MicssByteStream::new(socket, end, peer, Arc::clone(self))?))
    }

    /// Stops accepting: [`Self::accept`] fails.
    pub(crate) fn close(&self) {
        self.listener.iter().for_each(MicssListener::close);
    }

    /// Both exist until it is dropped.
    fn running(&self) -> io::Result<(&Runtime, &MicssListener)> {
        self.runtime.as_ref().zip(self.listener.as_ref()).ok_or(io::ErrorKind::NotConnected.into())
    }
}

/// When the listener and all its streams are dropped, they have a short time to send the last data.
impl Drop for MicssStreamListener {
    fn drop(&mut self) {
        if let (Some(runtime), Some(listener)) = (self.runtime.take(), self.listener.take()) {
            let _ = runtime.block_on(async { timeout(LAST_BYTES_TIMEOUT, listener.stop()).await });
            runtime.shutdown_background();
        }
    }
}
