//! `sunder transport measure`: what one exchange takes.

use console::CommandFailure;
use serde::Serialize;
use transport::measurement::{self, ExchangeTiming};
use transport::{ExchangeProfile, PathStatistics};

use super::connecting::TransportConnectOptions;
use super::failed;

/// Makes one exchange with `sunder transport serve` and prints how long it took.
///
/// The times are: until the connection is established, until the first byte of an answer arrives,
/// and until the other end's program has read everything and all its bytes have arrived.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder transport measure server.example:7000 --key KEY --send 3000000"
)]
pub(super) struct Arguments {
    /// Where `sunder transport serve` listens, HOST:PORT
    #[arg(value_name = "HOST:PORT")]
    address: String,
    /// The bytes to send, in all rounds together
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    send: u64,
    /// The bytes to receive, in all rounds together
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    receive: u64,
    /// The number of rounds: in each, this end sends a part and waits for the answer
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    rounds: u32,
    #[command(flatten)]
    connecting: TransportConnectOptions,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct TransportMeasureReport {
    transport: &'static str,
    /// Why `auto` has chosen it; `null` if it was named.
    reason: Option<String>,
    congestion: Option<String>,
    sent: u64,
    received: u64,
    rounds: u32,
    connected_s: f64,
    first_byte_s: f64,
    complete_s: f64,
    /// Of the larger direction, over the whole time.
    rate_mbit: f64,
    round_trip_ms: Option<f64>,
    packets_sent: Option<u64>,
    packets_sent_again: Option<u64>,
}

/// Runs the subcommand.
///
/// # Errors
/// If the exchange fails.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let options = arguments.connecting.options()?;
    let exchange = ExchangeProfile {
        sent: arguments.send,
        received: arguments.receive,
        rounds: arguments.rounds,
    };
    let timing = measurement::measure(&arguments.address, &options, exchange)
        .map_err(|error| failed(&error))?;
    let report = report(exchange, timing);
    if arguments.json {
        return console::print_json(&report);
    }
    print(&report)
}

fn report(exchange: ExchangeProfile, timing: ExchangeTiming) -> TransportMeasureReport {
    let PathStatistics { round_trip, congestion, packets_sent, packets_sent_again, .. } =
        timing.statistics.path;
    let complete_s = timing.complete.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "bytes are at most 2^40")]
    let bits = exchange.sent.max(exchange.received) as f64 * 8.0;
    TransportMeasureReport {
        transport: timing.transport,
        reason: timing.reason,
        congestion,
        sent: exchange.sent,
        received: exchange.received,
        rounds: exchange.rounds,
        connected_s: timing.connected.as_secs_f64(),
        first_byte_s: timing.first_byte.as_secs_f64(),
        complete_s,
        rate_mbit: bits / complete_s / 1e6,
        round_trip_ms: round_trip.map(|it| it.as_secs_f64() * 1e3),
        packets_sent,
        packets_sent_again,
    }
}

fn print(report: &TransportMeasureReport) -> Result<(), CommandFailure> {
    let line = |name: &str, value: String| console::print_line(&format!("{name:<12}{value}"));
    let name = match &report.congestion {
        Some(congestion) => format!("{}, {congestion}", report.transport),
        None => report.transport.to_owned(),
    };
    line("transport", name)?;
    if let Some(reason) = &report.reason {
        line("why", reason.clone())?;
    }
    line("connected", duration(report.connected_s))?;
    line("first byte", duration(report.first_byte_s))?;
    line("complete", duration(report.complete_s))?;
    line("rate", format!("{:.1} Mbit/s", report.rate_mbit))?;
    if let (Some(sent), Some(again)) = (report.packets_sent, report.packets_sent_again) {
        line("packets", format!("{sent}, {again} of them again"))?;
    }
    Ok(())
}

fn duration(seconds: f64) -> String {
    format!("{:.3} ms", seconds * 1e3)
}
