//! Predicts the time of the driver `compute`.
//!
//! The parties exchange as many bytes in as many round trips as the protocol says for the circuit.
//! What the network adds is predicted by the model with which `auto` chooses a transport, for the
//! conditions of the link; what the parties compute is measured on this machine.

mod costs;
mod path;

use std::time::Duration;

use compute::predict::network_time;
use compute::{ComputeProtocol, ComputeRole, ComputeSecurity, ComputeSettings, TransferKind};
use serde::Deserialize as _;
use transport::choice::expected;

use crate::perform::driver::compute::{self as driver, ComputeDriverOptions};
use crate::trial::Trial;
use costs::{ComputationCosts, PredictedFunction};

/// Whether the parties of the driver encrypt.
const IS_SECURE: bool = false;

/// What is predicted of a computation.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ComputationPrediction {
    /// From when the evaluator begins to connect until it has the output.
    pub(super) time: Duration,
    /// If the transport is `auto`: the one that it is expected to choose, and why.
    pub(super) chosen: Option<(&'static str, String)>,
}

/// The default of `--rows` in `sunder compute psi --protocol circuit`.
const DEFAULT_ROWS: u32 = 1000;

/// The arguments of the parties' commands on which the time depends.
#[derive(Clone, Debug)]
struct PredictedArguments {
    settings: ComputeSettings,
    instances: u32,
    transport: String,
    congestion: Option<String>,
}

/// What is predicted of the trial. `None` if it is no computation, or one whose hosts, circuit or
/// arguments are not known here. This takes a moment: see [`costs`].
pub(super) fn predict(trial: &Trial) -> Option<ComputationPrediction> {
    if trial.measure.driver.as_deref() != Some(driver::NAME) {
        return None;
    }
    let options = ComputeDriverOptions::deserialize(trial.measure.options.clone()).ok()?;
    let words = options.arguments.iter().chain(&options.connecting);
    let arguments = PredictedArguments::parse(words.map(String::as_str))?;
    let congestion = arguments.congestion.as_deref();
    let path = path::between(trial, &options.evaluator, &options.garbler, congestion)?;
    let function = match (&options.circuit, &options.psi) {
        (Some(circuit), None) => PredictedFunction::of_circuit(trial, circuit)?,
        (None, Some(psi)) => PredictedFunction::of_intersection(psi.rows.unwrap_or(DEFAULT_ROWS))?,
        _ => return None,
    };
    let costs = ComputationCosts::of(function, &arguments)?;
    let exchange = costs.traffic.exchange(ComputeRole::Evaluator);
    let (transport, delay, chosen) = if arguments.transport == "auto" {
        let expected = expected(&path, exchange, IS_SECURE);
        let transport = expected.decision.transport;
        (transport, expected.delay, Some((transport, expected.decision.reason)))
    } else {
        (&arguments.transport[..], Duration::ZERO, None)
    };
    let network = network_time(transport, &path, exchange, IS_SECURE)?.saturating_add(delay);
    let time = costs.total(network, arguments.instances);
    // A run that takes longer is ended, and counts as that long.
    let limit = Duration::try_from_secs_f64(options.limit_s).unwrap_or(Duration::MAX);
    Some(ComputationPrediction { time: time.min(limit), chosen })
}

impl PredictedArguments {
    /// Reads arguments; `None` if there is one whose effect is not known here.
    fn parse<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<Self> {
        let defaults = ComputeSettings::default();
        // Both parties run on this machine, each with as many threads as there are processors.
        let settings = ComputeSettings { threads: (defaults.threads / 2).max(1), ..defaults };
        let (transport, congestion) = (String::from("auto"), None);
        let mut read = Self { settings, instances: 1, transport, congestion };
        while let Some(word) = words.next() {
            match word {
                "--scheme" => read.settings.scheme = words.next()?.parse().ok()?,
                "--protocol" => read.settings.protocol = protocol(words.next()?)?,
                "--transfers" => read.settings.transfers = transfers(words.next()?)?,
                "--security" => read.settings.security = security(words.next()?)?,
                "--repeat" => read.instances = words.next()?.parse().ok()?,
                "--transport" => words.next()?.clone_into(&mut read.transport),
                "--congestion" => read.congestion = Some(words.next()?.to_owned()),
                "--accept-loss" => {}
                _ => return None,
            }
        }
        Some(read)
    }
}

fn protocol(name: &str) -> Option<ComputeProtocol> {
    [ComputeProtocol::Yao, ComputeProtocol::Gmw].into_iter().find(|it| it.name() == name)
}

fn security(name: &str) -> Option<ComputeSecurity> {
    ComputeSecurity::ALL.into_iter().find(|it| it.name() == name)
}

