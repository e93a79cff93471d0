//! Moving the key to a new group (thesis, 3.3).
//!
//! The agreement log orders entries, which every server applies to its [`RefreshAgreement`].
//! [`OldServer`] and [`NewServer`] decide what a server does, and with a key that is shared by a
//! polynomial `handover::HandoverServer`. Their inputs are messages, the agreed state, the time,
//! and results of jobs. Their outputs are messages, entries, and jobs: long computations, which run
//! on other threads.

pub(crate) mod agreement;
pub(crate) mod complaint;
pub(crate) mod dealing;
pub(crate) mod dealing_turns;
pub(crate) mod entry;
pub(crate) mod handover;
pub(crate) mod handover_job;
pub(crate) mod handover_step;
pub(crate) mod manifest;
pub(crate) mod message;
pub(crate) mod new_server;
pub(crate) mod old_server;
pub(crate) mod output;
pub(crate) mod parameters;
pub(crate) mod possession;
pub(crate) mod recovery;
pub(crate) mod retries;
pub(crate) mod row_recovery;
pub(crate) mod session;

pub(crate) use self::handover::{HandoverContext, HandoverMachine, HandoverServer};
pub(crate) use agreement::MAX_COMMAND_BYTES;
pub(crate) use agreement::{HandoverProgress, RunScheme};
pub(crate) use entry::LogEntryBody;
pub(crate) use handover_job::HandoverOutcome;
#[cfg(test)]
pub(crate) use handover_step::EncodedHandoverStep;
pub(crate) use output::RefreshOutcome;
pub(crate) use row_recovery::RowRecovery;

pub use agreement::{LogEntryEffect, LogEntryRefusal, RefreshAgreement, RefreshRun, RefreshedKey};
pub use entry::{LogEntry, MAX_ENTRY_LEN, RefreshRole};
pub use manifest::DealingRound;
pub use message::{CommonValue, MAX_MESSAGE_LEN, RefreshMessage};
pub use new_server::NewServer;
pub use old_server::OldServer;
pub use output::{
    LabeledShares, RefreshDelays, RefreshJob, RefreshJobResult, RefreshOutput, RunItemName,
};
pub use parameters::RefreshParameters;
pub use possession::ShareWitnesses;
pub use recovery::{ShareRecovery, answer};

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
