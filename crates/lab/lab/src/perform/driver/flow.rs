//! A flow of numbered datagrams between two hosts: how many arrive, how fast and how late, and how
//! evenly they used the links.
//!
//! `least` is the model's minimum mean delay at full rate. Its channels have the delays that full
//! packets had on each link alone, measured shortly before.
//!
//! At sites, both ends of the flow are programs. There are no delays then, because the clocks of
//! two machines differ.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use serde::Deserialize;

use super::datagrams::{DatagramFlow, HEADERS, QUIET_TIMEOUT, ReceivedFlow};
use super::{DriverMeasure, DriverValues, MeasurementDriver, host, no_hosts, options};
use crate::channel_model;
use crate::host::EmulatedHost;
use crate::network::EmulatedNetwork;
use crate::perform::command::ProgramCommand;
use crate::perform::trial_network::{TrialHost, TrialNetwork};
use crate::perform::trial_program::TrialProgram;
use crate::sandbox;
use crate::trial::{self, LinkPlan};

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "flow",
    values: &["carried", "loss", "delay", "least", "uneven"],
    hosts: &["from", "to"],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Linked(measure),
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FlowOptions {
    /// The sending host.
    from: String,
    /// The receiving host and its address.
    to: String,
    address: SocketAddr,
    /// Bytes in each datagram, without the IP and UDP headers.
    payload: usize,
    /// The offered load, as a fraction of what a tunnel over all links carries at best at this mean
    /// multiplicity.
    load: f64,
    mu: f64,
    /// The mean threshold. With it, `least` is computed.
    kappa: Option<f64>,
    /// The duration of the measurement and that of the warm-up before it, in seconds.
    seconds: f64,
    warm_up_s: f64,
}

/// The maximum duration, in seconds.
const MAX_SECONDS: f64 = 600.0;

/// The port for datagrams that measure a link alone.
const SINGLE_LINK_PORT: u16 = 9100;

/// The maximum rate of datagrams that are passed to the kernel one by one, per second. Each takes
/// about 20 µs for a TUN device.
const MAX_SINGLE_RATE: f64 = 25_000.0;

/// How many datagrams measure the delay of a link alone, and how many of them are sent per second.
const SINGLE_LINK_DATAGRAMS: u32 = 50;
const SINGLE_LINK_RATE: f64 = 100.0;

/// How much longer than its datagrams take an end of a flow may run at a site, in seconds.
const FLOW_TIMEOUT_S: f64 = 30.0;

fn check(table: &toml::Table) -> Result<(), String> {
    let FlowOptions { payload, load, mu, kappa, seconds, warm_up_s, .. } = options(table)?;
    if !(12..=65_507).contains(&payload) {
        return Err(format!("payload is {payload}; it must be from 12 to 65507"));
    }
    for (name, value, max) in
        [("load", load, 100.0), ("mu", mu, 20.0), ("seconds", seconds, MAX_SECONDS)]
    {
        if !(value > 0.0 && value <= max) {
            return Err(format!("{name} is {value}; it must be above 0 and at most {max}"));
        }
    }
    if kappa.is_some_and(|kappa| !(1.0..=mu).contains(&kappa)) {
        return Err("kappa must be from 1 to mu".into());
    }
    if !(0.0..=MAX_SECONDS).contains(&warm_up_s) {
        return Err(format!("warm_up_s is {warm_up_s}; it must be from 0 to {MAX_SECONDS}"));
    }
    Ok(())
}

fn measure(network: &TrialNetwork<'_>, table: &toml::Table) -> Result<DriverValues, String> {
    let options: FlowOptions = options(table)?;
    let links = network.links().ok_or("this driver needs emulated links")?;
    let channels = channel_model::channels(links.values())
        .ok_or("this driver needs links, each with a rate")?;
    let unknown = || format!("measure.options: there is no rate at mu = {}", options.mu);
    let best = channels.best_rate(options.mu).ok_or_else(unknown)?;
    let rate = options.load * best * 1e6 / (8.0 * options.payload as f64);
    let flow = |seconds: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "they fit")]
        let count = ((rate * seconds) as u32).max(1);
        let batch = if rate > MAX_SINGLE_RATE { 16 } else { 1 };
        DatagramFlow { count, payload: options.payload, batch, rate }
    };
    let mut address = options.address;
    let mut values = BTreeMap::new();
    let best = channels.used_rates(options.mu).ok_or_else(unknown)?;
    if let (Some(kappa), Some(emulated)) = (options.kappa, network.emulated()) {
        let (from, to) = (host(emulated, &options.from)?, host(emulated, &options.to)?);
        let delays = single_link_delays(emulated, from, to).map_err(|error| failed(&error))?;
        let channels = channel_model::with_delays(&channels, &delays);
        let least =
            channels.and_then(|channels| channel_model::min_delay(&channels, kappa, options.mu));
        values.insert("least", least.ok_or("there is no least delay at this kappa and mu")?);
    }
    if options.warm_up_s > 0.0 {
        run(network, &options, "warm-up", flow(options.warm_up_s), address)?;
    }
    let before = network.carried_forward()?;
    address.set_port(address.port().wrapping_add(1));
    let sent = flow(options.seconds);
    let (received, delay) = run(network, &options, "flow", sent, address)?;
    values.insert("carried", received.rate_mbit);
    values.insert("loss", 1.0 - f64::from(received.distinct) / f64::from(sent.count));
    values.insert("uneven", unevenness(&since(&before, network.carried_forward()?), &best));
    let Some(delay) = delay else { return Ok(DriverValues::NamedInPart(values)) };
    values.insert("delay", delay);
    Ok(DriverValues::Named(values))
}

