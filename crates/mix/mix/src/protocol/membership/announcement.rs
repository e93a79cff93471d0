//! Announcements: the members of an epoch, and its key, sealed for each of them.

use std::collections::HashSet;

use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use super::crypto::{TAG_LEN, agree, agree_with, derive, group_id, open, seal, x25519_public};
use super::name::MemberName;
use super::prekey::{Prekey, PrekeySecret};
use crate::protocol::shape::MEMBERS;

const VERSION: u8 = 1;
const KEY_LEN: usize = 32;
const SEALED_LEN: usize = KEY_LEN + TAG_LEN;
const MEMBER_LEN: usize = 32 + 8 + SEALED_LEN;
const HEADER_LEN: usize = 1 + 4 + 32 + 2;
const SIGNATURE_LEN: usize = 64;
const MAX_NAME_LEN: usize = 1 + 128;

/// The longest announcement, in bytes.
pub const MAX_ANNOUNCEMENT_LEN: usize =
    HEADER_LEN + *MEMBERS.end() * (MEMBER_LEN + MAX_NAME_LEN) + TAG_LEN + SIGNATURE_LEN;

/// An announcement with a valid signature. It contains no secrets. The proxy keeps it for members
/// that connect later.
#[derive(Clone, Debug)]
pub struct EpochAnnouncement {
    group_id: [u8; 32],
    administrator: IdentityPublicKey,
    epoch: u32,
    ephemeral: [u8; 32],
    members: Vec<SealedEpochKey>,
    names: Vec<u8>,
}

/// The key of the epoch for one member.
#[derive(Clone, Debug)]
struct SealedEpochKey {
    member: IdentityPublicKey,
    prekey: u64,
    key: [u8; SEALED_LEN],
}

/// What a member learns from an announcement.
pub struct OpenedAnnouncement {
    /// K. Secret.
    pub key: Zeroizing<[u8; KEY_LEN]>,
    /// The names of the members, in the order of their numbers.
    pub names: Vec<MemberName>,
}

/// Why bytes are not an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EpochAnnouncementError {
    /// They are malformed.
    #[error("an announcement of the group's members is malformed")]
    Malformed,
    /// The administrator did not sign them.
    #[error("an announcement of the group's members is not signed by the group's administrator")]
    Signature,
}

/// Why a member cannot open an announcement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenAnnouncementError {
    /// It is not one of the members.
    #[error("not a member of the group")]
    NotAMember,
    /// The key is sealed for a prekey that the member does not have, or no longer has. A newer
    /// announcement is needed.
    #[error("the key of the epoch is sealed for a prekey that was used")]
    Prekey,
    /// The sealed content is invalid: the administrator's program is faulty.
    #[error("the announcement of the group's members cannot be opened")]
    Damaged,
}

/// A member in the administrator's list.
pub(super) struct AnnouncementRecipient<'a> {
    pub(super) member: IdentityPublicKey,
    pub(super) name: &'a MemberName,
    pub(super) prekey: Prekey,
}

/// Encodes the announcement of an epoch. Both secrets must be used for this announcement only:
/// `key` is K, and `ephemeral` is the private key from which the sealing keys are derived.
pub(super) fn encode(
    administrator: &IdentitySecretKey,
    group: &str,
    epoch: u32,
    recipients: &[AnnouncementRecipient],
    key: &[u8; KEY_LEN],
    ephemeral: &[u8; 32],
) -> Vec<u8> {
    let group_id = group_id(&administrator.public(), group);
    let public = x25519_public(ephemeral);
    let count = u16::try_from(recipients.len()).expect("a group has at most 1024 members");
    let mut out = vec![VERSION];
    out.extend(epoch.to_be_bytes());
    out.extend(public);
    out.extend(count.to_be_bytes());
    for AnnouncementRecipient { member, prekey, .. } in recipients {
        let from_prekey = agree(ephemeral, &prekey.public).expect("prekeys are checked");
        let from_identity = agree_with(administrator, member);
        let context = EpochKeyContext { group_id: &group_id, epoch, ephemeral: &public };
        let sealing = context.sealing_key(&from_prekey, &from_identity, member, prekey.number);
        out.extend(member.to_bytes());
        out.extend(prekey.number.to_be_bytes());
        out.extend(seal(&sealing, key));
    }
    let mut names = Vec::new();
    for recipient in recipients {
        names.put_text(recipient.name.as_str());
    }
    out.extend(seal(&names_key(key, epoch), &names));
    let signature = administrator.sign(&signed(&group_id, &out));
    out.extend(signature);
    out
}

impl EpochAnnouncement {
    /// Decodes and verifies an announcement of the group with this name and administrator, at the
    /// proxy and at members. The caller must check that its epoch is new.
    ///
    /// # Errors
    /// If the bytes are malformed, or the administrator did not sign them.
    pub fn verify(
        bytes: &[u8],
        group: &str,
        administrator: &IdentityPublicKey,
    ) -> Result<Self, EpochAnnouncementError> {
        let group_id = group_id(administrator, group);
        let (body, signature) =
            bytes.split_last_chunk::<SIGNATURE_LEN>().ok_or(EpochAnnouncementError::Malformed)?;
        if bytes.len() > MAX_ANNOUNCEMENT_LEN {
            return Err(EpochAnnouncementError::Malformed);
        }
        if !administrator.verify(&signed(&group_id, body), signature) {
            return Err(EpochAnnouncementError::Signature);
        }
        Self::read(body, group_id, *administrator).ok_or(EpochAnnouncementError::Malformed)
    }

