//! The terms of a handover, on which all servers agree before it begins.

use curve25519_dalek::scalar::Scalar;

use crate::participant::{GroupSize, ParticipantId, ParticipantSet};
use crate::sharing::{SharingCommitment, lagrange_at_zero};

/// The terms of a handover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HandoverTerms {
    /// Identifies this handover: a hash of the epoch, the number of the attempt, both groups and
    /// the old group's sharing. No two handovers may have the same.
    pub run: [u8; 32],
    /// The old group's sharing. `None` to generate a key.
    pub old: Option<SharingCommitment>,
    /// The size of the new group.
    pub new: GroupSize,
}

/// A part of a context to which a proof or a key is bound.
#[derive(Clone, Copy)]
pub(crate) enum HandoverPurpose {
    SessionKey,
    EphemeralKey,
    Constant,
    Encryption,
    Complaint,
    Possession,
}

impl HandoverTerms {
    /// The size of the group whose servers deal.
    pub fn dealers(&self) -> GroupSize {
        self.old.as_ref().map_or(self.new, SharingCommitment::size)
    }

    /// The weights with which the dealings of these dealers are added.
    pub(crate) fn weights(&self, chosen: ParticipantSet) -> Vec<(ParticipantId, Scalar)> {
        let weight = |dealer| match self.old {
            Some(_) => lagrange_at_zero(dealer, chosen.iter()),
            None => Scalar::ONE,
        };
        chosen.iter().map(|dealer| (dealer, weight(dealer))).collect()
    }

    /// What binds a proof or a key to this handover, its purpose, and these servers.
    pub(crate) fn context(&self, purpose: HandoverPurpose, servers: &[ParticipantId]) -> Vec<u8> {
        let label: &[u8] = match purpose {
            HandoverPurpose::SessionKey => b"session key\0",
            HandoverPurpose::EphemeralKey => b"ephemeral key\0",
            HandoverPurpose::Constant => b"constant\0",
            HandoverPurpose::Encryption => b"encryption\0",
            HandoverPurpose::Complaint => b"complaint\0",
            HandoverPurpose::Possession => b"possession\0",
        };
        let mut context = [b"sunder-schnorr handover v1\0", &self.run[..], label].concat();
        context.extend(servers.iter().map(|server| server.number()));
        context
    }
}
