//! `sunder lab`: runs experiments on emulated networks on this machine, or on real machines.

mod agent;
mod eavesdrop;
mod flow;
mod report;
mod serve;
mod sites;
mod user;

use std::fs::{self, File};
use std::io::{BufReader, ErrorKind, IsTerminal, stderr};
use std::path::{Path, PathBuf};
use std::process::exit;
use std::time::{Duration, Instant};

use clap::Subcommand;
use console::CommandFailure;
use console::CommandProgress;
use lab::experiment::{self, ExperimentEvent, ExperimentResults, ExperimentRunError, TrialShard};
use lab::sandbox::{self, SandboxError};
use lab::site::{ExperimentSites, SiteConnections};
use lab::{Experiment, ExperimentError, TrialProgress, processors_in_use};
use serde::Serialize;

use eavesdrop::CapturedSymbols;
use sites::SiteOptions;

/// Runs experiments on emulated networks, or on real machines.
///
/// A network consists of network namespaces on this machine; its links have the rate, delay and
/// loss that the experiment requests. Needs no root if users may create namespaces and open
/// /dev/net/tun. Leaves nothing behind except its results and what its programs write to the disk.
/// With run --sites, hosts are other machines instead, which run an agent.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Example: sunder lab list; sunder lab run links --out results"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: LabCommand,
}

#[derive(Subcommand)]
enum LabCommand {
    List(LabListArguments),
    Describe(LabDescribeArguments),
    Run(LabRunArguments),
    Merge(LabMergeArguments),
    Draw(LabDrawArguments),
    Agent(agent::LabAgentArguments),
    Serve(serve::LabServeArguments),
    User(user::LabUserArguments),
    Eavesdrop(LabEavesdropArguments),
    SendFlow(flow::SendFlowArguments),
    ReceiveFlow(flow::ReceiveFlowArguments),
}

/// Lists the built-in experiments.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab list")]
struct LabListArguments {
    /// Print one JSON document on standard output: name, about, paper, trials and minutes of each
    #[arg(long)]
    json: bool,
}

/// Shows what an experiment varies, measures and draws.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab describe links")]
struct LabDescribeArguments {
    /// The name of a built-in experiment, or another experiment's file, which ends in .toml
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: PathBuf,
    /// Print one JSON document on standard output: keys with their values, measured values with
    /// their units, and graphs
    #[arg(long)]
    json: bool,
}

/// Runs an experiment.
///
/// Each finished trial is written to the disk at once. If a run is interrupted, by Ctrl-C or a
/// failed trial, the same command continues after the last finished trial. Trials during which the
/// emulator was late run again after all others, as often as the experiment allows; those that stay
/// late are marked as invalid and left out of the table and the graphs. Results are trials.jsonl,
/// results.csv, results.json and graphs as SVG. The table shows the median, the minimum and the
/// maximum of the repetitions, or the mean over the seeds and its 95% confidence interval.
///
/// With --sites, the experiment's hosts are other machines (docs/guides/sites.md). The paths
/// between them are measured before and after each trial. If a site is lost, its trial is repeated
/// when it is back. With --emulate-links, links have their conditions there, too.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab run links --out results

docs/formats/experiment.md says how to write an experiment of your own.")]
struct LabRunArguments {
    /// The name of a built-in experiment, or another experiment's file, which ends in .toml
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: PathBuf,
    /// The directory for the results [default: lab-results/NAME, with -I-of-N for a shard]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only part I of N of the trials, such as 2/4; other machines run the other parts, and
    /// sunder lab merge joins them
    #[arg(long, value_name = "I/N")]
    shard: Option<TrialShard>,
    /// Start no trial after this many minutes; the same command continues where it stopped
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=100_000))]
    minutes: Option<u64>,
    #[command(flatten)]
    at: SiteOptions,
    /// Print the document of results.json on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Print events on standard output, a JSON document in each line, instead of the progress and
    /// the table: trials, their results, and meanwhile what the links have carried and the phases
    /// of computations. If nobody reads them any more, the run ends
    #[arg(long, conflicts_with = "json")]
    events: bool,
}

