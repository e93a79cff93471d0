//! What a computation costs without the network: the bytes that the parties send, and the time that
//! they compute.
//!
//! Each kind of computation is measured once in this process, which takes about 0.1 s, and with
//! large circuits longer. So predictions are made when they are needed, not when an experiment is
//! read.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use circuit::{Circuit, CircuitSchedule, bristol, generate};
use compute::predict::{GmwSteps, PredictedTraffic, YaoSteps};
use compute::{ComputeProtocol, ComputeSettings, OutputLearners};
use rustix::process::setpriority_process;
use sha2::{Digest, Sha256};

use super::PredictedArguments;
use crate::sandbox;
use crate::trial::Trial;

/// How often the steps are measured, and how long garbling and evaluating each time. The fastest
/// counts: other processes delay the others.
const TRIES: usize = 3;
const MEASURING: Duration = Duration::from_millis(20);

/// The bits of a number that stands for a value in `sunder compute psi`.
const NUMBER_BITS: u32 = 64;

/// The maximum length of the lists of an intersection that is measured: in memory, its circuit
/// takes some hundred megabytes.
const MAX_ROWS: u32 = 1000;

/// How many kinds of computations are remembered.
const MAX_KNOWN: usize = 256;

/// The priority of a measurement, from 0 (normal) to 19 (lowest): a trial that runs meanwhile gets
/// three times as much of a processor. At the lowest priority, a measurement beside a few busy
/// programs takes minutes, and a run that waits for it does not begin.
const PRIORITY: i32 = 5;

/// What was measured, by the kind of the computation.
static KNOWN: Mutex<BTreeMap<String, ComputationCosts>> = Mutex::new(BTreeMap::new());

/// The costs of a computation.
#[derive(Clone, Copy, Debug)]
pub(super) struct ComputationCosts {
    /// Of all instances.
    pub(super) traffic: PredictedTraffic,
    steps: ComputationSteps,
}

/// The durations of the steps of a protocol.
#[derive(Clone, Copy, Debug)]
enum ComputationSteps {
    Yao(YaoSteps),
    Gmw(GmwSteps),
}

/// What is computed.
#[derive(Clone, Copy, Debug)]
pub(super) enum PredictedFunction<'a> {
    /// A generated circuit.
    Named(&'a str),
    /// The text of a file, in one of Bristol's formats.
    Text(&'a str),
    /// The common values of two lists, up to a number of them.
    Intersection(u32),
}

impl ComputationSteps {
    /// Measures them; `None` if the system does not let that happen.
    fn measure(schedule: &CircuitSchedule, settings: &ComputeSettings) -> Option<Self> {
        Some(match settings.protocol {
            ComputeProtocol::Yao => {
                Self::Yao(YaoSteps::measure(schedule, settings, MEASURING).ok()?)
            }
            ComputeProtocol::Gmw => {
                Self::Gmw(GmwSteps::measure(schedule, settings, MEASURING).ok()?)
            }
        })
    }

    /// The shorter of each step, of two measurements of the same protocol.
    fn least(self, other: Self) -> Self {
        match (self, other) {
            (Self::Yao(a), Self::Yao(b)) => Self::Yao(YaoSteps {
                set_up: a.set_up.min(b.set_up),
                inputs: a.inputs.min(b.inputs),
                garble: a.garble.min(b.garble),
                evaluate: a.evaluate.min(b.evaluate),
                is_dual: a.is_dual,
            }),
            (Self::Gmw(a), Self::Gmw(b)) => Self::Gmw(GmwSteps {
                set_up: a.set_up.min(b.set_up),
                triples: a.triples.min(b.triples),
                gates: a.gates.min(b.gates),
            }),
            (first, _) => first,
        }
    }
}

impl ComputationCosts {
    /// The costs of a function. `None` if its text is no circuit, or nothing can be measured.
    pub(super) fn of(
        function: PredictedFunction<'_>,
        arguments: &PredictedArguments,
    ) -> Option<Self> {
        let PredictedArguments { settings, instances, .. } = arguments;
        let ComputeSettings { protocol, scheme, security, transfers, .. } = settings;
        let kind = format!(
            "{} {protocol:?} {scheme:?} {security:?} {transfers:?} {instances}",
            function.digest()
        );
        // Who asks for the same meanwhile waits.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(costs) = known.get(&kind) {
            return Some(*costs);
        }
        let costs = measured_aside(function, settings, *instances)?;
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        known.insert(kind, costs);
        Some(costs)
    }

    /// The time of all instances if the network takes `network` in total.
    pub(super) fn total(&self, network: Duration, instances: u32) -> Duration {
        match &self.steps {
            ComputationSteps::Yao(steps) => steps.total(network, instances),
            ComputationSteps::Gmw(steps) => steps.total(network, instances),
        }
    }
}

