//! How a member reads slots of the closed mailbox, and hands in its update to the open one. All
//! engines compute the same: of the mailbox R that is read and the member's update D and choices
//! `j_1` to `j_q` the proxy gets D, and the member the slots `j_1` to `j_q` of R.
//!
//! Both ends of an exchange are without input and output: what they return is carried to the other
//! end. Set-up messages, if there are any, come before the first exchange of a connection. Each
//! exchange is one round trip: the proxy's opening (which goes out with the start of the round),
//! the member's request, the proxy's answer.

mod bdd;
mod circuit;
mod ot;
mod slots;
mod transfers;

use std::fmt;
use std::str::FromStr;

use self::bdd::GarbledDiagram;
use self::ot::OneOfNTransfer;
use crate::{Mailbox, MailboxShape};

/// Why a step of an exchange fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixEngineError {
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
    Transfer(#[from] ::ot::Error),
    /// It came at another step than its own, or something is asked for before the set-up.
    #[error("a message came out of turn")]
    OutOfTurn,
    /// A member's choices are not as many as the shape says.
    #[error("{found} slots are chosen, and not {expected}")]
    Reads {
        /// How many have to be chosen.
        expected: usize,
        /// How many are chosen.
        found: usize,
    },
    /// The mailbox has more slots than a decision diagram can have.
    #[error("the engine `bdd` takes at most {max} slots, not {slots}; `ot` takes more")]
    DiagramSlots {
        /// How many it has.
        slots: usize,
        /// How many a diagram can have.
        max: usize,
    },
}

/// The member's end of an engine. The seed is uniformly random, secret, and used once.
///
/// # Errors
/// If the engine cannot make exchanges of this shape.
pub fn member(
    name: MixEngineName,
    shape: &MailboxShape,
    seed: [u8; 32],
) -> Result<Box<dyn MemberEngine>, MixEngineError> {
    match name {
        MixEngineName::Ot => Ok(Box::new(slots::SlotTransferMemberEngine::new(
            *shape,
            OneOfNTransfer::new(shape.slots()),
            seed,
        ))),
        MixEngineName::Circuit => Ok(Box::new(circuit::CircuitMemberEngine::new(*shape, seed))),
        MixEngineName::Bdd => Ok(Box::new(slots::SlotTransferMemberEngine::new(
            *shape,
            GarbledDiagram::new(shape.slots())?,
            seed,
        ))),
    }
}

/// The proxy's end of an engine. The seed is uniformly random, secret, and used once.
///
/// # Errors
/// If the engine cannot make exchanges of this shape.
pub fn proxy(
    name: MixEngineName,
    shape: &MailboxShape,
    seed: [u8; 32],
) -> Result<Box<dyn ProxyEngine>, MixEngineError> {
    match name {
        MixEngineName::Ot => Ok(Box::new(slots::SlotTransferProxyEngine::new(
            *shape,
            OneOfNTransfer::new(shape.slots()),
            seed,
        ))),
        MixEngineName::Circuit => Ok(Box::new(circuit::CircuitProxyEngine::new(*shape, seed))),
        MixEngineName::Bdd => Ok(Box::new(slots::SlotTransferProxyEngine::new(
            *shape,
            GarbledDiagram::new(shape.slots())?,
            seed,
        ))),
    }
}

/// The member's end of the exchanges over one connection.
pub trait MemberEngine: Send {
    /// A message that sets the exchange up, if there is one to send.
    fn poll_set_up(&mut self) -> Option<Vec<u8>>;

    /// Takes a message that sets the exchange up.
    ///
    /// # Errors
    /// If it is not the one that is expected.
    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError>;

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
    ) -> Result<Vec<u8>, MixEngineError>;

    /// The chosen slots, as the proxy has them: q times L bytes, in the order of `reads`.
    ///
    /// # Errors
    /// If the answer is not one to the last request.
    fn slots(&mut self, answer: &[u8]) -> Result<Vec<Vec<u8>>, MixEngineError>;
}

/// The proxy's end of the exchanges over one connection.
pub trait ProxyEngine: Send {
    /// A message that sets the exchange up, if there is one to send.
    fn poll_set_up(&mut self) -> Option<Vec<u8>>;

    /// Takes a message that sets the exchange up.
    ///
    /// # Errors
    /// If it is not the one that is expected.
    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError>;

    /// Whether exchanges can be made.
    fn is_ready(&self) -> bool;

    /// What the member needs for the next exchange, of the mailbox that it will read.
    ///
    /// # Errors
    /// If the engine is not ready.
    fn opening(&mut self, read: &Mailbox) -> Result<Vec<u8>, MixEngineError>;

