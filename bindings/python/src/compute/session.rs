//! `Session`.

use std::mem;
use std::num::NonZero;
use std::process;
use std::sync::{Mutex, MutexGuard, TryLockError};

use compute::{ComputeAbortReason, ComputeProtocol, ComputeRole, ComputeSession, ComputeStopper};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use super::circuit::PyCircuit;
use super::failures::of_session;
use super::interruptible;
use super::settings::PyComputeSettings;
use crate::connection::PyConnection;
use crate::errors::{busy, closed};
use crate::options::seconds;

/// Computes circuits with the other party over a connection, which it takes over.
#[pyclass(frozen, name = "Session", module = "sunder_compute")]
pub(crate) struct PyComputeSession {
    /// None once it is closed.
    session: Mutex<Option<ComputeSession>>,
    stopper: ComputeStopper,
    role: ComputeRole,
    protocol: ComputeProtocol,
    transport: &'static str,
    /// The process that has made it: a forked child does not have its threads.
    process: u32,
}

#[pymethods]
impl PyComputeSession {
    #[new]
    #[pyo3(signature = (
        connection, role, *, protocol="yao", security=None, scheme="half-gates",
        transfers="iknp", output_to="both", timeout=30.0, threads=None
    ))]
    #[allow(clippy::too_many_arguments, reason = "keywords in Python")]
    fn new(
        py: Python<'_>,
        connection: &PyConnection,
        role: &str,
        protocol: &str,
        security: Option<&str>,
        scheme: &str,
        transfers: &str,
        output_to: &str,
        timeout: f64,
        threads: Option<NonZero<usize>>,
    ) -> PyResult<Self> {
        let names = PyComputeSettings { role, protocol, security, scheme, transfers, output_to };
        let (role, mut settings) = names.parse()?;
        settings.timeout = seconds(timeout)?;
        settings.threads = threads.map_or(settings.threads, NonZero::get);
        let connection = connection.take()?;
        let transport = connection.transport();
        let session = py.detach(|| ComputeSession::start(connection, role, settings));
        let session = session.map_err(|error| of_session(&error))?;
        let stopper = session.stopper();
        let (session, protocol) = (Mutex::new(Some(session)), settings.protocol);
        Ok(Self { session, stopper, role, protocol, transport, process: process::id() })
    }

    /// This party's role: "garbler" or "evaluator".
    #[getter]
    fn role(&self) -> String {
        self.role.to_string()
    }

    /// The name of the transport of the connection.
    #[getter]
    fn transport(&self) -> &'static str {
        self.transport
    }

    /// Computes the circuit on this party's input and the other's. `inputs` is an int for each
    /// value of this party's input (one int if there is one value), or the bytes of all bits.
    /// Returns the values of the output; None if only the other party learns them. `progress` is
    /// called with the numbers of ANDs that are done and of all.
    #[pyo3(signature = (circuit, inputs, *, progress=None))]
    fn run<'py>(
        &self,
        py: Python<'py>,
        circuit: &Bound<'py, PyCircuit>,
        inputs: &Bound<'py, PyAny>,
        progress: Option<Py<PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let circuit = circuit.get();
        let input = circuit.input(self.role, inputs)?;
        let mut guard = self.lock()?;
        let Some(session) = guard.as_mut() else { return closed("session") };
        let (watch, all) = (session.watch(), circuit.ands());
        let before = watch.ands();
        let report = |py: Python<'_>| match &progress {
            Some(progress) => progress.call1(py, (watch.ands() - before, all)).map(drop),
            None => Ok(()),
        };
        let work = || session.run(circuit.schedule(self.protocol), &input);
        let output = interruptible::run(py, work, report, || self.stopper.stop())?;
        let output = output.map_err(|error| of_session(&error))?;
        output.map(|output| circuit.output(py, &output)).transpose()
    }

    /// The bytes that this party has sent and received so far, of the protocol.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let guard = self.lock()?;
        let Some(session) = &*guard else { return closed("session") };
        let phases = session.figures();
        let found = PyDict::new(py);
        found.set_item("bytes_sent", phases.iter().map(|it| it.bytes_sent).sum::<u64>())?;
        found.set_item("bytes_received", phases.iter().map(|it| it.bytes_received).sum::<u64>())?;
        Ok(found)
    }

    /// Stops the session, from any thread: a `run` that waits in another thread raises `Aborted`,
    /// and the other party is told.
    fn abort(&self) {
        self.stopper.stop();
    }

    /// Ends the session. Returns when everything that was sent will arrive.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let Some(session) = self.lock()?.take() else { return Ok(()) };
        py.detach(|| session.finish()).map_err(|error| of_session(&error))
    }

    /// Closes the session. If it is not finished, the other party is told that this one was
    /// stopped.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let session = self.lock()?.take();
        give_up(py, session);
        Ok(())
    }

    fn __enter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    /// Finishes the session; after an exception closes it.
    #[pyo3(signature = (kind=None, error=None, traceback=None))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: Option<&Bound<'_, PyAny>>,
        error: Option<&Bound<'_, PyAny>>,
        traceback: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let _ = (error, traceback);
        if kind.is_none() { self.finish(py) } else { self.close(py) }
    }
}

impl PyComputeSession {
    fn lock(&self) -> PyResult<MutexGuard<'_, Option<ComputeSession>>> {
        if process::id() != self.process {
            return Err(busy("a forked child cannot use the session of its parent"));
        }
        self.session.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => busy("another thread uses the session"),
            TryLockError::Poisoned(_) => busy("a bug of the library has ended the session"),
        })
    }
}

/// Aborts a session, if there is one, and tells the other party.
fn give_up(py: Python<'_>, session: Option<ComputeSession>) {
    if let Some(session) = session {
        py.detach(|| session.give_up(ComputeAbortReason::Stopped));
    }
}

impl Drop for PyComputeSession {
    /// Ending a session waits until the other party was told. In a forked child, nothing is ended.
    fn drop(&mut self) {
        let session = self.session.get_mut().ok().and_then(Option::take);
        if process::id() != self.process {
            mem::forget(session);
            return;
        }
        Python::attach(|py| give_up(py, session));
    }
}
