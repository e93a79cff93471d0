//! An epoch as the proxy knows it: the announcement and the members' keys.

use std::collections::BTreeMap;

use keys::IdentityPublicKey;

use super::MixGroupSettings;
use crate::protocol::membership::{
    AdministratorList, AnnouncementOrder, AnnouncementPreview, EpochAnnouncement,
};
use crate::protocol::wire::ProxyRefusal;

/// An epoch with a verified announcement.
#[derive(Debug)]
pub(super) struct AnnouncedEpoch {
    announcement: EpochAnnouncement,
    members: BTreeMap<[u8; 32], u16>,
}

impl AnnouncedEpoch {
    /// The epoch of an announcement.
    ///
    /// # Errors
    /// If no administrator signed it for this group, or the group has no such epoch.
    pub(super) fn verify(bytes: &[u8], settings: &MixGroupSettings) -> Result<Self, ProxyRefusal> {
        Self::verify_after(None, bytes, settings)
    }

    /// The same where another epoch is known: what is in both is not verified again.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub(super) fn verify_after(
        known: Option<&Self>,
        bytes: &[u8],
        settings: &MixGroupSettings,
    ) -> Result<Self, ProxyRefusal> {
        let epoch = Self::verify_past(known, bytes, settings)?;
        if epoch.members() > settings.terms.shape().members() {
            return Err(ProxyRefusal::BadAnnouncement);
        }
        Ok(epoch)
    }

    /// The same for an epoch that may be over. It may have had more members than there may be now.
    ///
    /// # Errors
    /// If no administrator signed it for this group.
    pub(super) fn verify_past(
        known: Option<&Self>,
        bytes: &[u8],
        settings: &MixGroupSettings,
    ) -> Result<Self, ProxyRefusal> {
        let MixGroupSettings { name, administrator, .. } = settings;
        let known = known.map(|known| &known.announcement);
        let announcement =
            EpochAnnouncement::verify_after(known, bytes, name.as_str(), administrator)
                .map_err(|_| ProxyRefusal::BadAnnouncement)?;
        if announcement.epoch() == 0 {
            return Err(ProxyRefusal::BadAnnouncement);
        }
        let members = announcement.members().map(|key| key.to_bytes()).zip(0..).collect();
        Ok(Self { announcement, members })
    }

    pub(super) fn number(&self) -> u32 {
        self.announcement.epoch()
    }

    #[cfg(test)]
    pub(super) fn digest(&self) -> [u8; 32] {
        *self.announcement.digest()
    }

    pub(super) fn announcement(&self) -> &[u8] {
        self.announcement.bytes()
    }

    /// How an announcement relates to this one, if it is valid.
    pub(super) fn order_of(&self, preview: &AnnouncementPreview<'_>) -> AnnouncementOrder {
        preview.order(&self.announcement)
    }

    /// How many members it has.
    pub(super) fn members(&self) -> usize {
        self.members.len()
    }

    /// The number of the member with this key.
    pub(super) fn number_of(&self, key: &IdentityPublicKey) -> Option<u16> {
        self.members.get(&key.to_bytes()).copied()
    }

    pub(super) fn administrators(&self) -> &AdministratorList {
        self.announcement.administrators()
    }

    /// Whether an administrator can announce it while `last` is the newest epoch: it is the next
    /// one, and its administrator knew `last`. So the first of two proposals is taken, and the
    /// other one is made again.
    pub(super) fn can_follow(&self, last: &Self) -> bool {
        last.number().checked_add(1) == Some(self.number())
            && self.is_newer_than(last)
            && self.announcement.follows(&last.announcement)
    }

    /// Whether it replaces `last` in the order that is the same for all.
    pub(super) fn is_newer_than(&self, last: &Self) -> bool {
        self.announcement.order(&last.announcement) == AnnouncementOrder::Newer
    }

    /// Whether it can take the place of `last`, which has the same or a later number: it is newer,
    /// or of another branch of the group, which the proxy has from its members.
    pub(super) fn replaces(&self, last: &Self) -> bool {
        let order = self.announcement.order(&last.announcement);
        matches!(order, AnnouncementOrder::Newer | AnnouncementOrder::Fork)
    }

    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        self.announcement.digest() == other.announcement.digest()
    }
}