impl<'a> PredictedFunction<'a> {
    /// A generated circuit, or one of the trial's files. `None` if there is none.
    pub(super) fn of_circuit(trial: &'a Trial, name: &'a str) -> Option<Self> {
        if generate::NAMES.contains(&name) {
            return Some(Self::Named(name));
        }
        let file = Path::new(name).strip_prefix(sandbox::trial_files()).ok()?.to_str()?;
        trial.files.get(file).map(|text| Self::Text(text))
    }

    /// The intersection of two lists. `None` if it is too large to be measured here.
    pub(super) fn of_intersection(rows: u32) -> Option<Self> {
        (1..=MAX_ROWS).contains(&rows).then_some(Self::Intersection(rows))
    }

    fn digest(self) -> String {
        match self {
            Self::Named(name) => name.to_owned(),
            Self::Text(text) => base16ct::lower::encode_string(&Sha256::digest(text)),
            Self::Intersection(rows) => format!("intersection of {rows}"),
        }
    }

    fn circuit(self) -> Option<Circuit> {
        match self {
            Self::Named(name) => generate::named(name),
            Self::Text(text) => bristol::read(text.as_bytes()).ok(),
            Self::Intersection(rows) => Some(generate::intersection(rows, NUMBER_BITS)),
        }
    }
}

/// Measures in a thread of its own. A trial that runs meanwhile goes first.
fn measured_aside(
    function: PredictedFunction<'_>,
    settings: &ComputeSettings,
    instances: u32,
) -> Option<ComputationCosts> {
    let measure = || {
        // This is about this thread only. Without it, the measurement is not wrong.
        let _ = setpriority_process(None, PRIORITY);
        measured(function, settings, instances)
    };
    thread::scope(|scope| {
        let measuring = thread::Builder::new().name("predict".into()).spawn_scoped(scope, measure);
        measuring.ok()?.join().ok().flatten()
    })
}

fn measured(
    function: PredictedFunction<'_>,
    settings: &ComputeSettings,
    instances: u32,
) -> Option<ComputationCosts> {
    let circuit = function.circuit()?;
    let schedule = match settings.protocol {
        ComputeProtocol::Yao => CircuitSchedule::new(&circuit),
        // As the program does: each level takes half a round trip.
        ComputeProtocol::Gmw => CircuitSchedule::in_one_part(&circuit),
    };
    let measure = |_| ComputationSteps::measure(&schedule, settings);
    let steps = (0..TRIES).filter_map(measure).reduce(ComputationSteps::least)?;
    let traffic = match function {
        PredictedFunction::Intersection(rows) => intersection_traffic(&schedule, settings, rows),
        _ => PredictedTraffic::of(&schedule, settings, instances),
    };
    Some(ComputationCosts { traffic, steps })
}

/// The traffic of `sunder compute psi`: the evaluator finds the common numbers, and reveals them in
/// another instance.
fn intersection_traffic(
    schedule: &CircuitSchedule,
    settings: &ComputeSettings,
    rows: u32,
) -> PredictedTraffic {
    let finding = ComputeSettings { learns: OutputLearners::Evaluator, ..*settings };
    let mut circuit = Circuit::new(&[0, rows * NUMBER_BITS]);
    let numbers: Vec<_> = circuit.input(1).collect();
    circuit.output(&numbers);
    PredictedTraffic::of(schedule, &finding, 1).and(&CircuitSchedule::new(&circuit), settings)
}
