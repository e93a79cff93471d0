//! The channels of a plan, as a person writes them.

use std::collections::{BTreeSet, HashSet};
use std::str::FromStr;

use model::{
    ChannelModel, ChannelSet, ChannelSubset, LossProbability, RiskProbability, SharedRiskGroup,
    channels_by_name,
};
use serde::Deserialize;

/// The priority of a channel that is always used.
pub const FIRST_PRIORITY: u8 = 1;

/// The maximum length of a channel's name.
const MAX_NAME_LEN: usize = 32;

/// The channels between two hosts, each with a name.
#[derive(Clone, Debug)]
pub struct PlanChannels {
    /// The channels.
    pub set: ChannelSet,
    /// The names in the set's order, all different.
    pub names: Vec<String>,
    /// The priorities in the set's order: channels of a higher number are backups.
    pub priorities: Vec<u8>,
    /// The names of the shared fates in the set's order.
    pub shared_fates: Vec<Option<String>>,
}

/// A channel as the user specified it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawChannel")]
pub struct NamedChannel {
    /// Without a name, its number from 1 is used.
    name: Option<String>,
    channel: ChannelModel,
    /// Channels with the same one share their fate.
    shared_fate: Option<String>,
    priority: u8,
}

/// A group of channels that fail together, as the user specified it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedRiskGroup {
    channels: Vec<String>,
    #[serde(alias = "z")]
    risk: f64,
    #[serde(alias = "l")]
    loss: f64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawChannel {
    name: Option<String>,
    #[serde(alias = "z")]
    risk: f64,
    #[serde(alias = "l")]
    loss: f64,
    #[serde(alias = "d")]
    delay_ms: f64,
    #[serde(alias = "r")]
    rate: f64,
    #[serde(default)]
    cost_per_gb: f64,
    shared_fate: Option<String>,
    priority: Option<u8>,
}

/// A file of channels.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChannelsFile {
    /// The channels.
    #[serde(default)]
    pub channel: Vec<NamedChannel>,
    /// The groups of channels that fail together.
    #[serde(default)]
    pub group: Vec<NamedRiskGroup>,
}

impl PlanChannels {
    /// These channels and groups.
    ///
    /// # Errors
    /// If they do not form a valid set: what is wrong, in one line.
    pub fn new(channels: &[NamedChannel], groups: &[NamedRiskGroup]) -> Result<Self, String> {
        // First, so that an error about too many channels is not attributed to a group.
        let set = channels.iter().map(|named| named.channel).collect();
        let set = ChannelSet::new(set).map_err(|error| error.to_string())?;
        let names = names(channels)?;
        let groups = groups.iter().map(|group| group.resolve(&names));
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        let fates: Vec<Option<&str>> =
            channels.iter().map(|named| named.shared_fate.as_deref()).collect();
        let fates = shared_fates(&fates)?;
        let set = ChannelSet::with_groups(set.channels().to_vec(), groups)
            .and_then(|set| set.with_shared_fates(fates));
        let set = set.map_err(|error| error.to_string())?;
        Ok(Self {
            set,
            names,
            priorities: channels.iter().map(|named| named.priority).collect(),
            shared_fates: channels.iter().map(|named| named.shared_fate.clone()).collect(),
        })
    }

    /// Whether any channel has a price.
    pub fn has_costs(&self) -> bool {
        self.set.channels().iter().any(|channel| channel.cost() > 0.0)
    }

    /// The priorities that channels have, in ascending order.
    pub fn levels(&self) -> BTreeSet<u8> {
        self.priorities.iter().copied().collect()
    }

    /// The channels of this priority, and of all lower numbers. `None` if there are none.
    pub fn up_to(&self, priority: u8) -> Option<Self> {
        let priorities = self.priorities.iter().enumerate();
        let kept = priorities.filter(|(_, of_channel)| **of_channel <= priority);
        let kept: Vec<usize> = kept.map(|(channel, _)| channel).collect();
        Some(Self {
            set: self.set.restricted(kept.iter().copied().collect()).ok()?,
            names: kept.iter().map(|channel| self.names[*channel].clone()).collect(),
            priorities: kept.iter().map(|channel| self.priorities[*channel]).collect(),
            shared_fates: kept.iter().map(|channel| self.shared_fates[*channel].clone()).collect(),
        })
    }
}

