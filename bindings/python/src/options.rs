//! The options of connections and listeners.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey, KEY_LEN};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use transport::{
    ConnectionOptions, ConnectionSecurity, ExchangeProfile, PeerKeyPolicy, names, random_identity,
};

use crate::buffers::with_bytes;
use crate::errors::failed;

/// A secret key. Without a path, it is a new random key.
#[pyclass(frozen, module = "sunder_transport")]
pub(crate) struct Identity {
    pub(crate) key: Arc<IdentitySecretKey>,
}

#[pymethods]
impl Identity {
    #[new]
    #[pyo3(signature = (path=None))]
    fn new(path: Option<PathBuf>) -> PyResult<Self> {
        let key = match path {
            Some(path) => {
                IdentitySecretKey::read(&path).map_err(|error| identity_error(error.to_string()))?
            }
            None => random_identity().map_err(failed)?,
        };
        Ok(Self { key: Arc::new(key) })
    }

    /// A secret key of 32 bytes.
    #[staticmethod]
    fn from_bytes(key: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = with_bytes(key, |bytes| <[u8; KEY_LEN]>::try_from(bytes))?;
        let wrong = |_| PyValueError::new_err(format!("a secret key has {KEY_LEN} bytes"));
        Ok(Self { key: Arc::new(IdentitySecretKey::new(&bytes.map_err(wrong)?)) })
    }

    /// The public key that belongs to it, as 64 hexadecimal digits, which the peer passes as
    /// `peer`.
    #[getter]
    fn public_key(&self) -> String {
        self.key.public().to_string()
    }
}

fn identity_error(text: String) -> PyErr {
    crate::errors::exception(std::io::Error::other(text))
}

/// The names of all transports, each with its purpose. "auto", which chooses one of them, is not
/// included.
#[pyfunction]
pub(crate) fn transports(py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
    let found = PyDict::new(py);
    for (name, about) in names() {
        found.set_item(name, about)?;
    }
    Ok(found)
}

/// The options that `connect` and `Listener` have in common.
pub(crate) struct PyEndpointOptions<'a> {
    pub(crate) identity: Option<&'a Identity>,
    pub(crate) peers: Vec<String>,
    pub(crate) insecure: bool,
    pub(crate) timeout: Option<f64>,
    pub(crate) connect_timeout: f64,
    pub(crate) congestion_control: Option<String>,
}

impl PyEndpointOptions<'_> {
    pub(crate) fn options(self) -> PyResult<ConnectionOptions> {
        let security = if self.insecure {
            if self.identity.is_some() || !self.peers.is_empty() {
                let text = "insecure=True must not be combined with keys";
                return Err(PyValueError::new_err(text));
            }
            ConnectionSecurity::Insecure
        } else {
            let identity = match self.identity {
                Some(identity) => identity.key.clone(),
                None => Arc::new(random_identity().map_err(failed)?),
            };
            let keys = self.peers.iter().map(|key| key.parse::<IdentityPublicKey>());
            let keys: Result<Vec<_>, _> = keys.collect();
            let keys = keys.map_err(|error| PyValueError::new_err(error.to_string()))?;
            let peers =
                if keys.is_empty() { PeerKeyPolicy::Any } else { PeerKeyPolicy::Pinned(keys) };
            ConnectionSecurity::Noise { identity, peers }
        };
        let mut options = ConnectionOptions::new(security);
        options.timeout = self.timeout.map(seconds).transpose()?;
        options.connect_timeout = seconds(self.connect_timeout)?;
        options.handshake_timeout = options.connect_timeout;
        options.congestion = self.congestion_control;
        Ok(options)
    }
}

/// The expected exchange: bytes sent, bytes received, and how often an end waits for an answer.
pub(crate) fn exchange((sent, received, rounds): (u64, u64, u32)) -> ExchangeProfile {
    ExchangeProfile { sent, received, rounds }
}

/// The longest time limit; longer ones are reduced to it.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

/// A time in seconds, which must be more than 0.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|time| !time.is_zero())
        .map(|time| time.min(LONGEST))
        .ok_or_else(|| {
            PyValueError::new_err(format!("{seconds} is not a valid time limit in seconds"))
        })
}
