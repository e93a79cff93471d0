//! Sets of channels, and groups of channels that share a risk (III-A, III-B).

use thiserror::Error;

use super::channel::{ChannelModel, LossProbability, RiskProbability};
use super::subset::{ChannelSubset, MAX_CHANNELS};

/// The largest number of groups of channels that share a risk, and of shared fates, together.
pub const MAX_GROUPS: usize = 4;

/// Channels that fail together because they share one provider, duct or power supply. With
/// probability `risk` one adversary sees all of them at once. With probability `loss` a share on
/// every one of them is lost at once. In addition each channel has its own z and l. (The paper
/// assumes disjoint channels; groups extend its formulas to channels that are not.)
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedRiskGroup {
    channels: ChannelSubset,
    risk: f64,
    loss: f64,
}

impl SharedRiskGroup {
    /// The channels of the group.
    pub fn channels(&self) -> ChannelSubset {
        self.channels
    }

    /// The probability that an adversary sees all of them at once.
    pub fn risk(&self) -> f64 {
        self.risk
    }

    /// The probability that all of them lose their shares at once.
    pub fn loss(&self) -> f64 {
        self.loss
    }

    /// A group of at least two channels, with a `risk` of 0 to 1 and a `loss` of 0 to less than 1.
    ///
    /// # Errors
    /// If it has fewer channels, or one of the probabilities is outside its range.
    pub fn new(
        channels: ChannelSubset,
        risk: RiskProbability,
        loss: LossProbability,
    ) -> Result<Self, ChannelSetError> {
        let (RiskProbability(risk), LossProbability(loss)) = (risk, loss);
        if channels.len() < 2 {
            return Err(ChannelSetError::SmallGroup);
        }
        if !(0.0..=1.0).contains(&risk) {
            return Err(ChannelSetError::GroupRisk(risk));
        }
        if !(0.0..1.0).contains(&loss) {
            return Err(ChannelSetError::GroupLoss(loss));
        }
        Ok(Self { channels, risk, loss })
    }
}

/// Why the values do not define a set of channels.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum ChannelSetError {
    /// There is no channel.
    #[error("there is no channel; give at least one")]
    Empty,
    /// More channels than [`MAX_CHANNELS`].
    #[error("{0} channels are more than the {MAX_CHANNELS} that a plan can be made for")]
    TooMany(usize),
    /// More groups and shared fates than [`MAX_GROUPS`].
    #[error("{0} groups are more than the {MAX_GROUPS} that a plan can be made for")]
    TooManyGroups(usize),
    /// A group has fewer than two channels.
    #[error("a group needs at least two channels")]
    SmallGroup,
    /// A group names a channel that the set does not have.
    #[error("a group names channel {0}, which does not exist")]
    UnknownChannel(usize),
    /// The risk of a group is not a probability.
    #[error("a group's risk z = {0} is not within 0 to 1")]
    GroupRisk(f64),
    /// The loss of a group is not within 0 to less than 1.
    #[error("a group's loss l = {0} is not from 0 to below 1")]
    GroupLoss(f64),
    /// A channel has two shared fates.
    #[error("channel {0} has two shared fates; give it one")]
    TwoFates(usize),
}

/// One outcome of the draws of all groups: its probability, and the probability of each channel in
/// this outcome, which is 1 for the channels of a group that is seen, or loses its shares, as a
/// whole.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RiskGroupOutcome {
    pub(crate) probability: f64,
    /// Each channel's z or l in this outcome.
    pub(crate) channel_probabilities: Vec<f64>,
}

/// The set C of channels between two hosts, n of them (III-B).
#[derive(Clone, Debug, PartialEq)]
pub struct ChannelSet {
    channels: Vec<ChannelModel>,
    groups: Vec<SharedRiskGroup>,
    fates: Vec<ChannelSubset>,
    /// The channels by delay, fastest first.
    by_delay: Vec<usize>,
    risk_scenarios: Vec<RiskGroupOutcome>,
    loss_scenarios: Vec<RiskGroupOutcome>,
}

impl ChannelSet {
    /// A set of disjoint channels: each is seen and loses shares independently of the others.
    ///
    /// # Errors
    /// If there is none, or there are more than [`MAX_CHANNELS`].
    pub fn new(channels: Vec<ChannelModel>) -> Result<Self, ChannelSetError> {
        Self::with_groups(channels, Vec::new())
    }

    /// A set of channels, some of which belong to groups. A channel may belong to several groups.
    ///
    /// # Errors
    /// If there is no channel, there are more than [`MAX_CHANNELS`] or more than [`MAX_GROUPS`]
    /// groups, or a group names a channel that is not in the set.
    pub fn with_groups(
        channels: Vec<ChannelModel>,
        groups: Vec<SharedRiskGroup>,
    ) -> Result<Self, ChannelSetError> {
        if channels.is_empty() {
            return Err(ChannelSetError::Empty);
        }
        if channels.len() > MAX_CHANNELS {
            return Err(ChannelSetError::TooMany(channels.len()));
        }
        if groups.len() > MAX_GROUPS {
            return Err(ChannelSetError::TooManyGroups(groups.len()));
        }
        let members = groups.iter().flat_map(|group| group.channels.iter());
        if let Some(unknown) = members.max().filter(|channel| *channel >= channels.len()) {
            return Err(ChannelSetError::UnknownChannel(unknown));
        }
        let mut by_delay: Vec<usize> = (0..channels.len()).collect();
        by_delay.sort_by(|a, b| channels[*a].delay_ms().total_cmp(&channels[*b].delay_ms()));
        let (risk_scenarios, loss_scenarios) = (Vec::new(), Vec::new());
        let fates = Vec::new();
        Ok(Self { channels, groups, fates, by_delay, risk_scenarios, loss_scenarios }
            .with_scenarios())
    }

