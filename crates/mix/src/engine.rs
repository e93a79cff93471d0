//! How a member reads slots of the closed mailbox, and hands in its update to the open one. All
//! engines compute the same: of the mailbox R that is read and the member's update D and choices
//! `j_1` to `j_q` the proxy gets D, and the member `R[j_1]` to `R[j_q]`.
//!
//! Both ends of an exchange are without input and output: what they return is carried to the other
//! end. Set-up messages, if there are any, come before the first exchange of a connection. Each
//! exchange is one round trip: the proxy's opening (which goes out with the start of the round),
//! the member's request, the proxy's answer.

use crate::Mailbox;

/// What is wrong with a message of the other end.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// It has another length.
    #[error("a message has {len} bytes, and not {expected}")]
    Length {
        /// How many bytes it should have.
        expected: usize,
        /// How many it has.
        len: usize,
    },
    /// It is no message of a transfer.
    #[error("{0}")]
    Transfer(#[from] ot::Error),
    /// It came at another step than its own.
    #[error("a message came out of turn")]
    OutOfTurn,
}

/// The member's end of the exchanges over one connection.
pub trait MemberEngine: Send {
    /// A message that sets the exchange up, if there is one to send.
    fn poll_set_up(&mut self) -> Option<Vec<u8>>;

    /// Takes a message that sets the exchange up.
    ///
    /// # Errors
    /// If it is not the one that is expected.
    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), EngineError>;

    /// Whether exchanges can be made.
    fn is_ready(&self) -> bool;

    /// The request of an exchange: hands in `update`, and chooses the slots `reads`, of which there
    /// are as many as the shape says. All requests have the same length.
    ///
    /// # Errors
    /// If the opening is not one, or the engine is not ready.
    fn request(
        &mut self,
        opening: &[u8],
        update: &Mailbox,
        reads: &[usize],
    ) -> Result<Vec<u8>, EngineError>;

    /// The chosen slots, as the proxy has them: q times L bytes, in the order of `reads`.
    ///
    /// # Errors
    /// If the answer is not one to the last request.
    fn slots(&mut self, answer: &[u8]) -> Result<Vec<Vec<u8>>, EngineError>;
}

/// The proxy's end of the exchanges over one connection.
pub trait ProxyEngine: Send {
    /// A message that sets the exchange up, if there is one to send.
    fn poll_set_up(&mut self) -> Option<Vec<u8>>;

    /// Takes a message that sets the exchange up.
    ///
    /// # Errors
    /// If it is not the one that is expected.
    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), EngineError>;

    /// Whether exchanges can be made.
    fn is_ready(&self) -> bool;

    /// What the member needs for the next exchange, of the mailbox that it will read.
    ///
    /// # Errors
    /// If the engine is not ready.
    fn opening(&mut self, read: &Mailbox) -> Result<Vec<u8>, EngineError>;

    /// The member's update, and the answer, from its request. `read` is the mailbox of the opening.
    ///
    /// # Errors
    /// If the request is not one. Nothing of it is to be used then, and the connection has ended.
    fn answer(&mut self, request: &[u8], read: &Mailbox)
    -> Result<(Mailbox, Vec<u8>), EngineError>;
}

/// Which engine. Both ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineName {
    /// Oblivious transfer of slots: the fastest, and the one for use.
    Ot,
    /// A garbled circuit.
    Circuit,
    /// Garbled decision diagrams.
    Bdd,
}

impl EngineName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ot, Self::Circuit, Self::Bdd];
}
