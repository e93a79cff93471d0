//! The choice for a connection that is being made.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::cache::{Cache, now};
use super::decide::{Decision, decide};
use super::examine::without_udp;
use super::known::Known;
use crate::model::{Exchange, Path, predict};
use crate::options::{Options, PathEstimate, Security};
use crate::probe::{self, Losses};
use crate::stream::ByteStream;
use crate::transports::{self, names};

/// An exchange of which nothing is known.
const ASSUMED: Exchange = Exchange { sent: 1_000_000, received: 1_000_000, rounds: 1 };
/// For an exchange this small nothing is measured.
const TINY_BYTES: u64 = 16 << 10;
const TINY_ROUNDS: u32 = 3;
/// UDP does not pass if it takes this many times as long as TCP to answer, and this long.
const UDP_PATIENCE: u32 = 3;
const MIN_UDP_PATIENCE: Duration = Duration::from_millis(50);
/// What measuring the rates takes, in round trips.
const RATES_ROUND_TRIPS: f64 = 2.5;
/// The rates (bytes/s) and losses that a path of which only the round-trip time is known may have.
const POSSIBLE_RATES: [f64; 6] = [1.25e5, 1.25e6, 1.25e7, 5e7, 1.25e8, 1.25e9];
const POSSIBLE_LOSSES: [f64; 3] = [0.0, 0.0005, 0.01];
/// A choice without the rates is good enough if it takes this much more time than the best at most.
const GOOD_ENOUGH: f64 = 1.1;
/// Of the whole exchange, measuring may take this share.
const MEASURING_SHARE: f64 = 0.02;
/// What a transport is charged that could not connect.
const FAILED: u32 = 8;

/// A choice that was made for a connection.
pub(crate) struct Chosen {
    pub(crate) decision: Decision,
    /// What the transport may know of the path.
    pub(crate) estimate: Option<PathEstimate>,
    /// A TCP connection that was made meanwhile.
    pub(crate) tcp: Option<Arc<dyn ByteStream>>,
    cache: Cache,
    key: String,
    exchange: Exchange,
    is_announced: bool,
    is_secure: bool,
    path: Option<Path>,
    started_at: Instant,
}

impl std::fmt::Debug for Chosen {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Chosen").field("decision", &self.decision).finish_non_exhaustive()
    }
}

/// Chooses a transport for a connection to a listener. What the path is like is taken from what is
/// remembered, or measured while TCP connects.
pub(crate) fn choose(to: SocketAddr, options: &Options) -> Chosen {
    if to.ip().is_loopback() {
        let plain = Choosing::new(to, options, Cache::of_user());
        return plain.without_path("tcp is the fastest on one host");
    }
    Choosing::new(to, options, Cache::of_user()).choose()
}

struct Choosing<'a> {
    to: SocketAddr,
    options: &'a Options,
    cache: Cache,
    key: String,
    exchange: Exchange,
    is_secure: bool,
}

impl<'a> Choosing<'a> {
    fn new(to: SocketAddr, options: &'a Options, cache: Cache) -> Self {
        let exchange = options.exchange.unwrap_or(ASSUMED);
        let is_secure = !matches!(options.security, Security::Insecure);
        Self { to, options, cache, key: key(to), exchange, is_secure }
    }

    fn choose(self) -> Chosen {
        let now = now();
        let paths = self.cache.read();
        let known = paths.get(&self.key);
        if let Some(known) = known
            && (known.is_fresh(now) || self.is_tiny())
            && !(known.path.udp_passes && !known.has_rates && self.needs_rates(&known.path))
        {
            return self.decided(known, now, None);
        }
        if self.is_tiny() {
            return self.without_path("so small an exchange is not worth measuring the path");
        }
        self.measure(known.map_or(Losses::default(), |known| known.losses(now)))
    }

    fn is_tiny(&self) -> bool {
        let Exchange { sent, received, .. } = self.exchange;
        sent.saturating_add(received) <= TINY_BYTES && self.exchange.rounds() <= TINY_ROUNDS
    }

    /// Measures the path while TCP connects.
    fn measure(self, earlier: Losses) -> Chosen {
        let started_at = Instant::now();
        let mut tcp = Connecting::start(self.to, self.options);
        let own = probe::info(self.options.congestion.as_deref());
        let mut measures_rates = false;
        let measured = probe::probe(
            self.to,
            |measured| {
                measures_rates = self.needs_rates(&measured.path(&own, earlier));
                measures_rates
            },
            || {
                tcp.connected_after().is_none_or(|connected_after| {
                    let patience = (connected_after * UDP_PATIENCE).max(MIN_UDP_PATIENCE);
                    started_at.elapsed() < connected_after + patience
                })
            },
        );
        let (path, losses) = if let Ok(Some(measured)) = measured {
            (measured.path(&own, earlier), measured.losses())
        } else {
            let connected = tcp.connected_after().unwrap_or_else(|| started_at.elapsed());
            (without_udp(connected, &own), Losses::default())
        };
        let now = now();
        let has_rates = measures_rates && path.udp_passes;
        let mut known = None;
        let cache = self.cache.clone();
        cache.update(|paths| {
            paths.measured(&self.key, &path, has_rates, losses, now);
            known = paths.get(&self.key).cloned();
        });
        let known = known.unwrap_or_else(|| Known::new(&path, has_rates, losses, now));
        self.decided(&known, now, Some(tcp))
    }

