//! Jobs: computations that any thread can run.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::protocol::audit::{AuditEvaluation, RANDOM_LEN, UpdateAuditError};
use crate::protocol::engine::{MixEngineError, ProxyEngine};
use crate::{Mailbox, MailboxShape};

/// A computation to run outside the group.
pub struct GroupJob(GroupJobTask);

/// The result of a job.
pub struct FinishedGroupJob(pub(super) GroupJobOutcome);

enum GroupJobTask {
    /// Work of a connection's engine.
    Exchange { connection: u64, engine: Box<dyn ProxyEngine>, work: ProxyEngineWork },
    /// Work of the inquiry with this number.
    Audit { inquiry: u64, work: AuditWork },
}

pub(super) enum GroupJobOutcome {
    Exchange {
        connection: u64,
        result: Result<(Box<dyn ProxyEngine>, ProxyEngineProduct), MixEngineError>,
    },
    Audit {
        inquiry: u64,
        result: Result<AuditProduct, UpdateAuditError>,
    },
}

pub(super) enum ProxyEngineWork {
    /// Handles a set-up message, if any, and makes those that are due.
    SetUp(Option<Vec<u8>>),
    /// Makes the opening of an exchange that reads this mailbox.
    Opening(Arc<Mailbox>),
    /// Makes an update and an answer from a request.
    Answer { request: Vec<u8>, read: Arc<Mailbox> },
}

pub(super) enum ProxyEngineProduct {
    SetUp(Vec<Vec<u8>>),
    Opening(Vec<u8>),
    Answer { update: Mailbox, body: Vec<u8> },
}

pub(super) enum AuditWork {
    /// Makes the choices from an auditor's set-up message.
    Choose {
        shape: MailboxShape,
        update: Arc<Mailbox>,
        set_up: Vec<u8>,
        random: Zeroizing<[u8; RANDOM_LEN]>,
    },
    /// Evaluates an auditor's garbled circuit.
    Evaluate { evaluation: AuditEvaluation, tables: Vec<u8> },
}

pub(super) enum AuditProduct {
    Choices(AuditEvaluation, Vec<u8>),
    /// Whether the update is right.
    Verdict(bool),
}

impl GroupJob {
    pub(super) fn exchange(
        connection: u64,
        engine: Box<dyn ProxyEngine>,
        work: ProxyEngineWork,
    ) -> Self {
        Self(GroupJobTask::Exchange { connection, engine, work })
    }

    pub(super) fn audit(inquiry: u64, work: AuditWork) -> Self {
        Self(GroupJobTask::Audit { inquiry, work })
    }

    /// Runs the job. It takes at most about as long as an exchange.
    pub fn run(self) -> FinishedGroupJob {
        FinishedGroupJob(match self.0 {
            GroupJobTask::Exchange { connection, mut engine, work } => {
                let product = work.run(&mut *engine);
                GroupJobOutcome::Exchange {
                    connection,
                    result: product.map(|product| (engine, product)),
                }
            }
            GroupJobTask::Audit { inquiry, work } => {
                GroupJobOutcome::Audit { inquiry, result: work.run() }
            }
        })
    }
}

impl FinishedGroupJob {
    /// The connection and the member's update, if the job was an answer: all that the proxy gets
    /// from an exchange. For demonstrations and tests of what the proxy can learn.
    pub fn update(&self) -> Option<(u64, &Mailbox)> {
        match &self.0 {
            GroupJobOutcome::Exchange {
                connection,
                result: Ok((_, ProxyEngineProduct::Answer { update, .. })),
            } => Some((*connection, update)),
            _ => None,
        }
    }
}

impl ProxyEngineWork {
    fn run(self, engine: &mut dyn ProxyEngine) -> Result<ProxyEngineProduct, MixEngineError> {
        match self {
            Self::SetUp(message) => {
                if let Some(message) = message {
                    engine.handle_set_up(&message)?;
                }
                Ok(ProxyEngineProduct::SetUp(std::iter::from_fn(|| engine.poll_set_up()).collect()))
            }
            Self::Opening(read) => Ok(ProxyEngineProduct::Opening(engine.opening(&read)?)),
            Self::Answer { request, read } => {
                let (update, body) = engine.answer(&request, &read)?;
                Ok(ProxyEngineProduct::Answer { update, body })
            }
        }
    }
}

impl AuditWork {
    fn run(self) -> Result<AuditProduct, UpdateAuditError> {
        match self {
            Self::Choose { shape, update, set_up, random } => {
                let (evaluation, choices) =
                    AuditEvaluation::new(&shape, &update, &set_up, &random)?;
                Ok(AuditProduct::Choices(evaluation, choices))
            }
            Self::Evaluate { evaluation, tables } => {
                Ok(AuditProduct::Verdict(evaluation.verdict(&tables)?))
            }
        }
    }
}
