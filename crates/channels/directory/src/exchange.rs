//! The exchange over a connection: one request, one answer, then the connection ends.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey, KeyFileError};
use random::{RandomError, RandomGenerator};
use service::accept::RoundRobinAcceptor;
use service::connection_limiter::ConnectionLimiter;
use service::listening::{ConfiguredListener, listen};
use service::log::LogRateLimiter;
use socket2::SockRef;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tracing::{debug, warn};

use super::addresses::ChannelAddresses;
use super::config::DirectoryServerConfig;
use super::credentials::DirectoryCredential;
use super::ends::{DirectoryAnswerError, DirectoryRequester, DirectoryResponder};
use super::message::{DirectoryNonce, MAX_REPLY_LEN, REQUEST_LEN};

/// How long a client waits for an answer, including the connection.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a server waits for a request. A client sends it right after it has connected.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a server takes to read a request and answer it.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);

/// The largest number of requests that are served at a time.
const MAX_CONNECTIONS: usize = 64;

/// The largest number of them from one source.
const MAX_CONNECTIONS_OF_SOURCE: usize = 8;

/// Why the addresses of a server were not learnt.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryExchangeError {
    /// It cannot be reached, or the connection breaks.
    #[error("the directory at {server} does not answer: {source}")]
    Connection {
        /// The address that was tried.
        server: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// It does not answer in time.
    #[error("the directory at {server} does not answer within {} s", EXCHANGE_TIMEOUT.as_secs())]
    TimedOut {
        /// Its address.
        server: SocketAddr,
    },
    /// Its answer is rejected.
    #[error("the directory at {server}: {source}")]
    Answer {
        /// Its address.
        server: SocketAddr,
        /// Why.
        source: DirectoryAnswerError,
    },
    /// The system gave no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl DirectoryExchangeError {
    /// Whether an answer came and failed verification.
    pub fn is_tampering(&self) -> bool {
        matches!(self, Self::Answer { source, .. } if source.is_tampering())
    }
}

/// Asks the server at this address for the addresses of its host. A connection with this mark is
/// not intercepted itself.
///
/// # Errors
/// When it cannot be reached or does not answer in time; when its answer is not proven, or does not
/// contain the address that was asked.
pub async fn request_addresses(
    server: SocketAddr,
    credential: &DirectoryCredential,
    mark: Option<u32>,
) -> Result<ChannelAddresses, DirectoryExchangeError> {
    let requester = DirectoryRequester::new(server.ip(), nonce()?, credential);
    let reply =
        timeout(EXCHANGE_TIMEOUT, exchange(server, mark, &requester.request_bytes().encode()))
            .await;
    let reply = reply.map_err(|_| DirectoryExchangeError::TimedOut { server })?;
    let reply = reply.map_err(|source| DirectoryExchangeError::Connection { server, source })?;
    requester
        .verify_reply(&reply)
        .map_err(|source| DirectoryExchangeError::Answer { server, source })
}

/// Sends a request, and returns what is received until the end: at most one byte too many.
async fn exchange(server: SocketAddr, mark: Option<u32>, ask: &[u8]) -> io::Result<Vec<u8>> {
    let socket = socket_for(server)?;
    if let Some(mark) = mark {
        SockRef::from(&socket).set_mark(mark)?;
    }
    let mut stream = socket.connect(server).await?;
    stream.write_all(ask).await?;
    let mut reply = Vec::with_capacity(MAX_REPLY_LEN + 1);
    stream.take(MAX_REPLY_LEN as u64 + 1).read_to_end(&mut reply).await?;
    Ok(reply)
}

