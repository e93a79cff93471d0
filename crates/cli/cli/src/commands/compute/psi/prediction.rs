//! What a run will take.

use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use blocks::Block;
use console::CommandFailure;
use psi::{PsiFunction, PsiLearners, PsiNumbers, PsiRole, PsiSession, PsiTerms};
use serde::Serialize;
use transport::ExchangeProfile;

use super::super::network;
use super::{Arguments, failed, protocol_name};

/// The number of items of a measurement: of masks by an oblivious pseudorandom function, and by
/// points, which take far longer.
const MEASURED_ITEMS: usize = 20_000;
const MEASURED_POINTS: usize = 2_000;

#[derive(Serialize)]
struct PsiPredictionDocument<'a> {
    protocol: &'a str,
    /// The number of values of each party.
    values: usize,
    bytes_sent: u64,
    bytes_received: u64,
    round_trips: u32,
    /// Reading this party's file, as measured.
    load_s: f64,
    compute_s: f64,
    /// `null` if no address was given.
    network_s: Option<f64>,
    transport: Option<&'a str>,
    reason: Option<&'a str>,
    /// All of it, from the beginning on.
    predicted_s: f64,
}

/// Predicts a run in which both parties have so many values, and prints that.
///
/// # Errors
/// If nobody listens at the address.
pub(super) fn predict(
    arguments: &Arguments,
    values: usize,
    load: Duration,
    exchange: ExchangeProfile,
    function: &PsiFunction<'_>,
) -> Result<(), CommandFailure> {
    let connecting = &arguments.connecting;
    let network = match &connecting.connect {
        Some(address) => {
            let role = arguments.role.compute_role();
            Some(network::examined(connecting, address, exchange, role)?)
        }
        None => None,
    };
    let compute = measure(values, function)?;
    let time = network.as_ref().and_then(|network| network.time);
    let document = PsiPredictionDocument {
        protocol: protocol_name(function),
        values,
        bytes_sent: exchange.sent,
        bytes_received: exchange.received,
        round_trips: exchange.rounds,
        load_s: load.as_secs_f64(),
        compute_s: compute.as_secs_f64(),
        network_s: time.map(|it| it.as_secs_f64()),
        transport: network.as_ref().map(|it| it.transport),
        reason: network.as_ref().map(|it| &it.reason[..]),
        predicted_s: (load + compute + time.unwrap_or_default()).as_secs_f64(),
    };
    if arguments.json { console::print_json(&document) } else { print(&document) }
}

/// How long both parties compute, by a measurement on this host.
fn measure(values: usize, function: &PsiFunction<'_>) -> Result<Duration, CommandFailure> {
    let small = run(0, function)?;
    let most = match function {
        PsiFunction::Common => MEASURED_ITEMS,
        PsiFunction::Count | PsiFunction::Sum(_) => MEASURED_POINTS,
    };
    let measured = values.min(most);
    let large = run(measured, function)?;
    #[expect(clippy::cast_precision_loss, reason = "at most 2^24")]
    let times = values as f64 / measured.max(1) as f64;
    Ok(small + large.saturating_sub(small).mul_f64(times))
}

/// A run of so many items with itself.
fn run(items: usize, function: &PsiFunction<'_>) -> Result<Duration, CommandFailure> {
    let system = |error: std::io::Error| CommandFailure::Failed(error.to_string());
    let (here, there) = UnixStream::pair().map_err(system)?;
    let zeros = vec![0; items];
    let function = match function {
        PsiFunction::Sum(numbers) => {
            PsiFunction::Sum(PsiNumbers { values: &zeros, decimals: 0, ..*numbers })
        }
        function => *function,
    };
    let party = |stream: UnixStream, role| {
        let items: Vec<Block> = (0..items as u128).map(Block::from).collect();
        let (learners, comparison) = (PsiLearners::Receiver, [0; 32]);
        let terms = PsiTerms { role, learners, hidden_size: None, comparison };
        let reader = stream.try_clone()?;
        PsiSession::agree(reader, stream, &terms, &items, function)?.run(&mut |_| {}).map(drop)
    };
    let begun = Instant::now();
    let (ours, theirs) = thread::scope(|scope| {
        let sender = || party(there, PsiRole::Sender);
        let other = thread::Builder::new().spawn_scoped(scope, sender);
        let ours = party(here, PsiRole::Receiver);
        Ok::<_, CommandFailure>((ours, other.map_err(system)?.join()))
    })?;
    ours.map_err(|error| failed(&error))?;
    theirs
        .map_err(|_| CommandFailure::Failed("the measurement has failed".into()))?
        .map_err(|error| failed(&error))?;
    Ok(begun.elapsed())
}

fn print(document: &PsiPredictionDocument) -> Result<(), CommandFailure> {
    let line = |name: &str, value: String| console::print_line(&format!("{name:<14}{value}"));
    let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    line("values", format!("{} at each party", document.values))?;
    line("sent", format!("{} bytes", document.bytes_sent))?;
    line("received", format!("{} bytes", document.bytes_received))?;
    line("round trips", document.round_trips.to_string())?;
    line("reading", ms(document.load_s))?;
    line("computing", ms(document.compute_s))?;
    match (document.network_s, document.transport, document.reason) {
        (Some(network), Some(transport), Some(reason)) => {
            line("network", format!("{} by {transport}: {reason}", ms(network)))?;
        }
        _ => line("network", "unknown: --connect measures the path to the other party".into())?,
    }
    line("in all", ms(document.predicted_s))
}
