//! Mix-in-place (MIPNet): members of a group exchange messages through a mailbox that one proxy
//! keeps. The proxy learns who took part in a round, but not who wrote to whom or whether anybody
//! wrote.
//!
//! `docs/protocols/mix.md` specifies the protocol, its guarantees and the attackers that it
//! resists.
//!
//! ```
//! use sunder_mix::engine::{MixEngineName, member, proxy};
//! use sunder_mix::{Mailbox, MailboxShape};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // 3 members with 2 slots each, of which they write 1. They read 4 slots of 64 bytes.
//! let shape = MailboxShape::new(3, 2, 1, 4, 64)?;
//! // Real seeds are random. Each end sends its set-up messages to the other.
//! let mut member = member(MixEngineName::Ot, &shape, [1; 32])?;
//! let mut proxy = proxy(MixEngineName::Ot, &shape, [2; 32])?;
//! while !(member.is_ready() && proxy.is_ready()) {
//!     if let Some(message) = member.poll_set_up() {
//!         proxy.handle_set_up(&message)?;
//!     }
//!     if let Some(message) = proxy.poll_set_up() {
//!         member.handle_set_up(&message)?;
//!     }
//! }
//!
//! // The member's exchange in a round: the proxy gets the update, but not which slots are read.
//! // Masks and encryption, which hide the contents from the proxy, are not shown.
//! let (mut closed, mut update) = (Mailbox::new(&shape), Mailbox::new(&shape));
//! closed.slot_mut(5)[..5].copy_from_slice(b"hello");
//! update.slot_mut(1)[..3].copy_from_slice(b"bye");
//! let opening = proxy.opening(&closed)?;
//! let request = member.request(&opening, &update, &[5, 0, 2, 3])?;
//! let (received, answer) = proxy.answer(&request, &closed)?;
//! assert_eq!(received, update);
//! assert_eq!(&member.slots(&answer)?[0][..5], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! # Map
//!
//! `protocol` is pure. Time is a [`Duration`](std::time::Duration) since a moment that the caller
//! chooses, the same for all calls of one object; in [`membership`], since 1970. Modules of both
//! ends:
//!
//! - [`round`], `shape`: a round and its slots. [`exchange`]: the two kinds of exchange, by
//!   broadcast and oblivious.
//! - Of oblivious exchanges: `mailbox`, `slot_permutation`: the mailbox, and which slot is whose.
//!   [`engine`]: how a member reads slots and hands in its update: `ot`; to compare, `circuit` and
//!   `bdd`. `slots`, `transfers`: what they share.
//! - `audit`: the check of a member's update by another member, as a garbled `circuit`.
//! - [`membership`]: invitations, joining, the keys of epochs, leaving. `epoch`, `group_key`: who
//!   is in the group, and its key.
//! - [`wire`]: messages between member and proxy. `random`: a generator of random bytes.
//!
//! Modules of the member:
//!
//! - [`client`]: one client of one group over successive connections. It combines membership, the
//!   engine and the rounds. `branches`: two lists of members that do not follow each other.
//!   `terms`: what it accepts of what the proxy states. `presence`: when it connects and leaves.
//! - `member`: its exchanges in a round: `broadcast`, or `oblivious` with `writing`, `reading` and
//!   `auditing`. `conversations` has a `conversation`
//!   with each partner: messages to fragments (`content`) and back. `pair`: keys of two members.
//!   `event`: what member and client report. `state`: the error of a stored state. `cost`: the
//!   bytes and times of a member, and the bytes of a proxy.
//!
//! Modules of the proxy:
//!
//! - [`group`]: one group: connections, `exchanges`, `rounds`, `audits`, `membership`. A `job` is a
//!   computation that any thread can run.
//!
//! `net` is the driver, with threads, sockets and files:
//!
//! - [`proxy`]: all groups of a proxy (`group`), with `workers` for the engines. [`chat`]: the
//!   `session` of a member, its `output` and `history`. `outbox`: what waits to be sent. `state`:
//!   files.

#[cfg(fuzzing)]
pub mod fuzzing;
mod net;
mod protocol;

pub use net::{StateFileError, StateFolder, chat, proxy};
pub use protocol::audit::{MAX_AUDIT_SLOTS, UpdateAuditError};
pub use protocol::content::MAX_TEXT_LEN;
pub use protocol::conversations::Conversations;
pub use protocol::cost::{ArchiveCost, MemberCost, ProxyCost};
pub use protocol::epoch::{GroupMember, MemberEpoch, MemberEpochError};
pub use protocol::event::{ChatMessageId, GivenUpReason, MissedReason, MixClientEvent};
pub use protocol::exchange::MixExchangeKind;
pub use protocol::group_key::{MixGroupKey, ParticipantMask};
pub use protocol::mailbox::Mailbox;
pub use protocol::member::{
    BroadcastExchange, MemberExchange, MemberSendError, MixMember, MixMemberError,
};
pub use protocol::round::{NONCE_LEN, Participant, ReadRound, RoundPosition, RoundStart};
pub use protocol::shape::{MAX_MAILBOX_LEN, MailboxShape, MailboxShapeError};
pub use protocol::slot_permutation::SlotPermutation;
pub use protocol::state::ConversationStateError;
pub use protocol::{client, engine, exchange, group, membership, round, wire};
