//! Two-party computation over any connection: Yao's protocol (Transputation, 3 and appendix A), and
//! for comparison that of Goldreich, Micali and Wigderson (GMW; A.3 and table 5).
//!
//! **Yao's protocol is secure against any evaluator** by default: the evaluator learns the output
//! and nothing else about the garbler's input, whatever it sends. A garbler that deviates can learn
//! the evaluator's input or falsify the output. [`ComputeSecurity`] has a level against both, which
//! costs twice as much and leaves one bit that a deviating party can learn. GMW is semi-honest.
//!
//! A [`ComputeSession`] is one set-up on one connection. [`ComputeSession::run`] computes a circuit
//! on the inputs of both parties, any number of times. Garbling, sending, receiving and evaluating
//! overlap, and memory use does not depend on the number of gates. `docs/protocols/yao.md` and
//! `gmw.md` specify the messages of the two protocols. [`ComputeSettings::protocol`] selects one.
//!
//! ```
//! use std::os::unix::net::UnixStream;
//!
//! use circuit::{CircuitBuilder, CircuitSchedule};
//! use sunder_compute::{ComputeRole, ComputeSession, ComputeSettings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Who is richer? One bit: whether the garbler's number is less than the evaluator's.
//! let mut builder = CircuitBuilder::new(&[32, 32]);
//! let (garbler, evaluator) = (builder.input(0), builder.input(1));
//! let is_less = builder.less(&garbler, &evaluator);
//! let schedule = CircuitSchedule::new(&builder.finish(&[&[is_less]]));
//!
//! let (here, there) = UnixStream::pair()?;
//! let copy = schedule.clone();
//! let other = std::thread::spawn(move || {
//!     let reader = there.try_clone().unwrap();
//!     let mut session = ComputeSession::over(
//!         reader,
//!         there,
//!         ComputeRole::Evaluator,
//!         ComputeSettings::default(),
//!     )?;
//!     let output = session.run(&copy, &5_000_000_u32.to_le_bytes())?;
//!     session.finish().map(|()| output)
//! });
//! let mut session = ComputeSession::over(
//!     here.try_clone()?,
//!     here,
//!     ComputeRole::Garbler,
//!     ComputeSettings::default(),
//! )?;
//! let output = session.run(&schedule, &4_000_000_u32.to_le_bytes())?;
//! assert_eq!(output, Some(vec![1]));
//! assert_eq!(output, other.join().unwrap()?);
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! - `session`: one set-up, and any number of runs. `party`: a party and the set-up of its
//!   transfers.
//! - `parties`: Yao's protocol: `garbler` and `evaluator`, and `dual`, in which each party is both.
//!   `gmw`: the other protocol; its `gates`,
//!   `triples` and `words` are pure.
//! - `link`: the connection, with a thread that writes frames and one that reads them. `queue` and
//!   `worker` are what its threads use.
//! - `wire`: the frames `hello`, `begin` and others. `settings`, `malformed`, `error`. These are
//!   pure.
//! - [`predict`]: what a run costs, without the other party. `figures`: measured times and bytes.
//!   `random`: random blocks.

mod error;
mod figures;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gmw;
mod link;
mod malformed;
mod parties;
mod party;
pub mod predict;
mod queue;
mod random;
mod session;
mod settings;
#[cfg(test)]
mod tests;
mod wire;
mod worker;

pub use error::{ComputeAbortReason, ComputePhase, Error};
pub use figures::{PhaseDocument, PhaseFigures, PhaseProgress, peak_memory};
pub use garble::GarblingScheme;
pub use malformed::MalformedComputeFrame;
pub use ot::extension::OtExtensionKind as TransferKind;
pub use session::{ComputeProgress, ComputeSession, ComputeStopper};
pub use settings::{
    ComputeProtocol, ComputeRole, ComputeSecurity, ComputeSettings, OutputLearners,
};
