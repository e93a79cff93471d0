//! Evidence that a server has answered wrongly.

use std::collections::BTreeMap;

use rsa_arithmetic::modulus::RsaElement;

use super::answer::{PartialSignatures, SigningGroup};
use crate::protocol::combination::{Label, ServerIndex};

/// A server's wrong answer, with other servers' answers to a full sign of the same number. It is a
/// proof for anyone who accepts that at most f servers of the group are faulty. For each label
/// concerned, f+1 servers have signed one value, so at least one correct server has, and the
/// server's answer differs. (The server itself may be one of the f+1, if it has answered the full
/// sign correctly.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WrongAnswerEvidence(Vec<Vec<u8>>);

impl WrongAnswerEvidence {
    /// Evidence against the author of the first answer, based on the other answers.
    pub(super) fn new<'a>(
        group: &SigningGroup,
        accused: &'a PartialSignatures,
        others: impl Iterator<Item = &'a PartialSignatures>,
    ) -> Self {
        let others = others.filter(|other| *other != accused);
        Self([accused].into_iter().chain(others).map(|it| it.to_bytes(group)).collect())
    }

    /// The server that is proven faulty. `None` if this proves nothing.
    pub fn verify(&self, group: &SigningGroup) -> Option<ServerIndex> {
        let answers = self.0.iter().map(|bytes| PartialSignatures::parse(group, bytes));
        let answers: Vec<PartialSignatures> = answers.collect::<Option<_>>()?;
        let (accused, others) = answers.split_first()?;
        let mut full = BTreeMap::new();
        for other in others {
            if other.number != accused.number || other.signers.is_some() {
                return None;
            }
            full.insert(other.server, other);
        }
        let right = right_values(group, full.into_values());
        (is_right(group, &right, accused) == Some(false)).then_some(accused.server)
    }

    /// The evidence as bytes.
    #[expect(clippy::missing_panics_doc, reason = "an answer has 127 KB at most")]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for answer in &self.0 {
            let len = u32::try_from(answer.len()).expect("an answer is short");
            bytes.extend(len.to_be_bytes());
            bytes.extend_from_slice(answer);
        }
        bytes
    }

    /// Decodes the output of [`Self::to_bytes`]. The evidence is not verified.
    pub fn parse(mut bytes: &[u8]) -> Option<Self> {
        let mut answers = Vec::new();
        while !bytes.is_empty() {
            let (len, rest) = bytes.split_first_chunk()?;
            let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
            let (answer, rest) = rest.split_at_checked(len)?;
            answers.push(answer.to_vec());
            bytes = rest;
        }
        Some(Self(answers))
    }
}

/// The partial signatures `c_t` by label on which f+1 servers agree, from the answers of different
/// servers to a full sign.
pub(super) fn right_values<'a>(
    group: &SigningGroup,
    full: impl Iterator<Item = &'a PartialSignatures>,
) -> BTreeMap<Label, RsaElement> {
    let mut counts: BTreeMap<Label, Vec<(&RsaElement, usize)>> = BTreeMap::new();
    for answer in full {
        for (label, value) in answer.labels(&group.combination).into_iter().zip(&answer.values) {
            let counts = counts.entry(label).or_default();
            match counts.iter_mut().find(|(counted, _)| *counted == value) {
                Some((_, count)) => *count += 1,
                None => counts.push((value, 1)),
            }
        }
    }
    let enough = group.combination.signer_count();
    let right = |values: Vec<(&RsaElement, usize)>| {
        values.into_iter().find(|(_, count)| *count >= enough).map(|(value, _)| value.clone())
    };
    counts.into_iter().filter_map(|(label, values)| Some((label, right(values)?))).collect()
}

/// Whether an answer agrees with the right values. `None` if they do not determine that.
pub(super) fn is_right(
    group: &SigningGroup,
    right: &BTreeMap<Label, RsaElement>,
    answer: &PartialSignatures,
) -> Option<bool> {
    let labels = answer.labels(&group.combination);
    let expected: Option<Vec<&RsaElement>> = labels.iter().map(|label| right.get(label)).collect();
    if answer.signers.is_some() {
        let product = group.key.modulus().product(expected?);
        return Some(answer.values == [product]);
    }
    let differs = |(label, value)| right.get(label).is_some_and(|right| right != value);
    if labels.iter().zip(&answer.values).any(differs) {
        return Some(false);
    }
    expected.map(|_| true)
}
