//! The receiving side: shares come in, packets go out in the order of their flows.

mod bits;
mod blame;
pub mod deliver;
mod log;
mod numbers;
pub mod reassembly;
pub mod receiver;
pub mod release;
