//! Plans of channels, as `sunder plan` computes them. Pure.

use model::{
    ChannelSet, PlanError, PlanRequest, PlanRequestError, ScheduleAverages, ScheduleObjective,
    ScheduleRequirements,
};
use planning::{NamedChannel, PlanAnswer, PlanChannels, PlanDocument};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::refusal::RefusedRequest;

/// The maximum number of channels: with more, an answer takes too long while one drags a slider.
const MAX_CHANNELS: usize = 8;

/// The number of plans on a Pareto front.
const FRONT_POINTS: usize = 25;

/// A question to the channel model.
pub(crate) trait PlanQuestion: DeserializeOwned + Send + 'static {
    /// The answer as a document.
    ///
    /// # Errors
    /// If the channels or the request are wrong, or no schedule keeps the bounds.
    fn answer(&self) -> Result<Value, RefusedRequest>;
}

/// What a person asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PlanQuery {
    channels: Vec<PlanQueryChannel>,
    kappa: Option<f64>,
    mu: Option<f64>,
    objective: Option<QueriedObjective>,
    max_risk: Option<f64>,
    max_loss: Option<f64>,
    max_delay: Option<f64>,
    min_rate: Option<f64>,
}

/// A property over kappa and mu.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SurfaceQuery {
    channels: Vec<PlanQueryChannel>,
    value: QueriedProperty,
    /// How many values of kappa and of mu.
    steps: u32,
}

/// How much one property must worsen to improve another.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FrontQuery {
    channels: Vec<PlanQueryChannel>,
    kappa: Option<f64>,
    mu: Option<f64>,
    x: QueriedProperty,
    y: QueriedProperty,
}

/// A channel, and what is repeated in the configuration of a tunnel.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Value")]
struct PlanQueryChannel {
    channel: Result<NamedChannel, String>,
    risk: f64,
    rate: f64,
}

/// The names of `sunder plan --objective`, which are those of a tunnel's configuration.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum QueriedObjective {
    Privacy,
    Loss,
    Delay,
    Rate,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum QueriedProperty {
    Risk,
    Loss,
    Delay,
    Rate,
}

impl From<Value> for PlanQueryChannel {
    fn from(value: Value) -> Self {
        let number = |name: &str| value.get(name).and_then(Value::as_f64).unwrap_or_default();
        let (risk, rate) = (number("risk"), number("rate"));
        let channel = NamedChannel::deserialize(value).map_err(|error| error.to_string());
        Self { channel, risk, rate }
    }
}

impl QueriedObjective {
    fn objective(self) -> ScheduleObjective {
        match self {
            Self::Privacy => ScheduleObjective::Risk,
            Self::Loss => ScheduleObjective::Loss,
            Self::Delay => ScheduleObjective::Delay,
            Self::Rate => ScheduleObjective::Rate,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Privacy => "privacy",
            Self::Loss => "loss",
            Self::Delay => "delay",
            Self::Rate => "rate",
        }
    }
}

impl QueriedProperty {
    fn objective(self) -> ScheduleObjective {
        match self {
            Self::Risk => ScheduleObjective::Risk,
            Self::Loss => ScheduleObjective::Loss,
            Self::Delay => ScheduleObjective::Delay,
            Self::Rate => ScheduleObjective::Rate,
        }
    }
}

impl PlanQuestion for PlanQuery {
    /// The document of `sunder plan --json`, with the lines of a tunnel's configuration and the
    /// same plan without each channel.
    fn answer(&self) -> Result<Value, RefusedRequest> {
        let channels = named(&self.channels)?;
        let request = self.request(self.kappa, self.mu)?;
        let answer = PlanAnswer::find(&channels.set, &request, &|_, _| {})
            .map_err(|error| infeasible(&error))?;
        let averages = answer.planned.as_ref().map(|planned| planned.averages);
        let mut document = json!(PlanDocument::new(&channels, &answer, None));
        document["toml"] = averages.map(|averages| self.toml(&channels, &averages)).into();
        document["leave_one_out"] = (0..self.channels.len())
            .filter(|_| self.channels.len() > 1)
            .map(|left_out| self.without(left_out, &channels.names[left_out]))
            .collect();
        Ok(document)
    }
}

impl PlanQuery {
    fn request(&self, kappa: Option<f64>, mu: Option<f64>) -> Result<PlanRequest, RefusedRequest> {
        let mut objectives: Vec<ScheduleObjective> =
            self.objective.into_iter().map(QueriedObjective::objective).collect();
        let bounds = [self.max_risk, self.max_loss, self.max_delay, self.min_rate];
        if objectives.is_empty() && bounds.iter().any(Option::is_some) {
            objectives.push(ScheduleObjective::Rate);
        }
        let requirements = ScheduleRequirements {
            kappa,
            mu,
            max_risk: self.max_risk,
            max_loss: self.max_loss,
            max_delay_ms: self.max_delay,
            min_rate: self.min_rate,
            objectives,
            ..ScheduleRequirements::default()
        };
        PlanRequest::new(requirements).map_err(|error| wrong_request(&error))
    }

