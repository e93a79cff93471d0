//! The parts that all long-running commands share; they do not depend on the protocol.
//!
//! A command's status is a type that implements [`status::ServiceStatus`], with its metrics as a
//! table:
//!
//! ```
//! use serde::{Deserialize, Serialize};
//! use sunder_service::metrics::{Exposition, PrometheusMetric, gauge};
//! use sunder_service::status::ServiceStatus;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Echo {
//!     name: String,
//!     uptime_s: f64,
//!     connections: u64,
//! }
//!
//! impl ServiceStatus for Echo {
//!     const METRICS: &'static [PrometheusMetric<Self>] =
//!         &[gauge("echo_connections", "Open connections.", |echo, samples| {
//!             samples.add(&[], echo.connections)
//!         })];
//!
//!     fn name(&self) -> &str {
//!         &self.name
//!     }
//!
//!     fn set_name(&mut self, name: String) {
//!         self.name = name;
//!     }
//!
//!     fn uptime_s(&self) -> f64 {
//!         self.uptime_s
//!     }
//! }
//!
//! let echo = Echo { name: "office".into(), uptime_s: 2.5, connections: 3 };
//! let mut exposition = Exposition::default();
//! echo.expose("echo", &mut exposition);
//! let last = exposition.text().lines().last().map(str::to_owned);
//! assert_eq!(last.as_deref(), Some("echo_connections{service=\"echo\",name=\"office\"} 3"));
//! ```
//!
//! # Map
//!
//! - [`config`]: reads a configuration and returns all its problems at once, each with its place
//!   and its fix.
//! - [`log`]: the log on standard error, and [`log::LogRateLimiter`].
//! - [`signals`]: stops on SIGINT or SIGTERM, reloads the configuration on SIGHUP.
//! - [`reload`]: passes a new configuration to a running task.
//! - [`limits`]: the limit of open files, and the number of streams that fit into it.
//! - [`memory`]: protects the memory of the process from core files, debuggers and swap, and
//!   returns freed memory to the system.
//! - [`listening`]: listeners that stay open during a reload; [`accept`]: the accept loop, fair
//!   among several listeners; [`connection_limiter`]: limits the number of simultaneous
//!   connections. `http`, with the feature of this name: an HTTP server whose
//!   connections slow clients cannot keep.
//! - [`remote_address`]: another host's address or name, which is looked up again if it fails.
//! - [`status`]: the status socket; [`metrics`]: the same status in Prometheus's text format.
//!
//! Of `config`, `table`, `keys`, `path` and `syntax` are pure, and `file` reads. `metrics` is pure.

pub mod accept;
pub mod config;
pub mod connection_limiter;
#[cfg(feature = "http")]
pub mod http;
pub mod limits;
pub mod listening;
pub mod log;
pub mod memory;
pub mod metrics;
pub mod reload;
pub mod remote_address;
pub mod signals;
pub mod status;

use std::io;

use tokio::runtime::Runtime;

/// Why a service cannot start, or did not stop in an orderly way.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// `RUST_LOG` is not a valid filter.
    #[error("RUST_LOG={levels}: {reason}; RUST_LOG=debug shows more than usual")]
    Levels {
        /// Its value.
        levels: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The system cannot start threads.
    #[error("cannot start threads: {0}")]
    Threads(io::Error),
    /// The system does not deliver signals.
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    /// A second signal arrived while the service was stopping.
    #[error("stopped by a second signal; what was under way was broken off")]
    Interrupted,
}

/// A runtime with a thread for each processor.
///
/// # Errors
/// If the system cannot start threads.
pub fn runtime() -> Result<Runtime, ServiceError> {
    Runtime::new().map_err(ServiceError::Threads)
}

/// Runs a service to its end on a runtime of its own. Does not wait for blocking tasks that are
/// still running, such as a name lookup.
///
/// # Errors
/// If the service fails, or the system cannot start threads.
pub fn run<T, E: From<ServiceError>>(service: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = runtime()?;
    let result = runtime.block_on(service);
    runtime.shutdown_background();
    result
}
