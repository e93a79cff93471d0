//! The relay itself.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use service::accept::RoundRobin;
use service::connection_limiter::ConnectionLimiter;
use service::listening::{Listening, listen};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, interval, sleep, timeout, timeout_at};
use tracing::{debug, info};

use crate::protocol::relay::{Answer, REQUEST_LEN, Request, Token};

/// The most connections that have not asked for anything yet, or look for who waits.
const MAX_ARRIVING: usize = 512;

/// The most of these of one source.
const MAX_ARRIVING_OF_SOURCE: usize = 32;

/// How long a connection may take to ask for something.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long who connects waits for who is to wait under its token.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections that wait.
const MAX_WAITING: usize = 1024;

/// The most of these of one source.
const MAX_WAITING_OF_SOURCE: usize = 32;

/// How often who waits is told that it does, which also keeps address translation from forgetting
/// the connection.
const WAITING_INTERVAL: Duration = Duration::from_secs(15);

/// The most pairs of parties.
const MAX_PAIRS: usize = 512;

/// How long a pair may be silent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The bytes that wait in each direction of a pair, beside those in the kernel.
const BUFFER_LEN: usize = 256 << 10;

/// Why a relay cannot listen.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RelayError(#[from] io::Error);

/// A relay that listens. It knows addresses, times and lengths, and no key.
pub struct Relay {
    listening: Vec<Listening>,
    state: Arc<State>,
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Relay").finish_non_exhaustive()
    }
}

#[derive(Default)]
struct State {
    waiting: Mutex<Waiting>,
    /// Somebody begins to wait.
    changed: Notify,
}

#[derive(Default)]
struct Waiting {
    /// Oldest first.
    entries: VecDeque<Entry>,
    next: u64,
}

struct Entry {
    number: u64,
    token: Token,
    source: IpAddr,
    /// Asks for the connection.
    take: oneshot::Sender<oneshot::Sender<TcpStream>>,
}

