//! Agreement on the handover of a shared key to another group of servers.
//!
//! A *handover* gives the n' servers of a new group a key that the servers of an old group share.
//! If there is no old group, it generates the key: then the dealers are the new group. It is one
//! protocol for all kinds of keys. A [`HandoverScheme`] is a way to share one: the crate `schnorr`
//! shares scalars (`docs/protocols/quorum-ed25519.md` specifies the protocol with it), and
//! `threshold-rsa` integers (`docs/protocols/quorum-rsa-polynomial.md`).
//!
//! The old group's agreement log orders entries, which every server applies to its
//! [`HandoverAgreement`]. A [`HandoverDealer`] and a [`HandoverReceiver`] decide which entries a
//! server wants committed. The promises, if at most f servers of each group are faulty:
//!
//! - All servers agree which dealings make up the new sharing, and 2f'+1 new servers hold each.
//! - No server that follows the protocol is proven faulty.
//! - The handover ends if the messages of correct servers arrive, without timers.
//! - No row of a correct dealer becomes known, except to the receiver that it is for.
//!
//! # Map
//!
//! All modules are pure.
//!
//! - `scheme`: what depends on the kind of key, and the terms of a handover.
//! - `agreement` is the state that follows from each `entry` of the log. A `dealer` makes a
//!   `dealing`, a `receiver` checks it. `session_key`: encryption.
//! - `element`, `participant`, `proof`: points and scalars of edwards25519, servers and sets of
//!   them, proofs of logarithms.

pub mod agreement;
pub mod dealer;
pub mod dealing;
pub mod element;
pub mod entry;
pub mod participant;
pub mod proof;
pub mod receiver;
pub mod scheme;
pub mod session_key;

pub use agreement::{HandoverAgreement, HandoverEffect, HandoverFault, HandoverRefusal};
pub use dealer::HandoverDealer;
pub use dealing::HandoverDealing;
pub use element::{MalformedHandoverMessage, PrimeOrderPoint};
pub use entry::{
    HandoverEntry, HandoverEntryBody, HandoverEntryHeader, HandoverEntryKind, HandoverRole,
    MAX_HANDOVER_ENTRY_LEN,
};
pub use participant::{GroupSize, MAX_FAULTY, ParticipantId, ParticipantSet};
pub use proof::LogarithmProof;
pub use receiver::HandoverReceiver;
pub use scheme::{DealingFault, HandoverField, HandoverPurpose, HandoverScheme, HandoverTerms};
