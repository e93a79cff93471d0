//! A dealer: a server of the old group, or of the new one when a key is generated.

use curve25519_dalek::scalar::Scalar;
use zeroize::Zeroizing;

use super::agreement::HandoverAgreement;
use super::dealing::HandoverDealing;
use super::entry::{HandoverEntry, HandoverEntryBody};
use super::session_key::{SessionScalar, TAG_LEN, seal};
use super::terms::{HandoverPurpose, HandoverTerms};
use crate::element::hash_to_scalar;
use crate::participant::ParticipantId;
use crate::proof::{LogarithmProof, of_base};
use crate::sharing::{KeyShare, SharingPolynomial};

/// A dealer in one handover. Its secrets are wiped when it is dropped, as it must be when the
/// handover ends.
pub struct HandoverDealer {
    server: ParticipantId,
    secret: Zeroizing<Scalar>,
    polynomial: SharingPolynomial,
    ephemeral: SessionScalar,
}

impl HandoverDealer {
    /// The dealer that shares its share of the old group's key, or a random number when a key is
    /// generated. All that is random follows from the seed: save it before the first dealing is
    /// sent, so that the dealing is the same after a restart, and destroy it when the handover
    /// ends. It must be random, and used for one handover only. `None` if there is an old group and
    /// this is not a share of it, or no old group and a share.
    pub fn new(
        terms: &HandoverTerms,
        server: ParticipantId,
        share: Option<&KeyShare>,
        seed: &[u8; 32],
    ) -> Option<Self> {
        let secret = match (&terms.old, share) {
            (Some(old), Some(share)) if share.sharing() == old && share.server() == server => {
                *share.secret()
            }
            (None, None) if terms.new.contains(server) => {
                hash_to_scalar(&[b"sunder-schnorr secret v1\0", seed])
            }
            _ => return None,
        };
        let secret = Zeroizing::new(secret);
        let polynomial = SharingPolynomial::new(&secret, terms.new, seed);
        let ephemeral = SessionScalar::new(seed, b"dealer");
        Some(Self { server, secret, polynomial, ephemeral })
    }

    /// The dealing, when 2f'+1 new servers have registered their keys and until it is committed.
    pub fn wanted_entry(&self, agreement: &HandoverAgreement) -> Option<HandoverEntry> {
        let terms = agreement.terms();
        let is_wanted = agreement.session_keys().len() >= terms.new.quorum()
            && !agreement.dealings().contains_key(&self.server)
            && agreement.sharing().is_none();
        is_wanted.then(|| {
            let body = HandoverEntryBody::Deal(Box::new(self.dealing(agreement)));
            HandoverEntry { run: terms.run, body }
        })
    }

    fn dealing(&self, agreement: &HandoverAgreement) -> HandoverDealing {
        let terms = agreement.terms();
        let sharing = self.polynomial.commitment();
        let context = |purpose| terms.context(purpose, &[self.server]);
        let constant = [of_base(*sharing.public_key())];
        let ciphertexts = agreement.session_keys().iter().map(|(&receiver, key)| {
            let row = self.polynomial.row(receiver).to_bytes(TAG_LEN);
            let context = terms.context(HandoverPurpose::Encryption, &[self.server, receiver]);
            (receiver, seal(&self.ephemeral.agree(key), &context, row))
        });
        HandoverDealing {
            ciphertexts: ciphertexts.collect(),
            ephemeral: self.ephemeral.public(),
            ephemeral_proof: self.ephemeral.prove(&context(HandoverPurpose::EphemeralKey)),
            constant_proof: LogarithmProof::new(
                &self.secret,
                &constant,
                &context(HandoverPurpose::Constant),
            ),
            sharing,
        }
    }
}