/// Merges the results of all shards of an experiment (sunder lab run --shard).
///
/// The results are those of one run of all trials. If the shards ran on different machines,
/// results.json names all of them.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab merge links lab-results/links-*-of-4")]
struct LabMergeArguments {
    /// The name of a built-in experiment, or another experiment's file, which ends in .toml
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: PathBuf,
    /// The directories with the results of all shards
    #[arg(value_name = "DIR", required = true)]
    shards: Vec<PathBuf>,
    /// The directory for the merged results [default: lab-results/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Writes the table, results.csv and the graphs of existing results again.
///
/// Nothing is measured: the trials are those in results.json, with the current criteria for invalid
/// trials.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab draw links --out results")]
struct LabDrawArguments {
    /// The name of a built-in experiment, or another experiment's file, which ends in .toml
    #[arg(value_name = "NAME|FILE.toml")]
    experiment: PathBuf,
    /// The directory with its results [default: lab-results/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Shows what captures of a tunnel's channels reveal of its packets.
///
/// Every set of k channels should reveal all packets of threshold k, and every set of k - 1
/// channels nothing. Then the last column, the deviation of their bytes from independent ones in
/// standard deviations, is rarely above 5.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder lab eavesdrop 1-a.pcapng 1-b.pcapng 1-c.pcapng")]
struct LabEavesdropArguments {
    /// A capture of each channel, in the tunnel's order (pcapng)
    #[arg(value_name = "CAPTURE", required = true, num_args = 1..=16)]
    captures: Vec<PathBuf>,
    /// The port to which the packets were sent, which is the server's
    #[arg(long, default_value_t = 6521)]
    port: u16,
    /// Print one JSON document on standard output: what each set of channels reveals
    #[arg(long)]
    json: bool,
}

/// An experiment in the list.
#[derive(Serialize)]
struct ExperimentListEntry {
    name: String,
    about: String,
    paper: Option<String>,
    trials: usize,
    /// About how long it takes on two idle processors.
    minutes: Option<u64>,
}

/// Runs the subcommand.
///
/// # Errors
/// If the experiment or the directory is wrong, this system has no sandbox, or a trial fails.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        LabCommand::List(arguments) => list(arguments),
        LabCommand::Describe(arguments) => describe(arguments),
        LabCommand::Run(arguments) => perform(arguments),
        LabCommand::Merge(arguments) => merge(arguments),
        LabCommand::Draw(arguments) => draw(arguments),
        LabCommand::Agent(arguments) => agent::run(arguments),
        LabCommand::Serve(arguments) => serve::run(arguments),
        LabCommand::User(arguments) => user::run(arguments),
        LabCommand::Eavesdrop(arguments) => eavesdrop(arguments),
        LabCommand::SendFlow(arguments) => flow::send(arguments),
        LabCommand::ReceiveFlow(arguments) => flow::receive(arguments),
    }
}

fn eavesdrop(arguments: &LabEavesdropArguments) -> Result<(), CommandFailure> {
    let refuse = |index: usize, error: std::io::Error| {
        CommandFailure::Usage(format!("{}: {error}", arguments.captures[index].display()))
    };
    let files = arguments.captures.iter().enumerate().map(|(index, path)| {
        File::open(path).map(BufReader::new).map_err(|error| refuse(index, error))
    });
    let files = files.collect::<Result<Vec<_>, CommandFailure>>()?;
    let captured = CapturedSymbols::read(files, arguments.port)
        .map_err(|(index, error)| refuse(index, error))?;
    let findings = captured.findings();
    if findings.is_empty() {
        let port = arguments.port;
        return Err(CommandFailure::Failed(format!(
            "no packets of a tunnel to port {port} were captured"
        )));
    }
    if arguments.json { console::print_json(&findings) } else { report::eavesdropped(&findings) }
}

fn list(arguments: &LabListArguments) -> Result<(), CommandFailure> {
    let experiments = experiment::built_in().map(|(name, text)| {
        let experiment = Experiment::parse(&file_of(name), text).map_err(|error| wrong(&error))?;
        Ok(ExperimentListEntry {
            name: name.into(),
            about: experiment.about().into(),
            paper: experiment.paper().map(str::to_owned),
            trials: experiment.trials(),
            minutes: experiment::built_in_minutes(name),
        })
    });
    let entries: Vec<ExperimentListEntry> = experiments.collect::<Result<_, CommandFailure>>()?;
    if arguments.json { console::print_json(&entries) } else { report::list(&entries) }
}

