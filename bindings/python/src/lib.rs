//! The crates `transport`, `compute` and `psi` for Python: the module `sunder_transport._native`,
//! whose interface is in `python/sunder_transport/_native.pyi`. The packages `sunder_transport` and
//! `sunder_compute` offer its parts.
//!
//! Calls that wait for the network release Python's interpreter lock. Where they may wait for long,
//! they return to the interpreter at intervals, so that Ctrl-C ends them.
//!
//! # Map
//!
//! - `connection`, `listener`, `options`: the classes. `registration`: transports in Python.
//!   `buffers`: bytes of Python objects.
//! - `compute`: circuits, sessions and private set intersection.
//! - `errors`: errors as exceptions.

mod buffers;
mod compute;
mod connection;
mod errors;
mod listener;
mod options;
mod registration;

/// The module.
#[pyo3::pymodule]
#[pyo3(name = "_native")]
mod native {
    #[pymodule_export]
    use crate::compute::builder::PyCircuitBuilder;
    #[pymodule_export]
    use crate::compute::builder::integer::PyCircuitInteger;
    #[pymodule_export]
    use crate::compute::circuit::PyCircuit;
    #[pymodule_export]
    use crate::compute::intersection::intersect;
    #[pymodule_export]
    use crate::compute::session::PyComputeSession;
    #[pymodule_export]
    use crate::connection::{Messages, PyConnection, connect};
    #[pymodule_export]
    use crate::listener::PyListener;
    #[pymodule_export]
    use crate::options::{Identity, transports};
    #[pymodule_export]
    use crate::registration::register;
}
