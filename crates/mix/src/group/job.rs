//! What an engine has to compute: work for any thread.

use std::sync::Arc;

use crate::Mailbox;
use crate::engine::{EngineError, ProxyEngine};

/// Work of one connection's engine, which is away from the group until the work is done.
pub struct Job {
    connection: u64,
    engine: Box<dyn ProxyEngine>,
    work: Work,
}

/// A job that has been done.
pub struct Done {
    pub(super) connection: u64,
    pub(super) result: Result<(Box<dyn ProxyEngine>, Product), EngineError>,
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

impl Job {
    pub(super) fn new(connection: u64, engine: Box<dyn ProxyEngine>, work: Work) -> Self {
        Self { connection, engine, work }
    }

    /// Does the work. It takes up to the time of an exchange.
    pub fn run(self) -> Done {
        let Self { connection, mut engine, work } = self;
        let product = work.run(&mut *engine);
        Done { connection, result: product.map(|product| (engine, product)) }
    }
}

impl Done {
    /// The connection, and the update that its member has handed in, if that was the job: all that
    /// the proxy gets from an exchange. For demonstrations and tests of what it can learn.
    pub fn update(&self) -> Option<(u64, &Mailbox)> {
        match &self.result {
            Ok((_, Product::Answer { update, .. })) => Some((self.connection, update)),
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
