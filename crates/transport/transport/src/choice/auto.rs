//! Chooses the transport for a connection that is being opened.

mod expected;

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::cache::{PathCache, now};
use super::decide::{DecisionBasis, TransportDecision, chosen_from, decide};
use super::examine::without_udp;
use super::racing::{ConnectionRace, HEAD_START};
use super::remembered::RememberedPath;
use crate::model::{ExchangeProfile, NetworkPath};
use crate::options::{ConnectionOptions, ConnectionSecurity, PathEstimate};
use crate::probe::{self, PacketLosses, PathProbe};
use crate::stream::{ByteStream, PathStatistics};
use crate::transports::{self, names, predicted, tcp};

pub use expected::{ExpectedTransport, expected};

/// The exchange that is assumed if nothing is known of it.
const ASSUMED: ExchangeProfile =
    ExchangeProfile { sent: 1_000_000, received: 1_000_000, rounds: 1 };
/// For an exchange of at most this size, nothing is measured.
const TINY_BYTES: u64 = 16 << 10;
const TINY_ROUNDS: u32 = 3;
/// Once TCP has connected, UDP has this many times as long to answer, and at least this long.
const UDP_TIMEOUT_FACTOR: u32 = 3;
const MIN_UDP_TIMEOUT: Duration = Duration::from_millis(50);
/// The time to measure the rates, as a number of round trips plus a number of seconds; and the
/// largest time, in round trips, that it may take if it is not a small fraction of the exchange.
const RATES_ROUND_TRIPS: f64 = 2.5;
const RATES_TIME: f64 = 10e-3;
const MAX_RATES_ROUND_TRIPS: f64 = 3.0;
/// The rates (bytes/s) and losses considered if only the round-trip time of a path is known.
const POSSIBLE_RATES: [f64; 6] = [1.25e5, 1.25e6, 1.25e7, 5e7, 1.25e8, 1.25e9];
const POSSIBLE_LOSSES: [f64; 3] = [0.0, 0.0005, 0.01];
/// A path with a shorter round trip rarely loses more than the smallest of these losses.
const SHORT: Duration = Duration::from_millis(5);
/// If the rates are unknown, TCP is used unless another transport is faster by this factor.
const TCP_PREFERENCE_FACTOR: f64 = 1.005;
/// Without the rates, a choice is good enough if it takes at most this factor longer than the best.
const GOOD_ENOUGH: f64 = 1.1;
/// Measuring may take this fraction of the whole exchange.
const MEASURING_SHARE: f64 = 0.02;
/// A rate below this fraction of the path's rate may be due to throttling.
const THROTTLED: f64 = 0.33;
/// The least time before TCP is tried, too, in addition to three round trips.
const MIN_FALLBACK_DELAY: Duration = Duration::from_millis(200);

/// The transport chosen for a connection.
pub(crate) struct TransportSelection {
    pub(crate) decision: TransportDecision,
    /// The path, as far as the transport may rely on it.
    pub(crate) estimate: Option<PathEstimate>,
    /// Its connection, if it was opened during the choice.
    pub(crate) stream: Option<io::Result<Arc<dyn ByteStream>>>,
    cache: PathCache,
    key: String,
    exchange: ExchangeProfile,
    is_announced: bool,
    is_secure: bool,
    avoids_udp: bool,
    path: Option<NetworkPath>,
    started_at: Instant,
}

impl std::fmt::Debug for TransportSelection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("TransportSelection")
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}

/// Chooses a transport for a connection to a listener. The path is taken from the cache, or
/// measured while TCP connects.
pub(crate) fn choose(to: SocketAddr, options: &ConnectionOptions) -> TransportSelection {
    if to.ip().to_canonical().is_loopback() {
        let plain = TransportSelector::new(to, options, PathCache::of_user());
        return plain.without_path("tcp is the fastest on one host");
    }
    TransportSelector::new(to, options, PathCache::of_user()).choose()
}

struct TransportSelector<'a> {
    to: SocketAddr,
    options: &'a ConnectionOptions,
    cache: PathCache,
    key: String,
    exchange: ExchangeProfile,
    is_secure: bool,
}

impl<'a> TransportSelector<'a> {
    fn new(to: SocketAddr, options: &'a ConnectionOptions, cache: PathCache) -> Self {
        let exchange = options.exchange.unwrap_or(ASSUMED);
        let is_secure = !matches!(options.security, ConnectionSecurity::Insecure);
        Self { to, options, cache, key: key(to), exchange, is_secure }
    }

