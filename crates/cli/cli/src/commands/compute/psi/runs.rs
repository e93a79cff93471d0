//! `sunder compute psi-runs`: what other parties have asked for.

use std::time::{Duration, UNIX_EPOCH};

use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};

use super::record;

/// Lists the runs of `sunder compute psi` in which other parties could learn something.
///
/// For each key that --key has named, and for all other parties together: the number of runs, and
/// the sum of the numbers of values with which they could ask. --max-runs and --max-rows of `sunder
/// compute psi` limit these.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder compute psi-runs --json")]
pub(crate) struct PsiRunsArguments {
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

/// Lists them.
///
/// # Errors
/// If a record cannot be read.
pub(crate) fn run(arguments: &PsiRunsArguments) -> Result<(), CommandFailure> {
    let records = record::all()?;
    if arguments.json {
        return console::print_json(&records);
    }
    if records.is_empty() {
        console::note("no party has learnt a result yet");
        return Ok(());
    }
    let mut rows = vec![["party", "runs", "values", "last"].map(str::to_owned)];
    rows.extend(records.iter().map(|record| {
        let party = record.key.clone().unwrap_or_else(|| "without --key".into());
        let last = record.latest.last().map_or_else(String::new, |run| {
            let at = UNIX_EPOCH + Duration::from_secs(run.unix_s);
            format!("{} ({})", humantime::format_rfc3339_seconds(at), run.result)
        });
        [party, record.runs.to_string(), record.rows.to_string(), last]
    }));
    let sides = [
        ColumnAlignment::Left,
        ColumnAlignment::Right,
        ColumnAlignment::Right,
        ColumnAlignment::Left,
    ];
    console::print(aligned(&sides, &rows).trim_end().as_bytes())
}
