//! `sunder plan`: the properties of channels, and the best schedule for a request.

mod effects;
mod plot;
mod probe;
mod refusal;
mod report;
mod simulation;
mod tunnel_file;
mod tunnel_toml;

use std::cell::OnceCell;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use console::{CommandFailure, CommandProgress};
use keys::storage;
use model::{PlanError, PlanRequest, PlanRequestError, ScheduleObjective, ScheduleRequirements};

use planning::{
    ChannelsFile, NamedChannel, NamedRiskGroup, PlanAnswer, PlanChannels, PlanDocument,
    parse_proportion,
};
use refusal::refuse;

use crate::commands::{load_config_file, svg_file};

/// Computes the best schedule for channels: risk, loss, delay, rate.
///
/// Each symbol is sent as m shares on m channels, any k of which restore it. A schedule states how
/// often each k and each choice of channels is used; kappa and mu are the means of k and m. Without
/// an objective and without bounds, prints the best value of each property; with bounds alone,
/// finds the highest rate within them.
#[derive(clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_help = "Example: the most private use of three channels at their full rate
  sunder plan --channel z=0.1,l=0.01,d=2.5,r=100,name=fibre \\
    --channel z=0.3,l=0.005,d=9,r=40,name=dsl --channel z=0.2,l=0.02,d=30,r=20,name=lte \\
    --kappa 1.5 --mu 2 --objective privacy --full-rate

In JSON, schedule[].channels and sensitivity count channels from 0, in the order
of names. Without an objective, a bound or both kappa and mu there is no
schedule. With kappa and mu alone, the schedule is one of the highest rate, not
the best in anything else.

A file for --channels:
  [[channel]]
  name = \"fibre\"
  risk = 0.1        # or z: the probability that a share is seen
  loss = 0.01       # or l: the probability that it is lost
  delay_ms = 2.5    # or d: one way
  rate = 100        # or r: Mbit/s
  [[channel]]
  name = \"dsl\"
  risk = 0.3
  loss = 0.005
  delay_ms = 9
  rate = 40
  cost_per_gb = 5   # the price of what it carries; 0 if left out
  priority = 1      # 2: used only if the channels of priority 1 are not enough
  [[group]]         # channels that share a fate; or give each of them the same
                    # name, as in shared_fate = \"company\"
  channels = [\"fibre\", \"dsl\"]
  risk = 0.05       # the probability that all of them are seen at once
  loss = 0.001      # the probability that all of them lose their share at once"
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Arguments {
    /// A channel: risk z and loss l are probabilities, d is the one-way delay in ms, r the rate in
    /// Mbit/s; also with `cost_per_gb`, `shared_fate` and priority; may be repeated
    #[arg(
        long = "channel",
        value_name = "z=Z,l=L,d=D,r=R[,name=NAME]",
        value_parser = NamedChannel::parse
    )]
    channels: Vec<NamedChannel>,
    /// Channels that fail together: all are seen with probability Z, and all lose their share with
    /// probability L; may be repeated
    #[arg(
        long = "group",
        value_name = "z=Z,l=L,channels=NAME+NAME",
        value_parser = NamedRiskGroup::parse
    )]
    groups: Vec<NamedRiskGroup>,
    /// A file with channels and groups instead, or the configuration of a tunnel, whose kappa, mu,
    /// objective and bounds apply if none are given here
    #[arg(long = "channels", value_name = "FILE", conflicts_with_all = ["channels", "groups"])]
    file: Option<PathBuf>,
    /// The mean number of shares needed for a symbol
    #[arg(long, value_name = "X")]
    kappa: Option<f64>,
    /// The mean number of shares sent for a symbol
    #[arg(long, value_name = "Y")]
    mu: Option<f64>,
    /// The property to optimize; may be repeated, the most important first
    #[arg(long = "objective", value_enum, value_name = "PROPERTY")]
    objectives: Vec<ObjectiveName>,
    /// Only schedules with the highest rate at mu
    #[arg(long, requires = "mu")]
    full_rate: bool,
    /// Only schedules in which every symbol has k >= kappa and m >= mu, both rounded down
    #[arg(long, requires_all = ["kappa", "mu"])]
    limited: bool,
    /// The maximum probability that a symbol is read
    #[arg(long, value_name = "Z", value_parser = parse_proportion)]
    max_risk: Option<f64>,
    /// The maximum probability that a symbol is lost
    #[arg(long, value_name = "L", value_parser = parse_proportion)]
    max_loss: Option<f64>,
    /// The maximum mean delay in ms
    #[arg(long, value_name = "D")]
    max_delay: Option<f64>,
    /// The minimum rate in Mbit/s
    #[arg(long, value_name = "R")]
    min_rate: Option<f64>,
    /// The maximum price of a GB
    #[arg(long, value_name = "C")]
    max_cost: Option<f64>,
    /// Show the effect of improving each channel's z, l, d and r by a tenth
    #[arg(long)]
    sensitivity: bool,
    /// Simulate N symbols with the schedule, and compare
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    simulate: Option<u64>,
    /// Draw rate, risk, loss and delay over kappa and mu as SVG
    #[arg(long, value_name = "OUT.svg", value_parser = svg_file)]
    plot: Option<PathBuf>,
    /// Draw a Pareto front of two of rate, risk, loss, delay instead
    #[arg(long, value_name = "A,B", requires = "plot", value_parser = parse_front)]
    front: Option<(ScheduleObjective, ScheduleObjective)>,
    /// Print the settings of a tunnel for the schedule, or its whole configuration if --channels is
    /// one
    #[arg(long, conflicts_with_all = ["json", "sensitivity", "simulate"])]
    toml: bool,
    /// Measure the channels of the tunnel in --channels, whose server must run, and print a file
    /// for --channels
    #[arg(
        long,
        requires = "file",
        conflicts_with_all = [
            "json", "toml", "sensitivity", "simulate", "plot", "kappa", "mu", "objectives",
            "max_risk", "max_loss", "max_delay", "min_rate", "max_cost"
        ]
    )]
    probe: bool,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum ObjectiveName {
    /// The minimum risk
    Privacy,
    /// The minimum loss
    Loss,
    /// The minimum delay, averaged over the symbols sent
    Delay,
    /// The minimum delay, averaged over the symbols that arrive
    DeliveredDelay,
    /// The maximum rate
    Rate,
    /// The minimum price of a GB
    Cost,
}

