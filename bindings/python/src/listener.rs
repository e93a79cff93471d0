//! `Listener`.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use crate::connection::PyConnection;
use crate::errors::{SIGNALS_EVERY, closed, failed, timed_out};
use crate::options::{Identity, PyEndpointOptions, seconds};

/// Accepts connections of every transport on one port number, or, with `via`, waits for them at the
/// relay with that address. Several threads may call `accept`.
#[pyclass(frozen, name = "Listener", module = "sunder_transport")]
pub(crate) struct PyListener {
    /// None once it is closed.
    accepting: Mutex<Option<transport::Listener>>,
    address: String,
    public_key: Option<String>,
    timeout: Option<Duration>,
}

#[pymethods]
impl PyListener {
    #[new]
    #[pyo3(signature = (
        address, *, via=false, identity=None, peers=Vec::new(), insecure=false, timeout=None,
        connect_timeout=4.5, congestion_control=None
    ), text_signature = "(address, *, via=False, identity=None, peers=(), insecure=False, timeout=None, \
        connect_timeout=4.5, congestion_control=None)")]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        address: &str,
        via: bool,
        identity: Option<&Identity>,
        peers: Vec<String>,
        insecure: bool,
        timeout: Option<f64>,
        connect_timeout: f64,
        congestion_control: Option<String>,
    ) -> PyResult<Self> {
        let common = PyEndpointOptions {
            identity,
            peers,
            insecure,
            timeout,
            connect_timeout,
            congestion_control,
        };
        let options = common.options()?;
        let (listener, address) = if via {
            let (listener, token) = transport::Listener::via(address, &options).map_err(failed)?;
            (listener, format!("{token}@{address}"))
        } else {
            let listener = transport::Listener::bind(address, &options).map_err(failed)?;
            let address = listener.local_addr().to_string();
            (listener, address)
        };
        let public_key = options.security.public_key().map(|key| key.to_string());
        let accepting = Mutex::new(Some(listener));
        Ok(Self { accepting, address, public_key, timeout: options.timeout })
    }

    /// The address to connect to: ADDRESS:PORT, or TOKEN@HOST:PORT at a relay.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// This end's public key, which the peer passes as `peer`; None if it is insecure.
    #[getter]
    fn public_key(&self) -> Option<&str> {
        self.public_key.as_deref()
    }

    /// Waits for the next connection, for at most `timeout` seconds if that is given.
    #[pyo3(signature = (timeout=None))]
    fn accept(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<PyConnection> {
        let deadline = timeout.map(seconds).transpose()?.map(|timeout| Instant::now() + timeout);
        loop {
            let accepted = py.detach(|| {
                let listener = self.accepting.lock().unwrap_or_else(PoisonError::into_inner);
                listener.as_ref().map(|listener| listener.accept_timeout(SIGNALS_EVERY))
            });
            let Some(accepted) = accepted else { return closed("listener") };
            if let Some(connection) = accepted.map_err(failed)? {
                return Ok(PyConnection::new(connection, self.timeout));
            }
            py.check_signals()?;
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return Err(timed_out("no connection has come"));
            }
        }
    }

    /// Stops listening. Accepted connections remain open.
    fn close(&self, py: Python<'_>) {
        py.detach(|| {
            drop(self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take());
        });
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<PyConnection> {
        self.accept(py, None)
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    #[pyo3(signature = (kind=None, error=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) {
        let _ = (kind, error, traceback);
        self.close(py);
    }
}