fn socket_for(server: SocketAddr) -> io::Result<TcpSocket> {
    if server.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

fn nonce() -> Result<DirectoryNonce, RandomError> {
    Ok(DirectoryNonce::new(RandomGenerator::system().array()?))
}

/// A server that listens for requests, and does not answer yet.
pub struct DirectoryServer {
    responder: DirectoryResponder,
    public_key: Option<IdentityPublicKey>,
    listening: Vec<ConfiguredListener>,
}

/// Why a server cannot answer.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryBindError {
    /// A key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyFileError),
    /// An address cannot be listened on.
    #[error("{0}")]
    Listen(#[from] io::Error),
}

impl DirectoryServer {
    /// Reads the keys, whose files are in the directory `config_dir`, and listens on the addresses
    /// of the configuration.
    ///
    /// # Errors
    /// When a key cannot be read, or an address cannot be listened on.
    pub async fn bind(
        config: &DirectoryServerConfig,
        config_dir: &Path,
    ) -> Result<Self, DirectoryBindError> {
        Self::rebind(config, config_dir, &[]).await
    }

    /// As [`Self::bind`], but reuses existing listeners.
    ///
    /// # Errors
    /// As [`Self::bind`].
    pub async fn rebind(
        config: &DirectoryServerConfig,
        config_dir: &Path,
        before: &[ConfiguredListener],
    ) -> Result<Self, DirectoryBindError> {
        let keys = config.keys(config_dir)?;
        let public_key = keys.secret.as_ref().map(IdentitySecretKey::public);
        let responder = DirectoryResponder::new(config.addresses.clone(), keys);
        let listening = listen(config.listen.iter().copied(), before).await?;
        Ok(Self { responder, public_key, listening })
    }

    /// The addresses where it listens, in the order of the configuration.
    ///
    /// # Errors
    /// When the system does not report them.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listening.iter().map(ConfiguredListener::address).collect()
    }

    /// Its listeners, for use after a reload.
    pub fn listening(&self) -> Vec<ConfiguredListener> {
        self.listening.clone()
    }

    /// The public key that verifies this server's answers, if it signs them.
    pub fn public_key(&self) -> Option<IdentityPublicKey> {
        self.public_key
    }

    /// Answers requests until `stop` is ready, then finishes the connections that it has accepted.
    /// It serves at most 64 at a time, 8 of them from one source. Beyond that, a new connection
    /// closes the oldest of its source, or of the source with the most.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Self { responder, listening, .. } = self;
        let responder = Arc::new(responder);
        let mut answering = ConnectionLimiter::new(MAX_CONNECTIONS, MAX_CONNECTIONS_OF_SOURCE);
        let mut evicted = LogRateLimiter::default();
        tokio::pin!(stop);
        let mut round_robin = RoundRobinAcceptor::default();
        loop {
            tokio::select! {
                () = &mut stop => break,
                (_, stream, peer) = round_robin.accept(&listening) => {
                    let responder = Arc::clone(&responder);
                    let closed = answering.spawn(peer.ip(), async move {
                        match timeout(CONNECTION_TIMEOUT, answer(&responder, stream)).await {
                            Ok(Ok(())) => debug!(%peer, "addresses sent"),
                            Ok(Err(error)) => debug!(%peer, %error, "not a valid request to the directory"),
                            Err(_) => debug!(%peer, "a client of the directory was too slow"),
                        }
                    });
                    if let Some(source) = closed
                        && let Some(closed) = evicted.count_event()
                    {
                        warn!(
                            %source, closed,
                            "connections to the directory closed before they were answered: too many at \
                             once; a firewall can keep their source out"
                        );
                    }
                }
                () = answering.join_next() => {}
            }
        }
        drop(listening);
        // Each of them ends within its time limit.
        answering.join_all().await;
    }
}

async fn answer(responder: &DirectoryResponder, mut stream: TcpStream) -> io::Result<()> {
    let mut ask = [0; REQUEST_LEN];
    timeout(REQUEST_TIMEOUT, stream.read_exact(&mut ask)).await??;
    let nonce = nonce().map_err(io::Error::other)?;
    let reply = responder.answer(&ask, nonce).map_err(io::Error::other)?;
    stream.write_all(&reply.encode()).await?;
    stream.shutdown().await
}

#[cfg(test)]
pub(super) mod tests {
    use std::net::Ipv4Addr;

    use keys::SharedKey;
    use tokio::net::TcpListener;
    use tokio::sync::oneshot;
    use tokio::task::JoinHandle;
    use tokio::time::Instant;

    use super::super::addresses::tests::list;
    use super::super::credentials::DirectoryServerKeys;
    use super::super::message::{DirectoryMessageError, DirectoryRequest};
    use super::*;

