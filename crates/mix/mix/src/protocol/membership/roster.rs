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
/// The longest encoded roster of a group with this number of members, in bytes.
pub(super) const fn max_len(members: usize) -> usize {
    2 + members * (32 + 1 + 128 + 8 + 32) + 2 + MAX_USED * 12
}

/// The members, and what must not be forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Roster {
    pub(super) members: Vec<AdmittedMember>,
    pub(super) used: Vec<UsedInvitation>,
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
    }

    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        let members = Self::decode_members(reader)?;
        let mut used = Vec::new();
        for _ in 0..reader.u16().ok()? {
            used.push(UsedInvitation { id: reader.take().ok()?, expires: reader.u32().ok()? });
        }
        (used.len() <= MAX_USED).then_some(Self { members, used })
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