/// The channels of each shared fate, from the name of each channel's.
///
/// # Errors
/// If only one channel has a name: one line.
fn shared_fates(names: &[Option<&str>]) -> Result<Vec<ChannelSubset>, String> {
    let fates = channels_by_name(names.iter().copied());
    match fates.iter().find(|(_, channels)| channels.len() < 2) {
        Some((name, _)) => Err(format!(
            "only one channel has the shared_fate \"{name}\"; give it to all that share it, or \
             leave it out"
        )),
        None => Ok(fates.into_values().collect()),
    }
}

/// The name of each channel, or its number if it has none.
fn names(channels: &[NamedChannel]) -> Result<Vec<String>, String> {
    let numbered = channels.iter().zip(1..);
    let names =
        numbered.map(|(named, number)| named.name.clone().unwrap_or_else(|| number.to_string()));
    let names: Vec<String> = names.collect();
    let mut seen = HashSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        Some(twice) => Err(format!("two channels are named {twice}; give each its own name")),
        None => Ok(names),
    }
}

impl NamedChannel {
    /// Parses `z=0.1,l=0.01,d=2.5,r=5,name=fibre`, in any order, with the further keys of a file.
    ///
    /// # Errors
    /// If a key is missing, unknown, repeated or out of its range.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys = KeyValuePairs::parse(text)?;
        let raw = RawChannel {
            risk: keys.proportion(["z", "risk"])?,
            loss: keys.proportion(["l", "loss"])?,
            delay_ms: keys.number(["d", "delay_ms"])?,
            rate: keys.number(["r", "rate"])?,
            name: keys.take("name").map(str::to_owned),
            cost_per_gb: keys.optional("cost_per_gb")?.unwrap_or_default(),
            shared_fate: keys.take("shared_fate").map(str::to_owned),
            priority: keys.optional("priority")?,
        };
        keys.refuse_more("z, l, d, r, name, cost_per_gb, shared_fate and priority")?;
        Self::try_from(raw)
    }
}

impl NamedChannel {
    /// The same with the name of its shared fate.
    #[must_use]
    pub fn with_shared_fate(self, shared_fate: Option<String>) -> Self {
        Self { shared_fate, ..self }
    }

    /// The same with a priority.
    #[must_use]
    pub fn with_priority(self, priority: u8) -> Self {
        Self { priority, ..self }
    }
}

impl From<ChannelModel> for NamedChannel {
    /// A channel without a name.
    fn from(channel: ChannelModel) -> Self {
        Self { name: None, channel, shared_fate: None, priority: FIRST_PRIORITY }
    }
}

impl TryFrom<RawChannel> for NamedChannel {
    type Error = String;

    fn try_from(raw: RawChannel) -> Result<Self, String> {
        let channel = ChannelModel::new(
            RiskProbability(raw.risk),
            LossProbability(raw.loss),
            raw.delay_ms,
            raw.rate,
        )
        .and_then(|channel| channel.with_cost(raw.cost_per_gb))
        .map_err(|error| error.to_string())?;
        let priority = raw.priority.unwrap_or(FIRST_PRIORITY);
        if priority < FIRST_PRIORITY {
            return Err("priority = 0: give 1 to 255".into());
        }
        let shared_fate = raw.shared_fate;
        match raw.name {
            Some(name) if !is_name(&name) => Err(format!(
                "\"{name}\" is not a valid name: give 1 to {MAX_NAME_LEN} characters, none of them \
                 + or a comma"
            )),
            name => Ok(Self { name, channel, shared_fate, priority }),
        }
    }
}

/// Whether a channel can have the name: it fits in a table and on the command line.
fn is_name(name: &str) -> bool {
    let reserved = |c: char| matches!(c, ',' | '+') || c.is_control();
    !name.trim().is_empty() && name.chars().count() <= MAX_NAME_LEN && !name.contains(reserved)
}

