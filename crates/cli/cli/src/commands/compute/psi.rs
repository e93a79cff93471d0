//! `sunder compute psi`: the rows of this party's table whose key the other party's table has too.

mod by_circuit;
mod by_oprf;
mod normalize;
mod numbers;
mod prediction;
mod quotes;
mod table;

use std::path::PathBuf;

use clap::ValueEnum;
use compute::ComputeRole;
use console::CommandFailure;
use psi::{Error, MAX_ITEMS, PsiNormalization, PsiRole};
use serde::Serialize;

use super::connection::ComputeConnectOptions;
use super::phases::PhaseFileOptions;
use super::{ComputeProtocolName, ComputeProtocolOptions, OutputRecipient};
use normalize::NormalizationRuleName;
use table::{PsiTable, PsiTableSource};

/// Finds the values that one column of each party's CSV file have in common.
///
/// Each party learns these values, and about the others only how many different ones there are;
/// with --rows only that there are at most so many. The file may be compressed by gzip.
///
/// Security is semi-honest: it holds if both parties run this program unchanged. A party can put
/// any values into its own file, and learns which of them the other party has.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The file: comma-separated values, with the names of the columns in the first row
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The name of the column [default: the only one]. Of several, all values of a row must be
    /// equal; both parties give them in the same order
    #[arg(long, value_name = "NAME")]
    column: Vec<String>,
    /// How values are made equal that are written differently: one rule for all columns, or one for
    /// each. Both parties give the same
    #[arg(long, value_enum, value_name = "RULE", value_delimiter = ',')]
    normalize: Vec<NormalizationRuleName>,
    /// The character between the columns
    #[arg(long, value_name = "CHARACTER", default_value = ",", value_parser = delimiter)]
    delimiter: u8,
    /// Hide how many different values there are: the other party learns only that there are at most
    /// N, and the run costs as much as with N. With --protocol circuit both parties give the same N
    /// [default there: 1000]
    #[arg(long, value_name = "N",
          value_parser = clap::value_parser!(u32).range(1..=MAX_ITEMS as i64))]
    rows: Option<u32>,
    /// What to print of what is common
    #[arg(long, value_enum, value_name = "WHAT", default_value = "values")]
    print: PrintedResult,
    /// This party's role; the other party takes the other role
    #[arg(long, value_enum)]
    role: PsiRoleName,
    /// The protocol: oprf, or circuit or gmw for comparison: they are far slower
    #[arg(long = "protocol", value_enum, value_name = "NAME", default_value = "oprf")]
    protocol_name: PsiProtocolName,
    #[command(flatten)]
    connecting: ComputeConnectOptions,
    #[command(flatten)]
    protocol: ComputeProtocolOptions,
    /// Predict the bytes, round trips and time of a run, for the path to the party that listens at
    /// --connect
    #[arg(long)]
    dry_run: bool,
    /// Show why auto uses this transport
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    phases: PhaseFileOptions,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Example, on two hosts: the party that listens prints the command for the other,
with its key.
  sunder compute psi a.csv --column email --role sender --listen 0.0.0.0:7001

Example, on one host:
  sunder compute psi a.csv --column email --role sender --listen 127.0.0.1:7001 &
  sunder compute psi b.csv --column email --role receiver --connect 127.0.0.1:7001";

