//! Compares one value of a swept key with the others, in each group of points that differ only in
//! this key.

use toml::Table;

use super::results::ExperimentResults;
use crate::experiment::file::compare::ComparisonDefinition;
use crate::experiment::value::display;

/// The comparison of the groups in which each point has a valid trial.
#[derive(Clone, Debug, PartialEq)]
pub struct ResultsComparison<'a> {
    /// The definition of the comparison.
    pub compare: &'a ComparisonDefinition,
    /// The swept keys, except the compared one.
    pub keys: Vec<&'a str>,
    /// The complete groups, in their order.
    pub groups: Vec<ComparedGroup>,
    /// The number of groups in which some point has no valid trial.
    pub incomplete: usize,
}

/// The points of a group: the value of the key, and the measured one if there is a valid trial.
type ComparedPoints = Vec<(String, Option<f64>)>;

/// A group of points.
#[derive(Clone, Debug, PartialEq)]
pub struct ComparedGroup {
    /// The values of the other swept keys, as text.
    pub settings: Vec<String>,
    /// The value of the key with the least measured value, among the others.
    pub best: String,
    /// The least measured value of the others.
    pub least_of_others: f64,
    /// The measured value that is compared.
    pub value: f64,
    /// Its ratio to the value of each of the limits, in their order.
    pub ratios: Vec<f64>,
}

impl ComparedGroup {
    /// The ratio of the value to the least of the others.
    pub fn over_best(&self) -> f64 {
        self.value / self.least_of_others
    }
}

impl ResultsComparison<'_> {
    /// The number of groups within the allowed excess over the best of the others.
    pub fn near_best(&self) -> usize {
        let is_near = |group: &&ComparedGroup| group.over_best() <= 1.0 + self.compare.best;
        self.groups.iter().filter(is_near).count()
    }

    /// How many groups are within the limit with this index.
    pub fn within(&self, limit: usize) -> usize {
        let most = 1.0 + self.compare.limits.values().nth(limit).copied().unwrap_or(f64::MAX);
        self.groups.iter().filter(|group| group.ratios[limit] <= most).count()
    }

    /// The largest factor by which a group exceeds a limit; at most 1 if it exceeds none.
    pub fn excess(&self, group: &ComparedGroup) -> f64 {
        let limits = self.compare.limits.values().zip(&group.ratios);
        let excess = limits.map(|(limit, ratio)| ratio / (1.0 + limit));
        excess.fold(group.over_best() / (1.0 + self.compare.best), f64::max)
    }
}

impl ExperimentResults {
    /// The comparison that the experiment asks for, of the medians or means over repetitions.
    pub fn comparison(&self) -> Option<ResultsComparison<'_>> {
        let compare = self.compare.as_ref()?;
        let metric = self.values.iter().position(|metric| metric.name == compare.value)?;
        let mut groups: Vec<(Table, ComparedPoints)> = Vec::new();
        for summary in self.summaries() {
            let mut others = summary.point.clone();
            let own = others.remove(&compare.key).map(|own| display(&own)).unwrap_or_default();
            let member = (own, summary.values[metric].map(|spread| spread.middle));
            match groups.iter_mut().rfind(|(point, _)| *point == others) {
                Some((_, members)) => members.push(member),
                None => groups.push((others, vec![member])),
            }
        }
        let size = groups.iter().map(|(_, members)| members.len()).max().unwrap_or_default();
        let all = groups.len();
        let complete = groups.into_iter().filter(|(_, members)| members.len() == size);
        let groups: Vec<ComparedGroup> =
            complete.filter_map(|(point, members)| compare.group(&point, &members)).collect();
        let incomplete = all - groups.len();
        let keys = self.keys.iter().filter(|key| **key != compare.key).map(String::as_str);
        Some(ResultsComparison { compare, keys: keys.collect(), groups, incomplete })
    }
}

impl ComparisonDefinition {
    /// The group of these members; `None` if one of them has no valid trial.
    fn group(&self, point: &Table, members: &[(String, Option<f64>)]) -> Option<ComparedGroup> {
        let members: Option<Vec<(&String, f64)>> =
            members.iter().map(|(name, value)| Some((name, (*value)?))).collect();
        let members = members?;
        let find = |name: &String| members.iter().find(|it| it.0 == name).map(|it| it.1);
        let value = find(&self.of)?;
        let others = members.iter().filter(|(name, _)| **name != self.of);
        let (best, least) = others.min_by(|a, b| a.1.total_cmp(&b.1))?;
        let ratios: Option<Vec<f64>> =
            self.limits.keys().map(|name| Some(value / find(name)?)).collect();
        let settings = point.values().map(display).collect();
        Some(ComparedGroup {
            settings,
            best: (*best).clone(),
            least_of_others: *least,
            value,
            ratios: ratios?,
        })
    }
}
