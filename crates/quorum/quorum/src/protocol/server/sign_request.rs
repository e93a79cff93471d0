//! A request of this server for a signature, by the group's kind of key.

use std::time::Duration;

use bytes::Bytes;

use super::answer_query::AnswerQuery;
use crate::protocol::combination::ServerIndex;
use crate::protocol::signing::{
    self, FrostQuery, PolynomialRequestOutput, PolynomialSignRequest, RoastRequest,
    RoastRequestOutput, SignRequest, SigningEncoding,
};

/// A request for a signature by the group's kind of key.
pub(super) enum GroupSignRequest {
    Combinatorial(Box<SignRequest>),
    Polynomial(Box<PolynomialSignRequest>),
    Ed25519(Box<RoastRequest>),
}

pub(super) enum GroupSignRequestOutput {
    Ask { to: ServerIndex, query: AnswerQuery },
    AskFrost { to: ServerIndex, query: FrostQuery },
    Event(signing::SignRequestEvent),
}

impl GroupSignRequest {
    pub(super) fn poll_output(&mut self) -> Option<GroupSignRequestOutput> {
        Some(match self {
            Self::Combinatorial(request) => match request.poll_output()? {
                signing::SignRequestOutput::Send { to, query } => {
                    GroupSignRequestOutput::Ask { to, query: AnswerQuery::Combinatorial(query) }
                }
                signing::SignRequestOutput::Event(event) => GroupSignRequestOutput::Event(event),
            },
            Self::Polynomial(request) => match request.poll_output()? {
                PolynomialRequestOutput::Send { to, query } => {
                    GroupSignRequestOutput::Ask { to, query: AnswerQuery::Polynomial(query) }
                }
                PolynomialRequestOutput::Event(event) => GroupSignRequestOutput::Event(event),
            },
            Self::Ed25519(request) => match request.poll_output()? {
                RoastRequestOutput::Send { to, query } => {
                    GroupSignRequestOutput::AskFrost { to, query }
                }
                RoastRequestOutput::Event(event) => GroupSignRequestOutput::Event(event),
            },
        })
    }

    pub(super) fn poll_timeout(&self) -> Option<Duration> {
        match self {
            Self::Combinatorial(request) => request.poll_timeout(),
            Self::Polynomial(request) => request.poll_timeout(),
            Self::Ed25519(request) => request.poll_timeout(),
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Duration) {
        match self {
            Self::Combinatorial(request) => request.handle_timeout(now),
            Self::Polynomial(request) => request.handle_timeout(now),
            Self::Ed25519(request) => request.handle_timeout(now),
        }
    }

    pub(super) fn handle_busy(&mut self, now: Duration, from: ServerIndex) {
        match self {
            Self::Combinatorial(request) => request.handle_busy(now, from),
            Self::Polynomial(request) => request.handle_busy(now, from),
            Self::Ed25519(request) => request.handle_busy(now, from),
        }
    }

    pub(super) fn handle_link_up(&mut self, now: Duration, server: ServerIndex) {
        match self {
            Self::Combinatorial(request) => request.handle_link_up(now, server),
            Self::Polynomial(request) => request.handle_link_up(server),
            Self::Ed25519(request) => request.handle_link_up(server),
        }
    }

    pub(super) fn handle_refusal(&mut self, now: Duration, from: ServerIndex) {
        match self {
            Self::Combinatorial(request) => request.handle_refusal(now, from),
            Self::Polynomial(request) => request.handle_refusal(now, from),
            Self::Ed25519(request) => request.handle_refusal(now, from),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        match self {
            Self::Combinatorial(request) => request.is_finished(),
            Self::Polynomial(request) => request.is_finished(),
            Self::Ed25519(request) => request.is_finished(),
        }
    }

    /// How many servers refuse the message.
    pub(super) fn refused(&self) -> usize {
        match self {
            Self::Combinatorial(request) => request.refused(),
            Self::Polynomial(request) => request.refused(),
            Self::Ed25519(request) => request.refused(),
        }
    }

    pub(super) fn message(&self) -> &[u8] {
        match self {
            Self::Combinatorial(request) => request.message(),
            Self::Polynomial(request) => request.message(),
            Self::Ed25519(request) => request.message(),
        }
    }

    pub(super) fn into_message(self) -> (Bytes, SigningEncoding) {
        match self {
            Self::Combinatorial(request) => {
                let (message, encoding) = request.into_message();
                (message, encoding.into())
            }
            Self::Polynomial(request) => {
                let (message, encoding) = request.into_message();
                (message, encoding.into())
            }
            Self::Ed25519(request) => (request.into_message(), SigningEncoding::Ed25519),
        }
    }
}