impl Relay {
    /// Listens at an address.
    ///
    /// # Errors
    /// When the system refuses.
    pub async fn bind(address: SocketAddr) -> Result<Self, RelayError> {
        let listening = listen([address], &[]).await?;
        Ok(Self { listening, state: Arc::default() })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not report it.
    pub fn local_addr(&self) -> Result<SocketAddr, RelayError> {
        let first = self.listening.first().ok_or(io::ErrorKind::NotConnected);
        Ok(first.map_err(io::Error::from)?.address()?)
    }

    /// Relays until `stop` ends.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut arriving = ConnectionLimiter::new(MAX_ARRIVING, MAX_ARRIVING_OF_SOURCE);
        let pairs = Arc::new(Semaphore::new(MAX_PAIRS));
        let mut round_robin = RoundRobin::default();
        let accepting = async {
            loop {
                let (_, stream, from) = round_robin.accept(&self.listening).await;
                let (state, pairs) = (self.state.clone(), pairs.clone());
                arriving.spawn(from.ip(), serve(stream, from, state, pairs));
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop => {}
        }
    }
}

/// Does what one connection asks for.
async fn serve(mut stream: TcpStream, from: SocketAddr, state: Arc<State>, pairs: Arc<Semaphore>) {
    let mut request = zeroize::Zeroizing::new([0; REQUEST_LEN]);
    let read = timeout(REQUEST_TIMEOUT, stream.read_exact(&mut *request)).await;
    if !matches!(read, Ok(Ok(_))) {
        return;
    }
    match Request::parse(&request) {
        // In a task of its own, which is not ended for those who arrive.
        Some(Request::Wait(secret)) => state.wait(stream, from, secret.token()),
        Some(Request::Connect(token)) => match pairs.try_acquire_owned() {
            Ok(permit) => state.connect(stream, from, token, permit).await,
            Err(_) => _ = stream.write_all(&[Answer::Refused as u8]).await,
        },
        None => _ = stream.write_all(&[Answer::Refused as u8]).await,
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a connection until somebody connects under its token.
    fn wait(self: &Arc<Self>, stream: TcpStream, from: SocketAddr, token: Token) {
        let (take, taken) = oneshot::channel();
        let number = self.lock().add(token, from.ip(), take);
        info!(%from, "waits");
        self.changed.notify_waiters();
        let state = self.clone();
        tokio::spawn(async move {
            keep(stream, taken).await;
            state.lock().entries.retain(|entry| entry.number != number);
        });
    }

    /// Finds who waits under a token.
    async fn connect(
        self: Arc<Self>,
        mut stream: TcpStream,
        from: SocketAddr,
        token: Token,
        permit: OwnedSemaphorePermit,
    ) {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        loop {
            let changed = self.changed.notified();
            if let Some(other) = self.take(token).await {
                if stream.write_all(&[Answer::Connected as u8]).await.is_ok() {
                    info!(%from, "is connected");
                    // In a task of its own, which is not ended for those who arrive.
                    tokio::spawn(async move {
                        splice(stream, other).await;
                        info!(%from, "has ended");
                        drop(permit);
                    });
                }
                return;
            }
            if timeout_at(deadline, changed).await.is_err() {
                debug!(%from, "asks for a token under which nobody waits");
                let _ = stream.write_all(&[Answer::Nobody as u8]).await;
                return;
            }
        }
    }

    /// The connection of who waits under a token, who has been told.
    async fn take(&self, token: Token) -> Option<TcpStream> {
        loop {
            let entry = self.lock().remove(token)?;
            let (give, given) = oneshot::channel();
            if entry.take.send(give).is_ok()
                && let Ok(stream) = given.await
            {
                return Some(stream);
            }
            // It has just ended.
        }
    }
}

impl Waiting {
    /// Adds a connection. If there are too many, the oldest of its source is ended, or the oldest
    /// of the source with the most.
    fn add(
        &mut self,
        token: Token,
        source: IpAddr,
        take: oneshot::Sender<oneshot::Sender<TcpStream>>,
    ) -> u64 {
        let count = |source| self.entries.iter().filter(|entry| entry.source == source).count();
        let crowded = if count(source) >= MAX_WAITING_OF_SOURCE {
            Some(source)
        } else if self.entries.len() >= MAX_WAITING {
            self.entries.iter().map(|entry| entry.source).max_by_key(|source| count(*source))
        } else {
            None
        };
        let oldest = self.entries.iter().position(|entry| Some(entry.source) == crowded);
        if let Some(oldest) = oldest {
            // Its task sees that nobody can ask for it any more.
            self.entries.remove(oldest);
        }
        self.next += 1;
        self.entries.push_back(Entry { number: self.next, token, source, take });
        self.next
    }

    /// The newest under a token: it is the likeliest to be alive.
    fn remove(&mut self, token: Token) -> Option<Entry> {
        let newest = self.entries.iter().rposition(|entry| entry.token == token)?;
        self.entries.remove(newest)
    }
}

/// Keeps a connection that waits, until it is asked for, or has ended.
async fn keep(mut stream: TcpStream, mut taken: oneshot::Receiver<oneshot::Sender<TcpStream>>) {
    let mut ticks = interval(WAITING_INTERVAL);
    loop {
        tokio::select! {
            asked = &mut taken => {
                if let Ok(give) = asked
                    && stream.write_all(&[Answer::Connected as u8]).await.is_ok()
                {
                    let _ = give.send(stream);
                }
                return;
            }
            _ = ticks.tick() => {
                if stream.write_all(&[Answer::Waiting as u8]).await.is_err() {
                    return;
                }
            }
            // It has nothing to say before it is connected.
            _ = stream.readable() => {
                match stream.try_read(&mut [0]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
        }
    }
}

/// Passes on what two parties send each other, until both have ended, one has failed, or both are
/// silent for long.
async fn splice(one: TcpStream, two: TcpStream) {
    let start = Instant::now();
    let active = AtomicU64::new(0);
    let (one_from, one_to) = one.into_split();
    let (two_from, two_to) = two.into_split();
    let both = async {
        tokio::try_join!(
            copy(one_from, two_to, start, &active),
            copy(two_from, one_to, start, &active)
        )
    };
    let idle = async {
        loop {
            sleep(IDLE_TIMEOUT / 10).await;
            let last = Duration::from_secs(active.load(Ordering::Relaxed));
            if start.elapsed().saturating_sub(last) >= IDLE_TIMEOUT {
                return;
            }
        }
    };
    tokio::select! {
        _ = both => {}
        () = idle => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    start: Instant,
    active: &AtomicU64,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let count = from.read(&mut buffer).await?;
        active.store(start.elapsed().as_secs(), Ordering::Relaxed);
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        active.store(start.elapsed().as_secs(), Ordering::Relaxed);
    }
}
