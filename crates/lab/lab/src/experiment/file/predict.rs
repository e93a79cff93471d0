//! Predictions of a trial's values by models.

mod computation;

use std::collections::BTreeMap;

use super::optimal;
use super::sweep::SweepCombination;
use crate::channel_model::DATAGRAM_HEADERS;
use crate::experiment::ExperimentMetric;
use crate::experiment::error::ExperimentProblem;
use crate::experiment::value::{display, number};
use crate::link::EmulatedLinkConditions;
use crate::trial::{LinkPlan, Trial};

/// A model of one quantity.
struct QuantityPredictor {
    name: &'static str,
    /// The unit of the prediction.
    unit: &'static str,
    /// The keys that it needs, swept or set.
    needs: &'static [PredictorParameter],
    /// Predicts a trial's value; `None` if the model does not apply.
    predict: fn(&Trial, &SweepCombination) -> Option<f64>,
}

/// A number that a predictor needs.
struct PredictorParameter {
    name: &'static str,
    minimum: f64,
    /// Its maximum in a trial. Earlier parameters were checked.
    maximum: fn(&Trial, &SweepCombination) -> f64,
    is_optional: bool,
}

/// The predictor whose predictions are what the paper published: the key `published_VALUE`.
pub(crate) const PUBLISHED: &str = "published";

/// The predictor of the time of a computation.
pub(crate) const COMPUTATION: &str = "computation";

/// The values of a range may exceed its bounds by this much because of rounding.
const ROUNDING: f64 = 1e-6;

const BITRATE: PredictorParameter = PredictorParameter::from("bitrate", 0.001);

const REQUESTS: [PredictorParameter; 3] = [
    PredictorParameter::from("clients", 1.0),
    PredictorParameter::from("round_trips", 0.0),
    PredictorParameter::from("size", 0.0),
];

const MU: PredictorParameter = PredictorParameter {
    maximum: |trial, _| trial.links.len() as f64,
    ..PredictorParameter::from("mu", 1.0)
};

const SHARING: [PredictorParameter; 3] = [
    MU,
    PredictorParameter {
        maximum: |_, combination| combination.number("mu").unwrap_or(f64::NAN),
        ..PredictorParameter::from("kappa", 1.0)
    },
    PredictorParameter {
        maximum: |_, combination| combination.number("kappa").map_or(f64::NAN, f64::floor),
        is_optional: true,
        ..PredictorParameter::from("min_threshold", 1.0)
    },
];

const PREDICTORS: [QuantityPredictor; 12] = [
    QuantityPredictor {
        name: COMPUTATION,
        unit: "ms",
        needs: &[],
        predict: |trial, _| Some(computation::predict(trial)?.time.as_secs_f64() * 1e3),
    },
    QuantityPredictor {
        name: "slowest-channel",
        unit: "Mbit/s",
        needs: &[],
        predict: slowest_channel,
    },
    QuantityPredictor { name: "tcp", unit: "Mbit/s", needs: &[], predict: tcp },
    QuantityPredictor { name: "datagrams", unit: "Mbit/s", needs: &[BITRATE], predict: datagrams },
    QuantityPredictor {
        name: "lost-datagrams",
        unit: "",
        needs: &[BITRATE],
        predict: lost_datagrams,
    },
    QuantityPredictor {
        name: "optimal-rate",
        unit: "Mbit/s",
        needs: &[MU],
        predict: optimal::rate,
    },
    QuantityPredictor { name: "optimal-loss", unit: "", needs: &SHARING, predict: optimal::loss },
    QuantityPredictor {
        name: "optimal-delay",
        unit: "ms",
        needs: &SHARING,
        predict: optimal::delay,
    },
    QuantityPredictor { name: "requests", unit: "requests/s", needs: &REQUESTS, predict: requests },
    QuantityPredictor {
        name: "requested-rate",
        unit: "Mbit/s",
        needs: &[],
        predict: |trial, _| forward(trial)?.rate_mbit,
    },
    QuantityPredictor {
        name: "requested-delay",
        unit: "ms",
        needs: &[],
        predict: |trial, _| Some(forward(trial)?.delay_ms),
    },
    QuantityPredictor {
        name: "requested-loss",
        unit: "",
        needs: &[],
        predict: |trial, _| Some(forward(trial)?.loss),
    },
];