fn describe(arguments: &LabDescribeArguments) -> Result<(), CommandFailure> {
    let experiment = read(&arguments.experiment)?;
    let description = experiment.describe();
    if arguments.json { console::print_json(&description) } else { report::describe(&description) }
}

fn perform(arguments: &LabRunArguments) -> Result<(), CommandFailure> {
    let sites = arguments.at.sites()?;
    let mut experiment = read_for(&arguments.experiment, sites.as_ref())?;
    if let Some(shard) = arguments.shard {
        experiment = experiment.of_shard(shard);
    }
    experiment.find_programs().map_err(|error| wrong(&error))?;
    let out = results_directory(&experiment, arguments.out.as_deref(), arguments.shard);
    refuse_non_directory(&out)?;
    if is_file(&arguments.experiment) {
        refuse_scratch(&arguments.experiment)?;
    }
    let total = experiment.trials();

    // Starts this program again inside the sandbox, where it reaches this line again.
    let entered = match sites {
        None => sandbox::enter(),
        Some(_) => sandbox::enter_with_network(),
    };
    entered.map_err(|error| sandbox_failure(&error, &out, total))?;
    let connections = sites.as_ref().map(|sites| arguments.at.open(sites)).transpose()?;
    if let Some(connections) = &connections {
        experiment = experiment.at_sites(connections);
    }
    if let Some(minutes) = arguments.minutes {
        experiment.stop_at(Instant::now() + Duration::from_secs(60 * minutes));
    }
    let run = if arguments.events { run_with_events } else { run_with_progress };
    let RunOutcome { results, done, has_measured } = run(&experiment, connections.as_ref(), &out);
    let results = results.map_err(|error| stopped(&error, done))?;
    if results.invalid > 0 {
        let advice = match connections {
            None => "run nothing else on this machine, or request lower rates",
            Some(_) => "run nothing else at the sites, or request lower rates or longer delays",
        };
        console::warning(&format!(
            "{} of {} trials are invalid (late_ms and missed in results.csv); {advice}",
            results.invalid,
            results.trials.len()
        ));
    }
    if arguments.events {
        return Ok(());
    }
    if arguments.json {
        return console::print_json(&results);
    }
    report::results(&results, &out)?;
    if has_measured { Ok(()) } else { report::measured_before(&results, &out) }
}

/// Warns if other programs use this machine, and says what that does to the trials.
fn warn_if_busy(experiment: &Experiment) {
    let effect = if experiment.refuses_late() {
        "trials during which links are late are repeated and then invalid"
    } else {
        "they make times longer, and no trial of this experiment is invalid for that"
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if let Some(used) = processors_in_use(BUSY_SAMPLE).filter(|used| *used > MAX_IN_USE) {
        console::warning(&format!(
            "other programs use {used:.1} of {cores} processors; {effect}, so leave the machine to this \
             run"
        ));
    }
}

/// How long the use of processors is observed before a run.
const BUSY_SAMPLE: Duration = Duration::from_millis(300);

/// How many processors other programs may use without a warning.
const MAX_IN_USE: f64 = 0.3;

/// How a run ended.
struct RunOutcome {
    results: Result<ExperimentResults, ExperimentRunError>,
    /// How many trials are done, also in earlier runs.
    done: usize,
    /// Whether this run has begun a trial.
    has_measured: bool,
}

/// Runs an experiment and shows the progress.
fn run_with_progress(
    experiment: &Experiment,
    sites: Option<&SiteConnections>,
    out: &Path,
) -> RunOutcome {
    let progress = CommandProgress::steps(experiment.trials() as u64);
    let (mut done, mut has_measured) = (0, false);
    let event = |event: &ExperimentEvent<'_>| {
        let (now_done, now) = match event {
            ExperimentEvent::Trial { done, name, .. } => (*done, *name),
            ExperimentEvent::End { done, .. } => (*done, ""),
            ExperimentEvent::Result { .. } => return,
        };
        if !now.is_empty() && !has_measured && sites.is_none() {
            warn_if_busy(experiment);
        }
        progress.advance(now_done - done);
        done = now_done;
        has_measured |= !now.is_empty();
        progress.doing(now.to_owned());
    };
    let report = |progress: &TrialProgress| {
        if let TrialProgress::Site(change) = progress {
            sites::show(change);
        }
    };
    let results = run_anywhere(experiment, sites, out, event, &report);
    RunOutcome { results, done, has_measured }
}

