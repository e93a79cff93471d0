//! How a member reads slots of the closed mailbox and hands in its update to the open one. All
//! engines compute the same function of the closed mailbox R, the member's update D and the
//! member's choices `j_1` to `j_q`: the proxy learns D, and the member learns the slots `j_1` to
//! `j_q` of R.
//!
//! Both ends of an exchange do no I/O: the caller carries the messages that they return to the
//! other end. Set-up messages, if any, come before the first exchange of a connection. Each
//! exchange is one round trip: the proxy's opening (which goes out with the start of the round),
//! the member's request, the proxy's answer.

#[cfg(feature = "lab")]
mod bdd;
#[cfg(feature = "lab")]
mod circuit;
mod ot;
mod slots;
mod transfers;

use std::fmt;
use std::str::FromStr;

#[cfg(feature = "lab")]
use self::bdd::GarbledDiagram;
use self::ot::OneOfNTransfer;
use crate::{Mailbox, MailboxShape};

/// Why a step of an exchange fails.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MixEngineError {
    /// A message has the wrong length.
    #[error("a message has {len} bytes, and not {expected}")]
    Length {
        /// How many bytes it should have.
        expected: usize,
        /// How many it has.
        len: usize,
    },
    /// A message of an oblivious transfer is invalid.
    #[error("{0}")]
    Transfer(#[from] ::ot::Error),
    /// A message or call came at the wrong step, or before the set-up.
    #[error("a message came out of turn")]
    OutOfTurn,
    /// The number of choices is not the number of reads of the shape.
    #[error("{found} slots are chosen, and not {expected}")]
    Reads {
        /// How many have to be chosen.
        expected: usize,
        /// How many are chosen.
        found: usize,
    },
    /// The mailbox has more slots than a decision diagram supports.
    #[error("the engine `bdd` takes at most {max} slots, not {slots}; `ot` takes more")]
    DiagramSlots {
        /// How many it has.
        slots: usize,
        /// How many a diagram can have.
        max: usize,
    },
    /// The engine is only for comparison, and this program was built without it.
    #[cfg(not(feature = "lab"))]
    #[error("the engine `{engine}` is not in this program: build it with --features lab")]
    NotBuilt {
        /// The engine.
        engine: MixEngineName,
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
        #[cfg(feature = "lab")]
        MixEngineName::Circuit => Ok(Box::new(circuit::CircuitMemberEngine::new(*shape, seed))),
        #[cfg(feature = "lab")]
        MixEngineName::Bdd => Ok(Box::new(slots::SlotTransferMemberEngine::new(
            *shape,
            GarbledDiagram::new(shape.slots())?,
            seed,
        ))),
        #[cfg(not(feature = "lab"))]
        _ => Err(MixEngineError::NotBuilt { engine: name }),
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
        #[cfg(feature = "lab")]
        MixEngineName::Circuit => Ok(Box::new(circuit::CircuitProxyEngine::new(*shape, seed))),
        #[cfg(feature = "lab")]
        MixEngineName::Bdd => Ok(Box::new(slots::SlotTransferProxyEngine::new(
            *shape,
            GarbledDiagram::new(shape.slots())?,
            seed,
        ))),
        #[cfg(not(feature = "lab"))]
        _ => Err(MixEngineError::NotBuilt { engine: name }),
    }
}

/// The member's end of the exchanges over one connection.
pub trait MemberEngine: Send {
    /// The next set-up message to send, if any.
    fn poll_set_up(&mut self) -> Option<Vec<u8>>;

    /// Handles a set-up message of the other end.
    ///
    /// # Errors
    /// If it is not the expected message.
    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError>;

    /// Whether the set-up is complete.
    fn is_ready(&self) -> bool;

    /// The request of an exchange. It hands in `update` and chooses the slots `reads`, whose number
    /// is [`MailboxShape::reads`]. All requests have the same length.
    ///
    /// # Errors
    /// If the opening is invalid, or the engine is not ready.
    fn request(
        &mut self,
        opening: &[u8],
        update: &Mailbox,
        reads: &[usize],
    ) -> Result<Vec<u8>, MixEngineError>;

