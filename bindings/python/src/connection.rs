//! `connect` and `Connection`.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, IntoRawFd};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use transport::forward::into_socket;
use transport::{ConnectionCloser, ConnectionReader, ConnectionWriter, Error, TransportChoice};

use crate::buffers::{as_bytes, with_bytes};
use crate::errors::{SIGNALS_EVERY, busy, closed, exception, failed};
use crate::options::{Identity, PyEndpointOptions, exchange};

/// The largest number of bytes that `readinto` reads at once, as it makes a copy.
const MAX_READ: usize = 1 << 20;

/// One end of a connection, or one direction of it after `split`. Only one thread may use it at a
/// time.
#[pyclass(frozen, name = "Connection", module = "sunder_transport")]
pub(crate) struct PyConnection {
    half: Mutex<PySplitState>,
    closer: ConnectionCloser,
    transport: &'static str,
    peer: Option<String>,
}

enum PySplitState {
    Both(Box<UnsplitConnection>),
    Reads(ConnectionReader),
    Writes(ConnectionWriter),
    Closed,
}

/// A connection that is not split.
struct UnsplitConnection {
    connection: transport::Connection,
    /// The time limit of each wait, as the user set it.
    timeout: Option<Duration>,
    /// The limit that is in force.
    current: Option<Duration>,
    /// Whether something was written and not flushed.
    pending: bool,
}

/// Connects to HOST:PORT. `peer` is the key of the other end, unless `insecure`.
#[pyfunction]
#[pyo3(signature = (
    address, *, peer=None, identity=None, transport="auto", insecure=false, exchange=None,
    timeout=None, connect_timeout=4.5, congestion_control=None, accept_loss=false
))]
#[allow(clippy::too_many_arguments, reason = "keywords in Python")]
pub(crate) fn connect(
    py: Python<'_>,
    address: &str,
    peer: Option<String>,
    identity: Option<&Identity>,
    transport: &str,
    insecure: bool,
    exchange: Option<(u64, u64, u32)>,
    timeout: Option<f64>,
    connect_timeout: f64,
    congestion_control: Option<String>,
    accept_loss: bool,
) -> PyResult<PyConnection> {
    let peers = peer.into_iter().collect();
    let common = PyEndpointOptions {
        identity,
        peers,
        insecure,
        timeout,
        connect_timeout,
        congestion_control,
    };
    let mut options = common.options()?;
    options.transport = transport.parse::<TransportChoice>().map_err(failed)?;
    options.accept_loss = accept_loss;
    options.exchange = exchange.map(self::exchange);
    let connection = py.detach(|| transport::connect(address, &options)).map_err(failed)?;
    Ok(PyConnection::new(connection, options.timeout))
}

