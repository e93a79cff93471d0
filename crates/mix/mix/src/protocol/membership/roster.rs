//! What all administrators know of the members: keys, names, prekeys, and the invitations that were
//! used. Each announcement contains it, sealed for the administrators, so that one that has lost
//! its state continues from the newest announcement.

use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;

use super::name::MemberName;
use super::prekey::Prekey;
use crate::protocol::shape::MEMBERS;

/// The maximum number of used invitations that are remembered, the most recent ones.
pub(super) const MAX_USED: usize = 1024;
/// The maximum number of removed members that are remembered, the most recent ones.
pub(super) const MAX_REMOVED: usize = 64;
/// The longest encoded roster of a group with this number of members, in bytes.
pub(super) const fn max_len(members: usize) -> usize {
    2 + members * (32 + 1 + 128 + 8 + 32) + 2 + MAX_USED * 12 + 2 + MAX_REMOVED * 36
}

/// The members, and what must not be forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roster {
    pub(super) members: Vec<AdmittedMember>,
    pub(super) used: Vec<UsedInvitation>,
    /// Keys of members that were removed at some time. An announcement that does not know of a
    /// removal cannot undo it.
    pub(super) removed: Vec<RemovedMember>,
}

/// A key that was removed, and perhaps admitted again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RemovedMember {
    pub(super) key: IdentityPublicKey,
    /// How often it was removed or admitted again: odd if it is removed. Of two rosters the greater
    /// number is the later one.
    pub(super) times: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdmittedMember {
    pub(super) key: IdentityPublicKey,
    pub(super) name: MemberName,
    pub(super) prekey: Prekey,
}

/// An invitation that somebody has joined with. It is remembered until it expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsedInvitation {
    pub(super) id: [u8; 8],
    /// In minutes since 1970.
    pub(super) expires: u32,
}

impl UsedInvitation {
    pub(super) fn new(id: [u8; 8], expires: Duration) -> Self {
        Self { id, expires: u32::try_from(expires.as_secs() / 60).unwrap_or(u32::MAX) }
    }
}

impl Roster {
    pub(super) fn member(&self, key: &IdentityPublicKey) -> Option<&AdmittedMember> {
        self.members.iter().find(|member| member.key == *key)
    }

    pub(super) fn member_mut(&mut self, key: &IdentityPublicKey) -> Option<&mut AdmittedMember> {
        self.members.iter_mut().find(|member| member.key == *key)
    }

    pub(super) fn key_of(&self, name: &MemberName) -> Option<IdentityPublicKey> {
        self.members.iter().find(|member| member.name == *name).map(|member| member.key)
    }

    /// Whether somebody has joined with the invitation that has this identifier.
    pub(super) fn is_used(&self, id: [u8; 8]) -> bool {
        self.used.iter().any(|used| used.id == id)
    }

    /// Whether the member with this key was removed, and not admitted again.
    pub(super) fn is_removed(&self, key: &IdentityPublicKey) -> bool {
        self.removed.iter().any(|removed| removed.key == *key && removed.times % 2 == 1)
    }

    /// Remembers that a member is removed.
    pub(super) fn set_removed(&mut self, key: &IdentityPublicKey) {
        let at = self.removed.iter().position(|removed| removed.key == *key);
        let before = at.map_or(0, |at| self.removed.remove(at).times);
        self.removed.push(RemovedMember { key: *key, times: before.saturating_add(1) | 1 });
        self.removed.drain(..self.removed.len().saturating_sub(MAX_REMOVED));
    }

    /// Remembers that somebody is admitted, who may have been removed before.
    pub(super) fn set_admitted(&mut self, key: &IdentityPublicKey) {
        if self.is_removed(key)
            && let Some(removed) = self.removed.iter_mut().find(|removed| removed.key == *key)
        {
            removed.times = removed.times.saturating_add(1);
        }
    }

    /// Takes over what `other` remembers of removed members.
    pub(super) fn unite_removed(&mut self, other: &Self) {
        for theirs in &other.removed {
            match self.removed.iter_mut().find(|ours| ours.key == theirs.key) {
                Some(ours) => ours.times = ours.times.max(theirs.times),
                None => self.removed.push(*theirs),
            }
        }
        self.removed.drain(..self.removed.len().saturating_sub(MAX_REMOVED));
    }

    /// Takes a member's newer prekey. Returns whether it is newer.
    pub(super) fn set_prekey(&mut self, key: &IdentityPublicKey, prekey: Prekey) -> bool {
        let member = self.member_mut(key).filter(|member| member.prekey.number < prekey.number);
        member.map(|member| member.prekey = prekey).is_some()
    }

    /// Forgets invitations that have expired.
    pub(super) fn forget_expired(&mut self, now: Duration) {
        self.used.retain(|used| u64::from(used.expires) * 60 > now.as_secs());
        let extra = self.used.len().saturating_sub(MAX_USED);
        self.used.drain(..extra);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(u16::try_from(self.members.len()).expect("at most 1024").to_be_bytes());
        for AdmittedMember { key, name, prekey } in &self.members {
            out.extend(key.to_bytes());
            out.put_text(name.as_str());
            out.extend(prekey.number.to_be_bytes());
            out.extend(prekey.public);
        }
        out.extend(u16::try_from(self.used.len()).expect("at most 1024").to_be_bytes());
        for UsedInvitation { id, expires } in &self.used {
            out.extend(id);
            out.extend(expires.to_be_bytes());
        }
        out.extend(u16::try_from(self.removed.len()).expect("at most 64").to_be_bytes());
        for RemovedMember { key, times } in &self.removed {
            out.extend(key.to_bytes());
            out.extend(times.to_be_bytes());
        }
    }

    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        let members = Self::decode_members(reader)?;
        let mut used = Vec::new();
        for _ in 0..reader.u16().ok()? {
            used.push(UsedInvitation { id: reader.take().ok()?, expires: reader.u32().ok()? });
        }
        let mut removed = Vec::new();
        for _ in 0..reader.u16().ok()? {
            let key = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
            removed.push(RemovedMember { key, times: reader.u32().ok()? });
        }
        let is_bounded = used.len() <= MAX_USED && removed.len() <= MAX_REMOVED;
        is_bounded.then_some(Self { members, used, removed })
    }

    /// Decodes the members alone.
    pub(super) fn decode_members(reader: &mut FieldReader<'_>) -> Option<Vec<AdmittedMember>> {
        let mut members = Vec::new();
        for _ in 0..reader.u16().ok()? {
            members.push(AdmittedMember::decode(reader)?);
        }
        let is_whole = members.len() <= *MEMBERS.end();
        is_whole.then_some(members)
    }
}

impl AdmittedMember {
    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        let key = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
        let name = MemberName::new(reader.text().ok()?).ok()?;
        let prekey = Prekey { number: reader.u64().ok()?, public: reader.take().ok()? };
        prekey.is_sound().then_some(Self { key, name, prekey })
    }
}
