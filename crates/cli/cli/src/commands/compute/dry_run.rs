//! `sunder compute --dry-run`: what a run will take.

use std::time::Duration;

use compute::predict::{GmwSteps, PredictedTraffic, YaoSteps};
use compute::{
    ComputeProtocol, ComputeRole, ComputeSecurity, ComputeSettings, OutputLearners, peak_memory,
};
use console::CommandFailure;
use indicatif::HumanBytes;
use serde::Serialize;

use super::connection::ComputeConnectOptions;
use super::loading::LoadedCircuit;
use super::network;

/// How long garbling and evaluating are measured.
const MEASURING: Duration = Duration::from_millis(300);

/// What is predicted.
pub(super) struct DryRunRequest<'a> {
    pub(super) connecting: &'a ComputeConnectOptions,
    pub(super) circuit: &'a str,
    pub(super) role: ComputeRole,
    pub(super) settings: &'a ComputeSettings,
    /// The levels of security that are compared.
    pub(super) levels: Vec<ComputeSecurity>,
    pub(super) instances: u32,
    /// What this party has read before the circuit was loaded.
    pub(super) reading: Duration,
    pub(super) json: bool,
}

/// The levels of security that are possible with these settings.
pub(super) fn levels(settings: &ComputeSettings) -> Vec<ComputeSecurity> {
    let is_possible = |level: &ComputeSecurity| match settings.protocol {
        ComputeProtocol::Yao => {
            *level != ComputeSecurity::Malicious || settings.learns == OutputLearners::Both
        }
        ComputeProtocol::Gmw => *level == ComputeSecurity::SemiHonest,
    };
    ComputeSecurity::ALL.into_iter().filter(is_possible).collect()
}

#[derive(Serialize)]
struct DryRunDocument<'a> {
    circuit: &'a str,
    protocol: &'a str,
    /// `null` with GMW.
    scheme: Option<&'a str>,
    security: &'a str,
    instances: u32,
    ands: u64,
    bytes_sent: u64,
    bytes_received: u64,
    round_trips: u32,
    /// Of this process, which has loaded the circuit and computed a part of it.
    peak_memory_bytes: u64,
    /// Reading and loading, as measured.
    load_s: f64,
    set_up_s: f64,
    #[serde(flatten)]
    steps: DryRunStepsDocument,
    /// `null` if no address was given.
    network_s: Option<f64>,
    transport: Option<&'a str>,
    reason: Option<&'a str>,
    /// From the connection on.
    predicted_run_s: f64,
    /// All of it, from the beginning on.
    predicted_s: f64,
    /// What the run takes with each level of security.
    levels: Vec<DryRunLevelDocument>,
}

#[derive(Serialize)]
struct DryRunLevelDocument {
    security: &'static str,
    bytes_sent: u64,
    bytes_received: u64,
    round_trips: u32,
    predicted_s: f64,
}

/// What the steps of a protocol take; `null` for those of the other one.
#[derive(Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "they are keys of the document")]
struct DryRunStepsDocument {
    inputs_s: Option<f64>,
    garble_s: Option<f64>,
    evaluate_s: Option<f64>,
    triples_s: Option<f64>,
    gates_s: Option<f64>,
}