#[pymethods]
impl PyConnection {
    /// The name of the transport that the connection uses.
    #[getter]
    fn transport(&self) -> &'static str {
        self.transport
    }

    /// The peer's public key; None if the connection is insecure.
    #[getter]
    fn peer(&self) -> Option<&str> {
        self.peer.as_deref()
    }

    /// Reads at least one and at most `size` bytes; returns no bytes at the end of the stream.
    /// First flushes what was written to this object.
    #[pyo3(signature = (size=65536))]
    fn read<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.reading(py, |reader| {
            let mut bytes = vec![0; size.min(MAX_READ)];
            let count = reader.read(&mut bytes)?;
            bytes.truncate(count);
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Like `read`, into a writable buffer. Returns the number of bytes.
    fn readinto(&self, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let py = buffer.py();
        let to = as_bytes(buffer)?;
        if to.readonly() {
            return Err(PyValueError::new_err("the buffer cannot be written to"));
        }
        let bytes = self.reading(py, |reader| {
            let mut bytes = vec![0; to.item_count().min(MAX_READ)];
            let count = reader.read(&mut bytes)?;
            bytes.truncate(count);
            Ok(bytes)
        })?;
        let part = pyo3::types::PySlice::new(py, 0, isize::try_from(bytes.len())?, 1);
        let view = pyo3::types::PyMemoryView::from(buffer)?.call_method1("cast", ("B",))?;
        view.set_item(part, PyBytes::new(py, &bytes))?;
        Ok(bytes.len())
    }

    /// Reads exactly `size` bytes. If the stream ends before, raises `Closed`.
    fn read_exact<'py>(&self, py: Python<'py>, size: usize) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.reading(py, |reader| {
            let mut bytes = Vec::new();
            reader.take(size as u64).read_to_end(&mut bytes)?;
            if bytes.len() < size { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(bytes) }
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Writes all bytes. They are sent when the buffer is full, on a flush, or before this object
    /// is read. Returns the number of bytes.
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let written = with_bytes(data, |bytes| {
            self.writing(|writer| writer.write_all(bytes))?;
            Ok(bytes.len())
        });
        written?
    }

    /// Sends what is in the buffer.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.writing(|writer| writer.flush()))
    }

    /// Writes a message, which is buffered like other bytes.
    fn send(&self, message: &Bound<'_, PyAny>) -> PyResult<()> {
        let sent = with_bytes(message, |message| {
            self.writing(|writer| transport::MessageStream::new(writer).send(message))
        });
        sent?
    }

    /// Returns the next message, of at most `max` bytes; None at the end of the stream.
    #[pyo3(signature = (max=1_073_741_824))]
    fn receive<'py>(&self, py: Python<'py>, max: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let message =
            self.reading(py, |reader| transport::MessageStream::new(reader).receive(max))?;
        Ok(message.map(|message| PyBytes::new(py, &message)))
    }

    /// An iterator over the messages until the end of the stream.
    #[pyo3(signature = (max=1_073_741_824))]
    fn messages(slf: PyRef<'_, Self>, max: usize) -> Messages {
        Messages { connection: slf.into(), max }
    }

    /// Returns two objects, of which one reads and one writes, so that two threads can use them.
    /// This object is closed.
    fn split(&self) -> PyResult<(Self, Self)> {
        let mut half = self.lock()?;
        match std::mem::replace(&mut *half, PySplitState::Closed) {
            PySplitState::Both(mut both) => {
                both.limit(both.timeout).map_err(exception)?;
                let (reader, writer) = both.connection.split();
                Ok((
                    self.with(PySplitState::Reads(reader)),
                    self.with(PySplitState::Writes(writer)),
                ))
            }
            PySplitState::Closed => closed("connection"),
            other => {
                *half = other;
                Err(PyValueError::new_err("the connection is split already"))
            }
        }
    }

    /// Ends the stream to the peer, after everything that was written. Returns when all of that
    /// will arrive. Reading is still possible.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| match &mut *self.lock()? {
            PySplitState::Both(both) => {
                both.limit(both.timeout)
                    .and_then(|()| both.connection.finish())
                    .map_err(exception)?;
                both.pending = false;
                Ok(())
            }
            PySplitState::Writes(writer) => writer.finish().map_err(exception),
            PySplitState::Reads(_) => Err(PyValueError::new_err("this half only reads")),
            PySplitState::Closed => closed("connection"),
        })
    }

    /// Reports that the exchange announced to `connect` is complete. Its duration corrects the
    /// choice of "auto" for the next connection to the same host. Not allowed on a half that reads.
    fn complete(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| match &*self.lock()? {
            PySplitState::Both(both) => {
                both.connection.complete();
                Ok(())
            }
            PySplitState::Writes(writer) => {
                writer.complete();
                Ok(())
            }
            PySplitState::Reads(_) => Err(PyValueError::new_err("this half only reads")),
            PySplitState::Closed => closed("connection"),
        })
    }

    /// The statistics of the connection. Values that its transport does not measure are None.
    fn statistics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let now = match &*self.lock()? {
            PySplitState::Both(both) => both.connection.statistics(),
            PySplitState::Reads(reader) => reader.statistics(),
            PySplitState::Writes(writer) => writer.statistics(),
            PySplitState::Closed => return closed("connection"),
        };
        let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64());
        let found = PyDict::new(py);
        found.set_item("bytes_sent", now.bytes_sent)?;
        found.set_item("bytes_received", now.bytes_received)?;
        found.set_item("packets_sent", now.path.packets_sent)?;
        found.set_item("packets_sent_again", now.path.packets_sent_again)?;
        found.set_item("round_trip", seconds(now.path.round_trip))?;
        found.set_item("min_round_trip", seconds(now.path.min_round_trip))?;
        found.set_item("delivery_rate", now.path.delivery_rate)?;
        found.set_item("congestion_control", now.path.congestion)?;
        found.set_item("send_buffer", now.path.send_buffer)?;
        found.set_item("receive_buffer", now.path.receive_buffer)?;
        Ok(found)
    }

    /// Turns the connection into a `socket.socket`, for `select` and event loops. This object is
    /// closed.
    #[allow(clippy::wrong_self_convention, reason = "Python has no methods that consume")]
    fn into_socket<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let connection = self.take()?;
        let socket = py.detach(|| into_socket(connection)).map_err(exception)?;
        let keywords = PyDict::new(py);
        keywords.set_item("fileno", socket.as_raw_fd())?;
        let object = py.import("socket")?.getattr("socket")?.call((), Some(&keywords))?;
        // The object closes it.
        let _ = socket.into_raw_fd();
        Ok(object)
    }

    /// Ends the connection at once, from any thread: calls of other threads that wait for it raise
    /// `Closed`.
    fn abort(&self, py: Python<'_>) {
        py.detach(|| self.closer.close());
    }

    /// Sends what is in the buffer and closes the connection. Only `finish` reports whether
    /// everything arrived.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let half = std::mem::replace(&mut *self.lock()?, PySplitState::Closed);
        py.detach(|| drop(half));
        Ok(())
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
    ) -> PyResult<()> {
        let _ = (kind, error, traceback);
        self.close(py)
    }
}

