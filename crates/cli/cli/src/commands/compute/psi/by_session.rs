//! Common values by an oblivious pseudorandom function, and counts and sums by a commutative
//! encryption.

use std::time::Instant;

use blocks::Block;
use compute::peak_memory;
use console::{CommandFailure, CommandProgress};
use psi::{
    MAX_SUM, PsiFunction, PsiLearners, PsiNumbers, PsiOutcome, PsiProgress, PsiRole, PsiSession,
    PsiTerms, PsiTraffic,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use transport::{Connection, ExchangeProfile};

use super::super::connection::{self, PartyConnection};
use super::table::{PsiTable, PsiTableSource, TableNumbers};
use super::{Arguments, PsiResult, failed, prediction, protocol_name};

/// The round trips of a run: the terms and transfers, the bins or points, and the result. A sum
/// takes one more, in which it is decrypted.
const ROUND_TRIPS: u32 = 3;

#[derive(Serialize)]
struct PsiSessionDocument<'a> {
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
    let numbers = numbers(arguments, &table, &digests)?;
    let function = function(arguments, numbers.as_ref());
    let exchange = exchange(role, &function, PsiTraffic::of_function(&function, size, size));
    if arguments.dry_run {
        return prediction::predict(arguments, size, load, exchange, &function);
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
    let outcome = compute(connection, arguments, &terms, &items, function)?;
    let run_s = connected.elapsed().as_secs_f64();
    let PsiOutcome { common, count, sum, other_size, traffic } = outcome;
    let common = common.map(|places| places.into_iter().map(|it| digests[it]).collect());
    let ExchangeProfile { sent, received, .. } = self::exchange(role, &function, traffic);
    let document = PsiSessionDocument {
        role: role.to_string(),
        protocol: protocol_name(&function),
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
    let own_values = items.len();
    PsiResult { table: &table, common, count, sum, own_values, run_s, transport }
        .print(arguments, &document)
}

/// The numbers that are summed, if this party has them.
///
/// # Errors
/// If they are too large.
fn numbers(
    arguments: &Arguments,
    table: &PsiTable,
    digests: &[u128],
) -> Result<Option<TableNumbers>, CommandFailure> {
    let (PsiRole::Sender, Some(column)) = (arguments.role.role(), &arguments.sum) else {
        return Ok(None);
    };
    let numbers = table.numbers(digests).filter(|numbers| {
        let sum: u128 = numbers.values.iter().map(|it| u128::from(it.unsigned_abs())).sum();
        sum <= u128::from(MAX_SUM.unsigned_abs())
    });
    let numbers = numbers.ok_or_else(|| {
        CommandFailure::Usage(format!(
            "the numbers in {column} are too large: without signs and points, they may be \
             {MAX_SUM} in all; write them in a larger unit, or with fewer decimal places"
        ))
    })?;
    Ok(Some(numbers))
}

/// What is computed.
fn function<'a>(arguments: &Arguments, numbers: Option<&'a TableNumbers>) -> PsiFunction<'a> {
    match &arguments.sum {
        Some(column) => PsiFunction::Sum(PsiNumbers {
            column: Sha256::digest(column).into(),
            values: numbers.map_or(&[], |numbers| &numbers.values),
            decimals: numbers.map_or(0, |numbers| numbers.decimals),
        }),
        None if arguments.count => PsiFunction::Count,
        None => PsiFunction::Common,
    }
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
fn exchange(role: PsiRole, function: &PsiFunction<'_>, traffic: PsiTraffic) -> ExchangeProfile {
    let (sent, received) = match role {
        PsiRole::Receiver => (traffic.receiver, traffic.sender),
        PsiRole::Sender => (traffic.sender, traffic.receiver),
    };
    let decrypting = u32::from(matches!(function, PsiFunction::Sum(_)));
    ExchangeProfile { sent, received, rounds: ROUND_TRIPS + decrypting }
}

/// Computes over a connection, and shows how far it is. The run is recorded as soon as the other
/// party has agreed, before anything is sent that depends on a value.
fn compute(
    connection: Connection,
    arguments: &Arguments,
    terms: &PsiTerms,
    items: &[Block],
    function: PsiFunction<'_>,
) -> Result<PsiOutcome, CommandFailure> {
    let budget = arguments.budget_of(connection.peer())?;
    let limited = connection.set_timeout(Some(arguments.protocol.timeout()));
    limited.map_err(|error| CommandFailure::Failed(error.to_string()))?;
    let (reader, writer) = connection.split();
    let session = PsiSession::agree(reader, writer, terms, items, function);
    let session = session.map_err(|error| failed(&error))?;
    if let Some(budget) = budget {
        budget.charge(arguments.result_name(), session.other_guesses())?;
    }
    let mut shown: Option<(CommandProgress, u64)> = None;
    let mut show = |progress: PsiProgress| {
        let (bar, done) = shown.get_or_insert_with(|| (CommandProgress::new(Some(progress.of)), 0));
        bar.advance(usize::try_from(progress.done.saturating_sub(*done)).unwrap_or(0));
        *done = progress.done;
    };
    session.run(&mut show).map_err(|error| failed(&error))
}
