//! The channels of a plan, as a person writes them.

use std::collections::HashSet;

use model::{
    ChannelModel, ChannelSet, ChannelSubset, LossProbability, RiskProbability, SharedRiskGroup,
};
use serde::Deserialize;

/// The maximum length of a channel's name.
const MAX_NAME_LEN: usize = 32;

/// The channels between two hosts, each with a name.
#[derive(Clone, Debug)]
pub struct PlanChannels {
    /// The channels.
    pub set: ChannelSet,
    /// The names in the set's order, all different.
    pub names: Vec<String>,
}

/// A channel as the user specified it.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "RawChannel")]
pub struct NamedChannel {
    /// Without a name, its number from 1 is used.
    name: Option<String>,
    channel: ChannelModel,
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
        let set = ChannelSet::with_groups(set.channels().to_vec(), groups);
        Ok(Self { set: set.map_err(|error| error.to_string())?, names })
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
    /// Parses `z=0.1,l=0.01,d=2.5,r=5,name=fibre`, in any order.
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
        };
        keys.refuse_more("z, l, d, r and name")?;
        Self::try_from(raw)
    }
}

impl From<ChannelModel> for NamedChannel {
    /// A channel without a name.
    fn from(channel: ChannelModel) -> Self {
        Self { name: None, channel }
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
        .map_err(|error| error.to_string())?;
        match raw.name {
            Some(name) if !is_name(&name) => Err(format!(
                "\"{name}\" is not a valid name: give 1 to {MAX_NAME_LEN} characters, none of them \
                 + or a comma"
            )),
            name => Ok(Self { name, channel }),
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
