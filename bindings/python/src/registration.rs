//! `register`: transports that are Python objects.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyConnectionError, PyConnectionRefusedError, PyTimeoutError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use transport::{
    ByteStream, ConnectionOptions, ExchangeProfile, NetworkPath, PathStatistics, Transport,
    TransportAcceptor,
};

use crate::buffers::as_bytes;

/// Adds a transport, for connections and for listeners that are opened later. Both ends add it. It
/// remains until the process ends. `_native.pyi` has its methods.
#[pyfunction]
pub(crate) fn register(py: Python<'_>, transport: &Bound<'_, PyAny>) -> PyResult<()> {
    let text = |name: &str| -> PyResult<&'static str> {
        let text: String = transport.getattr(name)?.extract()?;
        Ok(Box::leak(text.into_boxed_str()))
    };
    let object = PyTransport {
        name: text("name")?,
        about: text("about")?,
        listens: transport.hasattr("listen")?,
        predicts: transport.hasattr("latency")?,
        object: transport.clone().unbind(),
    };
    let added = py.detach(|| transport::register(Box::new(object)));
    added.map_err(|error| PyValueError::new_err(error.to_string()))?;
    // Threads of the library must not run Python code while the interpreter ends.
    let stop = pyo3::wrap_pyfunction!(stop_calls, py)?;
    py.import("atexit")?.call_method1("register", (stop,)).map(drop)
}

/// The streams and acceptors of Python that are open, and the calls to them.
struct PyCalls {
    next: u64,
    open: BTreeMap<u64, Py<PyAny>>,
    /// The number of calls that run now.
    running: usize,
    /// Whether the interpreter ends: no call begins any more.
    is_stopped: bool,
}

static CALLS: Mutex<PyCalls> =
    Mutex::new(PyCalls { next: 0, open: BTreeMap::new(), running: 0, is_stopped: false });

/// Signals that a call has ended.
static ENDED: Condvar = Condvar::new();

/// How long calls may take to end when the interpreter ends.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

fn lock_calls() -> MutexGuard<'static, PyCalls> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Closes all streams and acceptors, and waits until no thread of the library runs Python code.
#[pyfunction]
fn stop_calls(py: Python<'_>) {
    let open = {
        let mut calls = lock_calls();
        calls.is_stopped = true;
        std::mem::take(&mut calls.open)
    };
    for object in open.into_values() {
        // An error means that it is closed already.
        let _ = object.call_method0(py, "close");
    }
    py.detach(|| {
        let has_calls = |calls: &mut PyCalls| calls.running > 0;
        drop(ENDED.wait_timeout_while(lock_calls(), STOP_TIMEOUT, has_calls));
    });
}

/// A stream or an acceptor, which is closed before the interpreter ends.
struct OpenPyObject {
    object: Py<PyAny>,
    number: u64,
}

impl OpenPyObject {
    fn new(py: Python<'_>, object: Py<PyAny>) -> Self {
        let copy = object.clone_ref(py);
        let mut calls = lock_calls();
        calls.next += 1;
        let number = calls.next;
        calls.open.insert(number, copy);
        Self { object, number }
    }
}

impl Drop for OpenPyObject {
    fn drop(&mut self) {
        let object = lock_calls().open.remove(&self.number);
        drop(object);
    }
}

struct PyTransport {
    name: &'static str,
    about: &'static str,
    listens: bool,
    predicts: bool,
    object: Py<PyAny>,
}

