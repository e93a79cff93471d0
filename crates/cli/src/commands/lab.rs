//! `sunder lab`: experiments on emulated networks, on this machine alone.

mod eavesdrop;
mod report;

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::exit;

use clap::Subcommand;
use lab::experiment::{self, Results, RunError};
use lab::sandbox::{self, SandboxError};
use lab::{Experiment, ExperimentError};
use serde::Serialize;

use crate::console;
use crate::failure::Failure;
use crate::progress::Progress;
use eavesdrop::Captured;

/// Performs experiments on emulated networks.
///
/// A network is made of network namespaces on this machine; its links have the rate, delay and loss
/// that the experiment asks for. Needs no root where users may make namespaces and open
/// /dev/net/tun, and leaves nothing behind but its results and what its programs write to the disk.
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
    Draw(Draw),
    Eavesdrop(Eavesdrop),
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
/// trial, the same command goes on after the last. Trials during which the emulator was late are
/// performed again after all others, as often as the experiment allows; those that stay late are
/// marked as invalid and left out of the table and the graphs. Results are trials.jsonl,
/// results.csv, results.json and graphs as SVG; the table shows medians over the repetitions, the
/// least and the most, or means over the seeds with their 95% intervals.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab run links --out results

docs/formats/experiment.md says how to write an experiment of your own.")]
struct Run {
    /// The name of an experiment that comes with Sunder, or the file of another, which ends in
    /// .toml
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: PathBuf,
    /// The directory for the results [default: lab-results/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print results.json's document on standard output instead of a table
    #[arg(long)]
    json: bool,
}

/// Writes the table, results.csv and the graphs of results again.
///
/// Nothing is measured: the trials are those of results.json, judged by the criteria of today.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab draw links --out results")]
struct Draw {
    /// The name of an experiment that comes with Sunder, or the file of another, which ends in
    /// .toml
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: PathBuf,
    /// The directory with its results [default: lab-results/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Says what captures of a tunnel's channels give away of its packets.
///
/// Every set of k channels should give all packets of threshold k, and every set of k - 1 nothing:
/// then the last column, how far their bytes are from telling nothing in standard deviations, is
/// hardly ever above 5.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab eavesdrop 1-a.pcapng 1-b.pcapng 1-c.pcapng")]
struct Eavesdrop {
    /// A capture of each channel, in the tunnel's order (pcapng)
    #[arg(value_name = "CAPTURE", required = true, num_args = 1..=16)]
    captures: Vec<PathBuf>,
    /// The port to which the packets were sent: the server's
    #[arg(long, default_value_t = 6521)]
    port: u16,
    /// Print one JSON document on standard output: what each set of channels gives away
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
        Command::Draw(arguments) => draw(arguments),
        Command::Eavesdrop(arguments) => eavesdrop(arguments),
    }
}

fn eavesdrop(arguments: &Eavesdrop) -> Result<(), Failure> {
    let refuse = |index: usize, error: std::io::Error| {
        Failure::Usage(format!("{}: {error}", arguments.captures[index].display()))
    };
    let files = arguments.captures.iter().enumerate().map(|(index, path)| {
        File::open(path).map(BufReader::new).map_err(|error| refuse(index, error))
    });
    let files = files.collect::<Result<Vec<_>, Failure>>()?;
    let captured =
        Captured::read(files, arguments.port).map_err(|(index, error)| refuse(index, error))?;
    let findings = captured.findings();
    if findings.is_empty() {
        let port = arguments.port;
        return Err(Failure::Failed(format!(
            "no packets of a tunnel to port {port} were captured"
        )));
    }
    if arguments.json { console::print_json(&findings) } else { report::eavesdropped(&findings) }
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
    let out = place_of(&experiment, arguments.out.as_deref());
    refuse_place(&out)?;
    if is_file(&arguments.experiment) {
        refuse_scratch(&arguments.experiment)?;
    }
    let total = experiment.trials();

    // From here on inside: this program is started once more there, and comes this far again.
    sandbox::enter().map_err(|error| not_inside(&error, &out, total))?;
    let progress = Progress::steps(total as u64);
    let (mut done, mut performed) = (0, false);
    let results = experiment::run(&experiment, &out, |status| {
        progress.advance(status.done - done);
        done = status.done;
        performed |= status.now.is_some();
        progress.doing(status.now.clone().unwrap_or_default());
    });
    drop(progress);
    let results = results.map_err(|error| stopped(&error, done))?;
    if results.invalid > 0 {
        console::warning(&format!(
            "{} of {} trials are invalid (late_ms and missed in results.csv); leave this machine to it, or \
             ask for lower rates",
            results.invalid,
            results.trials.len()
        ));
    }
    if arguments.json {
        return console::print_json(&results);
    }
    report::results(&results, &out)?;
    if performed { Ok(()) } else { report::measured_before(&results, &out) }
}

