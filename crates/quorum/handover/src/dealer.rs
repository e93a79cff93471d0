//! A dealer: a server of the old group, or of the new one when a key is generated.

use std::sync::OnceLock;

use crate::agreement::HandoverAgreement;
use crate::dealing::HandoverDealing;
use crate::entry::{HandoverEntry, HandoverEntryBody};
use crate::participant::ParticipantId;
use crate::scheme::{HandoverPurpose, HandoverScheme, HandoverTerms};
use crate::session_key::{SessionScalar, TAG_LEN, seal};

/// A dealer in one handover. Its secrets are wiped when it is dropped, as it must be when the
/// handover ends, or is cancelled.
pub struct HandoverDealer<S: HandoverScheme> {
    server: ParticipantId,
    polynomial: S::Polynomial,
    /// Public. It is costly to compute, stays the same, and is not needed if others deal.
    commitment: OnceLock<S::Commitment>,
    ephemeral: SessionScalar,
}

impl<S: HandoverScheme> HandoverDealer<S> {
    /// The dealer that shares its share of the old group's key, or a random number when a key is
    /// generated. All that is random follows from the seed: save it before the first dealing is
    /// sent, so that the dealing is the same after a restart, and destroy it when the handover
    /// ends, or is cancelled. It must be random, and used for one handover only. `None` if there is
    /// an old group and this is not a share of it, or no old group and a share.
    pub fn new(
        terms: &HandoverTerms<S>,
        server: ParticipantId,
        share: Option<&S::Share>,
        seed: &[u8; 32],
    ) -> Option<Self> {
        let polynomial = S::polynomial(terms, server, share, seed)?;
        let ephemeral = SessionScalar::new(seed, b"dealer");
        Some(Self { server, polynomial, commitment: OnceLock::new(), ephemeral })
    }

    /// Whether a dealing can be of use: 2f'+1 new servers have registered their keys, and it is not
    /// committed.
    pub fn can_deal(&self, agreement: &HandoverAgreement<S>) -> bool {
        agreement.session_keys().len() >= agreement.terms().new.quorum()
            && !agreement.dealings().contains_key(&self.server)
            && agreement.sharing().is_none()
    }

    /// The dealing, if [`Self::can_deal`]. Another call may give another dealing, for more new
    /// servers: any of them may be committed. f+1 dealings are enough, so the caller may wait for
    /// those of other dealers, if it does not wait forever.
    pub fn wanted_entry(&self, agreement: &HandoverAgreement<S>) -> Option<HandoverEntry<S>> {
        self.can_deal(agreement).then(|| {
            let body = HandoverEntryBody::Deal(Box::new(self.dealing(agreement)));
            HandoverEntry { run: agreement.terms().run, body }
        })
    }

    fn dealing(&self, agreement: &HandoverAgreement<S>) -> HandoverDealing<S> {
        let terms = agreement.terms();
        let ciphertexts = agreement.session_keys().iter().map(|(&receiver, key)| {
            let row = S::encode_dealt_row(&self.polynomial, receiver, TAG_LEN);
            let context = terms.context(HandoverPurpose::Encryption, &[self.server, receiver]);
            (receiver, seal(&self.ephemeral.agree(key), &context, row))
        });
        let context = terms.context(HandoverPurpose::EphemeralKey, &[self.server]);
        let commitment = || S::commitment(terms, self.server, &self.polynomial);
        HandoverDealing {
            sharing: self.commitment.get_or_init(commitment).clone(),
            ephemeral: self.ephemeral.public(),
            ephemeral_proof: self.ephemeral.prove(&context),
            constant_proof: S::prove_constant(terms, self.server, &self.polynomial),
            ciphertexts: ciphertexts.collect(),
        }
    }
}