fn delimiter(text: &str) -> Result<u8, &'static str> {
    match text.as_bytes() {
        &[byte] if byte.is_ascii() && !b"\"\r\n".contains(&byte) => Ok(byte),
        _ => Err("it must be one ASCII character, but not a quote or line end"),
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum PrintedResult {
    /// The common values, in ascending order
    Values,
    /// The first row of the file and the rows with common values, as they are in the file
    Rows,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PsiProtocolName {
    /// An oblivious pseudorandom function: a million rows in seconds
    Oprf,
    /// A garbled circuit (Yao)
    #[value(alias = "yao")]
    Circuit,
    /// A circuit that both evaluate on shares (GMW)
    Gmw,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PsiRoleName {
    /// Learns the common values first; with --output-to receiver, only this party does
    #[value(alias = "evaluator")]
    Receiver,
    /// The other party
    #[value(alias = "garbler")]
    Sender,
}

impl PsiRoleName {
    fn role(self) -> PsiRole {
        match self {
            Self::Receiver => PsiRole::Receiver,
            Self::Sender => PsiRole::Sender,
        }
    }

    /// The role in the protocols for circuits.
    fn compute_role(self) -> ComputeRole {
        match self {
            Self::Receiver => ComputeRole::Evaluator,
            Self::Sender => ComputeRole::Garbler,
        }
    }
}

impl Arguments {
    /// Whether both parties learn what is common.
    ///
    /// # Errors
    /// If only the sender is to.
    fn is_for_both(&self) -> Result<bool, CommandFailure> {
        match self.protocol.output_to() {
            OutputRecipient::Both => Ok(true),
            OutputRecipient::Evaluator => Ok(false),
            OutputRecipient::Garbler => {
                let message =
                    "only the receiver can be the only one that learns: swap the roles instead";
                Err(CommandFailure::Usage(message.into()))
            }
        }
    }

    /// What the other party's command has besides the address.
    fn others_command(&self, rows: &str) -> String {
        let columns = if self.column.len() < 2 {
            " --column NAME".to_owned()
        } else {
            " --column NAME".repeat(self.column.len())
        };
        let rules: Vec<&str> = self.normalize.iter().map(|it| it.rule().name()).collect();
        let rules = if rules.is_empty() {
            String::new()
        } else {
            format!(" --normalize {}", rules.join(","))
        };
        let protocol = match self.protocol_name {
            PsiProtocolName::Oprf => "",
            PsiProtocolName::Circuit => " --protocol circuit",
            PsiProtocolName::Gmw => " --protocol gmw",
        };
        let (circuit, recipient) =
            (self.protocol.circuit_options(), self.protocol.recipient_option());
        let role = self.role.role().other();
        format!("psi FILE{columns}{rules}{rows} --role {role}{protocol}{circuit}{recipient}")
    }
}

/// Finds what is common.
///
/// # Errors
/// If the file has no such column or too many values, or the other party fails.
pub(super) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    arguments.is_for_both()?;
    let rules: Vec<PsiNormalization> = arguments.normalize.iter().map(|it| it.rule()).collect();
    let source = PsiTableSource {
        path: &arguments.file,
        columns: &arguments.column,
        rules: &rules,
        delimiter: arguments.delimiter,
    };
    match arguments.protocol_name {
        PsiProtocolName::Oprf => by_oprf::run(arguments, &source),
        PsiProtocolName::Circuit => by_circuit::run(arguments, ComputeProtocolName::Yao, &source),
        PsiProtocolName::Gmw => by_circuit::run(arguments, ComputeProtocolName::Gmw, &source),
    }
}

/// What a run has found.
struct PsiResult<'a> {
    table: &'a PsiTable,
    /// The digests of the common keys, in ascending order. `None` if this party does not learn
    /// them.
    common: Option<Vec<u128>>,
    own_values: usize,
    run_s: f64,
    transport: &'a str,
}

/// A run's result and costs.
#[derive(Serialize)]
struct PsiDocument<'a, C> {
    /// `null` if this party does not learn them.
    common: Option<Vec<String>>,
    #[serde(flatten)]
    costs: &'a C,
}

impl PsiResult<'_> {
    /// Prints it: what is common, or everything as JSON.
    fn print(&self, arguments: &Arguments, costs: &impl Serialize) -> Result<(), CommandFailure> {
        let keys =
            || self.common.as_ref().map(|common| self.table.keys_of(common).into_iter().collect());
        if arguments.json {
            return console::print_json(&PsiDocument { common: keys(), costs });
        }
        let Some(common) = &self.common else {
            console::note("only the other party learns the common values");
            return Ok(());
        };
        match arguments.print {
            PrintedResult::Values => {
                for key in keys().unwrap_or_else(Vec::new) {
                    console::print_line(&key)?;
                }
            }
            PrintedResult::Rows => {
                for row in self.table.rows_of(common) {
                    console::print(row)?;
                }
            }
        }
        let Self { own_values, run_s, transport, .. } = self;
        let count = common.len();
        console::note(&format!(
            "{count} of {own_values} values are common; {run_s:.3} s by {transport}"
        ));
        Ok(())
    }
}

/// Converts an error of the crate to a failure of the command.
fn failed(error: &Error) -> CommandFailure {
    let message = error.to_string();
    match error {
        Error::Io(source) => match transport::Error::of(source) {
            Some(error) => crate::commands::transport::failed(error),
            None => CommandFailure::Failed(message),
        },
        Error::Malformed(_) | Error::Transfer(_) => CommandFailure::Refused(message),
        Error::Version { .. }
        | Error::SameRole { .. }
        | Error::Differs { .. }
        | Error::NotThisProtocol
        | Error::TooMany { .. } => CommandFailure::Usage(message),
        Error::Ended | Error::Silent | Error::NoBin | Error::Random(_) => {
            CommandFailure::Failed(message)
        }
    }
}
