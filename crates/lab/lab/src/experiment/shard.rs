//! Shards: parts of an experiment's trials, each of which can run on a machine of its own.

use std::fmt::{self, Display, Formatter};
use std::num::NonZero;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// One of several parts of an experiment's trials, written `I/N`: part I, from 1, of N. The parts
/// have no trial in common, and all of them together have every trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TrialShard {
    /// From 0.
    index: usize,
    of: NonZero<usize>,
}

/// The text is not `I/N` with I from 1 to N.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a shard is I/N, such as 2/4: the second of four, with I from 1 to N")]
pub struct TrialShardError;

impl TrialShard {
    /// Whether it has the trials of the unit with a number, from 0. Units are dealt one after the
    /// other, so that each shard has as many as any other, or one fewer.
    pub(crate) fn has(self, unit: usize) -> bool {
        unit % self.of == self.index
    }

    /// Which part it is, from 1, and of how many.
    pub fn place(self) -> (usize, usize) {
        (self.index + 1, self.of.get())
    }
}

impl FromStr for TrialShard {
    type Err = TrialShardError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (index, of) = text.split_once('/').ok_or(TrialShardError)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| TrialShardError);
        let index = number(index)?.checked_sub(1).ok_or(TrialShardError)?;
        let of = NonZero::new(number(of)?).ok_or(TrialShardError)?;
        if index < of.get() { Ok(Self { index, of }) } else { Err(TrialShardError) }
    }
}

impl Display for TrialShard {
    fn fmt(&self, out: &mut Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.index + 1, self.of)
    }
}

impl TryFrom<String> for TrialShard {
    type Error = TrialShardError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<TrialShard> for String {
    fn from(shard: TrialShard) -> Self {
        shard.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_a_part_of_a_number_of_parts() {
        for text in ["1/1", "2/4", "4/4"] {
            assert_eq!(text.parse::<TrialShard>().unwrap().to_string(), text);
        }
        for text in ["", "1", "0/4", "5/4", "1/0", "-1/4", "1/4/5", "a/b", "99999999999999999999/1"]
        {
            assert_eq!(text.parse::<TrialShard>(), Err(TrialShardError), "{text}");
        }
    }
}
