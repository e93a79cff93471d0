//! Requests that are refused. Pure.

use thiserror::Error;

/// Why a request is refused.
#[derive(Debug, Error)]
#[error("{field}: {why}")]
pub(crate) struct RefusedRequest {
    /// The part of the request that is wrong.
    pub(crate) field: String,
    /// What is wrong with it, in one line.
    pub(crate) why: String,
}

impl RefusedRequest {
    pub(crate) fn new(field: &str, why: impl Into<String>) -> Self {
        Self { field: field.to_owned(), why: why.into() }
    }
}