    /// The same without a channel; with kappa and mu no higher than the rest allows.
    fn without(&self, left_out: usize, name: &str) -> Value {
        let mut channels = self.channels.clone();
        channels.remove(left_out);
        let most = channels.len() as f64;
        let at_most = |value: Option<f64>| value.map(|value| value.min(most));
        let planned = named(&channels).and_then(|channels| {
            let request = self.request(at_most(self.kappa), at_most(self.mu))?;
            let answer = PlanAnswer::find(&channels.set, &request, &|_, _| {});
            Ok(answer.map_err(|error| infeasible(&error))?.planned)
        });
        match planned {
            Ok(Some(planned)) => {
                let ScheduleAverages { risk, loss, delay_ms, rate, .. } = planned.averages;
                json!({ "without": name, "risk": risk, "loss": loss, "delay_ms": delay_ms, "rate": rate })
            }
            Ok(None) => json!({ "without": name, "error": "there is no schedule" }),
            Err(refused) => json!({ "without": name, "error": refused.why }),
        }
    }

    /// The lines of a tunnel's configuration for these channels.
    fn toml(&self, channels: &PlanChannels, averages: &ScheduleAverages) -> String {
        let mean =
            |given: Option<f64>, planned: f64| given.unwrap_or((planned * 1e3).round() / 1e3);
        let (kappa, mu) = (mean(self.kappa, averages.kappa), mean(self.mu, averages.mu));
        let objective = self.objective.map(|it| format!("objective = \"{}\"\n", it.name()));
        let channel = |(name, channel): (&String, &PlanQueryChannel)| {
            let PlanQueryChannel { risk, rate, .. } = channel;
            format!(
                "\n[[channel]] # {name}\nserver = \"ADDRESS:6521\"\nrisk = {risk}\nrate_mbit = {rate}\n"
            )
        };
        let channels: String = channels.names.iter().zip(&self.channels).map(channel).collect();
        let objective = objective.unwrap_or_default();
        let addresses = "addresses = [\"10.9.0.2/24\"] # of this end in the tunnel\n";
        format!("kappa = {kappa}\nmu = {mu}\n{objective}{addresses}{channels}")
    }
}

impl PlanQuestion for SurfaceQuery {
    /// The best value of the property at full rate, for each mu a row with each kappa; `null` where
    /// kappa is more than mu.
    fn answer(&self) -> Result<Value, RefusedRequest> {
        let set = named(&self.channels)?.set;
        // Each value is a linear program, which grows with the number of channels.
        let most_steps = match set.len() {
            1..=5 => 41,
            6 => 21,
            _ => 11,
        };
        let steps = self.steps.clamp(2, most_steps) - 1;
        let most = set.len() as f64 - 1.0;
        let axis: Vec<f64> =
            (0..=steps).map(|step| 1.0 + most * f64::from(step) / f64::from(steps)).collect();
        let row = |mu: &f64| axis.iter().map(|kappa| self.value(&set, *kappa, *mu)).collect();
        let values: Vec<Vec<Option<f64>>> = axis.iter().map(row).collect();
        Ok(json!({ "kappa": axis, "mu": axis, "values": values }))
    }
}

impl SurfaceQuery {
    fn value(&self, set: &ChannelSet, kappa: f64, mu: f64) -> Option<f64> {
        if kappa > mu {
            return None;
        }
        if self.value == QueriedProperty::Rate {
            return set.best_rate(mu);
        }
        let objective = self.value.objective();
        let requirements = ScheduleRequirements {
            kappa: Some(kappa),
            mu: Some(mu),
            full_rate: true,
            objectives: vec![objective],
            ..ScheduleRequirements::default()
        };
        let plan = set.plan(&PlanRequest::new(requirements).ok()?).ok()?;
        Some(plan.averages.value_of(objective))
    }
}

impl PlanQuestion for FrontQuery {
    /// The front of the two properties.
    fn answer(&self) -> Result<Value, RefusedRequest> {
        if self.x == self.y {
            return Err(RefusedRequest::new("y", "name two different properties"));
        }
        let set = named(&self.channels)?.set;
        let requirements = ScheduleRequirements {
            kappa: self.kappa,
            mu: self.mu,
            ..ScheduleRequirements::default()
        };
        let request = PlanRequest::new(requirements).map_err(|error| wrong_request(&error))?;
        let (x, y) = (self.x.objective(), self.y.objective());
        let front =
            set.pareto_front(&request, x, y, FRONT_POINTS).map_err(|error| infeasible(&error))?;
        let points = front.map(|plan| {
            let averages = plan.map_err(|error| infeasible(&error))?.averages;
            Ok(json!({ "x": averages.value_of(x), "y": averages.value_of(y) }))
        });
        points.collect()
    }
}