    /// A server that answers on loopback until it is dropped.
    pub(crate) struct RunningDirectoryServer {
        pub(crate) address: SocketAddr,
        stop: Option<oneshot::Sender<()>>,
        task: JoinHandle<()>,
    }

    impl RunningDirectoryServer {
        /// It answers with these addresses, and has a key of each kind, made of these bytes.
        pub(crate) async fn start(addresses: &str, key: u8) -> Self {
            let listening = listen([(Ipv4Addr::LOCALHOST, 0).into()], &[]).await.unwrap();
            let address = listening[0].address().unwrap();
            let keys = DirectoryServerKeys {
                shared: Some(SharedKey::new(&[key; 32])),
                secret: Some(IdentitySecretKey::new(&[key; 32])),
            };
            let responder = DirectoryResponder::new(list(addresses), keys);
            let server = DirectoryServer { responder, public_key: None, listening };
            let (stop, stopped) = oneshot::channel();
            let task = tokio::spawn(server.run(async { _ = stopped.await }));
            Self { address, stop: Some(stop), task }
        }

        pub(crate) async fn end(mut self) {
            drop(self.stop.take());
            self.task.await.unwrap();
        }
    }

    fn shared(byte: u8) -> DirectoryCredential {
        DirectoryCredential::Shared(SharedKey::new(&[byte; 32]))
    }