/// Computes and prints the answer.
///
/// # Errors
/// If the channels or the request are wrong, no schedule keeps the bounds, or the plot cannot be
/// written.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    if arguments.probe {
        return probe::run(arguments.file.as_deref().unwrap_or(Path::new("")));
    }
    let PlanSubject { channels, requirements, tunnel } = arguments.subject()?;
    let own = requirements.filter(|_| arguments.asks_for_nothing());
    let request = own.map_or_else(|| arguments.request(), PlanRequest::new);
    let request = request.map_err(|error| refuse(error.into()))?;
    let (channels, answer) = find(channels, &request)?;
    let answer = if arguments.sensitivity {
        with_progress(|it| answer.with_effects(&channels.set, it))?
    } else {
        answer
    };
    let trial = arguments.simulate.map(|symbols| simulation::run(&channels.set, &answer, symbols));
    let trial = trial.transpose()?;
    if let Some(path) = &arguments.plot {
        write_plot(path, &arguments.plot(&channels, &request)?)?;
    }
    if arguments.toml {
        let text = tunnel_toml::settings(&channels, &answer, tunnel.as_deref())?;
        return console::print(text.trim_end().as_bytes());
    }
    if arguments.json {
        console::print_json(&PlanDocument::new(&channels, &answer, trial.as_ref()))
    } else {
        report::print(&channels, &answer, trial.as_ref())
    }
}

/// The answer over the channels of the lowest priority numbers that are enough for kappa and mu and
/// keep the bounds, or else over all, and these channels.
fn find(
    channels: PlanChannels,
    request: &PlanRequest,
) -> Result<(PlanChannels, PlanAnswer), CommandFailure> {
    let mut levels = channels.levels();
    // With the last level, all channels are used.
    levels.pop_last();
    for level in levels {
        if let Some(used) = channels.up_to(level)
            && let Ok(answer) = PlanAnswer::find(&used.set, request, &|_, _| {})
        {
            return Ok((used, answer));
        }
    }
    let answer = with_progress(|it| PlanAnswer::find(&channels.set, request, it))?;
    Ok((channels, answer))
}

/// Shows the progress of linear programs.
fn with_progress(
    solve: impl FnOnce(&dyn Fn(usize, usize)) -> Result<PlanAnswer, PlanError>,
) -> Result<PlanAnswer, CommandFailure> {
    let progress = OnceCell::new();
    let step = |_: usize, all: usize| {
        progress.get_or_init(|| CommandProgress::steps(all as u64)).advance(1);
    };
    solve(&step).map_err(refuse)
}

/// What is planned.
struct PlanSubject {
    channels: PlanChannels,
    /// The requirements in the configuration of a tunnel.
    requirements: Option<ScheduleRequirements>,
    /// The text of that configuration.
    tunnel: Option<String>,
}