impl NamedRiskGroup {
    /// Parses `z=0.05,l=0.001,channels=fibre+dsl`, in any order.
    ///
    /// # Errors
    /// If a key is missing, unknown or repeated.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut keys = KeyValuePairs::parse(text)?;
        let channels = keys.require("channels")?.split('+').map(str::to_owned).collect();
        let group = Self {
            channels,
            risk: keys.proportion(["z", "risk"])?,
            loss: keys.proportion(["l", "loss"])?,
        };
        keys.refuse_more("z, l and channels")?;
        Ok(group)
    }

    fn resolve(&self, names: &[String]) -> Result<SharedRiskGroup, String> {
        let mut members = ChannelSubset::EMPTY;
        for channel in &self.channels {
            let place = names.iter().position(|name| name == channel).ok_or_else(|| {
                format!(
                    "a group has channel {channel}, which does not exist; name channels that are \
                     given"
                )
            })?;
            if members.contains(place) {
                return Err(format!("a group has channel {channel} twice; name it once"));
            }
            members = members.with(place);
        }
        SharedRiskGroup::new(members, RiskProbability(self.risk), LossProbability(self.loss))
            .map_err(|error| error.to_string())
    }
}

/// Parses a proportion: a number such as 0.01, or a percentage such as 1%.
///
/// # Errors
/// If it is neither.
pub fn parse_proportion(text: &str) -> Result<f64, String> {
    let parsed = match text.strip_suffix('%') {
        Some(percent) => percent.trim_end().parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text} is not a number: write 0.01 or 1%"))
}

/// What the number of a channel's key is.
fn meaning(key: &str) -> &'static str {
    match key {
        "z" => "risk, from 0 to 1",
        "l" => "loss, from 0 to below 1",
        "d" => "delay in ms",
        _ => "rate in Mbit/s",
    }
}

/// The remaining pairs of `key=value,key=value`.
struct KeyValuePairs<'a>(Vec<(&'a str, &'a str)>);

impl<'a> KeyValuePairs<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in text.split(',') {
            let (key, value) =
                part.split_once('=').ok_or_else(|| format!("\"{part}\" is not KEY=VALUE"))?;
            let (key, value) = (key.trim(), value.trim());
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(format!("{key} is given twice"));
            }
            pairs.push((key, value));
        }
        Ok(Self(pairs))
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let place = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.swap_remove(place).1)
    }

    fn require(&mut self, key: &str) -> Result<&'a str, String> {
        self.take(key).ok_or_else(|| format!("{key} is missing"))
    }

    /// The value of a key, which has a short name and that of a file.
    fn either(&mut self, [short, long]: [&str; 2]) -> Result<&'a str, String> {
        match (self.take(short), self.take(long)) {
            (Some(_), Some(_)) => Err(format!("{short} and {long} are the same; give one")),
            (Some(value), None) | (None, Some(value)) => Ok(value),
            (None, None) => Err(format!("{short} is missing: the {}", meaning(short))),
        }
    }

    fn number(&mut self, names: [&str; 2]) -> Result<f64, String> {
        let value = self.either(names)?;
        value.parse().map_err(|_| {
            let [short, _] = names;
            format!("{short} = {value} is not a number: give the {}", meaning(short))
        })
    }

    fn proportion(&mut self, names: [&str; 2]) -> Result<f64, String> {
        let value = self.either(names)?;
        parse_proportion(value).map_err(|error| format!("{} = {error}", names[0]))
    }

    /// A number that may be missing.
    fn optional<T: FromStr>(&mut self, key: &str) -> Result<Option<T>, String> {
        let parse = |value: &str| {
            value.parse().map_err(|_| format!("{key} = {value} is not a number that it can be"))
        };
        self.take(key).map(parse).transpose()
    }

    fn refuse_more(&self, known: &str) -> Result<(), String> {
        match self.0.first() {
            Some((key, _)) => Err(format!("{key} is unknown; the keys are {known}")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_any_order() {
        let channel = NamedChannel::parse("name=a fibre, r=5,d=2.5,l=0.01,z=0.1").unwrap();
        assert_eq!(
            channel.channel,
            ChannelModel::new(RiskProbability(0.1), LossProbability(0.01), 2.5, 5.0).unwrap()
        );
        assert_eq!(channel.name.as_deref(), Some("a fibre"));
    }

    #[test]
    fn a_name_fits_in_a_table_and_on_the_command_line() {
        for name in ["1", "a fibre", "é", &"x".repeat(32)] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", " ", "a,b", "a+b", "a\nb", &"x".repeat(33)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
