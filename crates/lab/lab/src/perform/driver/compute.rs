//! Two parties of `sunder compute`, each a process on its own host. The garbler listens, the
//! evaluator connects, and both outputs are compared with the expected output, or with each other
//! if it is not known.
//!
//! Values are read from a document. `time_s` is the time from when the evaluator begins to connect
//! until it has the output. With one link between the hosts, `least_s` is a round trip plus the
//! transmission time of the bytes, and `over` is the quotient of both. `garbler` and `evaluator`
//! are what the parties printed with `--json`, with the phases by their names, and `cpu_s` is the
//! sum of the phases of the session.

mod examples;
mod function;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use super::{DriverMeasure, DriverValues, MeasurementDriver, no_hosts, options};
use crate::perform::command::ProgramCommand;
use crate::perform::phases;
use crate::perform::trial_network::{TrialHost, TrialNetwork};
use crate::perform::trial_program::TrialProgram;
use crate::trial::LinkPlan;
use function::{IntersectionFiles, JointFunction, PartyFunction};

/// The driver's name.
pub(crate) const NAME: &str = "compute";

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: NAME,
    values: &[],
    hosts: &["garbler", "evaluator"],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Programs { measure, check_at_sites: |_, _| Ok(()) },
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComputeDriverOptions {
    /// The program.
    sunder: String,
    /// The parties' hosts.
    pub(crate) garbler: String,
    pub(crate) evaluator: String,
    /// Where the garbler listens.
    address: SocketAddr,
    /// The function that they compute: a name, or a circuit file, whose inputs are then zeros.
    pub(crate) circuit: Option<String>,
    /// Instead of a circuit: the files with the values of which they find those in common.
    pub(crate) psi: Option<IntersectionFiles>,
    /// Additional arguments of both parties.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// Additional arguments of the evaluator.
    #[serde(default)]
    pub(crate) connecting: Vec<String>,
    /// The time after which a run is ended and counts as that long, in seconds.
    pub(crate) limit_s: f64,
    /// Whether a run that fails counts as that long, too.
    #[serde(default)]
    may_fail: bool,
}

/// The maximum of `limit_s`.
const MAX_LIMIT_S: f64 = 3600.0;

/// The exit code of a failure that is not one of usage or security.
const FAILED: i32 = 1;

impl ComputeDriverOptions {
    /// What both parties compute.
    fn function(&self) -> Result<JointFunction, String> {
        match (&self.circuit, &self.psi) {
            (Some(circuit), None) => JointFunction::of_circuit(circuit),
            (None, Some(files)) => Ok(JointFunction::Intersection(files.clone())),
            _ => Err("needs either circuit or psi; give one of them".into()),
        }
    }
}

fn check(table: &toml::Table) -> Result<(), String> {
    let options: ComputeDriverOptions = options(table)?;
    options.function()?;
    let limit_s = options.limit_s;
    if limit_s > 0.0 && limit_s <= MAX_LIMIT_S {
        return Ok(());
    }
    Err(format!("limit_s is {limit_s}; it must be above 0 and at most {MAX_LIMIT_S}"))
}

fn measure(network: &TrialNetwork<'_>, table: &toml::Table) -> Result<DriverValues, String> {
    let options: ComputeDriverOptions = options(table)?;
    let function = options.function()?;
    let prepared = function.prepare()?;
    let host = |name| network.host(name).map_err(|error| format!("measure.options: {error}"));
    let [garbler_host, evaluator_host] = [host(&options.garbler)?, host(&options.evaluator)?];
    let address = options.address.to_string();

    let listening = garbler_host.listening_address(options.address).to_string();
    let listening = ["--listen".into(), listening];
    let mut garbler =
        RunningParty::start("garbler", garbler_host, &options, &prepared.garbler, &listening)?;
    garbler.program.wait_for_port(options.address.port())?;
    let connecting = [&["--connect".into(), address], &options.connecting[..]].concat();
    let mut evaluator = RunningParty::start(
        "evaluator",
        evaluator_host,
        &options,
        &prepared.evaluator,
        &connecting,
    )?;

    let limit = Duration::from_secs_f64(options.limit_s);
    let deadline = Instant::now() + limit;
    for party in [&mut evaluator, &mut garbler] {
        if !party.is_done(deadline, options.may_fail)? {
            let content = json!({ "time_s": options.limit_s });
            return Ok(DriverValues::Document { content, is_whole: false });
        }
    }
    let [garbler, evaluator] = [garbler.document()?, evaluator.document()?];
    let common = prepared.check(&garbler, &evaluator)?;
    let time_s = time(&evaluator).ok_or("the evaluator does not say how long its phases took")?;
    let mut content = json!({ "time_s": time_s });
    if let Some(common) = common {
        content["common"] = json!(common);
    }
    let links = network.links();
    let least_s = links.and_then(|it| minimum_time(it, &options.garbler, &evaluator));
    if let Some(least_s) = least_s {
        content["least_s"] = json!(least_s);
        content["over"] = json!(time_s / least_s);
    }
    content["garbler"] = garbler;
    content["evaluator"] = evaluator;
    // Without an emulated link, what is computed from it is missing.
    Ok(DriverValues::Document { content, is_whole: network.links().is_some() })
}