fn transfers(name: &str) -> Option<TransferKind> {
    match name {
        "iknp" => Some(TransferKind::Iknp),
        "softspoken2" => Some(TransferKind::SoftSpoken2),
        "softspoken4" => Some(TransferKind::SoftSpoken4),
        "softspoken8" => Some(TransferKind::SoftSpoken8),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A computation of AES-128 over this link, with this transport.
    fn computation(link: &str, transport: &str) -> Trial {
        let buffers = "{ \"net/ipv4/tcp_wmem\" = \"4096 131072 1073741824\", \
                       \"net/ipv4/tcp_rmem\" = \"4096 131072 1073741824\" }";
        let text = format!(
            "[hosts]\none = {{ sysctl = {buffers} }}\ntwo = {{ sysctl = {buffers} }}\n\
             [links.a]\nhosts = [\"one\", \"two\"]\ncongestion = \"cubic\"\n{link}\n\
             [measure]\ndriver = \"compute\"\n\
             [measure.options]\nsunder = \"/sunder\"\ngarbler = \"one\"\nevaluator = \"two\"\n\
             address = \"10.0.0.1:7000\"\ncircuit = \"aes128\"\nlimit_s = 20\n\
             arguments = [\"--scheme\", \"half-gates\"]\n\
             connecting = [\"--transport\", \"{transport}\"]\n\
             [measure.values]\ntime = {{ unit = \"ms\", json = \"/time_s\" }}\n"
        );
        toml::from_str(&text).unwrap()
    }

    fn time(link: &str, transport: &str) -> Duration {
        predict(&computation(link, transport)).unwrap().time
    }

    #[test]
    fn predicted_computation_takes_longer_with_delay_and_loss() {
        for transport in ["tcp", "quic", "sabul", "burst", "auto"] {
            let near = time("both = { rate_mbit = 1000, delay_ms = 20 }", transport);
            let far = time("both = { rate_mbit = 1000, delay_ms = 100 }", transport);
            assert!(near >= Duration::from_millis(3 * 40), "{transport}: {near:?}");
            assert!(far >= Duration::from_millis(3 * 200) && far > near, "{transport}: {far:?}");
            let slow = time("both = { rate_mbit = 1, delay_ms = 20 }", transport);
            assert!(slow > near + Duration::from_secs(1), "{transport}: {slow:?}");
        }
        let lossy = |loss| {
            time(&format!("both = {{ rate_mbit = 1000, delay_ms = 50, loss = {loss} }}"), "tcp")
        };
        assert!(lossy(0.03) > lossy(0.001) && lossy(0.001) > lossy(0.0));
    }

    #[test]
    fn predicted_computation_never_exceeds_its_limit() {
        assert_eq!(time("both = { rate_mbit = 0.01 }", "tcp"), Duration::from_secs(20));
    }

    #[test]
    fn predicted_transport_of_auto_is_named_with_the_reason() {
        let link = "both = { rate_mbit = 1000, delay_ms = 55 }";
        let (transport, reason) = predict(&computation(link, "auto")).unwrap().chosen.unwrap();
        assert_eq!(transport, "burst");
        assert!(reason.contains("110.0 ms"), "{reason}");
        assert_eq!(predict(&computation(link, "burst")).unwrap().chosen, None);
    }

    #[test]
    fn computations_that_are_not_known_have_no_prediction() {
        let link = "both = { rate_mbit = 1000, delay_ms = 55 }";
        let known = computation(link, "tcp");
        let changed = |key: &str, value: toml::Value| {
            let mut trial = known.clone();
            trial.measure.options.insert(key.into(), value);
            predict(&trial)
        };
        assert_eq!(changed("circuit", "/none.txt".into()), None);
        assert_eq!(changed("garbler", "three".into()), None);
        assert_eq!(changed("arguments", vec!["--unknown"].into()), None);
        assert_eq!(changed("connecting", vec!["--transport", "none"].into()), None);
        let rows = |rows: i64| {
            let mut trial = known.clone();
            trial.measure.options.remove("circuit");
            let files = ["garbler", "evaluator"].map(|role| (role.to_owned(), "/a.csv".into()));
            let rows = ("rows".to_owned(), toml::Value::from(rows));
            let psi: toml::Table = files.into_iter().chain([rows]).collect();
            trial.measure.options.insert("psi".into(), psi.into());
            predict(&trial)
        };
        assert_eq!(rows(100_000), None, "it is too large to be measured");
        assert!(rows(20).unwrap().time > changed("limit_s", 20.into()).unwrap().time);
        let mut other = known.clone();
        other.measure.driver = Some("flow".into());
        assert_eq!(predict(&other), None);
    }

    #[test]
    fn predicted_circuit_may_be_a_file_of_the_experiment() {
        let mut trial = computation("both = { rate_mbit = 1000, delay_ms = 55 }", "tcp");
        let path = crate::sandbox::trial_files().join("and.txt");
        let path = path.to_str().unwrap().to_owned();
        trial.measure.options.insert("circuit".into(), path.into());
        assert_eq!(predict(&trial), None, "there is no such file");
        let text = "1 3\n2 1 1\n1 1\n\n2 1 0 1 2 AND\n";
        trial.files.insert("and.txt".into(), text.into());
        assert!(predict(&trial).unwrap().time > Duration::from_millis(300));
    }
}