/// Runs a flow. Returns what has arrived and, unless the hosts are at sites, the mean delay in ms.
fn run(
    network: &TrialNetwork<'_>,
    options: &FlowOptions,
    name: &str,
    flow: DatagramFlow,
    address: SocketAddr,
) -> Result<(ReceivedFlow, Option<f64>), String> {
    let Some(emulated) = network.emulated() else {
        let (from, to) = (network.host(&options.from)?, network.host(&options.to)?);
        return Ok((run_at_sites(from, to, name, flow, address)?, None));
    };
    let (from, to) = (host(emulated, &options.from)?, host(emulated, &options.to)?);
    let arrivals = flow.run(from, to, address, QUIET_TIMEOUT).map_err(|error| failed(&error))?;
    Ok((arrivals.received(), Some(arrivals.mean_delay_ms())))
}

fn failed(error: &io::Error) -> String {
    format!("the datagrams failed: {error}")
}

/// What was carried since before.
fn since(before: &[f64], after: Vec<f64>) -> Vec<f64> {
    after.into_iter().zip(before).map(|(after, before)| after - before).collect()
}

/// Sends a flow by a program at one site to a program at another one.
fn run_at_sites(
    from: TrialHost<'_>,
    to: TrialHost<'_>,
    name: &str,
    flow: DatagramFlow,
    address: SocketAddr,
) -> Result<ReceivedFlow, String> {
    let DatagramFlow { count, payload, batch, rate } = flow;
    let sent = format!("{name}-sent");
    let program = |verb: &str, more: &[String]| {
        let flow = [
            format!("--count={count}"),
            format!("--payload={payload}"),
            format!("--batch={batch}"),
            format!("--rate={rate}"),
        ];
        let sunder = sandbox::program_link().display().to_string();
        let run = [&[sunder, "lab".into(), verb.into()], more, &flow].concat();
        ProgramCommand::new(run)
    };
    let sent_file = to.files().join(&sent).display().to_string();
    let arguments = [format!("--listen={address}"), format!("--until={sent_file}")];
    let receive = program("receive-flow", &arguments);
    let mut receiver = TrialProgram::start(to, &format!("{name}-to"), &receive, true)?;
    receiver.wait_for_output("ready")?;
    let send = program("send-flow", &[format!("--to={address}")]);
    let mut sender = TrialProgram::start(from, &format!("{name}-from"), &send, true)?;
    let timeout = Duration::from_secs_f64(f64::from(count) / rate + FLOW_TIMEOUT_S);
    succeed(&mut sender, timeout)?;
    to.write_file(&sent, b"")?;
    succeed(&mut receiver, timeout)?;
    let output = receiver.output()?;
    let last = output.lines().last().unwrap_or_default();
    serde_json::from_str(last).map_err(|error| format!("the receiver of a flow: {error}"))
}

/// Waits until a program has succeeded.
fn succeed(program: &mut TrialProgram<'_>, timeout: Duration) -> Result<(), String> {
    match program.wait(timeout)? {
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(program.failure(status)),
        None => Err(program.error_with_output("took too long")),
    }
}

/// The mean delay of full packets on each link, in ms.
fn single_link_delays(
    network: &EmulatedNetwork,
    from: &EmulatedHost,
    to: &EmulatedHost,
) -> io::Result<Vec<f64>> {
    let alone = |(index, plan): (usize, &LinkPlan)| {
        let end = usize::from(plan.hosts[1] == to.name());
        let address = SocketAddr::new(trial::address(index, end).into(), SINGLE_LINK_PORT);
        let payload = plan.mtu as usize - HEADERS;
        let flow = DatagramFlow {
            count: SINGLE_LINK_DATAGRAMS,
            payload,
            batch: 1,
            rate: SINGLE_LINK_RATE,
        };
        Ok(flow.run(from, to, address, QUIET_TIMEOUT)?.mean_delay_ms())
    };
    network.plans().enumerate().map(alone).collect()
}

/// The maximum relative deviation of a link's share of all bytes from its optimal share.
fn unevenness(used: &[f64], best: &[f64]) -> f64 {
    let (all, whole) = (used.iter().sum::<f64>().max(1.0), best.iter().sum::<f64>());
    let off = used.iter().zip(best).map(|(used, best)| {
        let (part, wanted) = (used / all, best / whole);
        (part - wanted).abs() / wanted
    });
    off.fold(0.0, f64::max)
}