    fn choose(self) -> TransportSelection {
        if self.options.avoids_udp {
            return self.without_path("data over UDP does not arrive, or only slowly");
        }
        let now = now();
        let paths = self.cache.read();
        let known = paths.get(&self.key);
        if known.is_some_and(|known| known.avoids_udp(now)) {
            return self.without_path("UDP has failed on this path within a day");
        }
        if let Some(known) = known
            && (known.is_fresh(now) || self.is_tiny())
            && !(known.path.udp_passes && !known.has_rates && self.needs_rates(&known.path))
        {
            return self.decided(known, now, None);
        }
        if self.is_tiny() {
            return self.without_path("so small an exchange is not worth measuring the path");
        }
        self.measure(known.map_or(PacketLosses::default(), |known| known.losses(now)))
    }

    fn is_tiny(&self) -> bool {
        let ExchangeProfile { sent, received, .. } = self.exchange;
        sent.saturating_add(received) <= TINY_BYTES && self.exchange.rounds() <= TINY_ROUNDS
    }

    /// Measures the path while TCP connects.
    fn measure(self, earlier: PacketLosses) -> TransportSelection {
        let started_at = Instant::now();
        let tcp = tcp::begin(self.to, self.options);
        let probing = PathProbe::start(self.to);
        // In this thread: on a short path, waking another one takes part of a round trip.
        let tcp = tcp.and_then(|tcp| Ok((tcp.wait(HEAD_START)?, tcp)));
        let tcp = match tcp {
            Ok((true, tcp)) if self.is_short(started_at.elapsed()) => {
                let chosen = self.without_path("tcp is near the fastest on so short a path");
                return TransportSelection { stream: Some(tcp.finish()), ..chosen };
            }
            other => other.map(|(_, tcp)| tcp),
        };
        let mut racing = ConnectionRace::start(started_at, tcp, self.to, self.options);
        let congestion = self.options.congestion.clone();
        let own = move || probe::info(congestion.as_deref());
        // This takes some milliseconds, so it runs while the hello is in flight.
        let ahead = own.clone();
        let _ = thread::Builder::new().name("auto".into()).spawn(ahead);
        let measured = probing.and_then(|probing| {
            probing.run(
                |measured| self.needs_rates(&measured.path(&own(), earlier)),
                || {
                    racing.tcp.connected_after().is_none_or(|connected_after| {
                        let patience = (connected_after * UDP_TIMEOUT_FACTOR).max(MIN_UDP_TIMEOUT);
                        started_at.elapsed() < connected_after + patience
                    })
                },
            )
        });
        let (path, losses, has_rates) = if let Ok(Some(measured)) = measured {
            let has_rates = measured.up.is_some() && measured.down.is_some();
            (measured.path(&own(), earlier), measured.losses(), has_rates)
        } else {
            let connected = racing.tcp.connected_after().unwrap_or_else(|| started_at.elapsed());
            (without_udp(connected, &own()), PacketLosses::default(), false)
        };
        let now = now();
        let mut known = None;
        let cache = self.cache.clone();
        cache.update(|paths| {
            paths.record_measurement(&self.key, &path, has_rates, losses, now);
            known = paths.get(&self.key).cloned();
        });
        let known = known.unwrap_or_else(|| RememberedPath::new(&path, has_rates, losses, now));
        self.decided(&known, now, Some(racing))
    }

    /// Whether TCP is used at once, because it connected in this time: before any other transport
    /// has started, and for an exchange that is too small to measure the path.
    fn is_short(&self, round_trip: Duration) -> bool {
        // For this question, the assumed rates make no difference.
        round_trip < HEAD_START
            && !self.needs_rates(&NetworkPath::assumed(round_trip, POSSIBLE_RATES[0]))
    }