    /// Whether the choice depends on rates that are not known, by more than it takes to measure
    /// them; or measuring is no matter beside the exchange.
    fn needs_rates(&self, path: &Path) -> bool {
        let cost = RATES_ROUND_TRIPS * path.round_trip.as_secs_f64();
        let mut paths = Vec::new();
        for rate in POSSIBLE_RATES {
            for loss in POSSIBLE_LOSSES {
                let mut path = Path { loss, ..path.clone() };
                (path.up.rate, path.down.rate) = (rate, rate);
                let all = decide(transport_names(), &path, self.exchange, self.is_secure, |_| 1.0);
                let times = all.candidates.into_iter().filter(|it| it.is_eligible);
                let times: Vec<(&str, f64)> = times
                    .filter_map(|it| Some((it.transport, it.predicted.ok()?.as_secs_f64())))
                    .collect();
                paths.push(times);
            }
        }
        let best = |times: &[(&str, f64)]| times.iter().map(|it| it.1).fold(f64::MAX, f64::min);
        let shortest = paths.iter().map(|times| best(times)).fold(f64::MAX, f64::min);
        if cost <= shortest * MEASURING_SHARE {
            return true;
        }
        // Whether there is a transport that is good enough on all of these paths.
        !transport_names().any(|name| {
            paths.iter().all(|times| {
                let best = best(times);
                times.iter().any(|(transport, time)| {
                    *transport == name && (*time <= best * GOOD_ENOUGH || *time <= best + cost)
                })
            })
        })
    }

    fn decided(self, known: &Known, now: u64, tcp: Option<Connecting>) -> Chosen {
        let path = &known.path;
        let decision =
            decide(transport_names(), path, self.exchange, self.is_secure, |transport| {
                known.correction(transport, now)
            });
        let estimate = known.estimate();
        let tcp = tcp.and_then(|tcp| tcp.take(decision.transport));
        self.chosen(decision, Some(path.clone()), estimate, tcp)
    }

    fn without_path(self, reason: &str) -> Chosen {
        let decision = Decision {
            transport: "tcp",
            predicted: None,
            reason: reason.to_owned(),
            candidates: Vec::new(),
        };
        self.chosen(decision, None, None, None)
    }

    fn chosen(
        self,
        decision: Decision,
        path: Option<Path>,
        estimate: Option<PathEstimate>,
        tcp: Option<Arc<dyn ByteStream>>,
    ) -> Chosen {
        let Self { options, cache, key, exchange, is_secure, .. } = self;
        Chosen {
            decision,
            estimate,
            tcp,
            cache,
            key,
            exchange,
            is_announced: options.exchange.is_some(),
            is_secure,
            path,
            started_at: Instant::now(),
        }
    }
}

impl Chosen {
    /// The transport that was chosen could not connect: TCP is used, now and in future.
    pub(crate) fn failed(&mut self, error: &io::Error) {
        let failed = self.decision.transport;
        if let Some(predicted) = self.predicted(failed) {
            let took = predicted.saturating_mul(FAILED);
            self.learn(|known, now| known.learn(failed, predicted, took, now));
        }
        self.decision.reason = format!("{failed} could not connect: {error}");
        self.decision.transport = "tcp";
        self.started_at = Instant::now();
    }

    /// The exchange that was announced is complete.
    pub(crate) fn complete(&self) {
        let took = self.started_at.elapsed();
        let transport = self.decision.transport;
        if let (Some(predicted), true) = (self.predicted(transport), self.is_announced) {
            self.learn(|known, now| known.learn(transport, predicted, took, now));
        }
    }

    /// Without correction.
    fn predicted(&self, transport: &str) -> Option<Duration> {
        predict(transport, self.path.as_ref()?, self.exchange, self.is_secure).ok()
    }

    fn learn(&self, learn: impl FnOnce(&mut Known, u64)) {
        let now = now();
        self.cache.update(|paths| paths.change(&self.key, now, |known| learn(known, now)));
    }
}

/// A TCP connection that a thread makes.
struct Connecting {
    result: Receiver<io::Result<Arc<dyn ByteStream>>>,
    started_at: Instant,
    connected: Option<(Duration, Option<Arc<dyn ByteStream>>)>,
}

impl Connecting {
    fn start(to: SocketAddr, options: &Options) -> Self {
        let (sender, result) = channel();
        let options = options.clone();
        let connecting = move || {
            let _ = sender.send(transports::DEFAULT.connect(to, &options));
        };
        // Without a thread there is no connection, and TCP connects later.
        let _ = thread::Builder::new().name("auto-tcp".into()).spawn(connecting);
        Self { result, started_at: Instant::now(), connected: None }
    }