/// The length of the IPv4 and TCP headers with timestamps, in bytes.
const HEADERS: f64 = 20.0 + 20.0 + 12.0;

impl PredictorParameter {
    const fn from(name: &'static str, minimum: f64) -> Self {
        Self { name, minimum, maximum: |_, _| f64::INFINITY, is_optional: false }
    }

    /// Returns what is wrong with the parameter in a trial.
    fn check(&self, trial: &Trial, combination: &SweepCombination) -> Result<(), String> {
        let Self { name, minimum: least, is_optional, .. } = *self;
        let Some(value) = combination.value(name) else {
            let missing = Err(format!("needs the key {name}; add it to [sweep]"));
            return if is_optional { Ok(()) } else { missing };
        };
        let most = (self.maximum)(trial, combination);
        if number(value).is_some_and(|value| least <= value && value <= most + ROUNDING) {
            return Ok(());
        }
        let end = if most.is_finite() { format!("to {most}") } else { String::from("on") };
        Err(format!("needs a number from {least} {end} as {name}, not {}", display(value)))
    }
}

/// Checks that the predictors and the values exist. `asked` has the predictor for each value.
pub(crate) fn check(
    asked: &BTreeMap<String, String>,
    metrics: &[ExperimentMetric],
) -> Result<(), ExperimentProblem> {
    for (value, name) in asked {
        let key = format!("predict.{value}");
        let Some(metric) = metrics.iter().find(|metric| metric.name == *value) else {
            let what = format!("there is no value {value}; name one of [measure.values]");
            return Err(ExperimentProblem::new(key, what));
        };
        if name == PUBLISHED {
            continue;
        }
        let Some(predictor) = find(name) else {
            let names = PREDICTORS.iter().map(|predictor| predictor.name);
            let names: Vec<&str> = names.chain([PUBLISHED]).collect();
            let what = format!("there is no predictor {name}; there is {}", names.join(", "));
            return Err(ExperimentProblem::new(key, what));
        };
        if metric.unit != predictor.unit {
            let what = format!(
                "{name} says {}, and {value} is in \"{}\"; scale it and give the same unit",
                predictor.unit, metric.unit
            );
            return Err(ExperimentProblem::new(key, what));
        }
    }
    Ok(())
}

/// Checks the keys that the predictors need of a trial. Fails if one is missing or impossible.
pub(crate) fn check_keys(
    asked: &BTreeMap<String, String>,
    trial: &Trial,
    combination: &SweepCombination,
) -> Result<(), ExperimentProblem> {
    for (value, name) in asked {
        for parameter in find(name).into_iter().flat_map(|predictor| predictor.needs) {
            parameter.check(trial, combination).map_err(|what| {
                ExperimentProblem::new(format!("predict.{value}"), format!("{name} {what}"))
            })?;
        }
    }
    Ok(())
}

/// The predictions for a trial whose keys were checked, by the name of the value. Some take a
/// moment.
pub(crate) fn all(
    asked: &BTreeMap<String, String>,
    trial: &Trial,
    combination: &SweepCombination,
) -> BTreeMap<String, f64> {
    let predicted = |(value, name): (&String, &String)| {
        let number = match find(name) {
            Some(predictor) => (predictor.predict)(trial, combination),
            None if name == PUBLISHED => combination.number(&format!("published_{value}")),
            None => None,
        };
        Some((value.clone(), number.filter(|number| number.is_finite())?))
    };
    asked.iter().filter_map(predicted).collect()
}

/// What is predicted of a trial besides numbers, and how long its measurement takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TrialForecast {
    /// Words, by their names.
    pub(crate) texts: BTreeMap<&'static str, String>,
    /// In seconds.
    pub(crate) duration_s: Option<f64>,
}

/// What is predicted of a trial besides numbers. This may take a moment.
pub(crate) fn forecast(asked: &BTreeMap<String, String>, trial: &Trial) -> TrialForecast {
    let is_asked = asked.values().any(|name| name == COMPUTATION);
    let Some(predicted) = is_asked.then(|| computation::predict(trial)).flatten() else {
        return TrialForecast::default();
    };
    let chosen = predicted.chosen.map(|(transport, reason)| {
        BTreeMap::from([("transport", transport.to_owned()), ("reason", reason)])
    });
    let duration_s = Some(predicted.time.as_secs_f64());
    TrialForecast { texts: chosen.unwrap_or_default(), duration_s }
}

