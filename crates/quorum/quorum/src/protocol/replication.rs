//! A replicated service: a deterministic state machine that applies the commands of the agreement
//! log, and whose answers the group signs. Specified in `docs/protocols/replicated-service.md`.
//!
//! `ServiceReplica` is the state machine at one server. A client makes a [`ServiceRequest`] and
//! verifies the [`SignedServiceAnswer`] with the group's public key.

pub(crate) mod replica;
mod statement;

use std::fmt;

pub(crate) use statement::{SERVICE_MAGIC, ServiceStatement, is_request, request_digest};
pub use statement::{
    ServiceAnswer, ServiceAnswerError, ServiceRequest, ServiceRequestError, SignedServiceAnswer,
};

use super::wire::MalformedEncoding;

/// The longest command, in bytes.
pub const MAX_COMMAND_LEN: usize = MAX_REQUEST_LEN - NONCE_LEN;

/// The longest answer, in bytes.
pub const MAX_ANSWER_LEN: usize = 16 << 10;

/// The longest snapshot of a state that is sent to another server, in bytes.
pub const MAX_STATE_LEN: usize = 16 << 20;

/// The random bytes with which a request begins.
pub(crate) const NONCE_LEN: usize = 32;

/// The longest request: the random bytes and the command.
pub(crate) const MAX_REQUEST_LEN: usize = 16 << 10;

/// The largest number of requests in an entry of the log, and of their bytes with their lengths.
pub(crate) const MAX_BATCH_REQUESTS: usize = 64;
pub(crate) const MAX_BATCH_LEN: usize = 64 << 10;

/// The longest name of a service, in bytes.
const MAX_NAME_LEN: usize = 64;

/// A deterministic state machine. All servers of a group run the same one. Whatever it does depends
/// only on the commands that it has applied: not on time, random numbers, files, or the order of a
/// hash map. It runs on the server's thread, so it must be fast.
pub trait StateMachine: Send {
    /// Applies a command of at most [`MAX_COMMAND_LEN`] bytes, and returns the answer. Anyone who
    /// can reach one server can send any bytes, and a faulty server can send a command again. An
    /// answer longer than [`MAX_ANSWER_LEN`] is replaced by an empty one.
    fn apply(&mut self, command: &[u8]) -> Vec<u8>;

    /// The state as bytes, equal for equal states. A command that would make this longer than
    /// [`MAX_STATE_LEN`] must be refused: a longer state cannot move to other servers.
    fn snapshot(&self) -> Vec<u8>;

    /// Replaces the state by one that [`Self::snapshot`] returned at another server.
    ///
    /// # Errors
    /// If the bytes are not a snapshot. Then the state is not used any more.
    fn restore(&mut self, snapshot: &[u8]) -> Result<(), MalformedEncoding>;
}

/// A service's name is empty or too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name of a service has 1 to {MAX_NAME_LEN} bytes")]
pub struct ServiceNameError;

/// A service for a server to run: its name, and the state machine in its initial state.
pub struct ReplicatedService {
    name: String,
    machine: Box<dyn StateMachine>,
}

impl ReplicatedService {
    /// A service. The name separates its answers from those of other services under the same key.
    ///
    /// # Errors
    /// If the name is empty, or longer than 64 bytes.
    pub fn new(name: &str, machine: impl StateMachine + 'static) -> Result<Self, ServiceNameError> {
        check_name(name)?;
        Ok(Self { name: name.to_owned(), machine: Box::new(machine) })
    }
}

impl fmt::Debug for ReplicatedService {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "ReplicatedService({})", self.name)
    }
}

/// Whether these are the requests of a batch.
pub(crate) fn is_batch(requests: &[Vec<u8>]) -> bool {
    (1..=MAX_BATCH_REQUESTS).contains(&requests.len())
        && requests.iter().all(|request| is_request(request))
        && requests.iter().map(|request| request.len() + 4).sum::<usize>() <= MAX_BATCH_LEN
}

fn check_name(name: &str) -> Result<(), ServiceNameError> {
    let is_name = (1..=MAX_NAME_LEN).contains(&name.len());
    if is_name { Ok(()) } else { Err(ServiceNameError) }
}
