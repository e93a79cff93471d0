//! Emulated networks on one machine, and experiments on them.
//!
//! ```
//! use std::path::Path;
//!
//! use sunder_lab::Experiment;
//!
//! let text = r#"
//!     about = "Rate of a link"
//!     [sweep]
//!     rate = [10, 100]
//!     [hosts.client]
//!     [hosts.server]
//!     [links.a]
//!     hosts = ["client", "server"]
//!     both = { rate_mbit = "{rate}", delay_ms = 10 }
//!     [measure]
//!     driver = "accuracy"
//!     options = { delays = 100, rate_s = 1 }
//!     [measure.values]
//!     carried = { unit = "Mbit/s" }
//! "#;
//! let experiment = Experiment::parse(Path::new("rate.toml"), text)?;
//! assert_eq!(experiment.trials(), 2);
//! # Ok::<(), sunder_lab::ExperimentError>(())
//! ```
//!
//! In a sandbox, [`experiment::run()`] runs the experiment and writes the results.
//!
//! # Map
//!
//! - [`experiment`]: [`Experiment`], a file that defines what many trials vary, measure and draw.
//!   `file` reads it and makes a [`Trial`] for each point; `run` runs all, and writes a `journal`,
//!   tables and graphs. `prediction`: what the models say. `schedule`, `statistic`, `columns`,
//!   `value`, `built_in`.
//! - `trial`: a network, the programs on it, and a measurement. `perform` runs it: `program`, and
//!   one `driver` for each measurement that needs more than the output of a program, both on the
//!   hosts of a `trial_network`, with each `command` as a `trial_program`; meanwhile
//!   `sampling` says what the links carry, and `phases` in which phase a program is.
//! - [`site`]: machines of other places, on which programs of a trial run. [`LabAgent`] is the
//!   program there.
//! - [`sandbox`]: namespaces in which a program can create networks without root. `network`: the
//!   hosts and links of a trial. `host`: [`EmulatedHost`], a network namespace.
//! - `link`: [`EmulatedLink`] between two hosts: `device` is an end, `tap` the eavesdropper;
//!   `line`, `impairment` and `conditions` are pure. `stretched`: the ends of a link between hosts
//!   at two sites.
//! - `disk`: directories for files that must not be in memory.
//! - `channel_model`: links as channels of the model, pure. [`capture`]: reads datagrams of a
//!   capture, pure. `clock`, `search`, `machine`: the clock, programs by name, and what a machine
//!   is.

#![allow(clippy::cast_precision_loss, reason = "counts and times are far below 2^52")]

mod agent;
pub mod capture;
mod channel_model;
mod clock;
mod disk;
pub mod experiment;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod host;
mod link;
mod machine;
mod network;
mod perform;
pub mod sandbox;
mod search;
pub mod site;
mod trial;

pub use agent::{AgentEvent, LabAgent};
pub use disk::remove_abandoned_directories;
pub use experiment::{Experiment, ExperimentError};
pub use host::EmulatedHost;
pub use link::{
    EmulatedLink, EmulatedLinkConditions, ImpossibleCondition, LatenessHistogram, LinkCounters,
    LinkDirection, LinkOptions,
};
pub use machine::processors_in_use;
pub use network::{EmulatedNetwork, EmulatedNetworkError};
pub use perform::{
    DatagramFlow, ReceivedFlow, TrialError, TrialMeasurement, TrialOutput, TrialPhase,
    TrialProgress, TrialSample, check_script_archive, perform,
};
pub use trial::{
    HostPlan, LinkPlan, MeasurePlan, ProgramPlan, TextPlan, Trial, TrialContext, ValuePlan,
};
