//! The accuracy of a link's rate, delay and loss in one direction, measured with numbered
//! datagrams.
//!
//! - Delay: single packets with timestamps; both hosts have the same clock. The transmission time
//!   is subtracted before the comparison with the requested delay.
//! - Loss: packets at four fifths of the link's rate, so that the queue drops none.
//! - Rate: a quarter more than the link can carry; the bytes that arrive from the first packet to
//!   the last. If `offered` is below the link's rate, the result measures the sender.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use super::datagrams::{DatagramArrivals, DatagramFlow, HEADERS};
use super::{DriverMeasure, DriverValues, MeasurementDriver, no_hosts, options};
use crate::link::{EmulatedLinkConditions, LinkDirection};
use crate::network::EmulatedNetwork;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "accuracy",
    values: &[
        "offered",
        "carried",
        "delay",
        "delay_off",
        "delay_off_99",
        "loss",
        "loss_z",
        "packets",
    ],
    hosts: &[],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct AccuracyOptions {
    /// Packets for the delay, one per millisecond.
    delays: u32,
    /// Packets for the delay, one each millisecond.
    losses: u32,
    /// Duration of the measurement of the rate, in seconds.
    rate_s: f64,
}

impl Default for AccuracyOptions {
    fn default() -> Self {
        Self { delays: 1000, losses: 0, rate_s: 0.0 }
    }
}

/// The payload of the packets for delay and loss, in bytes.
const SHORT: usize = 36;

/// The maximum rate of packets that one thread can send and receive one by one, per second.
const MAX_PACKETS_PER_SECOND: f64 = 40_000.0;

/// The maximum number of packets in a flow.
const MAX_PACKETS: u32 = 10_000_000;

/// The maximum duration of the measurement of the rate, in seconds.
const MAX_SECONDS: f64 = 60.0;

fn check(table: &toml::Table) -> Result<(), String> {
    let AccuracyOptions { delays, losses, rate_s } = options(table)?;
    if delays.max(losses) > MAX_PACKETS {
        return Err(format!("delays and losses must be {MAX_PACKETS} packets at most"));
    }
    if !(0.0..=MAX_SECONDS).contains(&rate_s) {
        return Err(format!("rate_s is {rate_s}; it must be from 0 to {MAX_SECONDS}"));
    }
    Ok(())
}

fn measure(network: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: AccuracyOptions = options(table)?;
    let (link, ends) = network.only_link().ok_or("this driver needs a network of one link")?;
    let [from, to] = ends.map(|end| network.host(end));
    let (Some(from), Some(to)) = (from, to) else { return Err("the link has no hosts".into()) };
    let address = network.address(to.name(), link).ok_or("the link has no address")?;
    let mut address = SocketAddr::new(address.into(), 9000);
    let conditions = network.conditions(link, LinkDirection::Forward).ok_or("the link is gone")?;

    let mut run = |flow: DatagramFlow| {
        // Each flow has its own port, so that a late packet is not counted in the next flow.
        address.set_port(address.port() + 1);
        flow.run(from, to, address, quiet_timeout(&conditions))
    };
    let mut values = BTreeMap::new();
    let io = |error: io::Error| format!("the measuring packets failed: {error}");
    if options.delays > 0 {
        let arrivals =
            run(DatagramFlow { count: options.delays, payload: SHORT, batch: 1, rate: 1000.0 })
                .map_err(io)?;
        delay(&arrivals, &conditions, &mut values);
    }
    if options.losses > 0 {
        let rate = packets_per_second(&conditions, SHORT)
            .map_or(MAX_PACKETS_PER_SECOND, |rate| (0.8 * rate).min(MAX_PACKETS_PER_SECOND));
        let arrivals = run(DatagramFlow { count: options.losses, payload: SHORT, batch: 1, rate })
            .map_err(io)?;
        loss(&arrivals, &conditions, &mut values);
    }
    if options.rate_s > 0.0 {
        let payload = 1472;
        let full = packets_per_second(&conditions, payload)
            .ok_or("a link without a rate has none to be measured")?;
        // The excess fills the queue within a part of the duration.
        let rate = 1.25 * full;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "seconds of packets"
        )]
        let count = (rate * options.rate_s) as u32;
        let batch = if full > 20_000.0 { 40 } else { 1 };
        // A lost packet has used the link. Without losses it arrives and is counted.
        let lossless = EmulatedLinkConditions { loss: 0.0, burst: None, ..conditions };
        let link = network.link(link).ok_or("the link is gone")?;
        link.set(LinkDirection::Forward, lossless).map_err(|error| error.to_string())?;
        let arrivals = run(DatagramFlow { count, payload, batch, rate }).map_err(io)?;
        values.insert("offered", arrivals.offered_mbit(HEADERS));
        values.insert("carried", arrivals.rate_mbit(HEADERS));
    }
    Ok(DriverValues::Named(values))
}

/// How long a datagram can be in flight, and half a second for the machine.
fn quiet_timeout(conditions: &EmulatedLinkConditions) -> Duration {
    let longest =
        conditions.delay_ms + conditions.jitter_ms + conditions.reorder_ms + conditions.queue_ms;
    Duration::from_secs_f64(longest / 1000.0 + 0.5)
}

fn packets_per_second(conditions: &EmulatedLinkConditions, payload: usize) -> Option<f64> {
    conditions.rate_mbit.map(|rate| rate * 1e6 / (8.0 * (payload + HEADERS) as f64))
}

/// The delay, and the median and the 99th percentile of its deviation from the requested delay.
fn delay(
    arrivals: &DatagramArrivals,
    conditions: &EmulatedLinkConditions,
    values: &mut BTreeMap<&'static str, f64>,
) {
    let bits = packets_per_second(conditions, SHORT).map_or(0.0, |rate| 1000.0 / rate);
    let delays: Vec<f64> = arrivals.delays_ms().map(|delay| delay - bits).collect();
    let off: Vec<f64> = delays.iter().map(|delay| (delay - conditions.delay_ms).abs()).collect();
    values.insert("delay", quantile(delays, 0.5));
    values.insert("delay_off", quantile(off.clone(), 0.5));
    values.insert("delay_off_99", quantile(off, 0.99));
}

/// The loss, and its deviation from the requested loss in standard deviations: below 2.576 in 99 %
/// of cases.
fn loss(
    arrivals: &DatagramArrivals,
    conditions: &EmulatedLinkConditions,
    values: &mut BTreeMap<&'static str, f64>,
) {
    let n = f64::from(arrivals.sent);
    let measured = 1.0 - f64::from(arrivals.distinct) / n;
    let p = conditions.loss;
    // Losses in bursts are correlated, which widens the distribution of their sum.
    let correlation =
        conditions.burst.map_or(0.0, |burst| 1.0 - 1.0 / burst - p / (burst * (1.0 - p)));
    let deviation = (p * (1.0 - p) / n * (1.0 + correlation) / (1.0 - correlation)).sqrt();
    values.insert("loss", measured);
    values.insert("loss_z", if deviation > 0.0 { (measured - p) / deviation } else { 0.0 });
    values.insert("packets", n);
}

/// The quantile of the values at `part`; NaN if there are none.
fn quantile(mut values: Vec<f64>, part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
    let index = ((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1));
    values.get(index).copied().unwrap_or(f64::NAN)
}
