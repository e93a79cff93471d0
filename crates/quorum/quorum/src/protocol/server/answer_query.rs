//! A question for a server's part of a signature by an RSA key, and its answer, for each way to
//! share the key.

use std::sync::Arc;

use bytes::Bytes;
use keys::IdentitySecretKey;
use threshold_rsa::ThresholdRsaShare;

use super::key::EpochKey;
use crate::protocol::signing::{PartQuery, PartialSignQuery, SigningShares};

/// A question for a part of a signature by an RSA key, which is computed on another thread.
#[derive(Debug)]
pub(super) enum AnswerQuery {
    Combinatorial(PartialSignQuery),
    Polynomial(PartQuery),
}

impl AnswerQuery {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Combinatorial(query) => query.to_bytes(),
            Self::Polynomial(query) => query.to_bytes(),
        }
    }

    /// Decodes the output of [`Self::to_bytes`]. `None` if a group with this key has no such
    /// question in this epoch.
    pub(super) fn parse(key: &EpochKey, epoch: u64, bytes: &[u8]) -> Option<Self> {
        match key.as_combinatorial() {
            Some(key) => PartialSignQuery::parse(&key.group, bytes).map(Self::Combinatorial),
            None => PartQuery::parse(epoch, bytes).map(Self::Polynomial),
        }
    }

    pub(super) fn message(&self) -> &Bytes {
        match self {
            Self::Combinatorial(query) => &query.message,
            Self::Polynomial(query) => &query.message,
        }
    }

    pub(super) fn epoch(&self) -> u64 {
        match self {
            Self::Combinatorial(query) => query.epoch,
            Self::Polynomial(query) => query.epoch,
        }
    }
}

/// The shares from which an answer is computed.
#[derive(Clone)]
pub(super) enum AnswerShares {
    Combinatorial(Arc<SigningShares>),
    Polynomial(Arc<ThresholdRsaShare>),
}

impl AnswerShares {
    /// The encoded answer. `None` if it cannot be computed.
    pub(super) fn answer(
        &self,
        query: &AnswerQuery,
        identity: &IdentitySecretKey,
    ) -> Option<Vec<u8>> {
        match (self, query) {
            (Self::Combinatorial(shares), AnswerQuery::Combinatorial(query)) => {
                let answer = shares.answer(query, identity).ok()?;
                Some(answer.to_bytes(shares.group()))
            }
            (Self::Polynomial(share), AnswerQuery::Polynomial(query)) => {
                query.answer(share, identity)
            }
            _ => None,
        }
    }
}
