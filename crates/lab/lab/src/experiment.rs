//! Experiments: files that define networks, the programs on them, what is varied and what is
//! measured.
//!
//! [`Experiment::parse`] reports errors of the file for all trials before the first one runs. What
//! depends on the machine, or is known only to a driver, is reported by the first trial that needs
//! it. [`run()`] runs an experiment and returns [`ExperimentResults`].
//! [docs/formats/experiment.md](../../../../docs/formats/experiment.md) describes the files.

mod built_in;
mod columns;
mod description;
mod error;
mod file;
mod prediction;
mod run;
mod schedule;
mod shard;
mod statistic;
mod value;

use std::collections::BTreeMap;
use std::iter::repeat_with;
use std::path::{self, Path};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use toml::Table;

pub use crate::machine::MachineProperties;
pub use built_in::{built_in, built_in_minutes};
pub use description::{ExperimentDescription, KeyDescription};
pub use error::{ExperimentError, ExperimentRunError, ResultsError};
pub use file::compare::ComparisonDefinition;
pub use file::plot::PlotDefinition;
pub use prediction::{PointPrediction, ValuePrediction};
pub use run::compare::{ComparedGroup, ResultsComparison};
pub use run::journal::TrialRecord;
pub use run::merge::merge;
pub use run::results::ExperimentResults;
pub use run::summary::PointSummary;
pub use run::{ExperimentEvent, run, run_at_sites, run_with};
pub use shard::{TrialShard, TrialShardError};
pub use statistic::{SampleSpread, SummaryStatistic};

use crate::perform::driver;
use crate::site::{ExperimentSites, SiteConnections, SiteRecord};
use crate::trial::Trial;
use error::ExperimentProblem;
use file::ExperimentFile;
use file::plot;
use file::predict;
use file::programs;
use file::sweep::{SweepCombination, SweptKeys};
use file::template::{self, FilledTemplate};
use schedule::TrialSchedule;

/// A valid experiment.
#[derive(Debug)]
pub struct Experiment {
    /// The name of the file, for errors.
    file: String,
    name: String,
    about: String,
    paper: Option<String>,
    repetitions: usize,
    /// How the repetitions of a point are summarized.
    statistic: SummaryStatistic,
    /// The maximum number of attempts of a trial while links are late.
    attempts: usize,
    /// Whether a trial is valid even if links were late.
    keep_late: bool,
    seed: u64,
    /// The SHA-256 of the file's text.
    digest: String,
    /// The swept keys.
    keys: Vec<String>,
    metrics: Vec<ExperimentMetric>,
    points: Vec<SweepPoint>,
    schedule: TrialSchedule,
    /// The shard whose trials run; `None` for all trials.
    shard: Option<TrialShard>,
    /// Whether its hosts are at sites.
    is_for_sites: bool,
    /// The sites of its hosts, by name, if it runs at sites.
    sites: BTreeMap<String, SiteRecord>,
    compare: Option<ComparisonDefinition>,
    /// When no more trials are begun.
    stops_at: Option<Instant>,
    plots: Vec<PlotDefinition>,
}

/// One combination of the swept values.
#[derive(Debug)]
pub(crate) struct SweepPoint {
    combination: SweepCombination,
    trial: Trial,
    /// The indices of the file's programs that the trial starts.
    programs: Vec<usize>,
    /// The predictor of a value, by the value's name.
    predictors: Arc<BTreeMap<String, String>>,
    /// The predictions, once they were needed.
    predictions: OnceLock<BTreeMap<String, f64>>,
}

/// A measured quantity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentMetric {
    /// Its name.
    pub name: String,
    /// Its unit. Empty if the file states none.
    pub unit: String,
    /// Whether its prediction is a figure that the paper published.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
}

impl ExperimentMetric {
    /// The name and the unit.
    pub fn label(&self) -> String {
        if self.unit.is_empty() {
            self.name.clone()
        } else {
            format!("{}, {}", self.name, self.unit)
        }
    }

    /// The word for its prediction: "predicted" or "published".
    pub fn prediction(&self) -> &'static str {
        if self.published { "published" } else { "predicted" }
    }
}

/// The maximum number of trials. Each takes seconds.
const MAX_TRIALS: usize = 100_000;

