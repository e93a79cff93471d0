//! Converts errors to the exceptions of `sunder_transport/_errors.py`.

use std::io;

use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::{PyErr, PyResult};
use transport::Error;

#[allow(missing_docs, reason = "documented in Python")]
mod python {
    pyo3::import_exception!(sunder_transport._errors, Closed);
    pyo3::import_exception!(sunder_transport._errors, Error);
    pyo3::import_exception!(sunder_transport._errors, MessageTooLong);
    pyo3::import_exception!(sunder_transport._errors, NotAuthenticated);
    pyo3::import_exception!(sunder_transport._errors, TimedOut);
    pyo3::import_exception!(sunder_transport._errors, Unreachable);
}

/// The interval at which a waiting call checks for Ctrl-C.
pub(crate) const SIGNALS_EVERY: std::time::Duration = std::time::Duration::from_millis(100);

/// The exception of a failed read or write.
pub(crate) fn exception(error: io::Error) -> PyErr {
    with_text(&error, error.to_string())
}

/// The same, with a text that says more.
pub(crate) fn with_text(error: &io::Error, text: String) -> PyErr {
    use io::ErrorKind as Kind;
    match Error::of(error) {
        Some(error) if error.is_security() => return python::NotAuthenticated::new_err(text),
        Some(Error::TooLong { .. }) => return python::MessageTooLong::new_err(text),
        Some(Error::Resolve { .. }) => return python::Unreachable::new_err(text),
        _ => {}
    }
    match error.kind() {
        Kind::InvalidInput => PyValueError::new_err(text),
        Kind::TimedOut | Kind::WouldBlock => python::TimedOut::new_err(text),
        Kind::ConnectionRefused
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::AddrNotAvailable => python::Unreachable::new_err(text),
        Kind::UnexpectedEof
        | Kind::BrokenPipe
        | Kind::ConnectionReset
        | Kind::ConnectionAborted
        | Kind::NotConnected => python::Closed::new_err(text),
        _ => python::Error::new_err(text),
    }
}

/// The exception of a failed attempt to connect or listen.
pub(crate) fn failed(error: Error) -> PyErr {
    exception(error.into())
}

/// The exception for the use of a closed object.
pub(crate) fn closed<T>(what: &str) -> PyResult<T> {
    Err(python::Closed::new_err(format!("the {what} is closed")))
}

/// The exception for a connection that ended too early.
pub(crate) fn closed_early(text: String) -> PyErr {
    python::Closed::new_err(text)
}

/// The exception for a failure that is not one of the connection.
pub(crate) fn failed_here(text: String) -> PyErr {
    python::Error::new_err(text)
}

/// The exception for a time limit of the caller.
pub(crate) fn timed_out(text: &str) -> PyErr {
    python::TimedOut::new_err(text.to_owned())
}

/// The exception for use by two threads at once.
pub(crate) fn busy(text: &str) -> PyErr {
    PyRuntimeError::new_err(text.to_owned())
}