impl PyConnection {
    pub(crate) fn new(connection: transport::Connection, timeout: Option<Duration>) -> Self {
        let transport = connection.transport();
        let peer = connection.peer().map(|key| key.to_string());
        let closer = connection.closer();
        let both = UnsplitConnection { connection, timeout, current: timeout, pending: false };
        Self { half: Mutex::new(PySplitState::Both(Box::new(both))), closer, transport, peer }
    }

    fn with(&self, half: PySplitState) -> Self {
        let (closer, peer) = (self.closer.clone(), self.peer.clone());
        Self { half: Mutex::new(half), closer, transport: self.transport, peer }
    }

    fn lock(&self) -> PyResult<MutexGuard<'_, PySplitState>> {
        self.half.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                busy("another thread uses the connection: split() it to use two threads")
            }
            TryLockError::Poisoned(_) => busy("a bug of the library has ended the connection"),
        })
    }

    /// The whole connection. This object is closed.
    ///
    /// # Errors
    /// If it is split or closed.
    pub(crate) fn take(&self) -> PyResult<transport::Connection> {
        let mut half = self.lock()?;
        match std::mem::replace(&mut *half, PySplitState::Closed) {
            PySplitState::Both(both) => Ok(both.connection),
            PySplitState::Closed => closed("connection"),
            other => {
                *half = other;
                Err(PyValueError::new_err("the connection is split"))
            }
        }
    }

    /// Runs a read without the interpreter's lock.
    fn reading<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut dyn Read) -> io::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| match &mut *self.lock()? {
            PySplitState::Both(both) => {
                let mut patient = InterruptibleReader { both, raised: None };
                let read = patient.flush().and_then(|()| work(&mut patient));
                match patient.raised {
                    Some(raised) => Err(raised),
                    None => read.map_err(exception),
                }
            }
            PySplitState::Reads(reader) => work(reader).map_err(exception),
            PySplitState::Writes(_) => Err(PyValueError::new_err("this half only writes")),
            PySplitState::Closed => closed("connection"),
        })
    }

    /// Runs a write. The caller has released the interpreter's lock.
    fn writing(&self, work: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> PyResult<()> {
        let written = match &mut *self.lock()? {
            PySplitState::Both(both) => {
                both.pending = true;
                both.limit(both.timeout).and_then(|()| work(&mut both.connection))
            }
            PySplitState::Writes(writer) => work(writer),
            PySplitState::Reads(_) => return Err(PyValueError::new_err("this half only reads")),
            PySplitState::Closed => return closed("connection"),
        };
        written.map_err(exception)
    }
}

impl UnsplitConnection {
    /// Sets the time limit of each wait.
    fn limit(&mut self, limit: Option<Duration>) -> io::Result<()> {
        if limit != self.current {
            self.connection.set_timeout(limit)?;
            self.current = limit;
        }
        Ok(())
    }
}

/// Reads from a connection, and checks for Ctrl-C between waits.
struct InterruptibleReader<'a> {
    both: &'a mut UnsplitConnection,
    raised: Option<PyErr>,
}

impl InterruptibleReader<'_> {
    /// A read flushes the connection, but within its own limit, which is too short for a write.
    fn flush(&mut self) -> io::Result<()> {
        if self.both.pending {
            self.both.limit(self.both.timeout)?;
            self.both.connection.flush()?;
            self.both.pending = false;
        }
        Ok(())
    }
}

impl Read for InterruptibleReader<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let began = Instant::now();
        loop {
            let left = self.both.timeout.map(|timeout| timeout.saturating_sub(began.elapsed()));
            let wait = left.map_or(SIGNALS_EVERY, |left| left.min(SIGNALS_EVERY));
            self.both.limit(Some(wait.max(Duration::from_millis(1))))?;
            let read = self.both.connection.read(to);
            let Err(error) = read else { return read };
            let Some(Error::TimedOut { step, peer, .. }) = Error::of(&error) else {
                return Err(error);
            };
            if let (Some(after), true) = (self.both.timeout, left <= Some(wait)) {
                return Err(Error::TimedOut { step: *step, peer: peer.clone(), after }.into());
            }
            self.raised = Python::attach(|py| py.check_signals().err());
            if self.raised.is_some() {
                return Err(error);
            }
        }
    }
}

/// The messages of a connection, one after the other.
#[pyclass(frozen, module = "sunder_transport")]
pub(crate) struct Messages {
    connection: Py<PyConnection>,
    max: usize,
}

#[pymethods]
impl Messages {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        self.connection.get().receive(py, self.max)
    }
}