/// The channels in a file, which may be the configuration of a tunnel.
fn subject_of_file(path: &Path) -> Result<PlanSubject, CommandFailure> {
    let wrong = |message: String| CommandFailure::Usage(format!("{}: {message}", path.display()));
    if let Some((text, config)) = tunnel_file::read(path)? {
        let channels = tunnel_file::channels(&config).map_err(wrong)?;
        let requirements = Some(tunnel_file::requirements(&config));
        return Ok(PlanSubject { channels, requirements, tunnel: Some(text) });
    }
    let file: ChannelsFile = load_config_file("plan", path, |text| Ok(toml::from_str(text)?))?;
    let channels = PlanChannels::new(&file.channel, &file.group).map_err(wrong)?;
    Ok(PlanSubject { channels, requirements: None, tunnel: None })
}

impl Arguments {
    fn subject(&self) -> Result<PlanSubject, CommandFailure> {
        let channels = match &self.file {
            Some(path) => return subject_of_file(path),
            None if self.channels.is_empty() => {
                return Err(CommandFailure::Usage(String::from(
                    "there is no channel; give each with --channel, or a file of them with \
                     --channels",
                )));
            }
            None => PlanChannels::new(&self.channels, &self.groups).map_err(CommandFailure::Usage),
        };
        Ok(PlanSubject { channels: channels?, requirements: None, tunnel: None })
    }

    /// Whether there is no requirement among the options.
    fn asks_for_nothing(&self) -> bool {
        let bounds = [self.max_risk, self.max_loss, self.max_delay, self.min_rate, self.max_cost];
        let numbers = bounds.into_iter().chain([self.kappa, self.mu]);
        numbers.flatten().count() == 0 && self.objectives.is_empty()
    }

    /// The request. With bounds alone, the objective is the highest rate.
    fn request(&self) -> Result<PlanRequest, PlanRequestError> {
        let requirements = ScheduleRequirements {
            kappa: self.kappa,
            mu: self.mu,
            full_rate: self.full_rate,
            max_risk: self.max_risk,
            max_loss: self.max_loss,
            max_delay_ms: self.max_delay,
            min_rate: self.min_rate,
            max_cost: self.max_cost,
            objectives: self.objectives.iter().map(|name| name.objective()).collect(),
            ..ScheduleRequirements::default()
        };
        let bounds = [self.max_risk, self.max_loss, self.max_delay, self.min_rate, self.max_cost];
        let mut requirements = if self.limited { requirements.limited() } else { requirements };
        if requirements.objectives.is_empty() && bounds.iter().any(Option::is_some) {
            requirements.objectives.push(ScheduleObjective::Rate);
        }
        PlanRequest::new(requirements)
    }

    fn plot(
        &self,
        channels: &PlanChannels,
        request: &PlanRequest,
    ) -> Result<String, CommandFailure> {
        match self.front {
            Some((first, second)) => plot::front(&channels.set, request, first, second),
            None => plot::properties(&channels.set, &channels.names),
        }
    }
}

impl ObjectiveName {
    fn objective(self) -> ScheduleObjective {
        match self {
            Self::Privacy => ScheduleObjective::Risk,
            Self::Loss => ScheduleObjective::Loss,
            Self::Delay => ScheduleObjective::Delay,
            Self::DeliveredDelay => ScheduleObjective::DeliveredDelay,
            Self::Rate => ScheduleObjective::Rate,
            Self::Cost => ScheduleObjective::Cost,
        }
    }
}

/// Parses two properties such as `rate,risk`.
fn parse_front(text: &str) -> Result<(ScheduleObjective, ScheduleObjective), String> {
    let property = |name: &str| match name.trim() {
        "rate" => Some(ScheduleObjective::Rate),
        "risk" => Some(ScheduleObjective::Risk),
        "loss" => Some(ScheduleObjective::Loss),
        "delay" => Some(ScheduleObjective::Delay),
        _ => None,
    };
    let two = text.split_once(',').and_then(|(a, b)| Some((property(a)?, property(b)?)));
    two.filter(|(first, second)| first != second)
        .ok_or_else(|| "give two of rate, risk, loss and delay, as in rate,risk".into())
}

/// Writes the document to a new file.
fn write_plot(path: &Path, svg: &str) -> Result<(), CommandFailure> {
    storage::create(path, svg.as_bytes(), 0o666).map_err(|error| {
        let path = path.display();
        match error.kind() {
            ErrorKind::AlreadyExists => CommandFailure::Usage(format!(
                "{path} exists; move it away, or choose another place with --plot"
            )),
            ErrorKind::NotFound | ErrorKind::NotADirectory => CommandFailure::Usage(format!(
                "{path} cannot be made: no such directory; choose another place with --plot"
            )),
            _ => CommandFailure::Failed(format!(
                "cannot write {path}: {error}; choose another place with --plot"
            )),
        }
    })
}
