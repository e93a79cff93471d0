//! Which threshold (k, M) each symbol is sent with.

mod dynamic;
mod planned;
mod scheduler;

pub use dynamic::{Dynamic, MeansError};
pub use planned::Planned;
pub use scheduler::{Readiness, Scheduler};