    /// The member's update, and the answer, from its request. `read` is the mailbox of the opening.
    ///
    /// # Errors
    /// If the request is not one. Nothing of it is to be used then, and the connection has ended.
    fn answer(
        &mut self,
        request: &[u8],
        read: &Mailbox,
    ) -> Result<(Mailbox, Vec<u8>), MixEngineError>;
}

/// The bytes of the messages of an exchange. They depend on the shape only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeMessageLengths {
    /// Of the proxy's opening.
    pub opening: usize,
    /// Of the member's request.
    pub request: usize,
    /// Of the proxy's answer.
    pub answer: usize,
}

impl ExchangeMessageLengths {
    /// The length of the longest one.
    pub fn longest(&self) -> usize {
        self.opening.max(self.request).max(self.answer)
    }
}

/// How long the messages of an exchange are.
pub fn message_lens(name: MixEngineName, shape: &MailboxShape) -> ExchangeMessageLengths {
    match name {
        MixEngineName::Ot | MixEngineName::Bdd => slots::message_lens(shape),
        MixEngineName::Circuit => circuit::message_lens(shape),
    }
}

/// Checks that an engine can make exchanges of a shape.
///
/// # Errors
/// If it cannot.
pub(crate) fn check_shape(name: MixEngineName, shape: &MailboxShape) -> Result<(), MixEngineError> {
    match name {
        MixEngineName::Ot | MixEngineName::Circuit => Ok(()),
        MixEngineName::Bdd => bdd::check_slots(shape.slots()),
    }
}

/// How large what an engine computes for the reads of an exchange is, as Table 1 of the paper
/// (section 5.2.2) compares them: for `reads` reads of one of `slots` slots (N) of `data_bits`
/// bits each. The numbers can be less than those of a [`MailboxShape`]. Updates and masks are added
/// outside, and do not count. The unit is that of the engine:
///
/// - `ot`: blocks of 16 bytes that are encrypted, the slots and their key for each read;
/// - `circuit`: AND gates, of one half gate each;
/// - `bdd`: nodes of the decision diagrams of all bits that are read, among them one for each slot.
///   As these diagrams differ only in what is in the slots' nodes, the engine garbles one for each
///   read, and not one for each of its bits.
///
/// # Errors
/// If the engine does not take so many slots.
pub fn size(
    name: MixEngineName,
    slots: usize,
    reads: usize,
    data_bits: usize,
) -> Result<usize, MixEngineError> {
    Ok(match name {
        MixEngineName::Ot => slots * (data_bits.div_ceil(128) + reads),
        MixEngineName::Circuit => slots * reads * data_bits,
        MixEngineName::Bdd => bdd::nodes(slots)? * reads * data_bits,
    })
}

/// Which engine. Both ends have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixEngineName {
    /// Oblivious transfer of slots: the fastest, and the one for use.
    Ot,
    /// A garbled circuit, to compare with.
    Circuit,
    /// A garbled decision diagram, to compare with.
    Bdd,
}

impl MixEngineName {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Ot, Self::Circuit, Self::Bdd];

    /// What it is called in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ot => "ot",
            Self::Circuit => "circuit",
            Self::Bdd => "bdd",
        }
    }
}

impl fmt::Display for MixEngineName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A text is not the name of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an engine is `ot`, `circuit` or `bdd`")]
pub struct MixEngineNameError;

impl FromStr for MixEngineName {
    type Err = MixEngineNameError;

    fn from_str(text: &str) -> Result<Self, MixEngineNameError> {
        Self::ALL.into_iter().find(|name| name.as_str() == text).ok_or(MixEngineNameError)
    }
}

/// Checks the length of a message.
fn check_len(message: &[u8], expected: usize) -> Result<(), MixEngineError> {
    let len = message.len();
    if len == expected { Ok(()) } else { Err(MixEngineError::Length { expected, len }) }
}

/// Checks what a member hands in.
fn check_exchange(
    shape: &MailboxShape,
    update: &Mailbox,
    reads: &[usize],
) -> Result<(), MixEngineError> {
    check_len(update.as_bytes(), shape.mailbox_len())?;
    let (expected, found, count) = (shape.reads(), reads.len(), shape.slots());
    if found != expected {
        return Err(MixEngineError::Reads { expected, found });
    }
    match reads.iter().find(|slot| **slot >= count) {
        Some(&chosen) => Err(::ot::Error::Choice { chosen, count }.into()),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
