//! `sunder transport probe`: the path, and which transport is the fastest on it.

use std::time::Duration;

use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use serde::Serialize;
use transport::choice::{PathExamination, TransportCandidate, examine};
use transport::{ConnectionOptions, ConnectionSecurity, ExchangeProfile, random_identity};

use super::failed;

/// Measures the path to a host that runs `sunder transport receive` or `serve`, predicts how long
/// an exchange takes over each transport, and shows which one `auto` uses and why.
///
/// It takes at most four round trips, and sends some hundred packets in each direction. The result
/// is not secret, and only a random number authenticates it: an attacker on the path can change it.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder transport probe 192.0.2.10:7000 --bytes 30000000")]
pub(super) struct Arguments {
    /// Where the other end listens
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// The bytes to send in the exchange that is predicted
    #[arg(long, value_name = "BYTES", default_value_t = 10_000_000)]
    bytes: u64,
    /// The bytes to receive in this exchange
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    receive: u64,
    /// How often this end waits for an answer in this exchange
    #[arg(long, value_name = "N", default_value_t = 1)]
    rounds: u32,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct TransportProbeReport {
    address: String,
    udp_passes: bool,
    tcp_passes: bool,
    round_trip_ms: f64,
    variation_ms: f64,
    packets: u32,
    packets_lost: u32,
    /// What is assumed for predictions.
    loss: f64,
    up_mbit: Option<f64>,
    down_mbit: Option<f64>,
    up: ProbeDirectionLimits,
    down: ProbeDirectionLimits,
    has_mptcp: bool,
    took_ms: f64,
    transport: &'static str,
    reason: String,
    predictions: Vec<TransportPrediction>,
}

/// What the hosts can do in a direction.
#[derive(Serialize)]
struct ProbeDirectionLimits {
    tcp_window_bytes: f64,
    udp_buffer_bytes: f64,
    congestion: &'static str,
    reading_mbit: f64,
}

#[derive(Serialize)]
struct TransportPrediction {
    transport: &'static str,
    seconds: Option<f64>,
    unusable: Option<String>,
}

/// Probes.
///
/// # Errors
/// If nothing passes.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    // It has no handshake. Predictions are those of encrypted connections.
    let security = ConnectionSecurity::open(random_identity().map_err(|error| failed(&error))?);
    let exchange = ExchangeProfile {
        sent: arguments.bytes,
        received: arguments.receive,
        rounds: arguments.rounds,
    };
    let examined = examine(&arguments.address, &ConnectionOptions::new(security), exchange)
        .map_err(|error| failed(&error))?;
    let report = report(examined);
    if arguments.json {
        return console::print_json(&report);
    }
    print(&report)
}

fn report(examined: PathExamination) -> TransportProbeReport {
    let PathExamination { address, measured, tcp_connected, path, decision, took, .. } = examined;
    let end = |direction: &transport::model::PathDirection| ProbeDirectionLimits {
        tcp_window_bytes: direction.tcp_window,
        udp_buffer_bytes: direction.udp_buffer,
        congestion: direction.congestion.name(),
        reading_mbit: direction.reading_rate * 8e-6,
    };
    let prediction = |candidate: &TransportCandidate| TransportPrediction {
        transport: candidate.transport,
        seconds: candidate.predicted.ok().map(|it| it.as_secs_f64()),
        unusable: candidate.predicted.err().map(|error| error.to_string()),
    };
    TransportProbeReport {
        address: address.to_string(),
        udp_passes: measured.is_some(),
        tcp_passes: tcp_connected.is_some(),
        round_trip_ms: ms(path.round_trip),
        variation_ms: ms(path.variation),
        packets: measured.map_or(0, |it| it.sent),
        packets_lost: measured.map_or(0, |it| it.lost),
        loss: path.loss,
        up_mbit: measured.and_then(|it| it.up).map(|rate| rate.rate * 8e-6),
        down_mbit: measured.and_then(|it| it.down).map(|rate| rate.rate * 8e-6),
        up: end(&path.up),
        down: end(&path.down),
        has_mptcp: path.has_mptcp,
        took_ms: ms(took),
        transport: decision.transport,
        reason: decision.reason,
        predictions: decision.candidates.iter().map(prediction).collect(),
    }
}

fn print(report: &TransportProbeReport) -> Result<(), CommandFailure> {
    let line = |name: &str, value: &str| console::print_line(&format!("{name:<14}{value}"));
    line("address", &report.address)?;
    let passes = |passes: bool| if passes { "passes" } else { "does not pass" };
    line("UDP", passes(report.udp_passes))?;
    line("TCP", passes(report.tcp_passes))?;
    let (round_trip, variation) = (report.round_trip_ms, report.variation_ms);
    line("round trip", &format!("{round_trip:.2} ms, varies by {variation:.2} ms"))?;
    let (packets, lost) = (report.packets, report.packets_lost);
    line("loss", &format!("{lost} of {packets} packets and answers"))?;
    for (name, rate, end) in
        [("up", report.up_mbit, &report.up), ("down", report.down_mbit, &report.down)]
    {
        let rate = rate.map_or("not measured".to_owned(), |mbit| format!("{mbit:.1} Mbit/s"));
        line(name, &rate)?;
        let window = end.tcp_window_bytes / 1e6;
        let (congestion, reading) = (end.congestion, end.reading_mbit);
        let buffer = end.udp_buffer_bytes / 1e6;
        let text = format!(
            "TCP {congestion}, {window:.1} MB; UDP {buffer:.1} MB; reads {reading:.0} Mbit/s"
        );
        line(&format!("  {name} hosts"), &text)?;
    }
    line("MPTCP", if report.has_mptcp { "at both hosts" } else { "not at both hosts" })?;
    line("measured in", &format!("{:.1} ms", report.took_ms))?;
    console::print_line("")?;
    let rows: Vec<[String; 2]> = report
        .predictions
        .iter()
        .map(|it| {
            let text = match (it.seconds, &it.unusable) {
                (Some(seconds), _) => format!("{seconds:.3} s"),
                (None, why) => why.clone().unwrap_or_default(),
            };
            [it.transport.to_owned(), text]
        })
        .collect();
    for row in aligned(&[ColumnAlignment::Left, ColumnAlignment::Right], &rows).lines() {
        console::print_line(row)?;
    }
    console::print_line("")?;
    line("auto", &format!("{}: {}", report.transport, report.reason))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
