//! Key generation and resharing over an agreement log.
//!
//! Both are one protocol, a *handover* to a new group. In a resharing, the dealers are the old
//! group, and each shares its own share. In a key generation there is no old group: the dealers are
//! the new group, and each shares a random number. The log orders entries, which every server
//! applies to its [`HandoverAgreement`]. A [`HandoverDealer`] and a [`HandoverReceiver`] decide
//! which entries a server wants committed. Specified in `docs/protocols/quorum-ed25519.md`.

pub(crate) mod agreement;
pub(crate) mod dealer;
pub(crate) mod dealing;
pub(crate) mod entry;
pub(crate) mod receiver;
pub(crate) mod session_key;
pub(crate) mod terms;