    /// The same set, where the channels of each of `fates` share their fate: an adversary who sees
    /// a share on one of them sees those on all, and if one loses its share, all do. Each channel's
    /// own z and l are draws as before. This bounds the risk and loss from above, whatever the
    /// channels of a fate have in common: see docs/model.md.
    ///
    /// # Errors
    /// If a fate has fewer than two channels, one that is not in the set, or one of another fate,
    /// or there are more than [`MAX_GROUPS`] groups and fates.
    pub fn with_shared_fates(self, fates: Vec<ChannelSubset>) -> Result<Self, ChannelSetError> {
        let count = self.groups.len() + fates.len();
        if count > MAX_GROUPS {
            return Err(ChannelSetError::TooManyGroups(count));
        }
        let mut seen = ChannelSubset::EMPTY;
        for fate in &fates {
            if fate.len() < 2 {
                return Err(ChannelSetError::SmallGroup);
            }
            for channel in fate.iter() {
                if channel >= self.len() {
                    return Err(ChannelSetError::UnknownChannel(channel));
                }
                if seen.contains(channel) {
                    return Err(ChannelSetError::TwoFates(channel));
                }
                seen = seen.with(channel);
            }
        }
        Ok(Self { fates, ..self }.with_scenarios())
    }

    /// The set of the channels of `kept` alone, in the same order, with the groups and fates of
    /// which it has more than one channel. Of a group with one channel, its risk and loss are added
    /// to the channel's own.
    ///
    /// # Errors
    /// If `kept` has none of the channels.
    pub fn restricted(&self, kept: ChannelSubset) -> Result<Self, ChannelSetError> {
        let kept: Vec<usize> = kept.iter().filter(|channel| *channel < self.len()).collect();
        let members = |channels: ChannelSubset| {
            let places =
                kept.iter().enumerate().filter(|(_, channel)| channels.contains(**channel));
            places.map(|(place, _)| place).collect::<ChannelSubset>()
        };
        let mut channels: Vec<ChannelModel> = kept.iter().map(|i| self.channels[*i]).collect();
        let mut groups = Vec::new();
        for group in &self.groups {
            let members = members(group.channels);
            match members.iter().next() {
                Some(only) if members.len() == 1 => {
                    channels[only] = channels[only].with_cause(group.risk, group.loss);
                }
                Some(_) => groups.push(SharedRiskGroup { channels: members, ..*group }),
                None => {}
            }
        }
        let fates = self.fates.iter().map(|fate| members(*fate)).filter(|fate| fate.len() > 1);
        Self::with_groups(channels, groups)?.with_shared_fates(fates.collect())
    }

    /// Computes the outcomes of groups and fates.
    fn with_scenarios(self) -> Self {
        let risks = self.channels.iter().map(ChannelModel::risk).collect();
        let losses = self.channels.iter().map(ChannelModel::loss).collect();
        let groups = self.groups.iter();
        let risk_scenarios =
            scenarios(risks, &self.fates, groups.clone().map(|group| (group.channels, group.risk)));
        let loss_scenarios =
            scenarios(losses, &self.fates, groups.map(|group| (group.channels, group.loss)));
        Self { risk_scenarios, loss_scenarios, ..self }
    }

    /// The channels, in the order given.
    pub fn channels(&self) -> &[ChannelModel] {
        &self.channels
    }

    /// The groups.
    pub fn groups(&self) -> &[SharedRiskGroup] {
        &self.groups
    }

    /// The channels that share a fate.
    pub fn shared_fates(&self) -> &[ChannelSubset] {
        &self.fates
    }

    /// The number of channels: n.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.channels.len()
    }

    /// All channels, as a subset: C.
    pub fn all(&self) -> ChannelSubset {
        ChannelSubset::first(self.len())
    }

    /// The channels' indices, fastest first.
    pub(crate) fn by_delay(&self) -> &[usize] {
        &self.by_delay
    }

    /// The outcomes of the groups for secrecy.
    pub(crate) fn risk_scenarios(&self) -> &[RiskGroupOutcome] {
        &self.risk_scenarios
    }

    /// The outcomes of the groups for delivery.
    pub(crate) fn loss_scenarios(&self) -> &[RiskGroupOutcome] {
        &self.loss_scenarios
    }
}

/// Every possible outcome of the groups' independent draws. Without groups there is one. A shared
/// fate is a group that is hit if one of its channels is, and these are hit in no other way.
fn scenarios(
    mut own: Vec<f64>,
    fates: &[ChannelSubset],
    groups: impl Iterator<Item = (ChannelSubset, f64)>,
) -> Vec<RiskGroupOutcome> {
    let mut hit: Vec<(ChannelSubset, f64)> = groups.collect();
    for fate in fates {
        // Without a subtraction, so that tiny probabilities are as exact as others.
        let any = fate.iter().fold(0.0, |any, channel| any + own[channel] * (1.0 - any));
        fate.iter().for_each(|channel| own[channel] = 0.0);
        hit.push((*fate, any.min(1.0)));
    }
    let mut scenarios = vec![RiskGroupOutcome { probability: 1.0, channel_probabilities: own }];
    for (channels, probability) in hit.into_iter().filter(|(_, probability)| *probability > 0.0) {
        let struck = scenarios.iter().map(|scenario| {
            let mut struck = scenario.clone();
            struck.probability *= probability;
            channels.iter().for_each(|channel| struck.channel_probabilities[channel] = 1.0);
            struck
        });
        let struck: Vec<RiskGroupOutcome> = struck.collect();
        for scenario in &mut scenarios {
            scenario.probability *= 1.0 - probability;
        }
        scenarios.extend(struck);
    }
    scenarios.retain(|scenario| scenario.probability > 0.0);
    scenarios
}