/// Runs an experiment and prints each event.
fn run_with_events(
    experiment: &Experiment,
    sites: Option<&SiteConnections>,
    out: &Path,
) -> RunOutcome {
    let (mut done, mut has_measured) = (0, false);
    let event = |event: &ExperimentEvent<'_>| {
        match event {
            ExperimentEvent::Trial { done: now, .. } => (done, has_measured) = (*now, true),
            ExperimentEvent::End { done: now, .. } => done = *now,
            ExperimentEvent::Result { .. } => {}
        }
        print_event(event);
    };
    let report = |progress: &TrialProgress| print_event(progress);
    let results = run_anywhere(experiment, sites, out, event, &report);
    RunOutcome { results, done, has_measured }
}

/// Runs an experiment at sites, or on an emulated network.
fn run_anywhere(
    experiment: &Experiment,
    sites: Option<&SiteConnections>,
    out: &Path,
    event: impl FnMut(&ExperimentEvent<'_>),
    report: &(dyn Fn(&TrialProgress) + Sync),
) -> Result<ExperimentResults, ExperimentRunError> {
    match sites {
        None => experiment::run(experiment, out, event, report),
        Some(sites) => experiment::run_at_sites(experiment, sites, out, event, report),
    }
}

/// Prints an event. If nobody reads events any more, ends this process, and with it the sandbox:
/// what started the run has ended.
fn print_event(event: &impl Serialize) {
    if console::print_json(event).is_err() {
        exit(1);
    }
}

fn merge(arguments: &LabMergeArguments) -> Result<(), CommandFailure> {
    let experiment = read(&arguments.experiment)?;
    let out = results_directory(&experiment, arguments.out.as_deref(), None);
    refuse_non_directory(&out)?;
    let results = experiment::merge(&experiment, &arguments.shards, &out);
    let results = results.map_err(|error| stopped(&error, 0))?;
    report::results(&results, &out)
}

fn draw(arguments: &LabDrawArguments) -> Result<(), CommandFailure> {
    let experiment = read(&arguments.experiment)?;
    let out = results_directory(&experiment, arguments.out.as_deref(), None);
    let path = out.join("results.json");
    let wrong = |what: String| CommandFailure::Usage(format!("{}: {what}", path.display()));
    let document = fs::read(&path).map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => CommandFailure::Usage(format!(
            "there are no results in {}; run the experiment first: sunder lab run {}",
            out.display(),
            arguments.experiment.display()
        )),
        _ => wrong(error.to_string()),
    })?;
    let results = ExperimentResults::read(&experiment, &document);
    let results = results.map_err(|error| wrong(error.to_string()))?;
    results.write(&experiment, &out).map_err(|error| stopped(&error, 0))?;
    report::results(&results, &out)
}

/// The directory of the results, by default named after the experiment and the shard.
fn results_directory(
    experiment: &Experiment,
    out: Option<&Path>,
    shard: Option<TrialShard>,
) -> PathBuf {
    let named = || {
        let name = experiment.name();
        let name = match shard.map(TrialShard::place) {
            Some((index, of)) => format!("{name}-{index}-of-{of}"),
            None => name.to_owned(),
        };
        Path::new("lab-results").join(name)
    };
    out.map_or_else(named, Path::to_owned)
}

/// The failure if there is no sandbox, or if it was ended. Exits if a signal ended this process.
fn sandbox_failure(error: &SandboxError, out: &Path, total: usize) -> CommandFailure {
    let done = finished_trials(&out.join(JOURNAL)).min(total);
    if matches!(error, SandboxError::Killed(_) | SandboxError::Interrupted(_)) {
        // The sandbox could not do it.
        lab::remove_abandoned_directories();
        clear_line();
    }
    match error {
        SandboxError::Killed(_) => {
            with_kept_trials(CommandFailure::Failed(error.to_string()), done)
        }
        SandboxError::Interrupted(signal) => {
            console::error(&match done {
                0 => "interrupted before the first trial was finished".to_owned(),
                _ => format!(
                    "interrupted; the same command continues after trial {done} of \
                              {total}"
                ),
            });
            // The exit code that a shell reports for a command ended by a signal.
            exit(128 + signal)
        }
        _ => CommandFailure::Failed(error.to_string()),
    }
}

/// The journal's file in the directory for results.
const JOURNAL: &str = "trials.jsonl";

