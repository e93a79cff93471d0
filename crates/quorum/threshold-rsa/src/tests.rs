//! Whole handovers and requests, with faulty servers.

mod attacks;
mod bounds;
mod encodings;
mod epochs;
mod handovers;
mod requests;
mod vectors;
mod wiping;
mod world;

use std::collections::BTreeMap;

use handover::participant::{GroupSize, ParticipantId};
use keys::rsa::RsaEncoding;
use num_bigint::BigInt;
use sim::SeededRng;

use crate::lagrange::weights;
use crate::sharing::{ThresholdRsaShare, ThresholdRsaSharing};
use crate::signing::{ThresholdRsaOutput, ThresholdRsaRequest};

fn id(number: u8) -> ParticipantId {
    ParticipantId::new(number).unwrap()
}

fn size(faulty: u8) -> GroupSize {
    GroupSize::of_faulty(faulty).unwrap()
}

/// The servers of a group that have shares.
struct RsaGroup {
    shares: BTreeMap<ParticipantId, ThresholdRsaShare>,
}

impl RsaGroup {
    fn new(shares: impl IntoIterator<Item = ThresholdRsaShare>) -> Self {
        Self { shares: shares.into_iter().map(|share| (share.server(), share)).collect() }
    }

    fn sharing(&self) -> &ThresholdRsaSharing {
        self.shares.values().next().expect("a group has shares").sharing()
    }

    fn size(&self) -> GroupSize {
        self.sharing().size()
    }
}

fn integer(share: &ThresholdRsaShare) -> BigInt {
    BigInt::from_signed_bytes_be(&share.secret().to_be_bytes())
}

/// L times the secret that the first f+1 of these shares determine.
fn reconstruct<'a>(shares: impl IntoIterator<Item = &'a ThresholdRsaShare>) -> BigInt {
    let shares: Vec<_> = shares.into_iter().collect();
    let sharing = shares[0].sharing();
    let shares = &shares[..sharing.size().signer_count()];
    let servers: Vec<_> = shares.iter().map(|it| it.server()).collect();
    let weights = weights(sharing.key().scale(), &servers);
    shares.iter().zip(weights).map(|(share, weight)| integer(share) * weight).sum()
}

/// A signature by servers of which all are correct.
fn sign(
    group: &RsaGroup,
    encoding: RsaEncoding,
    message: &[u8],
    order: impl IntoIterator<Item = ParticipantId>,
) -> Vec<u8> {
    let sharing = group.sharing().clone();
    let request = ThresholdRsaRequest::new(sharing, encoding, message.to_vec(), order);
    let mut request = request.expect("the modulus is long enough");
    let mut signature = None;
    while let Some(output) = request.poll_output() {
        match output {
            ThresholdRsaOutput::Ask { to, with_proof } => {
                assert!(!with_proof, "all parts are right");
                let part = group.shares[&to].sign(request.encoded()).unwrap();
                request.handle_answer(to, &part.to_bytes());
            }
            ThresholdRsaOutput::Faulty { signer } => panic!("{signer} is correct"),
            ThresholdRsaOutput::Signed(it) => signature = Some(it),
        }
    }
    signature.expect("all have answered")
}

/// Any servers of the group sign.
fn assert_signs(group: &RsaGroup, encoding: RsaEncoding, rng: &mut SeededRng) {
    let mut order: Vec<_> = group.shares.keys().copied().collect();
    rng.shuffle(&mut order);
    let message = b"addresses: 192.0.2.1";
    let signature = sign(group, encoding, message, order);
    assert!(group.sharing().key().group().public().verify(message, &signature));
}
