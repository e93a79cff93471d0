//! Whole handovers and requests, with faulty servers.

mod attacks;
mod encodings;
mod epochs;
mod handovers;
mod model;
mod requests;
mod transcripts;
mod wiping;
mod world;

use std::collections::BTreeMap;

use curve25519_dalek::scalar::Scalar;
use ed25519_dalek::VerifyingKey;

use crate::SchnorrScheme;
use crate::sharing::{KeyShare, SharingCommitment, lagrange_at_zero};
use ::handover::participant::{GroupSize, ParticipantId};

type HandoverAgreement = ::handover::HandoverAgreement<SchnorrScheme>;
type HandoverDealer = ::handover::HandoverDealer<SchnorrScheme>;
type HandoverDealing = ::handover::HandoverDealing<SchnorrScheme>;
type HandoverEntry = ::handover::HandoverEntry<SchnorrScheme>;
type HandoverEntryBody = ::handover::HandoverEntryBody<SchnorrScheme>;
type HandoverReceiver = ::handover::HandoverReceiver<SchnorrScheme>;
type HandoverTerms = ::handover::HandoverTerms<SchnorrScheme>;

fn id(number: u8) -> ParticipantId {
    ParticipantId::new(number).unwrap()
}

fn size(faulty: u8) -> GroupSize {
    GroupSize::of_faulty(faulty).unwrap()
}

/// The secret that these shares determine.
fn reconstruct<'a>(shares: impl Iterator<Item = &'a KeyShare>) -> Scalar {
    let shares: BTreeMap<_, _> = shares.map(|it| (it.server(), *it.secret())).collect();
    shares.iter().map(|(server, it)| lagrange_at_zero(*server, shares.keys().copied()) * it).sum()
}

fn verifies(sharing: &SharingCommitment, message: &[u8], signature: &[u8; 64]) -> bool {
    let key = VerifyingKey::from_bytes(&sharing.public_key().to_bytes()).unwrap();
    key.verify_strict(message, &(*signature).into()).is_ok()
}
