//! Complete measurements of a path, for users and programs that want the result.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::decide::{DecisionBasis, TransportDecision, decide};
use super::remembered::RememberedPath;
use crate::address::resolve;
use crate::error::{ConnectionStep, Error};
use crate::model::{ExchangeProfile, NetworkPath};
use crate::options::{ConnectionOptions, ConnectionSecurity, PathEstimate};
use crate::probe::{self, HostCapabilities, PacketLosses, PathProbe, ProbeMeasurement, direction};
use crate::transports::names;

/// The rate in bytes/s that is assumed if only the round-trip time is known.
pub(super) const ASSUMED_RATE: f64 = 12.5e6;

/// A measured path, and the choice for an exchange.
#[derive(Clone, Debug, PartialEq)]
pub struct PathExamination {
    /// The listener's address.
    pub address: SocketAddr,
    /// Measurements with datagrams; `None` if UDP does not pass.
    pub measured: Option<ProbeMeasurement>,
    /// The time to open a TCP connection; `None` if TCP does not pass.
    pub tcp_connected: Option<Duration>,
    /// The capabilities of this host.
    pub own: HostCapabilities,
    /// The path, with assumed values for what was not measured.
    pub path: NetworkPath,
    /// The choice for the exchange.
    pub decision: TransportDecision,
    /// How long the measurement took.
    pub took: Duration,
}

/// Measures the path to a listener at `HOST:PORT` several times, and chooses a transport for an
/// exchange.
///
/// # Errors
/// If neither TCP nor UDP passes, or no socket can be opened.
pub fn examine(
    address: &str,
    options: &ConnectionOptions,
    exchange: ExchangeProfile,
) -> Result<PathExamination, Error> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for to in resolve(address)? {
        match examine_one(to, options, exchange) {
            Ok(examined) => return Ok(examined),
            Err(error) => last = error,
        }
    }
    Err(Error::at(
        ConnectionStep::Connect("tcp and UDP"),
        address,
        last,
        Some(options.connect_timeout),
    ))
}

fn examine_one(
    to: SocketAddr,
    options: &ConnectionOptions,
    exchange: ExchangeProfile,
) -> io::Result<PathExamination> {
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
        Some(measured) => measured.path(&own, PacketLosses::default()),
        None => without_udp(tcp_connected.unwrap_or_default(), &own),
    };
    let is_secure = !matches!(options.security, ConnectionSecurity::Insecure);
    let basis = measured.map_or(DecisionBasis::default(), |measured| DecisionBasis {
        has_up: measured.up.is_some(),
        has_down: measured.down.is_some(),
        losses: measured.losses(),
    });
    let names = names().map(|(name, _)| name);
    let decision = decide(names, &path, &basis, exchange, is_secure, |_| 1.0);
    Ok(PathExamination { address: to, measured, tcp_connected, own, path, decision, took })
}

/// Measures the path to a listener, for a transport that must know it. `None` if UDP does not pass,
/// or the listener is on this host.
pub(crate) fn measure(
    to: SocketAddr,
    options: &ConnectionOptions,
) -> io::Result<Option<PathEstimate>> {
    if to.ip().to_canonical().is_loopback() {
        return Ok(None);
    }
    let own = probe::info(options.congestion.as_deref());
    let Some(measured) = PathProbe::start(to)?.run(|_| true, || true)? else { return Ok(None) };
    let (path, losses) = (measured.path(&own, PacketLosses::default()), measured.losses());
    Ok(RememberedPath::new(&path, true, losses, 0).estimate())
}

/// A path of which only TCP's round-trip time is known.
pub(super) fn without_udp(round_trip: Duration, own: &HostCapabilities) -> NetworkPath {
    NetworkPath {
        round_trip,
        variation: Duration::ZERO,
        loss: PacketLosses::default().probability(round_trip),
        up: direction(ASSUMED_RATE, own, own),
        down: direction(ASSUMED_RATE, own, own),
        udp_passes: false,
        has_mptcp: false,
    }
}
