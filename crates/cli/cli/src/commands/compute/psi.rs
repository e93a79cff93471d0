//! `sunder compute psi`: the rows of this party's table whose key the other party's table has too,
//! or how many they are.

mod by_circuit;
mod by_session;
mod decimal;
mod normalize;
mod numbers;
mod prediction;
mod quotes;
mod record;
pub(super) mod runs;
mod table;

use std::path::PathBuf;

use clap::ValueEnum;
use compute::ComputeRole;
use console::CommandFailure;
use keys::IdentityPublicKey;
use psi::{Error, MAX_ITEMS, PsiFunction, PsiNormalization, PsiRole, PsiSum};
use serde::Serialize;

use super::connection::ComputeConnectOptions;
use super::phases::PhaseFileOptions;
use super::{ComputeProtocolName, ComputeProtocolOptions};
use normalize::NormalizationRuleName;
use record::{PsiBudget, PsiBudgetOptions};
use table::{PsiTable, PsiTableSource};

/// Finds the values that one column of each party's CSV file have in common.
///
/// Each party learns these values, and about the others only how many different ones there are;
/// with --rows only that there are at most so many. With --count or --sum it learns only how many
/// are common, and a sum. The file may be compressed by gzip.
///
/// A party can put any values into its own file, and learns which of them the other party has.
/// --max-runs and --max-rows limit this. A receiver that runs a changed program learns no more from
/// a run, except with --count, --sum, or --protocol. A sender that runs a changed program can learn
/// more if it learns the result (--output-to).
#[derive(clap::Args)]
#[command(after_help = HELP)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
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
    #[arg(long, value_enum, value_name = "WHAT", default_value = "values",
          conflicts_with_all = ["count", "sum"])]
    print: PrintedResult,
    /// Compute only how many values are common: neither party learns which. A million values of
    /// each party take minutes
    #[arg(long, conflicts_with = "protocol_name")]
    count: bool,
    /// Compute only how many values are common, and the sum of the numbers in this column of the
    /// sender's file for them. Both parties give the same name
    #[arg(long, value_name = "COLUMN", conflicts_with_all = ["count", "protocol_name"])]
    sum: Option<String>,
    /// This party's role; the other party takes the other role
    #[arg(long, value_enum)]
    role: PsiRoleName,
    /// Who learns the result
    #[arg(long, value_enum, value_name = "WHO", default_value = "both")]
    output_to: PsiOutputRecipient,
    /// Only the receiver learns the result, as with --output-to receiver
    #[arg(long, conflicts_with = "output_to")]
    private_output: bool,
    #[command(flatten)]
    budget: PsiBudgetOptions,
    /// The protocol: oprf, or circuit or gmw for comparison: they are far slower
    /// [default: oprf]
    #[arg(long = "protocol", value_enum, value_name = "NAME")]
    protocol_name: Option<PsiProtocolName>,
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

#[derive(Clone, Copy, ValueEnum)]
enum PsiOutputRecipient {
    /// Both parties
    Both,
    /// The receiver only
    #[value(alias = "evaluator")]
    Receiver,
    /// It is an error with an explanation
    #[value(alias = "garbler", hide = true)]
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
        match self.output_to {
            PsiOutputRecipient::Both => Ok(!self.private_output),
            PsiOutputRecipient::Receiver => Ok(false),
            PsiOutputRecipient::Sender => {
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
        let result = match &self.sum {
            Some(column) => format!(" --sum {}", quoted(column)),
            None if self.count => " --count".to_owned(),
            None => String::new(),
        };
        let protocol = match self.protocol_name {
            None | Some(PsiProtocolName::Oprf) => "",
            Some(PsiProtocolName::Circuit) => " --protocol circuit",
            Some(PsiProtocolName::Gmw) => " --protocol gmw",
        };
        let circuit = self.protocol.circuit_options();
        let recipient = match self.is_for_both() {
            Ok(false) => " --output-to receiver",
            _ => "",
        };
        let role = self.role.role().other();
        format!(
            "psi FILE{columns}{rules}{rows}{result} --role {role}{protocol}{circuit}{recipient}"
        )
    }

    /// What is computed, in the record of runs.
    fn result_name(&self) -> &'static str {
        match &self.sum {
            Some(_) => "sum",
            None if self.count => "count",
            None => "values",
        }
    }

