//! Whole probes of a path, for people and programs that want to see it.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::decide::{Basis, Decision, decide};
use super::known::Known;
use crate::address::resolve;
use crate::error::{Error, Step};
use crate::model::{Exchange, Path};
use crate::options::{Options, PathEstimate, Security};
use crate::probe::{self, HostInfo, Losses, Measured, Probing, direction};
use crate::transports::names;

/// What is assumed where only the round-trip time is known: the rate of the path, in bytes/s.
const ASSUMED_RATE: f64 = 12.5e6;

/// A path that was measured, and what follows for an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct Examined {
    /// The listener's address.
    pub address: SocketAddr,
    /// By datagrams; `None` if UDP does not pass.
    pub measured: Option<Measured>,
    /// The time in which a TCP connection was made; `None` if TCP does not pass.
    pub tcp_connected: Option<Duration>,
    /// This host.
    pub own: HostInfo,
    /// The path, with what is assumed where nothing was measured.
    pub path: Path,
    /// The choice for the exchange.
    pub decision: Decision,
    /// How long measuring took.
    pub took: Duration,
}

/// Measures the path to `HOST:PORT`, where a listener is, several times, and chooses a transport
/// for an exchange.
///
/// # Errors
/// If neither TCP nor UDP passes, or the system gives no socket.
pub fn examine(address: &str, options: &Options, exchange: Exchange) -> Result<Examined, Error> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for to in resolve(address)? {
        match examine_one(to, options, exchange) {
            Ok(examined) => return Ok(examined),
            Err(error) => last = error,
        }
    }
    Err(Error::at(Step::Connect("tcp and UDP"), address, last, Some(options.connect_timeout)))
}

fn examine_one(to: SocketAddr, options: &Options, exchange: Exchange) -> io::Result<Examined> {
    let own = probe::info(options.congestion.as_deref());
    let start = Instant::now();
    let limit = options.connect_timeout;
    let connecting = thread::Builder::new().name("probe-tcp".into()).spawn(move || {
        let start = Instant::now();
        TcpStream::connect_timeout(&to, limit).map(|_| start.elapsed())
    })?;
    let measured = probe::measure_several(to)?;
    let took = start.elapsed();
    let connected = connecting.join().map_err(|_| io::ErrorKind::Other)?;
    let tcp_connected = match (&connected, &measured) {
        (Err(_), None) => return Err(connected.err().unwrap_or(io::ErrorKind::Other.into())),
        (connected, _) => connected.as_ref().ok().copied(),
    };
    let path = match measured {
        Some(measured) => measured.path(&own, Losses::default()),
        None => without_udp(tcp_connected.unwrap_or_default(), &own),
    };
    let is_secure = !matches!(options.security, Security::Insecure);
    let basis = measured.map_or(Basis::default(), |measured| Basis {
        has_up: measured.up.is_some(),
        has_down: measured.down.is_some(),
        losses: measured.losses(),
    });
    let names = names().map(|(name, _)| name);
    let decision = decide(names, &path, &basis, exchange, is_secure, |_| 1.0);
    Ok(Examined { address: to, measured, tcp_connected, own, path, decision, took })
}

/// Measures the path to a listener for a transport that must know it. `None`: UDP does not pass, or
/// there is no network between.
pub(crate) fn measure(to: SocketAddr, options: &Options) -> io::Result<Option<PathEstimate>> {
    if to.ip().to_canonical().is_loopback() {
        return Ok(None);
    }
    let own = probe::info(options.congestion.as_deref());
    let Some(measured) = Probing::start(to)?.run(|_| true, || true)? else { return Ok(None) };
    let (path, losses) = (measured.path(&own, Losses::default()), measured.losses());
    Ok(Known::new(&path, true, losses, 0).estimate())
}

/// A path of which only TCP's round-trip time is known.
pub(super) fn without_udp(round_trip: Duration, own: &HostInfo) -> Path {
    Path {
        round_trip,
        variation: Duration::ZERO,
        loss: Losses::default().probability(round_trip),
        up: direction(ASSUMED_RATE, own, own),
        down: direction(ASSUMED_RATE, own, own),
        udp_passes: false,
        has_mptcp: false,
    }
}
