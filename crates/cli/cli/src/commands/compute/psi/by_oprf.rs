//! Common values by an oblivious pseudorandom function.

use std::time::{Duration, Instant};

use blocks::Block;
use compute::peak_memory;
use console::{CommandFailure, CommandProgress};
use psi::{PsiLearners, PsiOutcome, PsiProgress, PsiTerms, PsiTraffic, find_common};
use serde::Serialize;
use transport::{Connection, ExchangeProfile};

use super::super::connection::{self, PartyConnection};
use super::table::PsiTableSource;
use super::{Arguments, PsiResult, failed, prediction};

/// The round trips of a run: the terms and transfers, the bins, and what is common.
const ROUND_TRIPS: u32 = 3;

#[derive(Serialize)]
struct OprfPsiDocument<'a> {
    role: String,
    protocol: &'a str,
    own_values: usize,
    /// The number that the other party has shown.
    other_values: u32,
    /// `null` if this party shows how many values it has.
    rows: Option<u32>,
    transport: &'a str,
    /// `null` if this party did not let `auto` choose it.
    reason: Option<&'a str>,
    load_s: f64,
    run_s: f64,
    total_s: f64,
    bytes_sent: u64,
    bytes_received: u64,
    peak_memory_bytes: u64,
}

/// Finds the common values, and prints them.
///
/// # Errors
/// If the file has no such column, or the other party fails.
pub(super) fn run(arguments: &Arguments, source: &PsiTableSource) -> Result<(), CommandFailure> {
    check_options(arguments)?;
    let Arguments { connecting, rows, .. } = arguments;
    let (begun, role) = (Instant::now(), arguments.role.role());
    let table = source.read()?;
    let digests = table.digests();
    let items: Vec<Block> = digests.iter().map(|digest| Block::from(*digest)).collect();
    let load = begun.elapsed();
    let size = rows.map_or(items.len(), |rows| rows as usize);
    if items.len() > size {
        return Err(CommandFailure::Usage(format!(
            "there are {} values, more than --rows {size}: give a higher --rows",
            items.len()
        )));
    }
    let traffic = PsiTraffic::of(size, size);
    let exchange = exchange(role, traffic);
    if arguments.dry_run {
        return prediction::predict(arguments, size, load, exchange);
    }
    let rest = arguments.others_command("");
    let exchange = connecting.is_auto_choice().then_some(exchange);
    let PartyConnection { connection, .. } =
        connection::connect_parties(connecting, exchange, &rest)?;
    let transport = connection.transport();
    let reason = connection.decision().map(|decision| decision.reason.clone());
    if arguments.explain {
        let reason = reason.as_deref().unwrap_or(connecting.default_reason());
        console::note(&format!("{transport}: {reason}"));
    }
    let learners = if arguments.is_for_both()? { PsiLearners::Both } else { PsiLearners::Receiver };
    let terms = PsiTerms { role, learners, hidden_size: *rows, comparison: table.comparison() };
    let connected = Instant::now();
    let timeout = arguments.protocol.timeout();
    let outcome = compute(connection, timeout, &terms, &items)?;
    let run_s = connected.elapsed().as_secs_f64();
    let PsiOutcome { common, other_size, traffic } = outcome;
    let common = common.map(|places| places.into_iter().map(|it| digests[it]).collect());
    let ExchangeProfile { sent, received, .. } = self::exchange(role, traffic);
    let document = OprfPsiDocument {
        role: role.to_string(),
        protocol: "oprf",
        own_values: items.len(),
        other_values: other_size,
        rows: *rows,
        transport,
        reason: reason.as_deref(),
        load_s: load.as_secs_f64(),
        run_s,
        total_s: begun.elapsed().as_secs_f64(),
        bytes_sent: sent,
        bytes_received: received,
        peak_memory_bytes: peak_memory(),
    };
    PsiResult { table: &table, common, own_values: items.len(), run_s, transport }
        .print(arguments, &document)
}

/// Refuses options that have no meaning here.
fn check_options(arguments: &Arguments) -> Result<(), CommandFailure> {
    let Arguments { protocol, phases, .. } = arguments;
    let given = [
        ("--scheme", protocol.scheme.is_some()),
        ("--transfers", protocol.transfers.is_some()),
        ("--threads", protocol.threads.is_some()),
        ("--phases", phases.is_given()),
    ];
    match given.into_iter().find(|(_, is_given)| *is_given) {
        Some((option, _)) => Err(CommandFailure::Usage(format!(
            "{option} has a meaning only with --protocol circuit or gmw; leave it out"
        ))),
        None => Ok(()),
    }
}

/// What a party of this role sends and receives.
fn exchange(role: psi::PsiRole, traffic: PsiTraffic) -> ExchangeProfile {
    let (sent, received) = match role {
        psi::PsiRole::Receiver => (traffic.receiver, traffic.sender),
        psi::PsiRole::Sender => (traffic.sender, traffic.receiver),
    };
    ExchangeProfile { sent, received, rounds: ROUND_TRIPS }
}

/// Computes over a connection, and shows how far it is.
fn compute(
    connection: Connection,
    timeout: Duration,
    terms: &PsiTerms,
    items: &[Block],
) -> Result<PsiOutcome, CommandFailure> {
    let limited = connection.set_timeout(Some(timeout));
    limited.map_err(|error| CommandFailure::Failed(error.to_string()))?;
    let (reader, writer) = connection.split();
    let mut shown: Option<(CommandProgress, u64)> = None;
    let mut show = |progress: PsiProgress| {
        let (bar, done) = shown.get_or_insert_with(|| (CommandProgress::new(Some(progress.of)), 0));
        bar.advance(usize::try_from(progress.done.saturating_sub(*done)).unwrap_or(0));
        *done = progress.done;
    };
    find_common(reader, writer, terms, items, &mut show).map_err(|error| failed(&error))
}