impl Experiment {
    /// Parses an experiment from the text of `file` and names it after the file.
    ///
    /// # Errors
    /// The first error in the file. Whether this machine has the programs is not checked here, but
    /// by [`find_programs`](Self::find_programs).
    pub fn parse(file: &Path, text: &str) -> Result<Self, ExperimentError> {
        Self::parse_for(file, text, None)
    }

    /// Like [`Self::parse`], for a run at sites: their addresses are those of the hosts.
    ///
    /// # Errors
    /// Also if a host has no site, or the experiment needs an emulated network.
    pub fn parse_for_sites(
        file: &Path,
        text: &str,
        sites: &ExperimentSites,
    ) -> Result<Self, ExperimentError> {
        Self::parse_for(file, text, Some(sites))
    }

    fn parse_for(
        file: &Path,
        text: &str,
        sites: Option<&ExperimentSites>,
    ) -> Result<Self, ExperimentError> {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let directory = path::absolute(file).unwrap_or_default();
        let directory = directory.parent().unwrap_or(Path::new("/")).to_owned();
        let file = file.display().to_string();
        Self::checked(name, file.clone(), &directory, text, sites)
            .map_err(|problem| problem.in_file(&file))
    }

    fn checked(
        name: String,
        file: String,
        directory: &Path,
        text: &str,
        sites: Option<&ExperimentSites>,
    ) -> Result<Self, ExperimentProblem> {
        let content = ExperimentFile::parse(text)?;
        content.check()?;
        let (repetitions, statistic) = (content.repetitions(), content.statistic());
        let sweep = SweptKeys::new(&content.sweep)?;
        let mut predicted = content.predict.clone();
        // The models predict for the links of the file, and that of computations for the processors
        // of this machine.
        predicted.retain(|_, predictor| match sites {
            None => true,
            Some(sites) if sites.emulates_links() => predictor != predict::COMPUTATION,
            Some(_) => predictor == predict::PUBLISHED,
        });
        let predictors = Arc::new(predicted);
        let mut points = Vec::new();
        for combination in sweep.combinations(MAX_TRIALS / repetitions)? {
            let values = combination.describe();
            let point = SweepPoint::new(&content, &sweep, combination, &predictors, sites);
            let mut point = point.map_err(|problem| problem.with_sweep_values(&values))?;
            driver::resolve_paths(&mut point.trial.measure, directory);
            points.push(point);
        }
        let metrics = metrics(&content, &points)?;
        let keys = sweep.keys();
        columns::check(&keys, &metrics)?;
        predict::check(&content.predict, &metrics)?;
        let plots = plot::check(content.plots, &sweep, &metrics, &points)?;
        if let Some(compare) = &content.compare {
            compare.check(&sweep, &metrics)?;
        }
        let schedule = TrialSchedule::new(content.order, &points, repetitions, content.seed);
        Ok(Self {
            file,
            name,
            about: content.about,
            paper: content.paper,
            repetitions,
            statistic,
            attempts: content.attempts,
            keep_late: content.keep_late,
            seed: content.seed,
            digest: base16ct::lower::encode_string(&Sha256::digest(text)),
            keys,
            metrics,
            points,
            schedule,
            shard: None,
            is_for_sites: sites.is_some(),
            sites: BTreeMap::new(),
            compare: content.compare,
            stops_at: None,
            plots,
        })
    }

    /// Searches for the programs that the trials start. Those at sites are not searched for.
    ///
    /// # Errors
    /// The first program that this machine lacks, and how to install it.
    pub fn find_programs(&self) -> Result<(), ExperimentError> {
        programs::find(&self.points, self.is_for_sites)
            .map_err(|problem| problem.in_file(&self.file))
    }

    /// The name: the file's name without its extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A description in one line.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// The part of the papers that it reproduces.
    pub fn paper(&self) -> Option<&str> {
        self.paper.as_deref()
    }

    /// The number of trials: points times repetitions, or those of the shard.
    pub fn trials(&self) -> usize {
        self.schedule.len()
    }

    /// Whether trials during which links are late become invalid. Without links, and with
    /// `keep_late`, nothing shows whether the machine has kept up.
    pub fn refuses_late(&self) -> bool {
        !self.keep_late && self.points.iter().any(|point| !point.trial.links.is_empty())
    }

