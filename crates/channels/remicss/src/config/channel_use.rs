//! What a channel's use is limited by: its shared fate, price, priority and quota.

use std::collections::HashSet;

use model::{MAX_GROUPS, channels_by_name};
use service::config::{ConfigProblem, ConfigTable, ConfigValue};

use super::numbers::number_in;
use super::types::{ChannelQuota, PlanObjective, QuotaPeriod, SchedulerKind, TunnelChannelConfig};
use crate::protocol::send::priority::FIRST_PRIORITY;
use crate::protocol::send::shared_fates::SharedFates;

/// The bytes of a GB.
const GB: f64 = 1e9;

/// The maximum length of the name of a shared fate.
const MAX_FATE_LEN: usize = 32;

/// The settings in the table of a channel.
pub(super) struct ChannelUse {
    pub(super) shared_fate: Option<String>,
    pub(super) cost_per_gb: f64,
    pub(super) priority: u8,
    pub(super) quota: Option<ChannelQuota>,
}

impl ChannelUse {
    /// Reads those of a channel.
    pub(super) fn read(table: &ConfigTable<'_>) -> Self {
        let fate = table.get("shared_fate");
        let shared_fate = fate.as_ref().and_then(ConfigValue::text).map(str::to_owned);
        let is_name = |name: &str| {
            (1..=MAX_FATE_LEN).contains(&name.chars().count()) && !name.contains(char::is_control)
        };
        if let (Some(fate), Some(name)) = (&fate, &shared_fate)
            && !is_name(name)
        {
            fate.refuse(
                format!("\"{name}\" is not a name"),
                format!("give 1 to {MAX_FATE_LEN} characters, as in shared_fate = \"provider\""),
            );
        }
        let number = |name, range| table.get(name).and_then(|value| number_in(&value, range));
        let priority = table.get("priority").and_then(|value| value.integer_in(1..=255));
        let periods = [("month", QuotaPeriod::Month), ("day", QuotaPeriod::Day)];
        let period = table.choice("quota_period", &periods);
        if table.has("quota_period") && !table.has("quota_gb") {
            let what = "`quota_period` goes with `quota_gb`";
            let problem = ConfigProblem::new(what, "add it, or leave `quota_period` out");
            table.report_key("quota_period", problem.summarized(what));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "up to 1e15")]
        let bytes = |gb: f64| (gb * GB).round() as u64;
        Self {
            shared_fate,
            cost_per_gb: number("cost_per_gb", 0.0..=1e6).unwrap_or(0.0),
            priority: priority.unwrap_or(FIRST_PRIORITY),
            quota: number("quota_gb", 0.001..=1e6)
                .map(|gb| ChannelQuota { bytes: bytes(gb), period }),
        }
    }
}

/// Rejects settings of channels that contradict others.
pub(super) fn check(
    table: &ConfigTable<'_>,
    scheduler: SchedulerKind,
    objectives: &[PlanObjective],
    channels: &[TunnelChannelConfig],
) {
    let tables = table.tables("channel");
    let fates = channels_by_name(channels.iter().map(|channel| channel.shared_fate.as_deref()));
    for (name, members) in fates.iter().filter(|(_, members)| members.len() < 2) {
        let table = members.iter().next().and_then(|only| tables.get(only));
        if let Some(value) = table.and_then(|table| table.get("shared_fate")) {
            let fix = "give it to all channels that share it, or leave it out";
            value.refuse(format!("only one channel has the shared_fate \"{name}\""), fix);
        }
    }
    if fates.len() > MAX_GROUPS {
        let fix = format!("give {MAX_GROUPS} at most: join those with most in common");
        table.refuse(format!("{} different `shared_fate`s", fates.len()), fix);
    }
    let has_priorities =
        channels.iter().map(|channel| channel.priority).collect::<HashSet<u8>>().len() > 1;
    if has_priorities && scheduler == SchedulerKind::Dynamic {
        let what = "the dynamic scheduler knows no priorities";
        let fix = "leave `scheduler` out, or `priority`";
        table.report_key("scheduler", ConfigProblem::new(what, fix).summarized(what));
    }
    if objectives.contains(&PlanObjective::Cost)
        && !channels.is_empty()
        && channels.iter().all(|channel| channel.cost_per_gb == 0.0)
    {
        let what = "`objective` \"cost\" needs the `cost_per_gb` of the channels";
        let fix = "give each [[channel]] its price, as in cost_per_gb = 5";
        table.report_key("objective", ConfigProblem::new(what, fix).summarized(what));
    }
    if channels.iter().any(|channel| channel.quota.is_some()) && !table.has("quota_file") {
        let what = "a channel has `quota_gb`, and there is no `quota_file`";
        let fix = "give the file in which the tunnel keeps what was used, as in \
                   quota_file = \"tunnel.quota\"";
        table.refuse(what, fix);
    }
}

/// The channels that share a fate.
pub(crate) fn fates(channels: &[TunnelChannelConfig]) -> SharedFates {
    SharedFates::new(channels.iter().map(|channel| channel.shared_fate.as_deref()))
}
