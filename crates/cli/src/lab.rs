//! `sunder lab`: experiments on emulated networks, on this machine alone.

mod report;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use lab::experiment::{self, RunError};
use lab::{Experiment, ExperimentError, sandbox};
use serde::Serialize;

use crate::console;
use crate::failure::Failure;
use crate::progress::Progress;

/// Performs experiments on emulated networks.
///
/// A network is made of network namespaces on this machine; its links have the rate, delay and loss
/// that the experiment asks for. Needs no root where users may make namespaces, and leaves nothing
/// behind but its results.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example: sunder lab list; sunder lab run links --out results"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    List(List),
    Run(Run),
}

/// Lists the experiments that come with Sunder.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab list")]
struct List {
    /// Print one JSON document on standard output: name, about, paper and trials of each
    #[arg(long)]
    json: bool,
}

/// Performs an experiment.
///
/// Each trial that is done is on the disk at once: when a run is interrupted, by Ctrl-C or a failed
/// trial, the same command goes on after the last. Results are trials.jsonl, results.csv,
/// results.json and graphs as SVG; the table shows medians over the repetitions, and the least and
/// the most.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab run links --out results

docs/formats/experiment.md says how to write an experiment of your own.")]
struct Run {
    /// The name of an experiment that comes with Sunder, or the file of another, which ends in .toml
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: PathBuf,
    /// The directory for the results [default: lab-results/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print results.json's document on standard output instead of a table
    #[arg(long)]
    json: bool,
}

/// What `lab list` says of an experiment.
#[derive(Serialize)]
struct Entry {
    name: String,
    about: String,
    paper: Option<String>,
    trials: usize,
}

/// Does what is asked for.
///
/// # Errors
/// When the experiment or the directory is wrong, this system has no sandbox, or a trial fails.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::List(arguments) => list(arguments),
        Command::Run(arguments) => perform(arguments),
    }
}

fn list(arguments: &List) -> Result<(), Failure> {
    let experiments = experiment::built_in().map(|(name, text)| {
        let experiment = Experiment::parse(&file_of(name), text).map_err(|error| wrong(&error))?;
        Ok(Entry {
            name: name.into(),
            about: experiment.about().into(),
            paper: experiment.paper().map(str::to_owned),
            trials: experiment.trials(),
        })
    });
    let entries: Vec<Entry> = experiments.collect::<Result<_, Failure>>()?;
    if arguments.json { console::print_json(&entries) } else { report::list(&entries) }
}

fn perform(arguments: &Run) -> Result<(), Failure> {
    let experiment = read(&arguments.experiment)?;
    experiment.find_programs().map_err(|error| wrong(&error))?;
    let named = || Path::new("lab-results").join(experiment.name());
    let out = arguments.out.clone().unwrap_or_else(named);
    refuse_scratch(&out)?;
    if is_file(&arguments.experiment) {
        refuse_scratch(&arguments.experiment)?;
    }

    // From here on inside: this program is started once more there, and comes this far again.
    sandbox::enter().map_err(|error| Failure::Failed(error.to_string()))?;
    let progress = Progress::steps(experiment.trials() as u64);
    let mut done = 0;
    let results = experiment::run(&experiment, &out, |status| {
        progress.advance(status.done - done);
        done = status.done;
        progress.doing(status.now.clone().unwrap_or_default());
    });
    drop(progress);
    let results = results.map_err(|error| stopped(&error))?;
    if results.late() > 0 {
        console::warning(&format!(
            "{} of {} trials were measured while the emulator was late, by more than 1 ms for one packet \
             of 100, or missed packets (late_ms and missed in results.csv); leave this machine to it, or \
             ask for lower rates",
            results.late(),
            results.trials.len()
        ));
    }
    if arguments.json { console::print_json(&results) } else { report::results(&results, &out) }
}

/// Whether a file is asked for, and not the name of an experiment that comes with Sunder.
fn is_file(asked: &Path) -> bool {
    asked.extension().is_some_and(|extension| extension == "toml")
}

/// The experiment of a name, or in a file.
fn read(asked: &Path) -> Result<Experiment, Failure> {
    if is_file(asked) {
        let text = fs::read_to_string(asked).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => {
                Failure::Usage(format!("no such file: {}; check its name", asked.display()))
            }
            ErrorKind::InvalidData => Failure::Usage(format!(
                "{} is not text in UTF-8; name an experiment",
                asked.display()
            )),
            _ => Failure::Usage(format!("cannot read {}: {error}", asked.display())),
        })?;
        return Experiment::parse(asked, &text).map_err(|error| wrong(&error));
    }
    let found = experiment::built_in().find(|(name, _)| asked.as_os_str() == *name);
    let Some((name, text)) = found else {
        return Err(Failure::Usage(format!(
            "there is no experiment {}; `sunder lab list` shows those that there are, and the name of a file \
             ends in .toml",
            asked.display()
        )));
    };
    Experiment::parse(&file_of(name), text).map_err(|error| wrong(&error))
}

/// What the file of an experiment that comes with Sunder is called.
fn file_of(name: &str) -> PathBuf {
    PathBuf::from(format!("{name}.toml"))
}

/// Refuses what is not there inside the sandbox, which has files of its own in that place.
fn refuse_scratch(path: &Path) -> Result<(), Failure> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let existing = absolute.ancestors().find_map(|place| place.canonicalize().ok());
    if existing.is_some_and(|place| place.starts_with(sandbox::SCRATCH)) {
        return Err(Failure::Usage(format!(
            "{} is below {}, where experiments have their own files; choose another place",
            path.display(),
            sandbox::SCRATCH
        )));
    }
    Ok(())
}

fn wrong(error: &ExperimentError) -> Failure {
    Failure::Usage(error.to_string())
}

fn stopped(error: &RunError) -> Failure {
    let message = error.to_string();
    match error {
        RunError::Changed(_) | RunError::Moved(_) | RunError::Broken(..) | RunError::Busy(_) => {
            Failure::Usage(message)
        }
        RunError::Writing(path, error) => Failure::writing(path, error),
        RunError::Trial(..) => Failure::Failed(message).and("what was done before is kept"),
        RunError::Chart(_) => Failure::Failed(message),
    }
}
