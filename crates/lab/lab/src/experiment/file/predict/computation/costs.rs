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
use compute::{ComputeProtocol, ComputeSettings};
use rustix::process::setpriority_process;
use sha2::{Digest, Sha256};

use super::super::super::template;
use super::PredictedArguments;
use crate::trial::Trial;

/// How long garbling and evaluating are measured.
const MEASURING: Duration = Duration::from_millis(50);

/// How many kinds of computations are remembered.
const MAX_KNOWN: usize = 256;

/// The lowest priority.
const LOWEST: i32 = 19;

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

/// Where a circuit is from.
#[derive(Clone, Copy, Debug)]
enum PredictedCircuit<'a> {
    Named(&'a str),
    /// The text of a file, in one of Bristol's formats.
    Text(&'a str),
}

impl ComputationCosts {
    /// The costs of a trial's computation. `None` if there is no such circuit, or nothing can be
    /// measured.
    pub(super) fn of(trial: &Trial, circuit: &str, arguments: &PredictedArguments) -> Option<Self> {
        let circuit = PredictedCircuit::of(trial, circuit)?;
        let PredictedArguments { settings, instances, .. } = arguments;
        let ComputeSettings { protocol, scheme, transfers, .. } = settings;
        let kind =
            format!("{} {protocol:?} {scheme:?} {transfers:?} {instances}", circuit.digest());
        // Who asks for the same meanwhile waits.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(costs) = known.get(&kind) {
            return Some(*costs);
        }
        let costs = measured_aside(circuit, settings, *instances)?;
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

impl<'a> PredictedCircuit<'a> {
    /// A generated circuit, or one of the trial's files.
    fn of(trial: &'a Trial, name: &'a str) -> Option<Self> {
        if generate::NAMES.contains(&name) {
            return Some(Self::Named(name));
        }
        let file = Path::new(name).strip_prefix(template::files()).ok()?.to_str()?;
        trial.files.get(file).map(|text| Self::Text(text))
    }

    fn digest(self) -> String {
        match self {
            Self::Named(name) => name.to_owned(),
            Self::Text(text) => base16ct::lower::encode_string(&Sha256::digest(text)),
        }
    }

    fn load(self) -> Option<Circuit> {
        match self {
            Self::Named(name) => generate::named(name),
            Self::Text(text) => bristol::read(text.as_bytes()).ok(),
        }
    }
}

/// Measures in a thread of its own. A trial that runs meanwhile goes first.
fn measured_aside(
    circuit: PredictedCircuit<'_>,
    settings: &ComputeSettings,
    instances: u32,
) -> Option<ComputationCosts> {
    let measure = || {
        // This is about this thread only. Without it, the measurement is not wrong.
        let _ = setpriority_process(None, LOWEST);
        measured(&circuit.load()?, settings, instances)
    };
    thread::scope(|scope| {
        let measuring = thread::Builder::new().name("predict".into()).spawn_scoped(scope, measure);
        measuring.ok()?.join().ok().flatten()
    })
}

fn measured(
    circuit: &Circuit,
    settings: &ComputeSettings,
    instances: u32,
) -> Option<ComputationCosts> {
    let traffic = |schedule| PredictedTraffic::of(schedule, settings, instances);
    let (traffic, steps) = match settings.protocol {
        ComputeProtocol::Yao => {
            let schedule = CircuitSchedule::new(circuit);
            let steps = YaoSteps::measure(&schedule, settings, MEASURING).ok()?;
            (traffic(&schedule), ComputationSteps::Yao(steps))
        }
        ComputeProtocol::Gmw => {
            let schedule = CircuitSchedule::in_one_part(circuit);
            let steps = GmwSteps::measure(&schedule, settings, MEASURING).ok()?;
            (traffic(&schedule), ComputationSteps::Gmw(steps))
        }
    };
    Some(ComputationCosts { traffic, steps })
}
