//! The rounds that a member has agreed to: how long they last, and how many bytes each member has.

use std::fmt;

use encoding::FieldReader;

use crate::protocol::wire::MixTerms;

/// What the terms say of rounds. The number of members is not part of it: a group grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct AgreedRounds {
    interval_ms: u32,
    least_interval_ms: u32,
    /// The bytes of the slots of a member.
    own_slots_len: u32,
}

/// A proxy states rounds that differ too much from those that were agreed to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the proxy now has rounds of {offered}; when this chat first connected, they were of {agreed}: \
     they differ by a factor of {change}, and {max_change} is accepted. Nothing is sent. If the \
     administrators have told you of it, set max_terms_change = {change} in the configuration"
)]
pub struct TermsChangeError {
    /// The proxy's.
    offered: String,
    /// The client's.
    agreed: String,
    /// The factor, rounded up.
    pub change: u32,
    /// The one that is accepted.
    pub max_change: u32,
}

impl AgreedRounds {
    /// Those of terms.
    pub(super) fn new(terms: &MixTerms) -> Self {
        let number = |number: u128| u32::try_from(number).unwrap_or(u32::MAX);
        Self {
            interval_ms: number(terms.interval().as_millis()),
            least_interval_ms: number(terms.least_interval().as_millis()),
            own_slots_len: number(terms.shape().own_slots_len() as u128),
        }
    }

    /// Checks that these differ from those that were agreed to by no more than a factor.
    pub(super) fn check(self, agreed: Self, max_change: u32) -> Result<(), TermsChangeError> {
        let change = self.factor(agreed);
        if change <= max_change {
            return Ok(());
        }
        let [offered, agreed] = [self, agreed].map(|rounds| rounds.to_string());
        Err(TermsChangeError { offered, agreed, change, max_change })
    }

    /// Appends twelve bytes.
    pub(super) fn encode(self, out: &mut Vec<u8>) {
        self.numbers().into_iter().for_each(|number| out.extend(number.to_be_bytes()));
    }

    /// Decodes what [`AgreedRounds::encode`] has written.
    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        let mut number = || reader.u32().ok();
        let [interval_ms, least_interval_ms, own_slots_len] = [number()?, number()?, number()?];
        Some(Self { interval_ms, least_interval_ms, own_slots_len })
    }

    fn numbers(self) -> [u32; 3] {
        [self.interval_ms, self.least_interval_ms, self.own_slots_len]
    }

    /// The greatest factor between numbers of these and of others, rounded up.
    fn factor(self, other: Self) -> u32 {
        let factor = |(one, other): (u32, u32)| one.max(other).div_ceil(one.min(other).max(1));
        self.numbers().into_iter().zip(other.numbers()).map(factor).max().unwrap_or(1)
    }
}

impl fmt::Display for AgreedRounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interval_ms, least_interval_ms, own_slots_len } = self;
        write!(
            f,
            "{least_interval_ms} to {interval_ms} ms with {own_slots_len} bytes of each member"
        )
    }
}