/// The channels with their names.
fn named(channels: &[PlanQueryChannel]) -> Result<PlanChannels, RefusedRequest> {
    let refuse = |why: String| RefusedRequest::new("channels", why);
    if channels.is_empty() || channels.len() > MAX_CHANNELS {
        return Err(refuse(format!("give 1 to {MAX_CHANNELS} channels")));
    }
    let channels: Result<Vec<NamedChannel>, String> =
        channels.iter().map(|it| it.channel.clone()).collect();
    PlanChannels::new(&channels.map_err(refuse)?, &[]).map_err(refuse)
}

fn wrong_request(error: &PlanRequestError) -> RefusedRequest {
    RefusedRequest::new("request", error.to_string())
}

fn infeasible(error: &PlanError) -> RefusedRequest {
    RefusedRequest::new("request", error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(more: &Value) -> Value {
        let mut query = json!({ "channels": [
            { "name": "fibre", "risk": 0.1, "loss": 0.01, "delay_ms": 2.5, "rate": 100 },
            { "name": "dsl", "risk": 0.3, "loss": 0.005, "delay_ms": 9, "rate": 40 },
            { "name": "lte", "risk": 0.2, "loss": 0.02, "delay_ms": 30, "rate": 20 },
        ] });
        query.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        query
    }

    fn answer(more: &Value) -> Result<Value, RefusedRequest> {
        serde_json::from_value::<PlanQuery>(query(more)).unwrap().answer()
    }

    #[test]
    fn a_plan_has_its_schedule_its_configuration_and_each_channel_left_out() {
        let plan = answer(&json!({ "kappa": 1.5, "mu": 2, "objective": "privacy" })).unwrap();
        assert_eq!(plan["names"], json!(["fibre", "dsl", "lte"]));
        assert!(plan["risk"].as_f64().unwrap() < 0.1, "{plan}");
        assert!(!plan["schedule"].as_array().unwrap().is_empty());
        let toml = plan["toml"].as_str().unwrap();
        let configuration: toml::Table = toml::from_str(toml).unwrap();
        assert_eq!(configuration["kappa"].as_float(), Some(1.5));
        assert_eq!(configuration["objective"].as_str(), Some("privacy"));
        assert_eq!(configuration["channel"].as_array().unwrap().len(), 3);
        let left_out = plan["leave_one_out"].as_array().unwrap();
        assert_eq!(left_out[1]["without"], "dsl");
        assert!(left_out.iter().all(|it| it["risk"].is_number()), "{left_out:?}");
    }

    #[test]
    fn bounds_that_cannot_be_kept_are_refused_with_what_is_possible() {
        let refused = answer(&json!({ "objective": "rate", "max_risk": 1e-9 })).unwrap_err();
        assert!(!refused.why.is_empty() && !refused.why.contains('\n'), "{refused}");
        for wrong in [
            json!({ "kappa": 9, "mu": 2 }),
            json!({ "channels": [] }),
            json!({ "channels": [{ "name": "a\nb", "risk": 0, "loss": 0, "delay_ms": 1, "rate": 1 }] }),
            json!({ "channels": [{ "name": "a", "risk": 2, "loss": 0, "delay_ms": 1, "rate": 1 }] }),
        ] {
            assert!(answer(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_surface_and_a_front_have_the_best_values() {
        let surface = SurfaceQuery {
            channels: serde_json::from_value(query(&json!({}))["channels"].clone()).unwrap(),
            value: QueriedProperty::Rate,
            steps: 1000,
        };
        let values = surface.answer().unwrap();
        assert_eq!(values["kappa"].as_array().unwrap().len(), 41);
        assert_eq!(
            (&values["values"][0][0], &values["values"][0][1]),
            (&json!(160.0), &Value::Null)
        );
        let front: FrontQuery =
            serde_json::from_value(query(&json!({ "x": "risk", "y": "rate" }))).unwrap();
        let points = front.answer().unwrap();
        let points = points.as_array().unwrap();
        assert!(points.len() > 2, "{points:?}");
        let of = |point: &Value, axis: &str| point[axis].as_f64().unwrap();
        assert!(points.is_sorted_by(|a, b| of(a, "x") <= of(b, "x") && of(a, "y") <= of(b, "y")));
    }
}
