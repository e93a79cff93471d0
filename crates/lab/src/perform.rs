//! Performs a trial: makes its network, starts its programs, measures, and ends everything.

use std::collections::BTreeMap;
use std::path::Path;

use thiserror::Error;

use crate::trial::Trial;

/// What a trial gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The values that were asked for, by name.
    pub values: BTreeMap<String, f64>,
    /// How late the links handed over packets, in ms: of 100 packets, 99 were less late, on the
    /// worst line.
    pub late_ms: f64,
}

/// Why a trial failed.
#[derive(Debug, Error)]
#[error("{0}")]
pub struct TrialError(pub String);

/// Where a trial is performed.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// What the links' chances come from.
    pub seed: u64,
    /// The directory for the trial's files and its programs' output.
    pub files: &'a Path,
    /// The directory for results.
    pub results: &'a Path,
}

/// Performs a trial, in a [sandbox](crate::sandbox).
///
/// # Errors
/// When the network cannot be made, a program fails or does not get ready, or a value is missing.
pub fn perform(trial: &Trial, place: Place<'_>) -> Result<Measured, TrialError> {
    let _ = (trial, place);
    Err(TrialError("not yet".into()))
}