    /// The budget of the other party, from whose key a connection is. `None` if it learns nothing.
    ///
    /// # Errors
    /// If it has used it up, or it cannot be recorded.
    fn budget_of(
        &self,
        peer: Option<IdentityPublicKey>,
    ) -> Result<Option<PsiBudget<'_>>, CommandFailure> {
        if !self.is_for_both()? && self.role.role() == PsiRole::Receiver {
            return Ok(None);
        }
        let named = peer.filter(|peer| self.connecting.names(peer));
        let budget = PsiBudget::new(&self.budget, named)?;
        budget.check()?;
        Ok(Some(budget))
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
        numbers: match arguments.role.role() {
            PsiRole::Sender => arguments.sum.as_deref(),
            PsiRole::Receiver => None,
        },
    };
    match arguments.protocol_name {
        None | Some(PsiProtocolName::Oprf) => by_session::run(arguments, &source),
        Some(PsiProtocolName::Circuit) => {
            by_circuit::run(arguments, ComputeProtocolName::Yao, &source)
        }
        Some(PsiProtocolName::Gmw) => by_circuit::run(arguments, ComputeProtocolName::Gmw, &source),
    }
}

/// The name of the protocol that computes a function without a circuit.
fn protocol_name(function: &PsiFunction<'_>) -> &'static str {
    match function {
        PsiFunction::Common => "oprf",
        PsiFunction::Count | PsiFunction::Sum(_) => "ddh",
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// What a run has found.
struct PsiResult<'a> {
    table: &'a PsiTable,
    /// The digests of the common keys, in ascending order. `None` if this party does not learn
    /// them.
    common: Option<Vec<u128>>,
    /// How many they are. `None` if this party does not learn that.
    count: Option<usize>,
    /// The sum of the sender's numbers for them, if this party learns it.
    sum: Option<PsiSum>,
    own_values: usize,
    run_s: f64,
    transport: &'a str,
}

/// A run's result and costs.
#[derive(Serialize)]
struct PsiDocument<'a, C> {
    /// `null` if this party does not learn them.
    common: Option<Vec<String>>,
    /// `null` if this party does not learn it.
    count: Option<usize>,
    /// `null` if this party does not learn it, or no numbers are summed.
    sum: Option<f64>,
    #[serde(flatten)]
    costs: &'a C,
}

impl PsiResult<'_> {
    /// Prints it: what is common, or everything as JSON.
    fn print(&self, arguments: &Arguments, costs: &impl Serialize) -> Result<(), CommandFailure> {
        let keys =
            || self.common.as_ref().map(|common| self.table.keys_of(common).into_iter().collect());
        let Self { count, own_values, run_s, transport, .. } = self;
        let sum = self.sum.map(|sum| decimal::text(sum.value, sum.decimals));
        if arguments.json {
            // Sums have at most 13 digits, which such a number represents.
            let sum = sum.and_then(|sum| sum.parse().ok());
            return console::print_json(&PsiDocument { common: keys(), count: *count, sum, costs });
        }
        let Some(count) = count else {
            console::note("only the other party learns the result");
            return Ok(());
        };
        match (arguments.print, &self.common) {
            (_, None) => console::print_line(&sum.unwrap_or_else(|| count.to_string()))?,
            (PrintedResult::Values, Some(_)) => {
                for key in keys().unwrap_or_else(Vec::new) {
                    console::print_line(&key)?;
                }
            }
            (PrintedResult::Rows, Some(common)) => {
                for row in self.table.rows_of(common) {
                    console::print(row)?;
                }
            }
        }
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
        Error::Malformed(_) | Error::Transfer(_) | Error::TooManyGuesses { .. } => {
            CommandFailure::Refused(message)
        }
        Error::Version { .. }
        | Error::SameRole { .. }
        | Error::Differs { .. }
        | Error::NotThisProtocol
        | Error::TooMany { .. }
        | Error::TooLarge { .. } => CommandFailure::Usage(message),
        Error::Ended | Error::Silent | Error::NoBin | Error::Random(_) => {
            CommandFailure::Failed(message)
        }
    }
}
