//! What an announcement says before anything of it is verified. Anybody can have made it, so it
//! only serves to refuse announcements that would be refused anyway, without the cost of
//! signatures.

use std::cmp::Reverse;

use encoding::FieldReader;
use keys::IdentityPublicKey;
use sha2::{Digest, Sha256};

use super::administrators::CHANGE_LEN;
use super::announcement::{
    AnnouncementOrder, EpochAnnouncement, MEMBER_LEN, VERSION, VERSION_BEFORE,
};

/// The parts of an announcement that say whether it can be of use. Nothing is verified.
pub(crate) struct AnnouncementPreview<'a> {
    epoch: u32,
    /// The changes of the administrators, encoded.
    changes: &'a [u8],
    /// The members, encoded.
    members: &'a [u8],
    digest: [u8; 32],
}

impl<'a> AnnouncementPreview<'a> {
    /// Reads the lengths of the parts; `None` if they do not fit.
    pub(crate) fn read(bytes: &'a [u8]) -> Option<Self> {
        let mut reader = FieldReader::new(bytes);
        let (version, epoch) = (reader.u8().ok()?, reader.u32().ok()?);
        let mut changes = &[][..];
        match version {
            VERSION => {
                let _previous: [u8; 32] = reader.take().ok()?;
                let len = usize::from(reader.u8().ok()?) * CHANGE_LEN;
                changes = reader.bytes(len).ok()?;
                let (_signer, _proxy) = (reader.u8().ok()?, reader.take::<32>().ok()?);
                let _address = reader.text().ok()?;
            }
            VERSION_BEFORE => {}
            _ => return None,
        }
        let _ephemeral: [u8; 32] = reader.take().ok()?;
        let len = usize::from(reader.u16().ok()?) * MEMBER_LEN;
        let members = reader.bytes(len).ok()?;
        Some(Self { epoch, changes, members, digest: Sha256::digest(bytes).into() })
    }

    /// Whether the key is that of a member, and so perhaps of an administrator.
    pub(crate) fn lists(&self, key: &IdentityPublicKey) -> bool {
        let key = key.to_bytes();
        self.members.chunks(MEMBER_LEN).any(|member| member.starts_with(&key))
    }

    /// How many members it has.
    pub(crate) fn members(&self) -> usize {
        self.members.len() / MEMBER_LEN
    }

    /// [`EpochAnnouncement::order`], if it is valid.
    pub(crate) fn order(&self, known: &EpochAnnouncement) -> AnnouncementOrder {
        let mut list = Vec::new();
        known.administrators().encode(&mut list);
        let known_changes = &list[1..];
        let is_related =
            known_changes.starts_with(self.changes) || self.changes.starts_with(known_changes);
        let own = (self.changes.len(), self.epoch, Reverse(&self.digest));
        if self.digest == *known.digest() {
            AnnouncementOrder::Same
        } else if !is_related {
            AnnouncementOrder::Fork
        } else if own > (known_changes.len(), known.epoch(), Reverse(known.digest())) {
            AnnouncementOrder::Newer
        } else {
            AnnouncementOrder::Older
        }
    }
}
