//! Signing (thesis, 3.2; `docs/protocols/quorum.md`, Signing): the answers of servers, and the
//! requester, which combines them into a signature and identifies servers that answered wrongly.

mod answer;
mod evidence;
mod health;
mod partial;
mod request;

pub use answer::{
    MAX_MESSAGE_LEN, PartialSignQuery, PartialSignatures, QuickSigners, SigningGroup,
};
pub use evidence::WrongAnswerEvidence;
pub use health::SignerHealth;
pub use partial::{PartialSignError, SigningShares};
pub use request::{SignRequest, SignRequestEvent, SignRequestOutput};

#[cfg(test)]
mod tests;
