//! An epoch as the proxy knows it: the announcement and the members' keys.

use std::collections::BTreeMap;

use keys::IdentityPublicKey;

use super::MixGroupSettings;
use crate::protocol::membership::EpochAnnouncement;
use crate::protocol::wire::ProxyRefusal;

/// An epoch with a verified announcement.
#[derive(Debug)]
pub(super) struct AnnouncedEpoch {
    number: u32,
    announcement: Vec<u8>,
    members: BTreeMap<[u8; 32], u16>,
}

impl AnnouncedEpoch {
    /// The epoch of an announcement.
    ///
    /// # Errors
    /// If the administrator did not sign it for this group, or the group has no such epoch.
    pub(super) fn verify(
        bytes: Vec<u8>,
        settings: &MixGroupSettings,
    ) -> Result<Self, ProxyRefusal> {
        let MixGroupSettings { name, administrator, terms, .. } = settings;
        let announcement = EpochAnnouncement::verify(&bytes, name.as_str(), administrator)
            .map_err(|_| ProxyRefusal::BadAnnouncement)?;
        if announcement.epoch() == 0 || announcement.members().len() > terms.shape().members() {
            return Err(ProxyRefusal::BadAnnouncement);
        }
        let members = announcement.members().map(|key| key.to_bytes()).zip(0..).collect();
        Ok(Self { number: announcement.epoch(), announcement: bytes, members })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn announcement(&self) -> &[u8] {
        &self.announcement
    }

    /// How many members it has.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// The number of the member with this key.
    pub(super) fn number_of(&self, key: &IdentityPublicKey) -> Option<u16> {
        self.members.get(&key.to_bytes()).copied()
    }
}
