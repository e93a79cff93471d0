//! What has to be computed: work for any thread.

use std::sync::Arc;

use zeroize::Zeroizing;

use crate::audit::{AuditError, Evaluation, RANDOM_LEN};
use crate::engine::{EngineError, ProxyEngine};
use crate::{Mailbox, Shape};

/// Work that takes time, away from the group until it is done.
pub struct Job(Task);

/// A job that has been done.
pub struct Done(pub(super) Outcome);

enum Task {
    /// Of one connection's engine.
    Exchange { connection: u64, engine: Box<dyn ProxyEngine>, work: Work },
    /// Of the inquiry with this number.
    Audit { inquiry: u64, work: AuditWork },
}

pub(super) enum Outcome {
    Exchange { connection: u64, result: Result<(Box<dyn ProxyEngine>, Product), EngineError> },
    Audit { inquiry: u64, result: Result<AuditProduct, AuditError> },
}

pub(super) enum Work {
    /// Takes a set-up message, if there is one, and makes those that are due.
    SetUp(Option<Vec<u8>>),
    /// Makes the opening of an exchange that reads this mailbox.
    Opening(Arc<Mailbox>),
    /// Makes an update and an answer from a request.
    Answer { request: Vec<u8>, read: Arc<Mailbox> },
}

pub(super) enum Product {
    SetUp(Vec<Vec<u8>>),
    Opening(Vec<u8>),
    Answer { update: Mailbox, body: Vec<u8> },
}

pub(super) enum AuditWork {
    /// Makes the choices from an auditor's set-up message.
    Choose {
        shape: Shape,
        update: Arc<Mailbox>,
        set_up: Vec<u8>,
        random: Zeroizing<[u8; RANDOM_LEN]>,
    },
    /// Evaluates an auditor's garbled circuit.
    Evaluate { evaluation: Evaluation, tables: Vec<u8> },
}

pub(super) enum AuditProduct {
    Choices(Evaluation, Vec<u8>),
    /// Whether the update is right.
    Verdict(bool),
}

impl Job {
    pub(super) fn exchange(connection: u64, engine: Box<dyn ProxyEngine>, work: Work) -> Self {
        Self(Task::Exchange { connection, engine, work })
    }

    pub(super) fn audit(inquiry: u64, work: AuditWork) -> Self {
        Self(Task::Audit { inquiry, work })
    }

    /// Does the work. It takes up to the time of an exchange.
    pub fn run(self) -> Done {
        Done(match self.0 {
            Task::Exchange { connection, mut engine, work } => {
                let product = work.run(&mut *engine);
                Outcome::Exchange { connection, result: product.map(|product| (engine, product)) }
            }
            Task::Audit { inquiry, work } => Outcome::Audit { inquiry, result: work.run() },
        })
    }
}

impl Done {
    /// The connection, and the update that its member has handed in, if that was the job: all that
    /// the proxy gets from an exchange. For demonstrations and tests of what it can learn.
    pub fn update(&self) -> Option<(u64, &Mailbox)> {
        match &self.0 {
            Outcome::Exchange { connection, result: Ok((_, Product::Answer { update, .. })) } => {
                Some((*connection, update))
            }
            _ => None,
        }
    }
}

impl Work {
    fn run(self, engine: &mut dyn ProxyEngine) -> Result<Product, EngineError> {
        match self {
            Self::SetUp(message) => {
                if let Some(message) = message {
                    engine.handle_set_up(&message)?;
                }
                Ok(Product::SetUp(std::iter::from_fn(|| engine.poll_set_up()).collect()))
            }
            Self::Opening(read) => Ok(Product::Opening(engine.opening(&read)?)),
            Self::Answer { request, read } => {
                let (update, body) = engine.answer(&request, &read)?;
                Ok(Product::Answer { update, body })
            }
        }
    }
}

impl AuditWork {
    fn run(self) -> Result<AuditProduct, AuditError> {
        match self {
            Self::Choose { shape, update, set_up, random } => {
                let (evaluation, choices) = Evaluation::new(&shape, &update, &set_up, &random)?;
                Ok(AuditProduct::Choices(evaluation, choices))
            }
            Self::Evaluate { evaluation, tables } => {
                Ok(AuditProduct::Verdict(evaluation.verdict(&tables)?))
            }
        }
    }
}