/// The number of trials in a journal: complete lines after the first.
fn finished_trials(journal: &Path) -> usize {
    let lines = fs::read(journal).unwrap_or_default();
    // The last element is an incomplete line, or empty.
    lines.split(|byte| *byte == b'\n').count().saturating_sub(2)
}

/// Removes the progress bar of the process that was killed.
fn clear_line() {
    if stderr().is_terminal() {
        eprint!("\r\x1b[2K");
    }
}

/// Adds that finished trials are kept, if there are any.
fn with_kept_trials(failure: CommandFailure, done: usize) -> CommandFailure {
    if done > 0 { failure.and("the finished trials are kept") } else { failure }
}

/// Whether the argument is a file, and not the name of a built-in experiment.
fn is_file(argument: &Path) -> bool {
    argument.extension().is_some_and(|extension| extension == "toml")
}

/// The experiment with this name or in this file, on an emulated network.
fn read(argument: &Path) -> Result<Experiment, CommandFailure> {
    read_for(argument, None)
}

/// The experiment with this name or in this file, for these sites or for an emulated network.
fn read_for(
    argument: &Path,
    sites: Option<&ExperimentSites>,
) -> Result<Experiment, CommandFailure> {
    let parse = |file: &Path, text: &str| {
        let parsed = match sites {
            None => Experiment::parse(file, text),
            Some(sites) => Experiment::parse_for_sites(file, text, sites),
        };
        parsed.map_err(|error| wrong(&error))
    };
    if is_file(argument) {
        let text = fs::read_to_string(argument).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => CommandFailure::Usage(format!(
                "{} is not text: an experiment is TOML, in UTF-8",
                argument.display()
            )),
            _ => CommandFailure::reading(argument, &error),
        })?;
        return parse(argument, &text);
    }
    let found = experiment::built_in().find(|(name, _)| argument.as_os_str() == *name);
    let Some((name, text)) = found else {
        return Err(CommandFailure::Usage(format!(
            "there is no experiment {}; `sunder lab list` shows all experiments, and the name of a \
             file must end in .toml",
            argument.display()
        )));
    };
    parse(&file_of(name), text)
}

/// The file name for a built-in experiment.
fn file_of(name: &str) -> PathBuf {
    PathBuf::from(format!("{name}.toml"))
}

/// Refuses a path that cannot be a directory.
fn refuse_non_directory(path: &Path) -> Result<(), CommandFailure> {
    if let Some(existing) = existing(path).filter(|place| !place.is_dir()) {
        return Err(CommandFailure::Usage(format!(
            "{} is not a directory; choose another place with --out",
            existing.display()
        )));
    }
    refuse_scratch(path)
}

/// Refuses a path that is hidden inside the sandbox by its own directory for files.
fn refuse_scratch(path: &Path) -> Result<(), CommandFailure> {
    if existing(path).is_some_and(|place| place.starts_with(sandbox::SCRATCH)) {
        return Err(CommandFailure::Usage(format!(
            "{} is below {}, where experiments store their own files; choose another place",
            path.display(),
            sandbox::SCRATCH
        )));
    }
    Ok(())
}

/// The longest existing part of a path.
fn existing(path: &Path) -> Option<PathBuf> {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute.ancestors().find_map(|place| place.canonicalize().ok())
}

fn wrong(error: &ExperimentError) -> CommandFailure {
    CommandFailure::Usage(error.to_string())
}

/// The failure of a run that stopped after `done` trials.
fn stopped(error: &ExperimentRunError, done: usize) -> CommandFailure {
    let message = error.to_string();
    match error {
        ExperimentRunError::Changed(_)
        | ExperimentRunError::Moved(_)
        | ExperimentRunError::OtherShard(..)
        | ExperimentRunError::OtherSites(_)
        | ExperimentRunError::Reading(..)
        | ExperimentRunError::Twice(..)
        | ExperimentRunError::Missing { .. }
        | ExperimentRunError::Unfinished(_)
        | ExperimentRunError::NotEmpty(_)
        | ExperimentRunError::Broken(..)
        | ExperimentRunError::Busy(_) => CommandFailure::Usage(message),
        ExperimentRunError::Writing(path, error) => CommandFailure::writing(path, error),
        ExperimentRunError::Trial(..) => with_kept_trials(CommandFailure::Failed(message), done),
        ExperimentRunError::Chart(_) => CommandFailure::Failed(message),
    }
}
