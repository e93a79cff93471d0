//! The effects of better channels, as text.

use std::cmp::Ordering;

use console::table::{ColumnAlignment, aligned};
use model::ScheduleObjective;

use planning::{ImprovementEffect, ImprovementEffects, PlanChannels, quantity_key};

use crate::numbers::{percent, short};

/// The minimum relative change that is shown.
const MIN_CHANGE: f64 = 1e-5;

/// A line for each quantity that has an effect, the largest effect first.
pub(super) fn text(channels: &PlanChannels, effects: &ImprovementEffects) -> String {
    let now = effects.now;
    let title = format!(
        "{} if one value were a tenth better (now {}):\n",
        name(effects),
        form(effects, now)
    );
    let mut changing: Vec<&ImprovementEffect> =
        effects.each.iter().filter(|e| changes(e, now)).collect();
    if changing.is_empty() {
        return title + "  no value changes it\n";
    }
    changing.sort_by(|a, b| by_size(a, b, now));
    let rows: Vec<[String; 4]> = changing
        .iter()
        .map(|effect| {
            [
                channels.names[effect.channel].clone(),
                quantity_key(effect.quantity).to_owned(),
                effect.value.map_or_else(|| "cannot be met".into(), |value| form(effects, value)),
                effect.value.map(|value| change(value, now)).unwrap_or_default(),
            ]
        })
        .collect();
    let rest =
        if changing.len() < effects.each.len() { "  no other value changes it\n" } else { "" };
    title
        + &aligned(
            &[
                ColumnAlignment::Left,
                ColumnAlignment::Left,
                ColumnAlignment::Left,
                ColumnAlignment::Right,
            ],
            &rows,
        )
        + rest
}

fn changes(effect: &ImprovementEffect, now: f64) -> bool {
    effect.value.is_none_or(|value| (value - now).abs() > MIN_CHANGE * now.abs())
}

/// Orders by the size of the change, the largest first.
fn by_size(a: &ImprovementEffect, b: &ImprovementEffect, now: f64) -> Ordering {
    let size = |effect: &ImprovementEffect| effect.value.map_or(0.0, |value| (value - now).abs());
    size(b).total_cmp(&size(a))
}

/// The change relative to the current value.
fn change(value: f64, now: f64) -> String {
    if now == 0.0 {
        return String::new();
    }
    let change = value / now - 1.0;
    let sign = if change < 0.0 { '-' } else { '+' };
    format!("{sign}{}", percent(change.abs()))
}

fn name(effects: &ImprovementEffects) -> &'static str {
    match effects.objective {
        ScheduleObjective::Risk => "Least risk",
        ScheduleObjective::Loss => "Least loss",
        ScheduleObjective::Delay => "Least delay",
        ScheduleObjective::DeliveredDelay => "Least delay of the symbols that arrive",
        ScheduleObjective::Rate => "Highest rate",
        ScheduleObjective::Cost => "Least price of a GB",
    }
}

fn form(effects: &ImprovementEffects, value: f64) -> String {
    match effects.objective {
        ScheduleObjective::Risk | ScheduleObjective::Cost => short(value),
        ScheduleObjective::Loss => percent(value),
        ScheduleObjective::Delay | ScheduleObjective::DeliveredDelay => {
            format!("{} ms", short(value))
        }
        ScheduleObjective::Rate => format!("{} Mbit/s", short(value)),
    }
}
