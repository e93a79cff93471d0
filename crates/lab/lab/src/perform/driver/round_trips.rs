//! The round-trip time of one byte over a TCP connection, measured as netperf's `TCP_RR` does.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::{DriverMeasure, DriverValues, MeasurementDriver, host, no_hosts, options};
use crate::network::EmulatedNetwork;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "round-trips",
    values: &["mean", "deviation", "median", "highest", "count"],
    hosts: &["client", "server"],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RoundTripOptions {
    /// The client's host.
    client: String,
    /// The address to connect to: the server, or a proxy in front of it.
    connect: SocketAddr,
    /// The server's host.
    server: String,
    /// The server's port.
    port: u16,
    /// The duration of the measurement, in seconds.
    seconds: f64,
}

/// The maximum duration, in seconds.
const MAX_SECONDS: f64 = 3600.0;

/// The time limit for one round trip.
const ROUND_TRIP_TIMEOUT: Duration = Duration::from_secs(20);

fn check(table: &toml::Table) -> Result<(), String> {
    let RoundTripOptions { seconds, .. } = options(table)?;
    if (0.0..=MAX_SECONDS).contains(&seconds) {
        return Ok(());
    }
    Err(format!("seconds is {seconds}; it must be from 0 to {MAX_SECONDS}"))
}

fn measure(network: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: RoundTripOptions = options(table)?;
    let io = |error: io::Error| format!("the round trips failed: {error}");
    let (client, server) = (host(network, &options.client)?, host(network, &options.server)?);
    let listener = server
        .run(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, options.port)))
        .and_then(|it| it)
        .map_err(io)?;
    let trips = thread::scope(|scope| {
        scope.spawn(|| answer(&listener));
        let trips = client
            .run(|| ask(options.connect, Duration::from_secs_f64(options.seconds)))
            .and_then(|it| it);
        // If nobody connected, this connection ends the wait of the listener.
        let _ = server.run(|| TcpStream::connect((Ipv4Addr::LOCALHOST, options.port)));
        trips
    });
    let mut trips = trips.map_err(io)?;
    trips.sort_by(f64::total_cmp);
    let count = trips.len() as f64;
    let mean = trips.iter().sum::<f64>() / count;
    let variance = trips.iter().map(|trip| (trip - mean).powi(2)).sum::<f64>() / count;
    Ok(DriverValues::Named(BTreeMap::from([
        ("mean", mean),
        ("deviation", variance.sqrt()),
        ("median", trips[trips.len() / 2]),
        ("highest", trips[trips.len() - 1]),
        ("count", count),
    ])))
}

/// Echoes every byte of one connection.
fn answer(listener: &TcpListener) {
    // The client reports all failures.
    let Ok((mut stream, _)) = listener.accept() else { return };
    let _ = stream.set_nodelay(true);
    let _ = stream.set_read_timeout(Some(ROUND_TRIP_TIMEOUT));
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
}

/// Sends a byte and waits for the echo, repeatedly. Returns at least one round-trip time, in ms.
fn ask(address: SocketAddr, time: Duration) -> io::Result<Vec<f64>> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(ROUND_TRIP_TIMEOUT))?;
    let mut trip = || {
        let start = Instant::now();
        stream.write_all(&[1])?;
        stream.read_exact(&mut [0])?;
        Ok::<f64, io::Error>(start.elapsed().as_secs_f64() * 1000.0)
    };
    // The first round trip includes the setup of a proxy.
    trip()?;
    let start = Instant::now();
    let mut trips = vec![trip()?];
    while start.elapsed() < time {
        trips.push(trip()?);
    }
    Ok(trips)
}
