//! Signing (thesis, 3.2; `docs/protocols/quorum.md`, Signing): the answers of servers, and the
//! requester, which combines them into a signature and identifies servers that answered wrongly.
//! `roast` is the requester with an Ed25519 key, and `share_evidence` what it proves. `polynomial`
//! is the requester with an RSA key that is shared by a polynomial, and `part` what servers answer.

mod answer;
mod evidence;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzzing;
mod health;
mod part;
mod partial;
mod polynomial;
mod request;
mod roast;
mod share_evidence;

pub use answer::{
    MAX_MESSAGE_LEN, PartialSignQuery, PartialSignatures, QuickSigners, SigningGroup,
};
pub use evidence::WrongAnswerEvidence;
pub use health::SignerHealth;
pub(crate) use part::PartQuery;
pub use part::WrongPartEvidence;
pub use partial::{PartialSignError, SigningShares};
pub(crate) use polynomial::{PolynomialRequestOutput, PolynomialSignRequest};
pub use request::{SignRequest, SignRequestEvent, SignRequestOutput};
pub(crate) use roast::{FrostQuery, RoastRequest, RoastRequestOutput};
pub(crate) use share_evidence::SignedShare;
pub use share_evidence::WrongShareEvidence;

use keys::rsa::RsaEncoding;

/// How a message is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigningEncoding {
    /// With an RSA key, in an encoding.
    Rsa(RsaEncoding),
    /// With an Ed25519 key.
    Ed25519,
}

impl From<RsaEncoding> for SigningEncoding {
    fn from(encoding: RsaEncoding) -> Self {
        Self::Rsa(encoding)
    }
}

/// The proof that a server has answered a request for a signature wrongly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SigningEvidence {
    /// With combinatorial shares of an RSA key.
    Rsa(WrongAnswerEvidence),
    /// With an RSA key that is shared by a polynomial.
    RsaPolynomial(WrongPartEvidence),
    /// With an Ed25519 key.
    Ed25519(WrongShareEvidence),
}

impl SigningEvidence {
    /// The evidence as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Rsa(evidence) => evidence.to_bytes(),
            Self::RsaPolynomial(evidence) => evidence.to_bytes(),
            Self::Ed25519(evidence) => evidence.to_bytes(),
        }
    }
}

#[cfg(test)]
mod tests;
