//! The answer as text.

use std::io;

use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use model::simulate::{MeanEstimate, SimulationEstimates};
use model::{ScheduleObjective, ScheduleRequirements};

use planning::{BestProperties, PlanAnswer, PlanChannels, PlannedSchedule, PropertyOverview};

use super::effects;
use crate::numbers::{one_in, percent, short};

/// Prints the answer.
///
/// # Errors
/// If standard output cannot be written to.
pub(super) fn print(
    channels: &PlanChannels,
    answer: &PlanAnswer,
    trial: Option<&SimulationEstimates>,
) -> Result<(), CommandFailure> {
    let mut parts = vec![headline(channels, answer, console::wants_colour(&io::stdout()))];
    if let Some(planned) = &answer.planned {
        parts.extend([
            properties(channels, planned, trial),
            schedule(channels, planned),
            use_of(channels, planned),
        ]);
    }
    parts.extend(answer.overview.as_ref().map(overview));
    parts.extend(answer.effects.as_ref().map(|effects| effects::text(channels, effects)));
    console::print(parts.join("\n").trim_end().as_bytes())
}

/// The answer in one line.
fn headline(channels: &PlanChannels, answer: &PlanAnswer, coloured: bool) -> String {
    let words = match (&answer.planned, answer.request.requirements().objectives.first()) {
        (Some(planned), Some(objective)) => {
            best_in(planned, *objective) + &conditions(answer.request.requirements())
        }
        (Some(planned), None) => {
            format!(
                "{} Mbit/s at most{}",
                short(planned.averages.rate),
                conditions(answer.request.requirements())
            )
        }
        (None, _) => at_most(channels, answer),
    };
    if coloured { format!("\x1b[1m{words}\x1b[0m\n") } else { words + "\n" }
}

fn best_in(planned: &PlannedSchedule, objective: ScheduleObjective) -> String {
    let averages = &planned.averages;
    match objective {
        ScheduleObjective::Risk => format!("Least risk: {} is read", case(averages.risk)),
        ScheduleObjective::Loss => format!("Least loss: {} is lost", case(averages.loss)),
        ScheduleObjective::Delay => format!("Least delay: {} ms", short(averages.delay_ms)),
        ScheduleObjective::DeliveredDelay => {
            format!(
                "Least delay of the symbols that arrive: {} ms",
                short(averages.delivered_delay_ms)
            )
        }
        ScheduleObjective::Rate => format!("Highest rate: {} Mbit/s", short(averages.rate)),
        ScheduleObjective::Cost => format!("Least price of a GB: {}", short(averages.cost)),
    }
}

fn case(probability: f64) -> String {
    if probability > 0.0 { format!("{} symbols", one_in(probability)) } else { "no symbol".into() }
}

/// The request's other conditions.
fn conditions(required: &ScheduleRequirements) -> String {
    let mut conditions = Vec::new();
    let mut add = |value: Option<f64>, words: &dyn Fn(String) -> String| {
        conditions.extend(value.map(|value| words(short(value))));
    };
    add(required.kappa, &|kappa| format!("kappa {kappa}"));
    add(required.mu, &|mu| format!("mu {mu}"));
    add(required.max_risk, &|risk| format!("risk {risk} at most"));
    add(required.max_loss, &|loss| format!("loss {loss} at most"));
    add(required.max_delay_ms, &|delay| format!("delay {delay} ms at most"));
    add(required.min_rate, &|rate| format!("{rate} Mbit/s at least"));
    add(required.max_cost, &|cost| format!("price of a GB {cost} at most"));
    if required.min_k > 1 || required.min_m > 1 {
        conditions.push(format!("k {} and m {} at least", required.min_k, required.min_m));
    }
    if required.full_rate {
        conditions.push(String::from("the full rate"));
    }
    if conditions.is_empty() { String::new() } else { format!(", with {}", conditions.join(", ")) }
}

fn at_most(channels: &PlanChannels, answer: &PlanAnswer) -> String {
    let rate = answer.overview.as_ref().and_then(|overview| overview.rate);
    if let Some(rate) = rate {
        return format!(
            "{} Mbit/s at most{}",
            short(rate),
            conditions(answer.request.requirements())
        );
    }
    let total = short(channels.set.total_rate());
    let carried = match channels.names.len() {
        1 => format!("The channel carries {total} Mbit/s"),
        n => format!("The {n} channels carry {total} Mbit/s together"),
    };
    match answer.request.requirements().kappa {
        Some(kappa) => format!("{carried}; below, with kappa {}", short(kappa)),
        None => carried,
    }
}