    /// The chosen slots, still masked: q slots of L bytes, in the order of `reads`.
    ///
    /// # Errors
    /// If the answer does not belong to the last request.
    fn slots(&mut self, answer: &[u8]) -> Result<Vec<Vec<u8>>, MixEngineError>;
}

/// The proxy's end of the exchanges over one connection.
pub trait ProxyEngine: Send {
    /// The next set-up message to send, if any.
    fn poll_set_up(&mut self) -> Option<Vec<u8>>;

    /// Handles a set-up message of the other end.
    ///
    /// # Errors
    /// If it is not the expected message.
    fn handle_set_up(&mut self, message: &[u8]) -> Result<(), MixEngineError>;

    /// Whether the set-up is complete.
    fn is_ready(&self) -> bool;

    /// The opening of the next exchange: what the member needs to read the mailbox `read`.
    ///
    /// # Errors
    /// If the engine is not ready.
    fn opening(&mut self, read: &Mailbox) -> Result<Vec<u8>, MixEngineError>;

    /// Returns the member's update and the answer to its request. `read` is the mailbox that was
    /// passed to [`Self::opening`].
    ///
    /// # Errors
    /// If the request is invalid. The caller must then use nothing of it and end the connection.
    fn answer(
        &mut self,
        request: &[u8],
        read: &Mailbox,
    ) -> Result<(Mailbox, Vec<u8>), MixEngineError>;
}

/// The lengths in bytes of the messages of an exchange. They depend only on the engine and the
/// shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeMessageLengths {
    /// Length of the proxy's opening.
    pub opening: usize,
    /// Length of the member's request.
    pub request: usize,
    /// Length of the proxy's answer.
    pub answer: usize,
}

impl ExchangeMessageLengths {
    /// The length of the longest message.
    pub fn longest(&self) -> usize {
        self.opening.max(self.request).max(self.answer)
    }
}

/// The lengths of the messages of an exchange.
pub fn message_lens(name: MixEngineName, shape: &MailboxShape) -> ExchangeMessageLengths {
    match name {
        #[cfg(feature = "lab")]
        MixEngineName::Circuit => circuit::message_lens(shape),
        _ => slots::message_lens(shape),
    }
}

/// Checks that an engine supports exchanges of a shape.
///
/// # Errors
/// If it cannot.
#[cfg_attr(not(feature = "lab"), allow(unused_variables))]
pub(crate) fn check_shape(name: MixEngineName, shape: &MailboxShape) -> Result<(), MixEngineError> {
    match name {
        MixEngineName::Ot => Ok(()),
        #[cfg(feature = "lab")]
        MixEngineName::Circuit => Ok(()),
        #[cfg(feature = "lab")]
        MixEngineName::Bdd => bdd::check_slots(shape.slots()),
        #[cfg(not(feature = "lab"))]
        _ => Err(MixEngineError::NotBuilt { engine: name }),
    }
}

/// The size of an engine's computation for `reads` reads from `slots` slots (N) of `data_bits` bits
/// each, as compared in Table 1 of the paper (section 5.2.2). The arguments may be below the minima
/// of a [`MailboxShape`]. Updates and masks are added outside the engine and do not count. The unit
/// depends on the engine:
///
/// - `ot`: encrypted blocks of 16 bytes: the slots once, and the slots' keys once per read;
/// - `circuit`: AND gates, of one half gate each;
/// - `bdd`: nodes of the decision diagrams of all bits read, including one node for each slot.
///   These diagrams differ only in the slots' nodes, so the engine garbles one diagram per read,
///   not one per bit.
///
/// # Errors
/// If the engine does not support this number of slots.
#[cfg(feature = "lab")]
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

/// The engine of an exchange. Both ends use the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixEngineName {
    /// Oblivious transfer of slots: the fastest engine, for production use.
    Ot,
    /// A garbled circuit, for comparison. Needs the Cargo feature `lab`.
    Circuit,
    /// A garbled decision diagram, for comparison. Needs the Cargo feature `lab`.
    Bdd,
}

impl MixEngineName {
    /// All engines.
    pub const ALL: [Self; 3] = [Self::Ot, Self::Circuit, Self::Bdd];

    /// The engine's name in configurations.
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

/// A string is not the name of an engine.
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

/// Checks the arguments of [`MemberEngine::request`].
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

#[cfg(all(test, feature = "lab"))]
mod tests;
