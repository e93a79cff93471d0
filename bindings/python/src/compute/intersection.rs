//! Private set intersection: the native part of `psi`.

use std::sync::atomic::{AtomicU64, Ordering};

use blocks::Block;
use psi::{PsiLearners, PsiNormalization, PsiProgress, PsiRole, PsiTerms, find_common};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};

use super::failures::of_intersection;
use super::interruptible;
use super::settings::chosen;
use crate::connection::Connection;
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
    /// # Errors
    /// The number of a value that is not in UTF-8.
    fn new(values: &[Option<PyPsiValue>], rule: PsiNormalization) -> Result<Self, usize> {
        let mut places = Vec::with_capacity(values.len());
        for (number, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let key = rule.apply_to_bytes(value.bytes()).map_err(|_| number)?;
            if !key.is_empty() {
                places.push((psi::item(&key), number));
            }
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
}

/// Finds the values that both parties have. Returns the numbers of this party's common values (None
/// if it does not learn them), and the numbers of different values of this party and of the other.
#[pyfunction]
#[pyo3(signature = (connection, values, role, normalize, output_to, rows, timeout, progress))]
#[allow(clippy::too_many_arguments, reason = "called by sunder_compute.psi only")]
pub(crate) fn intersect(
    py: Python<'_>,
    connection: &Connection,
    values: Vec<Option<PyPsiValue>>,
    role: &str,
    normalize: &str,
    output_to: &str,
    rows: Option<u32>,
    timeout: f64,
    progress: Option<Py<PyAny>>,
) -> PyResult<(Option<Vec<usize>>, usize, u32)> {
    let role =
        chosen("role", role, &[("receiver", PsiRole::Receiver), ("sender", PsiRole::Sender)])?;
    let rules = PsiNormalization::ALL.map(|rule| (rule.name(), rule));
    let normalization = chosen("normalize", normalize, &rules)?;
    let learners = [("both", PsiLearners::Both), ("receiver", PsiLearners::Receiver)];
    let learners = chosen("output_to", output_to, &learners)?;
    let limit = seconds(timeout)?;
    let set = py.detach(|| PyPsiItems::new(&values, normalization)).map_err(|number| {
        let text = format!("value {number} is not in UTF-8: with normalize=\"exact\" it may be");
        PyValueError::new_err(text)
    })?;
    drop(values);
    let comparison = psi::comparison(&[normalization]);
    let terms = PsiTerms { role, learners, hidden_size: rows, comparison };

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
        let found = find_common(reader, writer, &terms, &items, &mut follow)?;
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
    let outcome = outcome.map_err(|error| of_intersection(&error))?;
    let common = py.detach(|| outcome.common.map(|common| set.numbers(&common)));
    Ok((common, set.items.len(), outcome.other_size))
}
