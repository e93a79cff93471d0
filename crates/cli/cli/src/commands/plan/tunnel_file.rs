//! Reads the configuration of a tunnel as channels and requirements.

use std::path::Path;

use console::CommandFailure;
use model::{
    ChannelModel, LossProbability, RiskProbability, ScheduleObjective, ScheduleRequirements,
};
use planning::{NamedChannel, PlanChannels};
use remicss::config::{TunnelChannelConfig, TunnelConfig};
use service::config::read_file;

use crate::commands::load_config_file;

/// The text of a file, and the configuration in it. `None` if it is not one of a tunnel.
///
/// # Errors
/// If the file cannot be read, or is a wrong configuration of a tunnel.
pub(super) fn read(path: &Path) -> Result<Option<(String, TunnelConfig)>, CommandFailure> {
    let text = read_file(path).map_err(|error| CommandFailure::Usage(error.to_string()))?;
    // Every tunnel has this key, and a file of channels has not.
    let is_tunnel = toml::from_str(&text).is_ok_and(|it: toml::Table| it.contains_key("addresses"));
    let load = || load_config_file("tunnel", path, TunnelConfig::from_toml);
    Ok(is_tunnel.then(load).transpose()?.map(|config| (text, config)))
}

/// The channels, as they are expected to be.
///
/// # Errors
/// In one line, if a value is missing that the tunnel would measure.
pub(super) fn channels(config: &TunnelConfig) -> Result<PlanChannels, String> {
    let channels = config.channels.iter().zip(1..);
    let channels = channels.map(|(channel, number)| {
        let named = NamedChannel::from(model_of(channel, number)?);
        Ok(named.with_priority(channel.priority).with_shared_fate(channel.shared_fate.clone()))
    });
    PlanChannels::new(&channels.collect::<Result<Vec<_>, String>>()?, &[])
}

#[expect(clippy::cast_precision_loss, reason = "1e12 at most")]
fn model_of(channel: &TunnelChannelConfig, number: usize) -> Result<ChannelModel, String> {
    let missing = |key: &str| {
        format!(
            "channel {number} has no {key}, which the tunnel measures: add what you expect, or what \
             sunder status shows, or plan with the output of sunder plan --probe"
        )
    };
    let rate = channel.rate_bps.ok_or_else(|| missing("rate_mbit"))?;
    let loss = channel.expected_loss.ok_or_else(|| missing("loss"))?;
    let delay_ms = channel.expected_delay_ms.ok_or_else(|| missing("delay_ms"))?;
    let (risk, rate) = (RiskProbability(channel.risk), rate as f64 / 1e6);
    let model = ChannelModel::new(risk, LossProbability(loss), delay_ms, rate)
        .and_then(|model| model.with_cost(channel.cost_per_gb));
    model.map_err(|error| format!("channel {number}: {error}"))
}

/// What the tunnel asks of its schedules: the highest rate at kappa and mu within the bounds, and
/// the best one of its objective; or the lowest price first, if that is its objective.
pub(super) fn requirements(config: &TunnelConfig) -> ScheduleRequirements {
    let mut objectives: Vec<ScheduleObjective> =
        config.objectives.iter().map(|objective| (*objective).into()).collect();
    let is_cheapest = objectives.first() == Some(&ScheduleObjective::Cost);
    objectives.insert(if is_cheapest { objectives.len() } else { 0 }, ScheduleObjective::Rate);
    ScheduleRequirements {
        kappa: Some(config.kappa),
        mu: Some(config.mu),
        min_k: config.min_threshold.into(),
        max_risk: config.bounds.max_risk,
        max_loss: config.bounds.max_loss,
        max_delay_ms: config.bounds.max_delay_ms,
        min_rate: config.bounds.min_rate_mbit,
        objectives,
        ..ScheduleRequirements::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "kappa = 2\nmu = 2\naddresses = []\nallowed = [\"10.9.0.0/24\"]\nmax_risk = 0.03\n\
        [[channel]]\nserver = \"192.0.2.1:1\"\nrisk = 0.1\nrate_mbit = 100\nloss = 0.01\ndelay_ms = 5\n\
        [[channel]]\nserver = \"192.0.2.2:1\"\nrisk = 0.2\nrate_mbit = 50\nloss = 0.02\ndelay_ms = 40\n";

    #[test]
    fn a_tunnels_configuration_is_planned() {
        let config = TunnelConfig::from_toml(CONFIG).unwrap();
        let channels = channels(&config).unwrap();
        assert_eq!(channels.names, ["1", "2"]);
        assert!((channels.set.channels()[1].rate() - 50.0).abs() < 1e-9);
        let requirements = requirements(&config);
        assert_eq!((requirements.max_risk, requirements.min_k), (Some(0.03), 2));
    }

    #[test]
    fn what_the_tunnel_would_measure_must_be_given() {
        for key in ["rate_mbit", "loss", "delay_ms"] {
            let line = CONFIG.lines().rfind(|line| line.starts_with(key)).unwrap();
            let place = CONFIG.rfind(line).unwrap();
            let text = format!("{}{}", &CONFIG[..place], &CONFIG[place + line.len()..]);
            let error = channels(&TunnelConfig::from_toml(&text).unwrap()).err().unwrap();
            assert!(error.starts_with(&format!("channel 2 has no {key}, which")), "{error}");
        }
    }
}
