//! Private set intersection: the native part of `psi`.

use std::borrow::Cow;
use std::str::from_utf8;
use std::sync::atomic::{AtomicU64, Ordering};

use blocks::Block;
use psi::{
    MAX_SUM, PsiFunction, PsiLearners, PsiNormalization, PsiNumbers, PsiOutcome, PsiProgress,
    PsiRole, PsiSession, PsiTerms,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use sha2::{Digest as _, Sha256};

use super::failures::of_intersection;
use super::interruptible;
use super::settings::chosen;
use crate::connection::PyConnection;
use crate::errors::exception;
use crate::options::seconds;

/// A value of a set.
#[derive(FromPyObject)]
pub(crate) enum PyPsiValue {
    Text(PyBackedStr),
    Bytes(PyBackedBytes),
}

impl PyPsiValue {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }
}

/// The different items of a party, each with the numbers of its values.
struct PyPsiItems {
    items: Vec<u128>,
    /// The item of each value that is not empty, and the number of the value, in ascending order.
    places: Vec<(u128, usize)>,
}

impl PyPsiItems {
    /// Of columns that have as many values each, with a rule for each column.
    ///
    /// # Errors
    /// The number of a value that is not in UTF-8.
    fn new(columns: &[Vec<Option<PyPsiValue>>], rules: &[PsiNormalization]) -> Result<Self, usize> {
        let len = columns.iter().map(Vec::len).min().unwrap_or(0);
        let mut places = Vec::with_capacity(len);
        for number in 0..len {
            let values = columns.iter().zip(rules).map(|(column, rule)| {
                let value = column[number].as_ref().map_or(&[][..], PyPsiValue::bytes);
                rule.apply_to_bytes(value).map_err(|_| number)
            });
            let values: Vec<Cow<'_, [u8]>> = values.collect::<Result<_, usize>>()?;
            if values.iter().all(|value| value.is_empty()) {
                continue;
            }
            let item = if let [value] = &values[..] {
                psi::item(value)
            } else {
                let texts: Result<Vec<&str>, _> =
                    values.iter().map(|value| from_utf8(value)).collect();
                psi::item(psi::row_value(&texts.map_err(|_| number)?).as_bytes())
            };
            places.push((item, number));
        }
        places.sort_unstable();
        let mut items: Vec<u128> = places.iter().map(|(item, _)| *item).collect();
        items.dedup();
        Ok(Self { items, places })
    }

    /// The numbers of the values of these items, in ascending order.
    fn numbers(&self, common: &[usize]) -> Vec<usize> {
        let mut numbers = Vec::new();
        let mut rest = &self.places[..];
        for item in common {
            let item = self.items[*item];
            let before = rest.partition_point(|(other, _)| *other < item);
            let count = rest[before..].partition_point(|(other, _)| *other == item);
            numbers.extend(rest[before..before + count].iter().map(|(_, number)| *number));
            rest = &rest[before + count..];
        }
        numbers.sort_unstable();
        numbers
    }

    /// The sum of the summands of each item. `None` if they are more than a sum may be.
    fn summands(&self, of_values: &[i64]) -> Option<Vec<i64>> {
        let mut sums = vec![0_i64; self.items.len()];
        let mut item = 0;
        for (value, number) in &self.places {
            if self.items[item] != *value {
                item += 1;
            }
            sums[item] = sums[item].checked_add(of_values[*number])?;
        }
        let all: u128 = sums.iter().map(|sum| u128::from(sum.unsigned_abs())).sum();
        Some(sums).filter(|_| all <= u128::from(MAX_SUM.unsigned_abs()))
    }
}

/// What `intersect` returns: the numbers of this party's common values and of different ones, and
/// the sum with its decimal places (each None if this party does not learn it); the numbers of
/// different values of this party and of the other.
type PyPsiOutcome = (Option<Vec<usize>>, Option<usize>, Option<(i64, u8)>, usize, u32);