    /// Begins no trial after this time. The next run continues.
    pub fn stop_at(&mut self, at: Instant) {
        self.stops_at = Some(at);
    }

    /// Runs only the trials of a shard. If the experiment has a comparison, the points that it
    /// compares are in one shard, and so measured on one machine.
    #[must_use]
    pub fn of_shard(mut self, shard: TrialShard) -> Self {
        self.schedule = self.schedule.of_shard(shard, &self.compared_groups());
        self.shard = Some(shard);
        self
    }

    /// Runs the trials at sites.
    #[must_use]
    pub fn at_sites(mut self, sites: &SiteConnections) -> Self {
        let hosts = self.points.iter().flat_map(|point| &point.trial.hosts);
        let hosts = hosts.map(|(host, plan)| (host, plan.site.as_deref()));
        self.sites = sites.records(hosts);
        self
    }

    /// For each point the number of its group. Only points that are compared share one.
    fn compared_groups(&self) -> Vec<usize> {
        let mut groups = BTreeMap::new();
        let group = |point: &SweepPoint| {
            let mut settings = point.swept().clone();
            if let Some(compare) = &self.compare {
                settings.remove(&compare.key);
            }
            let next = groups.len();
            *groups.entry(settings.to_string()).or_insert(next)
        };
        self.points.iter().map(group).collect()
    }

    /// The repetition, from 0, and the point of the trial with a number, from 0.
    fn trial(&self, number: usize) -> (usize, &SweepPoint) {
        let (repetition, point) = self.schedule.trial(number);
        (repetition, &self.points[point])
    }

    /// The seed of a repetition. It is the same for all points, so that they have the same random
    /// losses.
    fn seed_of(&self, repetition: usize) -> u64 {
        let mut random = fastrand::Rng::with_seed(self.seed);
        repeat_with(|| random.u64(..)).nth(repetition).unwrap_or_default()
    }
}

impl SweepPoint {
    fn new(
        file: &ExperimentFile,
        sweep: &SweptKeys,
        combination: SweepCombination,
        predictors: &Arc<BTreeMap<String, String>>,
        sites: Option<&ExperimentSites>,
    ) -> Result<Self, ExperimentProblem> {
        let FilledTemplate { trial, combination, programs } =
            template::trial(file, sweep, combination, sites)?;
        predict::check_keys(predictors, &trial, &combination)?;
        let (predictors, predictions) = (Arc::clone(predictors), OnceLock::new());
        Ok(Self { combination, trial, programs, predictors, predictions })
    }

    /// The model's predictions, by the name of the value. Values that it cannot predict are
    /// missing. The first time, this may take a moment.
    fn predictions(&self) -> &BTreeMap<String, f64> {
        let predict = || predict::all(&self.predictors, &self.trial, &self.combination);
        self.predictions.get_or_init(predict)
    }

    /// The values of the swept keys.
    fn swept(&self) -> &Table {
        &self.combination.swept
    }

    /// Whether a record is of this point. A trial that was cut short lacks values, but has a value
    /// or a text.
    fn is_of(&self, record: &TrialRecord) -> bool {
        let names = &self.trial.measure.values;
        let mut measured = record.values.keys();
        record.point == *self.swept()
            && !(record.values.is_empty() && record.texts.is_empty())
            && measured.all(|name| names.contains_key(name))
    }
}

/// The measured quantities, in the file's order.
fn metrics(
    file: &ExperimentFile,
    points: &[SweepPoint],
) -> Result<Vec<ExperimentMetric>, ExperimentProblem> {
    let Some(names) = file.measure.get("values").and_then(toml::Value::as_table) else {
        let what = "must be a table, the same for all trials: write [measure.values]";
        return Err(ExperimentProblem::new("measure.values", what));
    };
    let unit = |name: &str| {
        let values = points.first().and_then(|point| point.trial.measure.values.get(name));
        values.map(|value| value.unit.clone()).unwrap_or_default()
    };
    let published = |name: &str| file.predict.get(name).is_some_and(|it| it == predict::PUBLISHED);
    let metric = |name: &String| {
        let (unit, published) = (unit(name), published(name));
        ExperimentMetric { name: name.clone(), unit, published }
    };
    Ok(names.keys().map(metric).collect())
}
