//! Mix-in-place (MIPNet): members of a group exchange messages through a mailbox that one proxy
//! keeps. The proxy learns who took part in a round, not who wrote to whom, or whether anybody did.
//!
//! `docs/protocols/mix.md` specifies the protocol and says what is promised, and against whom.

mod audit;
pub mod client;
mod content;
mod conversation;
mod conversations;
pub mod engine;
mod epoch;
#[cfg(fuzzing)]
pub mod fuzzing;
pub mod group;
mod group_key;
mod mailbox;
mod member;
pub mod membership;
mod net;
mod pair;
mod presence;
mod random;
mod reader;
pub mod round;
mod shape;
mod slot_permutation;
mod state;
pub mod wire;

pub use audit::{MAX_AUDIT_SLOTS, UpdateAuditError};
pub use content::MAX_TEXT_LEN;
pub use conversations::Conversations;
pub use epoch::{GroupMember, MemberEpoch, MemberEpochError};
pub use group_key::{MixGroupKey, ParticipantMask};
pub use mailbox::Mailbox;
pub use member::{
    ChatMessageId, GivenUpReason, MemberEvent, MemberExchange, MemberSendError, MixMember,
    MixMemberError,
};
pub use net::{StateFileError, StateFolder, chat, proxy};
pub use round::{NONCE_LEN, Participant, ReadRound, RoundStart};
pub use shape::{MAX_MAILBOX_LEN, MailboxShape, MailboxShapeError};
pub use slot_permutation::SlotPermutation;
pub use state::ConversationStateError;
