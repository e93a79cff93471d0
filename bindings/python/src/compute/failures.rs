//! Converts errors of the crates `compute` and `psi` to the exceptions of
//! `sunder_compute/_errors.py`.

use compute::{ComputeAbortReason, Error};
use pyo3::PyErr;
use pyo3::exceptions::PyValueError;

use crate::errors;

#[allow(missing_docs, reason = "documented in Python")]
mod python {
    pyo3::import_exception!(sunder_compute._errors, Aborted);
    pyo3::import_exception!(sunder_compute._errors, Disagreement);
    pyo3::import_exception!(sunder_compute._errors, InvalidMessage);
}

/// The exception of a session that has failed.
pub(super) fn of_session(error: &Error) -> PyErr {
    let text = error.to_string();
    match error {
        Error::Io { source, .. } | Error::System(source) => errors::with_text(source, text),
        Error::Ended { .. } | Error::Failed => errors::closed_early(text),
        Error::Silent { .. } => errors::timed_out(&text),
        Error::Aborted {
            reason:
                ComputeAbortReason::Version | ComputeAbortReason::Role | ComputeAbortReason::Differs,
            ..
        }
        | Error::Differs { .. }
        | Error::Security { .. }
        | Error::Sizes { .. }
        | Error::SameRole { .. }
        | Error::Version { .. } => python::Disagreement::new_err(text),
        Error::Aborted { .. } | Error::Stopped => python::Aborted::new_err(text),
        Error::NotThisProtocol
        | Error::Malformed { .. }
        | Error::Transfer { .. }
        | Error::Unproven
        | Error::Disagree => python::InvalidMessage::new_err(text),
        Error::InputLen { .. } | Error::TooLarge | Error::PrivateOutput => {
            PyValueError::new_err(text)
        }
    }
}

/// The exception of a private set intersection that has failed.
pub(super) fn of_intersection(error: &psi::Error) -> PyErr {
    let text = error.to_string();
    match error {
        psi::Error::Io(source) => errors::with_text(source, text),
        psi::Error::Ended => errors::closed_early(text),
        psi::Error::Silent => errors::timed_out(&text),
        psi::Error::Version { .. }
        | psi::Error::SameRole { .. }
        | psi::Error::Differs { .. }
        | psi::Error::TooManyGuesses { .. } => python::Disagreement::new_err(text),
        psi::Error::NotThisProtocol | psi::Error::Malformed(_) | psi::Error::Transfer(_) => {
            python::InvalidMessage::new_err(text)
        }
        psi::Error::TooMany { .. } | psi::Error::TooLarge { .. } => PyValueError::new_err(text),
        psi::Error::NoBin | psi::Error::Random(_) => errors::failed_here(text),
    }
}