/// Predicts what the circuit and its `traffic` with given settings take, and prints that.
///
/// # Errors
/// If nobody listens at the address.
pub(super) fn run(
    prediction: &DryRunRequest,
    traffic_of: impl Fn(&ComputeSettings) -> PredictedTraffic,
    loaded: &LoadedCircuit,
) -> Result<(), CommandFailure> {
    let &DryRunRequest { connecting, circuit, role, settings, instances, reading, json, .. } =
        prediction;
    let traffic = traffic_of(settings);
    let exchange = traffic.exchange(role);
    let network = match &connecting.connect {
        Some(address) => Some(network::examined(connecting, address, exchange, role)?),
        None => None,
    };
    let time = network.as_ref().and_then(|network| network.time);
    let waiting = time.unwrap_or_default();
    let failed = |error| super::failed(&error);
    let seconds = |time: Duration| Some(time.as_secs_f64());
    let load = reading + loaded.load.time;
    let mut levels = Vec::new();
    let (set_up, run, steps) = match settings.protocol {
        ComputeProtocol::Yao => {
            let steps = YaoSteps::measure(&loaded.schedule, settings, MEASURING).map_err(failed)?;
            let document = DryRunStepsDocument {
                inputs_s: seconds(steps.inputs),
                garble_s: seconds(steps.garble),
                evaluate_s: seconds(steps.evaluate),
                ..DryRunStepsDocument::default()
            };
            for &security in &prediction.levels {
                let settings = ComputeSettings { security, ..*settings };
                let steps = steps.with_transfers(&loaded.schedule, &settings).map_err(failed)?;
                let traffic = traffic_of(&settings);
                let exchange = traffic.exchange(role);
                let time = network.as_ref().and_then(|network| network.time_of(exchange));
                levels.push(DryRunLevelDocument {
                    security: security.name(),
                    bytes_sent: exchange.sent,
                    bytes_received: exchange.received,
                    round_trips: traffic.round_trips,
                    predicted_s: (load + steps.total(time.unwrap_or_default(), instances))
                        .as_secs_f64(),
                });
            }
            (steps.set_up, steps.total(waiting, instances), document)
        }
        ComputeProtocol::Gmw => {
            let steps = GmwSteps::measure(&loaded.schedule, settings, MEASURING).map_err(failed)?;
            let document = DryRunStepsDocument {
                triples_s: seconds(steps.triples),
                gates_s: seconds(steps.gates),
                ..DryRunStepsDocument::default()
            };
            (steps.set_up, steps.total(waiting, instances), document)
        }
    };
    let document = DryRunDocument {
        circuit,
        protocol: settings.protocol.name(),
        scheme: super::scheme_name(settings),
        security: settings.security.name(),
        instances,
        ands: loaded.schedule.shape().ands,
        bytes_sent: exchange.sent,
        bytes_received: exchange.received,
        round_trips: traffic.round_trips,
        peak_memory_bytes: peak_memory(),
        load_s: load.as_secs_f64(),
        set_up_s: set_up.as_secs_f64(),
        steps,
        network_s: time.map(|it| it.as_secs_f64()),
        transport: network.as_ref().map(|it| it.transport),
        reason: network.as_ref().map(|it| &it.reason[..]),
        predicted_run_s: run.as_secs_f64(),
        predicted_s: (load + run).as_secs_f64(),
        levels,
    };
    if json { console::print_json(&document) } else { print(&document) }
}

fn print(document: &DryRunDocument) -> Result<(), CommandFailure> {
    let line = |name: &str, value: String| console::print_line(&format!("{name:<14}{value}"));
    let ms = |seconds: f64| format!("{:.1} ms", seconds * 1e3);
    let times = if document.instances == 1 {
        String::new()
    } else {
        format!(", {} times", document.instances)
    };
    line("gates", format!("{} ANDs{times}", document.ands))?;
    line("sent", format!("{} bytes", document.bytes_sent))?;
    line("received", format!("{} bytes", document.bytes_received))?;
    line("round trips", document.round_trips.to_string())?;
    line("memory", HumanBytes(document.peak_memory_bytes).to_string())?;
    line("loading", ms(document.load_s))?;
    line("set-up", ms(document.set_up_s))?;
    let steps = &document.steps;
    for (name, seconds) in [
        ("inputs", steps.inputs_s),
        ("garbling", steps.garble_s),
        ("evaluating", steps.evaluate_s),
        ("triples", steps.triples_s),
        ("gates", steps.gates_s),
    ] {
        if let Some(seconds) = seconds {
            line(name, ms(seconds))?;
        }
    }
    match (document.network_s, document.transport, document.reason) {
        (Some(network), Some(transport), Some(reason)) => {
            line("network", format!("{} by {transport}: {reason}", ms(network)))?;
        }
        _ => line("network", "unknown: --connect measures the path to the other party".into())?,
    }
    let beside = if document.network_s.is_some() { "" } else { ", without the network" };
    if !document.levels.is_empty() {
        console::print_line("in all, with each --security:")?;
    }
    for level in &document.levels {
        let DryRunLevelDocument { security, bytes_sent, bytes_received, predicted_s, .. } = level;
        let (sent, received, time) = (bytes_sent, bytes_received, ms(*predicted_s));
        line(security, format!("{sent} bytes sent, {received} received, {time}"))?;
    }
    line("in all", format!("{}{beside}", ms(document.predicted_s)))
}