/// A running party.
struct RunningParty<'a> {
    role: &'static str,
    program: TrialProgram<'a>,
}

impl<'a> RunningParty<'a> {
    fn start(
        role: &'static str,
        host: TrialHost<'a>,
        options: &ComputeDriverOptions,
        computed: &PartyFunction,
        more: &[String],
    ) -> Result<Self, String> {
        let mut command = vec![options.sunder.clone(), "compute".into()];
        command.extend_from_slice(&computed.arguments);
        if let Some(input) = &computed.input {
            let path = host.write_file(&format!(".{role}.input"), input.as_bytes())?;
            command.extend(["--input-file".into(), path.display().to_string()]);
        }
        let common = ["--role", role, "--insecure", "--load-first", "--json"];
        command.extend(common.map(str::to_owned));
        command.extend_from_slice(&options.arguments);
        command.extend_from_slice(more);
        if matches!(host, TrialHost::Emulated { .. }) {
            let phases = phases::directory().join(role);
            command.extend(["--phases".into(), phases.display().to_string()]);
        }
        // The next trial must not use its measurements of paths.
        let state = host.files().display().to_string();
        let command = ProgramCommand::new(command).with_variable("XDG_STATE_HOME", state);
        let program = TrialProgram::start(host, role, &command, true)?;
        Ok(Self { role, program })
    }

    /// Waits until it has ended. Returns `false` if it has not ended by the deadline, or has failed
    /// and may fail.
    fn is_done(&mut self, deadline: Instant, may_fail: bool) -> Result<bool, String> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.program.wait(left)? {
            None => Ok(false),
            Some(status) if status.success() => Ok(true),
            Some(status) if may_fail && status.code() == Some(FAILED) => Ok(false),
            Some(status) => Err(format!("{}: {}", self.role, self.program.failure(status))),
        }
    }

    /// The document that it printed, with the phases by their names.
    fn document(&self) -> Result<Value, String> {
        let role = self.role;
        let mut document: Value = serde_json::from_str(&self.program.output()?)
            .map_err(|error| format!("the {role} printed no document: {error}"))?;
        let phases = document["phases"].take();
        let phases = phases.as_array().map(Vec::as_slice).unwrap_or_default();
        let named =
            phases.iter().filter_map(|it| Some((it["name"].as_str()?.to_owned(), it.clone())));
        document["phases"] = Value::Object(named.collect());
        // Phases before the session have no start.
        let of_session = phases.iter().filter(|it| it["start_s"].is_number());
        let cpu: f64 = of_session.filter_map(|it| it["cpu_s"].as_f64()).sum();
        document["cpu_s"] = json!(cpu);
        Ok(document)
    }
}

/// The time from when a party begins to connect until its last phase ends, in seconds.
fn time(party: &Value) -> Option<f64> {
    let phases = party["phases"].as_object()?.values();
    let ends = phases.filter_map(|it| Some(it["start_s"].as_f64()? + it["time_s"].as_f64()?));
    Some(party["phases"]["connect"]["time_s"].as_f64()? + ends.reduce(f64::max)?)
}

/// A round trip of the only link plus the transmission time of the slower direction, in seconds.
fn minimum_time(
    links: &BTreeMap<String, LinkPlan>,
    garbler: &str,
    evaluator: &Value,
) -> Option<f64> {
    let link = links.values().next().filter(|_| links.len() == 1)?;
    let mut directions = link.conditions();
    if link.hosts[0] != garbler {
        directions.reverse();
    }
    let (mut round_trip, mut sending) = (0.0, 0.0_f64);
    for (conditions, bytes) in directions.into_iter().zip(["bytes_received", "bytes_sent"]) {
        round_trip += conditions.delay_ms / 1e3;
        if let Some(rate) = conditions.rate_mbit {
            sending = sending.max(evaluator[bytes].as_f64()? * 8.0 / (rate * 1e6));
        }
    }
    Some(round_trip + sending)
}