impl Transport for PyTransport {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let arguments = (to.to_string(), options.connect_timeout.as_secs_f64());
        let object = call(|py| {
            let object = self.object.call_method1(py, "connect", arguments)?;
            Ok(OpenPyObject::new(py, object))
        })?;
        Ok(Arc::new(PyByteStream { object, peer: to, name: self.name }))
    }

    fn listen(
        &self,
        at: SocketAddr,
        _options: &ConnectionOptions,
    ) -> io::Result<Option<Box<dyn TransportAcceptor>>> {
        if !self.listens {
            return Ok(None);
        }
        let object = call(|py| {
            let object = self.object.call_method1(py, "listen", (at.to_string(),))?;
            Ok(OpenPyObject::new(py, object))
        })?;
        Ok(Some(Box::new(PyAcceptor { object, at, name: self.name })))
    }

    fn latency(
        &self,
        path: &NetworkPath,
        exchange: ExchangeProfile,
        _is_secure: bool,
    ) -> Option<Duration> {
        if !self.predicts {
            return None;
        }
        let rates = (path.up.rate, path.down.rate);
        let path = (path.round_trip.as_secs_f64(), rates.0, rates.1, path.loss);
        let exchange = (exchange.sent, exchange.received, exchange.rounds);
        let seconds = call(|py| {
            let latency = self.object.call_method1(py, "latency", (path, exchange))?;
            latency.extract::<Option<f64>>(py)
        });
        Duration::try_from_secs_f64(seconds.ok()??).ok()
    }
}

struct PyAcceptor {
    object: OpenPyObject,
    at: SocketAddr,
    name: &'static str,
}

impl TransportAcceptor for PyAcceptor {
    fn accept(&self) -> io::Result<Arc<dyn ByteStream>> {
        let object = call(|py| {
            let object = self.object.object.call_method0(py, "accept")?;
            Ok(OpenPyObject::new(py, object))
        })?;
        Ok(Arc::new(PyByteStream { object, peer: self.at, name: self.name }))
    }

    fn close(&self) {
        // An error means that it is closed already.
        let _ = call(|py| self.object.object.call_method0(py, "close"));
    }
}

struct PyByteStream {
    object: OpenPyObject,
    peer: SocketAddr,
    name: &'static str,
}

impl ByteStream for PyByteStream {
    fn read(&self, to: &mut [u8]) -> io::Result<usize> {
        call(|py| {
            let bytes = self.object.object.call_method1(py, "read", (to.len(),))?;
            let bytes = as_bytes(bytes.bind(py))?;
            let count = bytes.item_count();
            let Some(to) = to.get_mut(..count) else {
                return Err(PyValueError::new_err("read has returned too many bytes"));
            };
            bytes.copy_to_slice(py, to)?;
            Ok(count)
        })
    }

    fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        call(|py| {
            let count = self.object.object.call_method1(py, "write", (PyBytes::new(py, bytes),))?;
            let count: usize = count.extract(py)?;
            if count > bytes.len() {
                return Err(PyValueError::new_err("write has returned too many bytes"));
            }
            Ok(count)
        })
    }

    fn finish(&self) -> io::Result<()> {
        call(|py| self.object.object.call_method0(py, "finish")).map(drop)
    }

    fn close(&self) {
        // An error means that it is closed already.
        let _ = call(|py| self.object.object.call_method0(py, "close"));
    }

    fn set_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        let seconds = timeout.map(|timeout| timeout.as_secs_f64());
        call(|py| self.object.object.call_method1(py, "set_timeout", (seconds,))).map(drop)
    }

    fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    fn transport(&self) -> &'static str {
        self.name
    }

    fn statistics(&self) -> PathStatistics {
        PathStatistics::default()
    }
}

/// Calls a method of a Python object. The caller has released the interpreter's lock, or is a
/// thread of the library.
fn call<T>(method: impl FnOnce(Python<'_>) -> PyResult<T>) -> io::Result<T> {
    {
        let mut calls = lock_calls();
        if calls.is_stopped {
            return Err(io::ErrorKind::NotConnected.into());
        }
        calls.running += 1;
    }
    let result = Python::attach(|py| method(py).map_err(|error| io_error(py, &error)));
    lock_calls().running -= 1;
    ENDED.notify_all();
    result
}

fn io_error(py: Python<'_>, error: &PyErr) -> io::Error {
    if error.is_instance_of::<PyTimeoutError>(py) {
        return io::ErrorKind::TimedOut.into();
    }
    let kind = if error.is_instance_of::<PyConnectionRefusedError>(py) {
        io::ErrorKind::ConnectionRefused
    } else if error.is_instance_of::<PyConnectionError>(py) {
        io::ErrorKind::ConnectionReset
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, error.to_string())
}
