//! Writes the settings of a tunnel for a plan.

use std::fmt::Write as _;

use console::CommandFailure;
use model::ScheduleObjective;
use planning::{FIRST_PRIORITY, PlanAnswer, PlanChannels};
use remicss::TunnelConfig;

/// The relative error of what a plan promises.
const TOLERANCE: f64 = 1e-6;

/// A key above the first `[[channel]]` and its value.
type Setting = (&'static str, String);

/// The whole configuration with the plan's settings, if `tunnel` is the text of one; otherwise the
/// lines for a new one.
///
/// # Errors
/// If there is no schedule, a tunnel cannot have it, or the text cannot be changed.
pub(super) fn settings(
    channels: &PlanChannels,
    answer: &PlanAnswer,
    tunnel: Option<&str>,
) -> Result<String, CommandFailure> {
    let settings = plan_settings(channels, answer)?;
    let broken = tunnel.map(|text| broken_bounds(text, answer, &settings)).unwrap_or_default();
    let text = match tunnel {
        Some(text) => changed(text, &settings, &broken),
        None => fragment(channels, &settings),
    };
    if tunnel.is_some() {
        // Lines were changed, and not values: of a text in an unusual form, the result may be none.
        let is_right = TunnelConfig::from_toml(&text).is_ok_and(|config| {
            settings.iter().all(|(key, value)| match *key {
                "kappa" => config.kappa.to_string() == *value,
                "mu" => config.mu.to_string() == *value,
                "min_threshold" => config.min_threshold.to_string() == *value,
                _ => true,
            }) && bounds(&config)
                .iter()
                .all(|(key, bound)| bound.is_none() || !broken.contains(key))
        });
        if !is_right {
            let lines = lines(&settings);
            return Err(CommandFailure::Failed(format!(
                "cannot write the settings into this file: it needs each key on a line of its own. \
                 The settings are {}",
                lines.trim_end().replace('\n', ", ")
            )));
        }
    }
    for key in broken {
        console::note(&format!("the plan does not keep the file's {key}: it is now a comment"));
    }
    Ok(text)
}

/// The bounds of a configuration by their keys.
fn bounds(config: &TunnelConfig) -> [(&'static str, Option<f64>); 4] {
    let bounds = &config.bounds;
    [
        ("max_risk", bounds.max_risk),
        ("max_loss", bounds.max_loss),
        ("max_delay_ms", bounds.max_delay_ms),
        ("min_rate_mbit", bounds.min_rate_mbit),
    ]
}

/// The bounds of a configuration that are not in `settings`, and that the plan does not keep: the
/// options have replaced them.
fn broken_bounds(text: &str, answer: &PlanAnswer, settings: &[Setting]) -> Vec<&'static str> {
    let Ok(config) = TunnelConfig::from_toml(text) else { return Vec::new() };
    let Some(averages) = answer.planned.as_ref().map(|planned| &planned.averages) else {
        return Vec::new();
    };
    let is_broken = |key: &str, bound: f64| match key {
        "max_risk" => averages.risk > bound * (1.0 + TOLERANCE),
        "max_loss" => averages.loss > bound * (1.0 + TOLERANCE),
        "max_delay_ms" => averages.delay_ms > bound * (1.0 + TOLERANCE),
        _ => averages.rate < bound * (1.0 - TOLERANCE),
    };
    let is_set = |key: &str| settings.iter().any(|(name, _)| *name == key);
    let broken = bounds(&config).into_iter().filter_map(|(key, bound)| {
        bound.filter(|bound| !is_set(key) && is_broken(key, *bound)).map(|_| key)
    });
    broken.collect()
}

fn plan_settings(
    channels: &PlanChannels,
    answer: &PlanAnswer,
) -> Result<Vec<Setting>, CommandFailure> {
    let refused = |text: &str| CommandFailure::Usage(String::from(text));
    let planned = answer.planned.as_ref().ok_or_else(|| {
        refused("--toml needs a schedule: give --kappa and --mu, an --objective or a bound")
    })?;
    if !channels.set.groups().is_empty() {
        return Err(refused("a tunnel has no groups: give the channels a shared_fate instead"));
    }
    let requirements = answer.request.requirements();
    if requirements.max_cost.is_some() {
        return Err(refused("a tunnel has no --max-cost: use the objective cost instead"));
    }
    let averages = &planned.averages;
    let entries = planned.schedule.entries().iter();
    let least = entries.map(|(selection, _)| selection.k()).min().unwrap_or(1);
    let mut settings = vec![
        ("kappa", requirements.kappa.unwrap_or(averages.kappa).to_string()),
        ("mu", requirements.mu.unwrap_or(averages.mu).to_string()),
        ("min_threshold", least.to_string()),
    ];
    let objectives: Vec<&str> =
        requirements.objectives.iter().filter_map(|it| tunnel_objective(*it)).collect();
    match objectives[..] {
        [] => {}
        [only] => settings.push(("objective", format!("\"{only}\""))),
        _ => settings.push(("objective", format!("[\"{}\"]", objectives.join("\", \"")))),
    }
    let bounds = [
        ("max_risk", requirements.max_risk),
        ("max_loss", requirements.max_loss),
        ("max_delay_ms", requirements.max_delay_ms),
        ("min_rate_mbit", requirements.min_rate),
    ];
    settings.extend(bounds.into_iter().filter_map(|(key, value)| Some((key, value?.to_string()))));
    Ok(settings)
}

/// The objective's name in a tunnel's configuration. A tunnel seeks the highest rate anyway.
fn tunnel_objective(objective: ScheduleObjective) -> Option<&'static str> {
    match objective {
        ScheduleObjective::Risk => Some("privacy"),
        ScheduleObjective::Loss => Some("loss"),
        ScheduleObjective::Delay | ScheduleObjective::DeliveredDelay => Some("delay"),
        ScheduleObjective::Cost => Some("cost"),
        ScheduleObjective::Rate => None,
    }
}