    /// A server that reads one request and answers with `reply`.
    async fn says(reply: impl FnOnce(DirectoryRequest) -> Vec<u8> + Send + 'static) -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut ask = [0; REQUEST_LEN];
            stream.read_exact(&mut ask).await.unwrap();
            stream.write_all(&reply(DirectoryRequest::parse(&ask).unwrap())).await.unwrap();
        });
        address
    }

    fn responder() -> DirectoryResponder {
        let keys = DirectoryServerKeys { shared: Some(SharedKey::new(&[1; 32])), secret: None };
        DirectoryResponder::new(list("127.0.0.1:1"), keys)
    }

    #[tokio::test]
    async fn with_the_right_key_addresses_are_learnt() {
        let addresses = "127.0.0.1:1 198.51.100.1:2";
        let server = RunningDirectoryServer::start(addresses, 1).await;
        let public = DirectoryCredential::Public(IdentitySecretKey::new(&[1; 32]).public());
        for credential in [shared(1), public] {
            assert_eq!(
                request_addresses(server.address, &credential, None).await.unwrap(),
                list(addresses)
            );
        }
        server.end().await;
    }

    #[tokio::test]
    async fn a_server_answers_as_it_is_configured() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("own.key"), "01".repeat(32)).unwrap();
        let config = DirectoryServerConfig {
            listen: vec![(Ipv4Addr::LOCALHOST, 0).into()],
            addresses: list("127.0.0.1:1"),
            shared_key: None,
            secret_key: Some("own.key".into()),
        };
        let server = DirectoryServer::bind(&config, place.path()).await.unwrap();
        let public = server.public_key().unwrap();
        assert_eq!(public, IdentitySecretKey::new(&[1; 32]).public());
        let address = server.local_addresses().unwrap()[0];
        let (_stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async { _ = stopped.await }));
        let learnt =
            request_addresses(address, &DirectoryCredential::Public(public), None).await.unwrap();
        assert_eq!(learnt, list("127.0.0.1:1"));
        let refused = request_addresses(address, &shared(1), None).await.unwrap_err().to_string();
        assert!(refused.contains("the server refuses: it has no key of this kind"), "{refused}");
        let missing = DirectoryServerConfig { shared_key: Some("no.key".into()), ..config };
        assert!(matches!(
            DirectoryServer::bind(&missing, place.path()).await,
            Err(DirectoryBindError::Key(KeyFileError::Missing { .. }))
        ));
    }

    #[tokio::test]
    async fn with_another_key_nothing_is_learnt() {
        let server = RunningDirectoryServer::start("127.0.0.1:1", 1).await;
        let public = DirectoryCredential::Public(IdentitySecretKey::new(&[2; 32]).public());
        for credential in [shared(2), public] {
            let error = request_addresses(server.address, &credential, None).await.unwrap_err();
            assert!(error.is_tampering(), "{error}");
        }
        server.end().await;
    }

    #[tokio::test]
    async fn a_list_without_the_host_that_was_asked_is_refused() {
        let server = RunningDirectoryServer::start("198.51.100.1:2", 1).await;
        let error = request_addresses(server.address, &shared(1), None).await.unwrap_err();
        let DirectoryExchangeError::Answer {
            source: DirectoryAnswerError::AnotherPeer { peer },
            ..
        } = error
        else {
            panic!("{error}");
        };
        assert_eq!(peer, server.address.ip());
        server.end().await;
    }

    #[tokio::test]
    async fn garbage_is_refused() {
        for garbage in [b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), vec![0; 1 << 20]] {
            let server = says(|_| garbage).await;
            let error = request_addresses(server, &shared(1), None).await.unwrap_err();
            // A server that sends too much may be disconnected before it has been read.
            let is_refused = matches!(
                error,
                DirectoryExchangeError::Answer {
                    source: DirectoryAnswerError::Message(DirectoryMessageError::Magic),
                    ..
                } | DirectoryExchangeError::Connection { .. }
            );
            assert!(is_refused && !error.is_tampering(), "{error}");
        }
    }

    #[tokio::test]
    async fn a_replayed_answer_is_rejected() {
        let nonce = DirectoryNonce::new([7; 32]);
        let older = DirectoryRequester::new((Ipv4Addr::LOCALHOST).into(), nonce, &shared(1))
            .request_bytes();
        let replay = responder().answer(&older.encode(), nonce).unwrap().encode();
        let server = says(|_| replay).await;
        let error = request_addresses(server, &shared(1), None).await.unwrap_err();
        assert!(error.is_tampering(), "{error}");
    }

    #[tokio::test]
    async fn bytes_after_the_answer_are_refused() {
        let reply = |ask: DirectoryRequest| {
            responder().answer(&ask.encode(), DirectoryNonce::new([7; 32])).unwrap().encode()
        };
        let server = says(reply).await;
        assert_eq!(request_addresses(server, &shared(1), None).await.unwrap(), list("127.0.0.1:1"));
        let server = says(move |ask| [reply(ask), vec![0]].concat()).await;
        let error = request_addresses(server, &shared(1), None).await.unwrap_err();
        let trailing = DirectoryAnswerError::Message(DirectoryMessageError::Trailing);
        assert!(
            matches!(error, DirectoryExchangeError::Answer { source, .. } if source == trailing)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_times_out() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let server = listener.local_addr().unwrap();
        let error = request_addresses(server, &shared(1), None).await.unwrap_err();
        assert!(matches!(error, DirectoryExchangeError::TimedOut { .. }), "{error}");
        drop(listener);
        let error = request_addresses(server, &shared(1), None).await.unwrap_err();
        assert!(!error.is_tampering(), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_closes_at_once_says_nothing() {
        let server = says(|_| Vec::new()).await;
        let error = request_addresses(server, &shared(1), None).await.unwrap_err();
        assert!(!error.is_tampering(), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_times_out() {
        let server = RunningDirectoryServer::start("127.0.0.1:1", 1).await;
        let mut silent = TcpStream::connect(server.address).await.unwrap();
        silent.write_all(b"SNDD").await.unwrap();
        let (mut received, asked) = (Vec::new(), Instant::now());
        // A reset, because the server has not read everything, or an end.
        let _ = silent.read_to_end(&mut received).await;
        assert!(received.is_empty());
        assert!(asked.elapsed() < REQUEST_TIMEOUT * 2, "{:?}", asked.elapsed());
        server.end().await;
    }

    /// From the client's own address, and from another.
    #[tokio::test]
    async fn silent_connections_do_not_exclude_other_clients() {
        for source in [Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2)] {
            let server = RunningDirectoryServer::start("127.0.0.1:1", 1).await;
            let mut silent = Vec::new();
            for _ in 0..=MAX_CONNECTIONS {
                let socket = socket_for(server.address).unwrap();
                socket.bind((source, 0).into()).unwrap();
                silent.push(socket.connect(server.address).await.unwrap());
            }
            // Connections are accepted in the order in which they were made.
            let learnt = request_addresses(server.address, &shared(1), None).await.unwrap();
            assert_eq!(learnt, list("127.0.0.1:1"));
            server.end().await;
        }
    }
}
