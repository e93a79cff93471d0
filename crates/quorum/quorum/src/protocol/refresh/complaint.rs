//! Complaints: evidence that a dealer sent an invalid subshare, or that the complaint is unfounded.

use super::dealing;
use super::entry::Complaint;
use super::manifest::{DealingManifest, ciphertext_digest, proofs_digest};
use super::parameters::RefreshParameters;
use super::possession::parse_elements;
use super::session::SessionCipher;
use super::session::SessionPoint;
use crate::protocol::combination::{CombinatorialSharing, ServerIndex};
use crate::protocol::group::QuorumGroup;
use crate::protocol::wire::Sha256Digest;

/// Whether a complaint proves that its dealer is faulty. Otherwise it proves that the complainant
/// is.
pub(crate) fn holds(
    complaint: &Complaint,
    by: &Complainant<'_>,
    old: &QuorumGroup,
    parameters: &RefreshParameters,
) -> bool {
    is_about_what_was_sent(complaint, by, old) && is_wrong(complaint, by, parameters)
}

/// The author of a complaint.
pub(crate) struct Complainant<'a> {
    pub(crate) run: Sha256Digest,
    pub(crate) index: ServerIndex,
    /// `R_j`
    pub(crate) key: &'a SessionPoint,
    pub(crate) new: &'a CombinatorialSharing,
}

/// Whether the dealer sent this ciphertext for these proofs, and K decrypts it.
fn is_about_what_was_sent(complaint: &Complaint, by: &Complainant<'_>, old: &QuorumGroup) -> bool {
    let Complaint { manifest, .. } = complaint;
    let digest = manifest.digest();
    let Some(row) = manifest.labels().position(|label| label == complaint.label) else {
        return false;
    };
    let delivery = DealingManifest::delivery(digest, by.index, &complaint.ciphertexts);
    manifest.fits(by.run, old.combination())
        && proofs_digest(&complaint.proofs) == manifest.rows[row].1
        && complaint.ciphertexts.len() == manifest.rows.len()
        && ciphertext_digest(&complaint.ciphertext) == complaint.ciphertexts[row]
        && old.verify(manifest.dealer, &delivery, &complaint.delivery)
        && complaint.proof.verify(
            by.key,
            &manifest.ephemeral,
            &complaint.agreed,
            &Complaint::context(digest, by.index),
        )
}

/// Whether the subshare fails to match its proof.
fn is_wrong(complaint: &Complaint, by: &Complainant<'_>, parameters: &RefreshParameters) -> bool {
    let (new, by) = (by.new, by.index);
    if !new.holds(by, complaint.subshare) {
        return false;
    }
    let count = new.label_count();
    let Some(proofs) = parse_elements(&complaint.proofs, count, &parameters.modulus) else {
        return true;
    };
    let context = DealingManifest::session_context(complaint.manifest.digest(), by);
    let cipher = SessionCipher::new(&complaint.agreed, &context);
    let row =
        dealing::open_row(&cipher, complaint.label, &complaint.ciphertext, by, new, parameters);
    let Some(subshares) = row else { return true };
    let mut labels = new.labels_of(by).zip(&subshares);
    let (_, subshare) =
        labels.find(|(label, _)| *label == complaint.subshare).expect("it holds it");
    let proof = &proofs[usize::from(complaint.subshare.0)];
    !parameters.power(subshare).has_same_square(proof)
}