fn lines<'a>(settings: impl IntoIterator<Item = &'a Setting>) -> String {
    let lines = settings.into_iter().map(|(key, value)| format!("{key} = {value}\n"));
    lines.collect::<Vec<_>>().concat()
}

/// The text with these settings instead of those that it has, without `broken` bounds, which become
/// comments, and all else as it was.
fn changed(text: &str, settings: &[Setting], broken: &[&str]) -> String {
    let mut left: Vec<&Setting> = settings.iter().collect();
    let mut changed = String::new();
    let mut is_above_tables = true;
    for line in text.split_inclusive('\n') {
        if is_above_tables && line.trim_start().starts_with('[') {
            is_above_tables = false;
            changed += &lines(left.drain(..));
        }
        let key = line.split_once('=').map(|(key, _)| key.trim()).unwrap_or_default();
        let place = left.iter().position(|(name, _)| is_above_tables && *name == key);
        match place {
            Some(place) => changed += &lines([left.remove(place)]),
            None if is_above_tables && broken.contains(&key) => {
                changed.extend(["# This plan does not keep it: ", line]);
            }
            None => changed += line,
        }
    }
    if !left.is_empty() && !changed.is_empty() && !changed.ends_with('\n') {
        changed.push('\n');
    }
    // There are no tables, or they would have been added before.
    changed + &lines(left)
}

/// The lines for a new configuration.
fn fragment(channels: &PlanChannels, settings: &[Setting]) -> String {
    let mut text = String::from(
        "# For tunnel.toml at both ends. Add `addresses` and `key`, and each channel's\n\
         # `server` and `device` at the end that connects, or `listen` at the other.\n",
    );
    text += &lines(settings);
    for (index, channel) in channels.set.channels().iter().enumerate() {
        let (risk, loss) = (channel.risk(), channel.loss());
        let (delay_ms, rate) = (channel.delay_ms(), channel.rate());
        let _ = write!(
            text,
            "\n[[channel]] # {}\nserver = \"ADDRESS:6521\"\nrisk = {risk}\nrate_mbit = {rate}\n\
             loss = {loss}\ndelay_ms = {delay_ms}\n",
            channels.names[index]
        );
        if channel.cost() > 0.0 {
            let _ = writeln!(text, "cost_per_gb = {}", channel.cost());
        }
        if channels.priorities[index] != FIRST_PRIORITY {
            let _ = writeln!(text, "priority = {}", channels.priorities[index]);
        }
        if let Some(fate) = &channels.shared_fates[index] {
            let _ = writeln!(text, "shared_fate = {}", toml::Value::from(fate.as_str()));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_replace_those_of_the_text_and_nothing_else() {
        let text = "# a comment\nkappa = 2 # privacy\nmu=3\naddresses = []\nmax_loss = 0.1\n\
                    min_rate_mbit = 1\n\n[[channel]]\nserver = \"192.0.2.1:1\"\nmu = 9\n";
        let settings =
            [("kappa", "2.5".into()), ("mu", "2.75".into()), ("max_risk", "0.01".into())];
        assert_eq!(
            changed(text, &settings, &["max_loss"]),
            "# a comment\nkappa = 2.5\nmu = 2.75\naddresses = []\n\
             # This plan does not keep it: max_loss = 0.1\nmin_rate_mbit = 1\n\n\
             max_risk = 0.01\n[[channel]]\nserver = \"192.0.2.1:1\"\nmu = 9\n"
        );
    }
}