    /// How long connecting took, if it is over.
    fn connected_after(&mut self) -> Option<Duration> {
        if self.connected.is_none() {
            match self.result.try_recv() {
                Ok(result) => self.connected = Some((self.started_at.elapsed(), result.ok())),
                // Who cannot connect by TCP needs UDP, and waits for it.
                Err(TryRecvError::Disconnected | TryRecvError::Empty) => {}
            }
        }
        match &self.connected {
            Some((after, Some(_))) => Some(*after),
            _ => None,
        }
    }

    /// The connection, if it is for the chosen transport; otherwise it is closed.
    fn take(mut self, transport: &str) -> Option<Arc<dyn ByteStream>> {
        if transport != transports::DEFAULT.name() {
            return None;
        }
        if self.connected.is_none() {
            return self.result.recv().ok()?.ok();
        }
        self.connected.take()?.1
    }
}

fn transport_names() -> impl Iterator<Item = &'static str> {
    // MICSS needs an address for each channel.
    names().map(|(name, _)| name).filter(|name| *name != "micss")
}

/// The addresses of a path: the same listener is reached over another path from another network.
fn key(to: SocketAddr) -> String {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let local = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    local.map_or_else(|_| to.to_string(), |local| format!("{} {to}", local.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Listener;

    fn options(sent: u64) -> Options {
        let exchange = Some(Exchange { sent, received: 0, rounds: 1 });
        Options { exchange, ..Options::new(Security::Insecure) }
    }

    fn listener() -> (Listener, SocketAddr) {
        let listener = Listener::bind("127.0.0.1:0", &options(0)).unwrap();
        let address = listener.local_addr();
        (listener, address)
    }

    #[test]
    fn a_path_is_measured_once() {
        let directory = tempfile::tempdir().unwrap();
        let cache = || Cache::at(directory.path().to_owned());
        let (listener, to) = listener();
        let options = options(100_000_000_000);
        let first = Choosing::new(to, &options, cache()).choose();
        // On a busy machine another transport may seem to be faster.
        let is_tcp = first.decision.transport == "tcp";
        assert_eq!(first.tcp.is_some(), is_tcp, "it is connected already");
        let path = first.path.unwrap();
        assert!(path.udp_passes);
        drop((first.tcp, listener));
        let second = Choosing::new(to, &options, cache()).choose();
        assert_eq!(second.path.unwrap().round_trip, path.round_trip, "nothing was measured");
        assert!(second.tcp.is_none());
    }

    #[test]
    fn for_tiny_exchanges_nothing_is_measured() {
        let directory = tempfile::tempdir().unwrap();
        let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
        let options = options(1000);
        let cache = Cache::at(directory.path().to_owned());
        let chosen = Choosing::new(silent.local_addr().unwrap(), &options, cache).choose();
        assert_eq!((chosen.decision.transport, chosen.path), ("tcp", None));
        silent.set_nonblocking(true).unwrap();
        assert!(silent.recv(&mut [0; 100]).is_err(), "no datagram was sent");
    }

    #[test]
    fn a_wrong_prediction_changes_the_next_choice() {
        let directory = tempfile::tempdir().unwrap();
        let cache = || Cache::at(directory.path().to_owned());
        let to = "192.0.2.1:7000".parse().unwrap();
        let options = options(3_000_000);
        let mut path = Path::assumed(Duration::from_millis(300), 1.25e7);
        path.loss = 0.0005;
        let choosing = || Choosing::new(to, &options, cache());
        cache().update(|paths| {
            paths.measured(&choosing().key, &path, true, Losses::default(), now());
        });
        let first = choosing().choose();
        let fastest = first.decision.transport;
        assert_ne!(fastest, "tcp", "{}", first.decision.reason);
        // It takes much longer than predicted.
        let predicted = first.predicted(fastest).unwrap();
        first.learn(|known, now| known.learn(fastest, predicted, predicted * 20, now));
        let mut second = choosing().choose();
        assert_ne!(second.decision.transport, fastest);
        // The next one cannot even connect.
        let other = second.decision.transport;
        second.failed(&io::ErrorKind::TimedOut.into());
        assert_eq!(second.decision.transport, "tcp");
        let third = choosing().choose().decision.transport;
        assert!(third != fastest && (other == "tcp" || third != other), "{third}");
    }

    #[test]
    fn without_udp_tcp_is_used_soon() {
        let directory = tempfile::tempdir().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let silent = UdpSocket::bind(to).unwrap();
        let options = options(3_000_000);
        let start = Instant::now();
        let cache = Cache::at(directory.path().to_owned());
        let chosen = Choosing::new(to, &options, cache).choose();
        assert!(start.elapsed() < Duration::from_secs(2), "it did not wait 3 s");
        assert_eq!(chosen.decision.transport, "tcp");
        assert!(chosen.tcp.is_some() && !chosen.path.unwrap().udp_passes);
        drop(silent);
    }
}