    fn read(body: &[u8], group_id: [u8; 32], administrator: IdentityPublicKey) -> Option<Self> {
        let mut reader = FieldReader::new(body);
        if reader.u8().ok()? != VERSION {
            return None;
        }
        let (epoch, ephemeral) = (reader.u32().ok()?, reader.take().ok()?);
        let count = usize::from(reader.u16().ok()?);
        if !(1..=*MEMBERS.end()).contains(&count) {
            return None;
        }
        let mut members = Vec::with_capacity(count);
        let mut known = HashSet::with_capacity(count);
        for _ in 0..count {
            let member = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
            if !known.insert(member.to_bytes()) {
                return None;
            }
            members.push(SealedEpochKey {
                member,
                prekey: reader.u64().ok()?,
                key: reader.take().ok()?,
            });
        }
        let names = reader.rest().to_vec();
        Some(Self { group_id, administrator, epoch, ephemeral, members, names })
    }

    /// The number of the epoch, from 1.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The members' keys, in the order of their numbers.
    pub fn members(&self) -> impl ExactSizeIterator<Item = IdentityPublicKey> {
        self.members.iter().map(|sealed| sealed.member)
    }

    /// The number of a member.
    pub fn index_of(&self, member: &IdentityPublicKey) -> Option<usize> {
        self.members.iter().position(|sealed| sealed.member == *member)
    }

    /// The number of the prekey that a member opens it with.
    pub fn prekey_of(&self, member: &IdentityPublicKey) -> Option<u64> {
        self.index_of(member).map(|at| self.members[at].prekey)
    }

    /// Opens it, for the member `own`. The caller erases the prekey as soon as it has stored what
    /// is returned.
    ///
    /// # Errors
    /// If it is no member, or has not the prekey.
    pub fn open(
        &self,
        own: &IdentitySecretKey,
        prekeys: &[PrekeySecret],
    ) -> Result<OpenedAnnouncement, OpenAnnouncementError> {
        let at = self.index_of(&own.public()).ok_or(OpenAnnouncementError::NotAMember)?;
        let sealed = &self.members[at];
        let prekey = prekeys.iter().find(|prekey| prekey.number() == sealed.prekey);
        let prekey = prekey.ok_or(OpenAnnouncementError::Prekey)?;
        let from_prekey =
            agree(prekey.secret(), &self.ephemeral).ok_or(OpenAnnouncementError::Damaged)?;
        let from_identity = agree_with(own, &self.administrator);
        let context = EpochKeyContext {
            group_id: &self.group_id,
            epoch: self.epoch,
            ephemeral: &self.ephemeral,
        };
        let sealing =
            context.sealing_key(&from_prekey, &from_identity, &sealed.member, sealed.prekey);
        let key = open(&sealing, &sealed.key).ok_or(OpenAnnouncementError::Damaged)?;
        let key = Zeroizing::new(
            <[u8; KEY_LEN]>::try_from(&**key).map_err(|_| OpenAnnouncementError::Damaged)?,
        );
        let names = self.open_names(&key).ok_or(OpenAnnouncementError::Damaged)?;
        Ok(OpenedAnnouncement { key, names })
    }

    fn open_names(&self, key: &[u8; KEY_LEN]) -> Option<Vec<MemberName>> {
        let text = open(&names_key(key, self.epoch), &self.names)?;
        let mut reader = FieldReader::new(&text);
        let names: Option<Vec<_>> =
            self.members.iter().map(|_| MemberName::new(reader.text().ok()?).ok()).collect();
        names.filter(|_| reader.is_empty())
    }
}

struct EpochKeyContext<'a> {
    group_id: &'a [u8; 32],
    epoch: u32,
    ephemeral: &'a [u8; 32],
}

impl EpochKeyContext<'_> {
    fn sealing_key(
        &self,
        from_prekey: &[u8; 32],
        from_identity: &[u8; 32],
        member: &IdentityPublicKey,
        prekey: u64,
    ) -> Zeroizing<[u8; 32]> {
        let (epoch, prekey) = (self.epoch.to_be_bytes(), prekey.to_be_bytes());
        derive(
            "sunder mix seal 1",
            &[
                from_prekey,
                from_identity,
                self.group_id,
                &epoch,
                self.ephemeral,
                &member.to_bytes(),
                &prekey,
            ],
        )
    }
}

fn names_key(key: &[u8; KEY_LEN], epoch: u32) -> Zeroizing<[u8; 32]> {
    derive("sunder mix names 1", &[key, &epoch.to_be_bytes()])
}

fn signed(group_id: &[u8; 32], body: &[u8]) -> Vec<u8> {
    [b"sunder mix announcement 1", &group_id[..], body].concat()
}

/// An announcement with these members, for tests.
#[cfg(test)]
pub(crate) fn announcement_fixture(
    administrator: &IdentitySecretKey,
    group: &str,
    epoch: u32,
    members: &[IdentityPublicKey],
) -> Vec<u8> {
    let prekey = PrekeySecret::new(1, Zeroizing::new([1; 32])).public();
    let names: Vec<_> =
        (0..members.len()).map(|number| MemberName::new(&format!("m{number}")).unwrap()).collect();
    let recipient = |(member, name)| AnnouncementRecipient { member, name, prekey };
    let recipients: Vec<_> = members.iter().copied().zip(&names).map(recipient).collect();
    encode(administrator, group, epoch, &recipients, &[2; 32], &[3; 32])
}
