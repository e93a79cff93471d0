//! A member's state of epochs: the key and the members of the current epoch, and the prekey for the
//! next one.

use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use crate::protocol::epoch::{GroupMember, MemberEpoch, MemberEpochError};
use crate::protocol::group_key::MixGroupKey;
use crate::protocol::membership::{
    EpochAnnouncement, MemberName, MemberNotice, OpenAnnouncementError, Prekey, PrekeySecret,
};
use crate::protocol::random::ForwardSecureRng;
use crate::protocol::shape::{MEMBERS, MailboxShape};

/// The epoch that a member has opened, if any, and its current prekey. Secret.
pub(super) struct ClientEpochs {
    current: Option<CurrentEpoch>,
    prekey: PrekeySecret,
}

struct CurrentEpoch {
    number: u32,
    own: u16,
    key: Zeroizing<[u8; 32]>,
    members: Vec<(IdentityPublicKey, MemberName)>,
}

/// The effect of an announcement on a client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnnouncementEffect {
    /// It announces the current epoch again.
    Known,
    /// It announces an earlier epoch.
    Old,
    /// It announces a new epoch, whose key was opened.
    Opened,
    /// It announces a new epoch whose key is sealed for another prekey. The administrator must
    /// receive the current prekey and announce again.
    Prekey,
    /// It announces a new epoch without this client, which was a member.
    Removed,
    /// It announces a new epoch without this client, which was not a member.
    NotYet,
}

impl ClientEpochs {
    /// The epochs of a client that has never been a member.
    pub(super) fn new(now: Duration, random: &mut ForwardSecureRng) -> Self {
        Self { current: None, prekey: PrekeySecret::new(micros(now), random.draw()) }
    }

    /// The number of the current epoch, or 0.
    pub(super) fn number(&self) -> u32 {
        self.current.as_ref().map_or(0, |current| current.number)
    }

    pub(super) fn is_member(&self) -> bool {
        self.current.is_some()
    }

    /// This client's name in the current epoch.
    pub(super) fn own_name(&self) -> Option<&MemberName> {
        let current = self.current.as_ref()?;
        Some(&current.members[usize::from(current.own)].1)
    }

    /// The name of the member with a key.
    pub(super) fn name_of(&self, key: &IdentityPublicKey) -> Option<&MemberName> {
        let mut members = self.current.iter().flat_map(|current| &current.members);
        members.find(|(other, _)| other == key).map(|(_, name)| name)
    }

    /// The keys and names of the other members.
    pub(super) fn others(&self) -> impl Iterator<Item = (&IdentityPublicKey, &MemberName)> {
        self.current.iter().flat_map(|CurrentEpoch { own, members, .. }| {
            let (before, rest) = members.split_at(usize::from(*own));
            before.iter().chain(&rest[1..]).map(|(key, name)| (key, name))
        })
    }

    /// The current epoch, if there is one, as [`crate::Member`] takes it.
    ///
    /// # Errors
    /// If the shape does not allow this number of members.
    pub(super) fn epoch(
        &self,
        shape: &MailboxShape,
    ) -> Option<Result<MemberEpoch, MemberEpochError>> {
        let CurrentEpoch { number, own, key, members } = self.current.as_ref()?;
        let own = &members[usize::from(*own)].0;
        let member = |(key, name): &(IdentityPublicKey, MemberName)| GroupMember {
            name: name.as_str().to_owned(),
            key: *key,
        };
        let all = members.iter().map(member).collect();
        Some(MemberEpoch::new(*number, *shape, own, MixGroupKey::new(**key), all))
    }

    /// The public part of the prekey.
    pub(super) fn prekey(&self) -> Prekey {
        self.prekey.public()
    }

    /// The notice that tells the administrator the current prekey.
    pub(super) fn notice(&self) -> MemberNotice {
        MemberNotice::Prekey { prekey: self.prekey.public(), opened: self.number() }
    }

    /// A number greater than that of all prekeys so far.
    pub(super) fn next_number(&self, now: Duration) -> u64 {
        micros(now).max(self.prekey.number().saturating_add(1))
    }

    /// Handles an announcement that the administrator has signed. The prekey that opened it is
    /// erased and replaced.
    ///
    /// # Errors
    /// If nobody could open it.
    pub(super) fn handle_announcement(
        &mut self,
        now: Duration,
        announcement: &EpochAnnouncement,
        own: &IdentitySecretKey,
        random: &mut ForwardSecureRng,
    ) -> Result<AnnouncementEffect, OpenAnnouncementError> {
        let known = self.number();
        if announcement.epoch() < known {
            return Ok(AnnouncementEffect::Old);
        }
        if announcement.epoch() == known {
            return Ok(AnnouncementEffect::Known);
        }
        let public = own.public();
        match announcement.open(own, std::slice::from_ref(&self.prekey)) {
            Ok(opened) => {
                let own = announcement.index_of(&public).and_then(|at| u16::try_from(at).ok());
                self.current = Some(CurrentEpoch {
                    number: announcement.epoch(),
                    own: own.ok_or(OpenAnnouncementError::Damaged)?,
                    key: opened.key,
                    members: announcement.members().zip(opened.names).collect(),
                });
                self.prekey = PrekeySecret::new(self.next_number(now), random.draw());
                Ok(AnnouncementEffect::Opened)
            }
            Err(OpenAnnouncementError::NotAMember) => match self.current.take() {
                Some(_) => Ok(AnnouncementEffect::Removed),
                None => Ok(AnnouncementEffect::NotYet),
            },
            Err(OpenAnnouncementError::Prekey) => {
                // This client's state may be older than the prekey that the administrator knows.
                let sealed_for = announcement.prekey_of(&public).unwrap_or(0);
                if self.prekey.number() <= sealed_for {
                    let number = self.next_number(now).max(sealed_for.saturating_add(1));
                    self.prekey = PrekeySecret::new(number, random.draw());
                }
                Ok(AnnouncementEffect::Prekey)
            }
            Err(OpenAnnouncementError::Damaged) => Err(OpenAnnouncementError::Damaged),
        }
    }

    /// Appends what [`ClientEpochs::decode`] reads.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.prekey.number().to_be_bytes());
        out.extend(self.prekey.secret());
        out.extend(self.number().to_be_bytes());
        let Some(CurrentEpoch { own, key, members, .. }) = &self.current else { return };
        out.extend(own.to_be_bytes());
        out.extend(&**key);
        out.extend(u16::try_from(members.len()).expect("at most 1024").to_be_bytes());
        for (key, name) in members {
            out.extend(key.to_bytes());
            out.put_text(name.as_str());
        }
    }

    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        let number = reader.u64().ok()?;
        let prekey = PrekeySecret::new(number, Zeroizing::new(reader.take().ok()?));
        let number = reader.u32().ok()?;
        if number == 0 {
            return Some(Self { current: None, prekey });
        }
        let (own, key) = (reader.u16().ok()?, Zeroizing::new(reader.take().ok()?));
        let count = usize::from(reader.u16().ok()?);
        if usize::from(own) >= count || count > *MEMBERS.end() {
            return None;
        }
        let mut members = Vec::with_capacity(count);
        for _ in 0..count {
            let key = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
            members.push((key, MemberName::new(reader.text().ok()?).ok()?));
        }
        Some(Self { current: Some(CurrentEpoch { number, own, key, members }), prekey })
    }
}

fn micros(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}