    /// Whether to measure the rates: if that takes a negligible fraction of the exchange, or if the
    /// choice depends on the rates by more than the time to measure them.
    fn needs_rates(&self, path: &NetworkPath) -> bool {
        let round_trip = path.round_trip.as_secs_f64();
        let cost = RATES_ROUND_TRIPS * round_trip + RATES_TIME;
        let fastest = POSSIBLE_RATES.into_iter().fold(0.0, f64::max);
        let best = |times: &PredictedTimes| times.iter().map(|it| it.1).fold(f64::MAX, f64::min);
        if cost <= best(&self.times(path, fastest, 0.0)) * MEASURING_SHARE {
            return true;
        }
        if cost > MAX_RATES_ROUND_TRIPS * round_trip {
            return false;
        }
        // Whether no transport is good enough on all of these paths.
        let possible =
            || POSSIBLE_RATES.into_iter().flat_map(|rate| POSSIBLE_LOSSES.map(|loss| (rate, loss)));
        let paths: Vec<PredictedTimes> =
            possible().map(|(rate, loss)| self.times(path, rate, loss)).collect();
        !chosen_from().into_iter().any(|name| {
            paths.iter().all(|times| {
                let best = best(times);
                times.iter().any(|(transport, time)| {
                    *transport == name && (*time <= best * GOOD_ENOUGH || *time <= best + cost)
                })
            })
        })
    }

    /// The time that the exchange takes over each transport, if the path has this rate and loss.
    fn times(&self, path: &NetworkPath, rate: f64, loss: f64) -> PredictedTimes {
        let mut path = NetworkPath { loss, ..path.clone() };
        (path.up.rate, path.down.rate) = (rate, rate);
        let time = |name| predicted(name, &path, self.exchange, self.is_secure).ok();
        chosen_from()
            .into_iter()
            .filter_map(|name| Some((name, time(name)?.as_secs_f64())))
            .collect()
    }

    fn decided(
        self,
        known: &RememberedPath,
        now: u64,
        racing: Option<ConnectionRace>,
    ) -> TransportSelection {
        let is_ready = |name: &str| racing.is_none() || ConnectionRace::has(name);
        let decision = self.decision(known, now, is_ready);
        let estimate = known.estimate();
        let stream = racing.and_then(|racing| racing.take(decision.transport));
        self.chosen(decision, Some(known.path.clone()), estimate, stream)
    }

    /// The choice for a path. `is_ready` says whether a transport connects already.
    fn decision(
        &self,
        known: &RememberedPath,
        now: u64,
        is_ready: impl Fn(&str) -> bool,
    ) -> TransportDecision {
        let path = &known.path;
        let (has_rates, losses) = (known.has_rates, known.losses(now));
        let basis = DecisionBasis { has_up: has_rates, has_down: has_rates, losses };
        let correction = |transport: &str| known.correction(transport, now);
        let (names, exchange) = (transport_names(), self.exchange);
        let mut decision = decide(names, path, &basis, exchange, self.is_secure, correction);
        if !known.has_rates && path.udp_passes {
            self.choose_without_rates(&mut decision, known, now, is_ready);
        }
        decision
    }

    /// Changes the choice to the transport with the smallest time relative to the best, averaged
    /// over the possible paths. A transport that is not connected yet needs another round trip.
    fn choose_without_rates(
        &self,
        decision: &mut TransportDecision,
        known: &RememberedPath,
        now: u64,
        is_ready: impl Fn(&str) -> bool,
    ) {
        let path = &known.path;
        let losses = if known.losses(now).lost >= 1.0 {
            vec![path.loss]
        } else if path.round_trip < SHORT {
            vec![POSSIBLE_LOSSES[0]]
        } else {
            POSSIBLE_LOSSES.to_vec()
        };
        let mut costs: PredictedTimes = chosen_from().into_iter().map(|name| (name, 0.0)).collect();
        for (rate, loss) in
            POSSIBLE_RATES.into_iter().flat_map(|rate| losses.iter().map(move |loss| (rate, *loss)))
        {
            let mut times = self.times(path, rate, loss);
            for (name, time) in &mut times {
                *time *= known.correction(name, now);
                *time += if is_ready(name) { 0.0 } else { path.round_trip.as_secs_f64() };
            }
            let best = times.iter().map(|it| it.1).fold(f64::MAX, f64::min);
            for (name, cost) in &mut costs {
                let time = times.iter().find(|it| it.0 == *name).map_or(f64::MAX, |it| it.1);
                *cost += time / best;
            }
        }
        let Some(&(best, least)) = costs.iter().min_by(|a, b| a.1.total_cmp(&b.1)) else {
            return;
        };
        let tcp = costs.iter().find(|it| it.0 == transports::DEFAULT.name());
        let chosen = match tcp {
            Some((tcp, cost)) if *cost <= least * TCP_PREFERENCE_FACTOR => tcp,
            _ => best,
        };
        if chosen != decision.transport {
            decision.reason = format!(
                "{chosen} is near the fastest whatever the rate, which is not worth measuring \
                 (round trip {:.1} ms)",
                path.round_trip.as_secs_f64() * 1e3
            );
            let candidate = decision.candidates.iter().find(|it| it.transport == chosen);
            decision.predicted = candidate.and_then(|it| it.predicted.ok());
            decision.transport = chosen;
        }
    }

