//! The crate `transport` for Python: the module `sunder_transport._native`, whose interface is in
//! `python/sunder_transport/_native.pyi`.
//!
//! What waits for the network releases Python's interpreter lock. Where it may wait for long it
//! returns to the interpreter every so often, so that Ctrl-C ends it.

mod buffers;
mod connection;
mod errors;
mod listener;
mod options;

/// The module.
#[pyo3::pymodule]
#[pyo3(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::connection::{Connection, Messages, connect};
    #[pymodule_export]
    use crate::listener::Listener;
    #[pymodule_export]
    use crate::options::{Identity, transports};
}
