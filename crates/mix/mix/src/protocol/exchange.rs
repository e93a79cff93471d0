//! The two kinds of exchange that a member can make with the proxy in a round.

use std::fmt;
use std::str::FromStr;

use crate::MailboxShape;
use crate::protocol::engine::{self, ExchangeMessageLengths, MixEngineError, MixEngineName};

/// The maximum number of slots of a member in an exchange by broadcast.
pub const MAX_BROADCAST_SLOTS: usize = 64;

/// How members exchange with the proxy. All members of a group use the same kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MixExchangeKind {
    /// A member sends its own slots, and gets those of all participants of the previous round.
    Broadcast,
    /// A member sends an update of the whole mailbox, and reads some slots by an engine, so that
    /// the proxy does not learn which slots it writes and reads. This is the paper's exchange.
    Oblivious(MixEngineName),
}

impl MixExchangeKind {
    /// All kinds. A kind is encoded as its index in this array.
    pub const ALL: [Self; 4] = [
        Self::Oblivious(MixEngineName::Ot),
        Self::Oblivious(MixEngineName::Circuit),
        Self::Oblivious(MixEngineName::Bdd),
        Self::Broadcast,
    ];

    /// The name in configurations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::Oblivious(engine) => engine.as_str(),
        }
    }

    /// Its number in encodings: the index in [`Self::ALL`].
    pub(crate) fn number(self) -> u8 {
        let index = Self::ALL.iter().position(|it| *it == self).expect("all kinds are there");
        u8::try_from(index).expect("there are few")
    }

    /// The kind with this number, if there is one.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number)).copied()
    }

    /// The engine, if slots are read by one.
    pub fn engine(self) -> Option<MixEngineName> {
        match self {
            Self::Broadcast => None,
            Self::Oblivious(engine) => Some(engine),
        }
    }

    /// The lengths of the messages of an exchange. In an exchange by broadcast, the opening has the
    /// slots of the participants, and its length here is that for a whole group.
    pub fn message_lens(self, shape: &MailboxShape) -> ExchangeMessageLengths {
        match self {
            Self::Broadcast => ExchangeMessageLengths {
                opening: 1 + shape.members() * shape.own_slots_len(),
                request: shape.own_slots_len(),
                answer: 0,
            },
            Self::Oblivious(engine) => engine::message_lens(engine, shape),
        }
    }

    /// Checks that exchanges of a shape can be made.
    ///
    /// # Errors
    /// If they cannot.
    pub(crate) fn check_shape(self, shape: &MailboxShape) -> Result<(), ExchangeShapeError> {
        match self {
            Self::Broadcast if shape.slots_per_member() > MAX_BROADCAST_SLOTS => {
                Err(ExchangeShapeError::Slots { slots: shape.slots_per_member() })
            }
            Self::Broadcast => Ok(()),
            Self::Oblivious(engine) => Ok(engine::check_shape(engine, shape)?),
        }
    }
}

impl From<MixEngineName> for MixExchangeKind {
    fn from(engine: MixEngineName) -> Self {
        Self::Oblivious(engine)
    }
}

impl fmt::Display for MixExchangeKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.as_str())
    }
}

/// A shape is not possible in this kind of exchange.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExchangeShapeError {
    /// A member has too many slots.
    #[error("a member has {slots} slots, but at most {MAX_BROADCAST_SLOTS} in a broadcast")]
    Slots {
        /// The number of slots.
        slots: usize,
    },
    /// The engine does not support the shape.
    #[error(transparent)]
    Engine(#[from] MixEngineError),
}

/// A string is not the name of a kind of exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an exchange is by `broadcast`, `ot`, `circuit` or `bdd`")]
pub struct MixExchangeKindError;

impl FromStr for MixExchangeKind {
    type Err = MixExchangeKindError;

    fn from_str(text: &str) -> Result<Self, MixExchangeKindError> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text).ok_or(MixExchangeKindError)
    }
}