fn draw(arguments: &Draw) -> Result<(), Failure> {
    let experiment = read(&arguments.experiment)?;
    let out = place_of(&experiment, arguments.out.as_deref());
    let path = out.join("results.json");
    let wrong = |what: String| Failure::Usage(format!("{}: {what}", path.display()));
    let document = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
    let results = Results::read(&experiment, &document);
    let results = results.map_err(|error| wrong(error.to_string()))?;
    results.write(&experiment, &out).map_err(|error| stopped(&error, 0))?;
    report::results(&results, &out)
}

/// Where results are, unless somebody has said where.
fn place_of(experiment: &Experiment, out: Option<&Path>) -> PathBuf {
    let named = || Path::new("lab-results").join(experiment.name());
    out.map_or_else(named, Path::to_owned)
}

/// There was no sandbox, or there is none any more. Does not return if this process was to end.
fn not_inside(error: &SandboxError, out: &Path, total: usize) -> Failure {
    let done = trials_in(&out.join(JOURNAL)).min(total);
    if matches!(error, SandboxError::Killed(_) | SandboxError::Interrupted(_)) {
        clear_line();
    }
    match error {
        SandboxError::Killed(_) => kept(Failure::Failed(error.to_string()), done),
        SandboxError::Interrupted(signal) => {
            console::error(&match done {
                0 => "interrupted before a trial was done".to_owned(),
                _ => format!("interrupted; the same command goes on after trial {done} of {total}"),
            });
            // What a shell reports for a command that a signal has ended.
            exit(128 + signal)
        }
        _ => Failure::Failed(error.to_string()),
    }
}

/// The journal's file in the directory for results.
const JOURNAL: &str = "trials.jsonl";

/// How many trials are in a journal: whole lines after the first.
fn trials_in(journal: &Path) -> usize {
    let lines = fs::read(journal).unwrap_or_default();
    // What follows the last line's end is not whole, or nothing.
    lines.split(|byte| *byte == b'\n').count().saturating_sub(2)
}

/// Removes a bar that nobody else can remove any more.
fn clear_line() {
    if stderr().is_terminal() {
        eprint!("\r\x1b[2K");
    }
}

/// Says that what was done is not lost, if something was done.
fn kept(failure: Failure, done: usize) -> Failure {
    if done > 0 { failure.and("what was done before is kept") } else { failure }
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
                "{} is not text: an experiment is TOML, in UTF-8",
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

/// Refuses a place where no directory can be.
fn refuse_place(path: &Path) -> Result<(), Failure> {
    if let Some(existing) = existing(path).filter(|place| !place.is_dir()) {
        return Err(Failure::Usage(format!(
            "{} is not a directory; choose another place with --out",
            existing.display()
        )));
    }
    refuse_scratch(path)
}

/// Refuses what is not there inside the sandbox, which has files of its own in that place.
fn refuse_scratch(path: &Path) -> Result<(), Failure> {
    if existing(path).is_some_and(|place| place.starts_with(sandbox::SCRATCH)) {
        return Err(Failure::Usage(format!(
            "{} is below {}, where experiments have their own files; choose another place",
            path.display(),
            sandbox::SCRATCH
        )));
    }
    Ok(())
}

/// What there is already of a path.
fn existing(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find_map(|place| place.canonicalize().ok())
}

fn wrong(error: &ExperimentError) -> Failure {
    Failure::Usage(error.to_string())
}

/// The run has stopped after so many trials.
fn stopped(error: &RunError, done: usize) -> Failure {
    let message = error.to_string();
    match error {
        RunError::Changed(_) | RunError::Moved(_) | RunError::Broken(..) | RunError::Busy(_) => {
            Failure::Usage(message)
        }
        RunError::Writing(path, error) => Failure::writing(path, error),
        RunError::Trial(..) => kept(Failure::Failed(message), done),
        RunError::Chart(_) => Failure::Failed(message),
    }
}