fn find(name: &str) -> Option<&'static QuantityPredictor> {
    PREDICTORS.iter().find(|predictor| predictor.name == name)
}

/// The payload rate of one TCP connection on the slowest link, from its first host to its second.
fn slowest_channel(trial: &Trial, _: &SweepCombination) -> Option<f64> {
    trial.links.values().filter_map(payload_rate).reduce(f64::min)
}

/// The payload rate of a link with full packets; `None` if it has no rate.
fn payload_rate(link: &LinkPlan) -> Option<f64> {
    let rate = link.conditions()[0].rate_mbit?;
    let mtu = f64::from(link.mtu);
    Some(rate * (mtu - HEADERS) / mtu)
}

/// The payload rate of one TCP connection on the slowest link, with losses.
fn tcp(trial: &Trial, _: &SweepCombination) -> Option<f64> {
    trial.links.values().filter_map(tcp_rate).reduce(f64::min)
}

/// The payload rate of a TCP connection over a link. For CUBIC and Reno, which behave alike at
/// these round trips, the formula of Padhye and others (1998); BBR sends at the link's rate despite
/// losses.
fn tcp_rate(link: &LinkPlan) -> Option<f64> {
    let EmulatedLinkConditions { loss: p, .. } = link.conditions()[0];
    let whole = payload_rate(link)? * (1.0 - p);
    match link.congestion.as_deref() {
        Some("cubic" | "reno") if p > 0.0 => {
            let round_trip = link.conditions().map(|way| way.delay_ms / 1000.0).iter().sum::<f64>();
            let recovering = round_trip * (2.0 * p / 3.0).sqrt();
            let timing_out =
                MIN_RTO * (3.0 * (3.0 * p / 8.0).sqrt()).min(1.0) * p * (1.0 + 32.0 * p * p);
            let packets = 1.0 / (recovering + timing_out);
            Some(whole.min(packets * (f64::from(link.mtu) - HEADERS) * 8.0 / 1e6))
        }
        _ => Some(whole),
    }
}

/// Linux's minimum retransmission timeout, in seconds.
const MIN_RTO: f64 = 0.2;

/// The payload rate that arrives of `bitrate` Mbit/s sent in full datagrams over the first link.
fn datagrams(trial: &Trial, combination: &SweepCombination) -> Option<f64> {
    let EmulatedLinkConditions { rate_mbit, loss, .. } = forward(trial)?;
    let mtu = f64::from(trial.links.values().next()?.mtu);
    let carried = rate_mbit.map_or(f64::INFINITY, |rate| rate * (mtu - DATAGRAM_HEADERS) / mtu);
    let bitrate = combination.number("bitrate")?;
    Some(bitrate.min(carried) * (1.0 - loss))
}

/// The fraction of those datagrams that is lost.
fn lost_datagrams(trial: &Trial, combination: &SweepCombination) -> Option<f64> {
    let bitrate = combination.number("bitrate")?;
    Some(1.0 - datagrams(trial, combination)? / bitrate)
}

/// Web requests per second. Each of `clients` clients sends a request when it has the previous
/// answer. An answer takes `round_trips` round trips of the slowest link and the transmission of
/// `size` bytes. Together the clients get at most the link's rate.
fn requests(trial: &Trial, combination: &SweepCombination) -> Option<f64> {
    let parameter = |name| combination.number(name);
    let (clients, round_trips) = (parameter("clients")?, parameter("round_trips")?);
    let bits = 8.0 * (parameter("size")? + ANSWER_HEADERS);
    let round_trip =
        |link: &LinkPlan| link.conditions().map(|way| way.delay_ms / 1000.0).iter().sum::<f64>();
    let longest = trial.links.values().map(round_trip).reduce(f64::max)?;
    let carried = 1e6 * slowest_channel(trial, combination)? / bits;
    Some((clients / (round_trips * longest + 1.0 / carried)).min(carried))
}

/// The length of the headers of a web server's answer, in bytes.
const ANSWER_HEADERS: f64 = 240.0;

/// The requested conditions of the first link, forward.
fn forward(trial: &Trial) -> Option<EmulatedLinkConditions> {
    trial.links.values().next().map(|link| link.conditions()[0])
}