    fn without_path(self, reason: &str) -> TransportSelection {
        let decision = TransportDecision {
            transport: "tcp",
            predicted: None,
            reason: reason.to_owned(),
            candidates: Vec::new(),
        };
        self.chosen(decision, None, None, None)
    }

    fn chosen(
        self,
        decision: TransportDecision,
        path: Option<NetworkPath>,
        estimate: Option<PathEstimate>,
        stream: Option<io::Result<Arc<dyn ByteStream>>>,
    ) -> TransportSelection {
        let Self { options, cache, key, exchange, is_secure, .. } = self;
        TransportSelection {
            decision,
            estimate,
            stream,
            cache,
            key,
            exchange,
            is_announced: options.exchange.is_some(),
            is_secure,
            avoids_udp: options.avoids_udp,
            path,
            started_at: Instant::now(),
        }
    }
}

impl TransportSelection {
    /// How long the transport may take to connect before TCP is tried in addition.
    pub(crate) fn tcp_fallback_delay(&self) -> Duration {
        self.path.as_ref().map_or(Duration::ZERO, |path| 3 * path.round_trip) + MIN_FALLBACK_DELAY
    }

    /// Whether UDP may be throttled: the transport delivers much less than the path carries.
    #[expect(clippy::cast_precision_loss, reason = "bytes/s")]
    pub(crate) fn may_be_throttled(&self, path: &PathStatistics) -> bool {
        let carried = path.link_rate.map(|rate| rate as f64);
        let carried = carried.or(self.estimate.map(|estimate| estimate.rate));
        let delivered = path.delivery_rate.map(|rate| rate as f64);
        carried.zip(delivered).is_some_and(|(carried, it)| it < THROTTLED * carried)
    }

    /// Records that TCP has connected and the chosen transport has not. If that transport got no
    /// answer, no transport over UDP is tried on this path for some time.
    pub(crate) fn record_tcp_fallback(&mut self, error: &io::Error) {
        self.decision.reason = format!("{} does not connect: {error}", self.decision.transport);
        self.decision.transport = transports::DEFAULT.name();
        self.started_at = Instant::now();
        // The system's refusal comes from ICMP; other refusals are from a listener.
        let is_refused = error.kind() == io::ErrorKind::ConnectionRefused;
        let is_by_system = is_refused && error.get_ref().is_none();
        if error.kind() == io::ErrorKind::TimedOut || is_by_system {
            self.udp_failed();
        }
    }

    /// Records that the data has arrived, faster than over UDP before.
    pub(crate) fn udp_was_slower(&self) {
        if self.avoids_udp {
            self.udp_failed();
        }
    }

    fn udp_failed(&self) {
        self.cache.update(|paths| paths.udp_failed(&self.key, now()));
    }

    /// Records that the announced exchange is complete.
    pub(crate) fn complete(&self) {
        let took = self.started_at.elapsed();
        let transport = self.decision.transport;
        if let (Some(predicted), true) = (self.predicted(transport), self.is_announced) {
            self.learn(|known, now| known.record_exchange(transport, predicted, took, now));
        }
    }

    /// The prediction without its correction.
    fn predicted(&self, transport: &str) -> Option<Duration> {
        predicted(transport, self.path.as_ref()?, self.exchange, self.is_secure).ok()
    }

    fn learn(&self, learn: impl FnOnce(&mut RememberedPath, u64)) {
        let now = now();
        self.cache.update(|paths| paths.change(&self.key, now, |known| learn(known, now)));
    }
}

/// The predicted time of an exchange for each transport, in seconds.
type PredictedTimes = Vec<(&'static str, f64)>;

fn transport_names() -> impl Iterator<Item = &'static str> {
    // MICSS needs an address for each channel.
    names().map(|(name, _)| name).filter(|name| *name != "micss")
}

/// The addresses of a path. The local address is part of it, because from another network the same
/// listener is reached over another path.
fn key(to: SocketAddr) -> String {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let local = UdpSocket::bind(any).and_then(|socket| {
        socket.connect(to)?;
        socket.local_addr()
    });
    local.map_or_else(|_| to.to_string(), |local| format!("{} {to}", local.ip()))
}

#[cfg(test)]
mod tests;