/// Finds the values that both parties have, how many they are, or also the sum of the sender's
/// summands. `columns` has as many values in each column, `normalize` a rule for each column.
/// `summands` is the name of the summands, and at the sender one for each row, with their decimal
/// places.
#[pyfunction]
#[pyo3(signature = (
    connection, columns, role, normalize, output_to, rows, max_guesses, count, summands, timeout,
    progress
))]
#[allow(clippy::too_many_arguments, reason = "called by sunder_compute.psi only")]
pub(crate) fn intersect(
    py: Python<'_>,
    connection: &PyConnection,
    columns: Vec<Vec<Option<PyPsiValue>>>,
    role: &str,
    normalize: Vec<String>,
    output_to: &str,
    rows: Option<u32>,
    max_guesses: Option<u64>,
    count: bool,
    summands: Option<(String, Vec<i64>, u8)>,
    timeout: f64,
    progress: Option<Py<PyAny>>,
) -> PyResult<PyPsiOutcome> {
    let role =
        chosen("role", role, &[("receiver", PsiRole::Receiver), ("sender", PsiRole::Sender)])?;
    let rules = PsiNormalization::ALL.map(|rule| (rule.name(), rule));
    let normalization = normalize.iter().map(|name| chosen("normalize", name, &rules));
    let normalization = normalization.collect::<PyResult<Vec<PsiNormalization>>>()?;
    let learners = [("both", PsiLearners::Both), ("receiver", PsiLearners::Receiver)];
    let learners = chosen("output_to", output_to, &learners)?;
    let limit = seconds(timeout)?;
    let set = py.detach(|| PyPsiItems::new(&columns, &normalization)).map_err(|number| {
        let text = if normalization.len() > 1 {
            format!("row {number} is not in UTF-8, as several columns must be")
        } else {
            format!("value {number} is not in UTF-8: with normalize=\"exact\" it may be")
        };
        PyValueError::new_err(text)
    })?;
    drop(columns);
    let comparison = psi::comparison(&normalization);
    let terms = PsiTerms { role, learners, hidden_size: rows, comparison };
    let (name, of_values, decimals) = summands.unwrap_or_default();
    let sums = match role {
        PsiRole::Sender if !name.is_empty() => set.summands(&of_values),
        _ => Some(Vec::new()),
    };
    let sums = sums.ok_or_else(|| {
        let text = format!(
            "the numbers are too large: without signs and points, they may be {MAX_SUM} in all"
        );
        PyValueError::new_err(text)
    })?;
    let function = match name.as_str() {
        "" if count => PsiFunction::Count,
        "" => PsiFunction::Common,
        name => {
            let column = Sha256::digest(name).into();
            PsiFunction::Sum(PsiNumbers { column, values: &sums, decimals })
        }
    };

    let connection = connection.take()?;
    connection.set_timeout(Some(limit)).map_err(exception)?;
    let closer = connection.closer();
    let (done, of) = (AtomicU64::new(0), AtomicU64::new(0));
    let items: Vec<Block> = set.items.iter().map(|item| Block::from(*item)).collect();
    let work = || {
        let (reader, writer) = connection.split();
        let mut follow = |progress: PsiProgress| {
            of.store(progress.of, Ordering::Relaxed);
            done.store(progress.done, Ordering::Relaxed);
        };
        let session = PsiSession::agree(reader, writer, &terms, &items, function)?;
        if let Some(most) = max_guesses {
            session.limit_guesses(most)?;
        }
        let found = session.run(&mut follow)?;
        // What sets up a run is not counted by its progress.
        done.store(of.load(Ordering::Relaxed), Ordering::Relaxed);
        Ok(found)
    };
    let report = |py: Python<'_>| {
        let (done, of) = (done.load(Ordering::Relaxed), of.load(Ordering::Relaxed));
        match &progress {
            // How much there is to do is known when the parties have met.
            Some(progress) if of > 0 => progress.call1(py, (done, of)).map(drop),
            _ => Ok(()),
        }
    };
    let outcome: Result<_, psi::Error> = interruptible::run(py, work, report, || closer.close())?;
    let PsiOutcome { common, count, sum, other_size, .. } =
        outcome.map_err(|error| of_intersection(&error))?;
    let common = py.detach(|| common.map(|common| set.numbers(&common)));
    let sum = sum.map(|sum| (sum.value, sum.decimals));
    Ok((common, count, sum, set.items.len(), other_size))
}
