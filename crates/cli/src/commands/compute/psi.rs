//! `sunder compute psi`: the values that a column of each party's table have in common.

mod sets;
mod table;

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use circuit::{Circuit, Schedule, generate};
use compute::{Learns, Role, Session};
use serde::Serialize;

use super::connection::{Connecting, Met, meet};
use super::{OutputTo, Protocol, RoleName, failed};
use crate::console;
use crate::failure::Failure;
use sets::{NUMBER_BITS, OwnSet};

/// Finds the values that one column of each party's CSV file have in common.
///
/// Each party learns these values, and of the others only that there are at most --rows. Values are
/// compared as they are, without spaces around them. Both parties give the same --rows.
///
/// Security is semi-honest: it holds if both parties run this program unchanged. A party can put
/// any values into its own file, and learns which of them the other has.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(super) struct Arguments {
    /// The file: comma-separated values, the first row has the names of the columns
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The name of the column
    #[arg(long, value_name = "NAME")]
    column: String,
    /// The most different values of a party: more take more time
    #[arg(long, value_name = "N", default_value = "1000",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rows: u32,
    /// This party's role; the other party has the other one
    #[arg(long, value_enum)]
    role: RoleName,
    #[command(flatten)]
    connecting: Connecting,
    #[command(flatten)]
    protocol: Protocol,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Example, on one machine:
  sunder compute psi a.csv --column email --role garbler --listen 127.0.0.1:7001 &
  sunder compute psi b.csv --column email --role evaluator --connect 127.0.0.1:7001";

#[derive(Serialize)]
struct Document<'a> {
    role: String,
    /// `null` if this party does not learn them.
    common: Option<&'a [String]>,
    own_values: usize,
    rows: u32,
    ands: u64,
    transport: &'a str,
    bytes_sent: u64,
    bytes_received: u64,
    run_s: f64,
}

/// Finds the common values.
///
/// # Errors
/// If the file has no such column or too many values, or the other party fails.
pub(super) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let role = arguments.role.role();
    let mut settings = arguments.protocol.settings();
    let is_told = match arguments.protocol.output_to() {
        OutputTo::Both => true,
        OutputTo::Evaluator => role == Role::Evaluator,
        OutputTo::Garbler => {
            let message = "--output-to garbler: let that party be the evaluator instead";
            return Err(Failure::Usage(message.into()));
        }
    };
    let values = table::column(&arguments.file, &arguments.column)?;
    let set = OwnSet::new(values, role, arguments.rows as usize)?;
    let role_name = role.other();
    let rest = format!("psi FILE --column NAME --rows {} --role {role_name}", arguments.rows);
    let Met { connection, .. } = meet(&arguments.connecting, None, &rest)?;
    let begun = Instant::now();
    let transport = connection.transport();
    // The garbler knows the order of this output: it gets the common values in another instance.
    settings.learns = Learns::Evaluator;
    let mut session = Session::start(connection, role, settings).map_err(|error| failed(&error))?;
    let schedule = Schedule::new(&generate::intersection(arguments.rows, NUMBER_BITS));
    let output = session.run(&mut schedule.source(), &set.input()?);
    let mut common = output.map_err(|error| failed(&error))?;
    if matches!(arguments.protocol.output_to(), OutputTo::Both) {
        common = tell(&mut session, common, arguments.rows)?;
    }
    let common = common.map(|numbers| set.named(&numbers));
    let (sent, received) = (session.figures().map(|it| it.bytes_sent), session.figures());
    let document = Document {
        role: role.to_string(),
        common: if is_told { common.as_deref() } else { None },
        own_values: set.len(),
        rows: arguments.rows,
        ands: schedule.shape().ands,
        transport,
        bytes_sent: sent.iter().sum(),
        bytes_received: received.iter().map(|it| it.bytes_received).sum(),
        run_s: begun.elapsed().as_secs_f64(),
    };
    session.finish().map_err(|error| failed(&error))?;
    print(&document, arguments.json)
}

/// The evaluator tells the garbler the common numbers, in ascending order, as its input of another
/// circuit.
fn tell(
    session: &mut Session,
    common: Option<Vec<u8>>,
    rows: u32,
) -> Result<Option<Vec<u8>>, Failure> {
    let mut circuit = Circuit::new(&[0, rows * NUMBER_BITS]);
    let input: Vec<_> = circuit.input(1).collect();
    circuit.output(&input);
    session.set_learns(Learns::Both);
    let told = common.map_or_else(Vec::new, |numbers| sets::sorted(&numbers));
    let told = session.run(&mut Schedule::new(&circuit).source(), &told);
    told.map_err(|error| failed(&error))
}

fn print(document: &Document, json: bool) -> Result<(), Failure> {
    if json {
        return console::print_json(document);
    }
    let Some(common) = document.common else {
        console::note("the common values are the other party's only");
        return Ok(());
    };
    for value in common {
        console::print_line(value)?;
    }
    // The result is printed already.
    let _ = std::io::stdout().flush();
    console::note(&format!(
        "{} of {} values are common; {:.3} s by {}",
        common.len(),
        document.own_values,
        document.run_s,
        document.transport
    ));
    Ok(())
}
