//! The crates `circuit`, `compute` and `psi` for Python: the native part of `sunder_compute`.
//!
//! # Map
//!
//! - `circuit`: a circuit. `builder`: building one from integers. `values`: integers and bits.
//! - `session`: a computation over a connection; `settings`. `intersection`: private set
//!   intersection.
//! - `interruptible`: work in another thread, which Ctrl-C ends. `failures`: errors as exceptions.

pub(crate) mod builder;
pub(crate) mod circuit;
mod failures;
mod interruptible;
pub(crate) mod intersection;
pub(crate) mod session;
mod settings;
mod values;