/// The averages of the schedule beside those of the simulation.
fn properties(
    channels: &PlanChannels,
    planned: &PlannedSchedule,
    trial: Option<&SimulationEstimates>,
) -> String {
    let averages = &planned.averages;
    let row = |name: &str, value: String, more: String, found: Option<String>| {
        [name.to_owned(), value, more, found.unwrap_or_default()]
    };
    let found = |estimate: Option<MeanEstimate>, form: fn(f64) -> String, unit: &str| {
        let estimate = estimate?;
        Some(format!(
            "{}{unit} ({} to {})",
            form(estimate.mean),
            form(estimate.low),
            form(estimate.high)
        ))
    };
    let ms = |value: f64| format!("{} ms", short(value));
    let mut rows = vec![
        row(
            "risk",
            short(averages.risk),
            one_in(averages.risk),
            found(trial.map(|trial| trial.risk), short, ""),
        ),
        row(
            "loss",
            percent(averages.loss),
            one_in(averages.loss),
            found(trial.map(|trial| trial.loss), percent, ""),
        ),
        row(
            "delay",
            ms(averages.delay_ms),
            String::from("over all symbols"),
            found(trial.and_then(|trial| trial.delay_ms), short, " ms"),
        ),
        row(
            "",
            ms(averages.delivered_delay_ms),
            String::from("over the symbols that arrive"),
            found(trial.and_then(|trial| trial.delivered_delay_ms), short, " ms"),
        ),
        row("rate", format!("{} Mbit/s", short(averages.rate)), String::new(), None),
        row("kappa", short(averages.kappa), String::new(), None),
        row("mu", short(averages.mu), String::new(), None),
    ];
    if channels.has_costs() {
        let more = String::from("for a GB of packets, on all channels");
        rows.push(row("price", short(averages.cost), more, None));
    }
    if let Some(trial) = trial {
        let heading =
            format!("simulated, {} symbols (99 % confidence)", short_count(trial.symbols));
        rows.insert(0, row("", String::new(), String::new(), Some(heading)));
    }
    aligned(&[ColumnAlignment::Left; 4], &rows)
}

fn short_count(count: u64) -> String {
    indicatif::HumanCount(count).to_string()
}

/// How often each k and each choice of channels is used, the most frequent first.
fn schedule(channels: &PlanChannels, planned: &PlannedSchedule) -> String {
    let mut entries = planned.schedule.entries().to_vec();
    entries.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    let mut rows = vec![["symbols", "k of m", "channels"].map(str::to_owned)];
    rows.extend(entries.iter().map(|(threshold, p)| {
        let names = threshold.channels().iter().map(|channel| channels.names[channel].as_str());
        [
            percent(*p),
            format!("{} of {}", threshold.k(), threshold.m()),
            names.collect::<Vec<_>>().join(" + "),
        ]
    }));
    aligned(&[ColumnAlignment::Right, ColumnAlignment::Left, ColumnAlignment::Left], &rows)
}

/// The fraction of each channel's rate that is used.
fn use_of(channels: &PlanChannels, planned: &PlannedSchedule) -> String {
    let mut rows = vec![["channel", "rate", "used"].map(str::to_owned)];
    let described = channels.names.iter().zip(channels.set.channels());
    rows.extend(described.zip(planned.utilisation(&channels.set)).map(
        |((name, channel), used)| {
            [name.clone(), format!("{} Mbit/s", short(channel.rate())), percent(used)]
        },
    ));
    aligned(&[ColumnAlignment::Left, ColumnAlignment::Right, ColumnAlignment::Right], &rows)
}

/// The best value of each property.
fn overview(overview: &PropertyOverview) -> String {
    let full = overview.best_at_full_rate.as_ref();
    let row = |name: &str, form: fn(&BestProperties) -> String| {
        [name.to_owned(), form(&overview.best), full.map(form).unwrap_or_default()]
    };
    let mut rows = vec![
        row("", |_| String::from("best by itself")),
        row("risk", |best| format!("{} ({})", short(best.risk), one_in(best.risk))),
        row("loss", |best| format!("{} ({})", percent(best.loss), one_in(best.loss))),
        row("delay", |best| format!("{} ms", short(best.delay_ms))),
        row("delay of the symbols that arrive", |best| {
            format!("{} ms", short(best.delivered_delay_ms))
        }),
        row("rate", |best| format!("{} Mbit/s", short(best.rate))),
    ];
    if full.is_some() {
        rows[0][2] = String::from("best at full rate");
    }
    if let Some(delay_ms) = overview.delay_over_all_ms {
        let delay = format!("{} ms", short(delay_ms));
        rows.insert(4, [String::from("delay over all, k = 1"), delay, String::new()]);
    }
    aligned(&[ColumnAlignment::Left; 3], &rows)
}
