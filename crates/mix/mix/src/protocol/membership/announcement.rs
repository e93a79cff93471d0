//! Announcements: the members of an epoch, and its key, sealed for each of them.

use std::cmp::Reverse;
use std::collections::HashSet;

use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::administrators::{AdministratorList, MAX_ADMINISTRATORS, MAX_LIST_LEN};
use super::crypto::{TAG_LEN, agree, agree_with, derive, group_id, open, seal, x25519_public};
use super::invitation::{GroupAddress, MAX_ADDRESS_LEN, ProxyAddress};
use super::name::MemberName;
use super::prekey::PrekeySecret;
use super::roster::{self, Roster};
use crate::protocol::shape::MEMBERS;

pub(super) const VERSION: u8 = 2;
/// The version of groups with one administrator, without a roster. It is read.
pub(super) const VERSION_BEFORE: u8 = 1;
const KEY_LEN: usize = 32;
const SEALED_LEN: usize = KEY_LEN + TAG_LEN;
pub(super) const MEMBER_LEN: usize = 32 + 8 + SEALED_LEN;
const HEADER_LEN: usize = 1 + 4 + 32 + MAX_LIST_LEN + 1 + 32 + 1 + MAX_ADDRESS_LEN + 32 + 2;
const SIGNATURE_LEN: usize = 64;
const MAX_NAME_LEN: usize = 1 + 128;

/// The longest announcement, in bytes.
pub const MAX_ANNOUNCEMENT_LEN: usize = max_announcement_len(*MEMBERS.end());

/// The longest announcement of a group with this number of members, in bytes.
pub(super) const fn max_announcement_len(members: usize) -> usize {
    let names = 4 + members * MAX_NAME_LEN + TAG_LEN;
    let roster = MAX_ADMINISTRATORS * SEALED_LEN + roster::max_len(members) + TAG_LEN;
    HEADER_LEN + members * MEMBER_LEN + names + roster + SIGNATURE_LEN
}

/// An announcement with a valid signature of an administrator. It contains no secrets. The proxy
/// keeps it for members that connect later, and members keep the newest for a proxy that has lost
/// it.
#[derive(Clone, Debug)]
pub struct EpochAnnouncement {
    bytes: Vec<u8>,
    digest: [u8; 32],
    group_id: [u8; 32],
    administrators: AdministratorList,
    signer: IdentityPublicKey,
    epoch: u32,
    /// The digest of the announcement before; zeros if there was none.
    previous: [u8; 32],
    /// None in an announcement of the version before.
    proxy: Option<ProxyAddress>,
    ephemeral: [u8; 32],
    members: Vec<SealedEpochKey>,
    names: Vec<u8>,
    roster: Option<SealedRoster>,
}

/// The key of the epoch for one member.
#[derive(Clone, Debug)]
struct SealedEpochKey {
    member: IdentityPublicKey,
    prekey: u64,
    key: [u8; SEALED_LEN],
}

/// The roster for the administrators.
#[derive(Clone, Debug)]
struct SealedRoster {
    /// The key of the content, for each administrator.
    keys: Vec<[u8; SEALED_LEN]>,
    content: Vec<u8>,
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
    /// No administrator signed them.
    #[error(
        "an announcement of the group's members is not signed by an administrator of the group"
    )]
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

/// How an announcement relates to the newest that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnnouncementOrder {
    /// It is the known one.
    Same,
    /// It is newer.
    Newer,
    /// It is older.
    Older,
    /// Its administrators come neither before nor after the known ones: somebody who was removed
    /// has signed one of the two.
    Fork,
}

/// What an announcement says.
pub(super) struct AnnouncementContent<'a> {
    pub(super) administrators: &'a AdministratorList,
    pub(super) proxy: &'a ProxyAddress,
    pub(super) epoch: u32,
    pub(super) previous: [u8; 32],
    pub(super) roster: &'a Roster,
}

/// The secrets of one announcement: K, the private key from which the sealing keys are derived, and
/// the key of the roster. Each is used once.
pub(super) struct AnnouncementSecrets {
    pub(super) key: Zeroizing<[u8; KEY_LEN]>,
    pub(super) ephemeral: Zeroizing<[u8; 32]>,
    pub(super) roster: Zeroizing<[u8; KEY_LEN]>,
}

/// Encodes the announcement of an epoch, signed by `own`, one of the administrators.
pub(super) fn encode(
    own: &IdentitySecretKey,
    group_id: &[u8; 32],
    content: &AnnouncementContent<'_>,
    secrets: &AnnouncementSecrets,
) -> Vec<u8> {
    let AnnouncementContent { administrators, proxy, epoch, previous, roster } = *content;
    let AnnouncementSecrets { key, ephemeral, roster: roster_key } = secrets;
    let public = x25519_public(ephemeral);
    let context = EpochKeyContext { group_id, epoch, ephemeral: &public };
    let signer = administrators.keys().iter().position(|one| *one == own.public());
    let signer = signer.and_then(|at| u8::try_from(at).ok()).expect("the caller is one");
    let mut out = vec![VERSION];
    out.extend(epoch.to_be_bytes());
    out.extend(previous);
    administrators.encode(&mut out);
    out.push(signer);
    out.extend(proxy.key.to_bytes());
    out.put_text(&proxy.address);
    out.extend(public);
    let count = u16::try_from(roster.members.len()).expect("a group has at most 1024 members");
    out.extend(count.to_be_bytes());
    for member in &roster.members {
        let from_prekey = agree(ephemeral, &member.prekey.public).expect("prekeys are checked");
        let from_identity = agree_with(own, &member.key);
        let number = member.prekey.number;
        let sealing = context.sealing_key(&from_prekey, &from_identity, &member.key, number);
        out.extend(member.key.to_bytes());
        out.extend(number.to_be_bytes());
        out.extend(seal(&sealing, &**key));
    }
    let mut names = Vec::new();
    for member in &roster.members {
        names.put_text(member.name.as_str());
    }
    out.put_counted(&seal(&names_key(key, epoch), &names));
    for administrator in administrators.keys() {
        let from_identity = agree(ephemeral, &administrator.x25519()).expect("no small order");
        let both = agree_with(own, administrator);
        let sealing = context.roster_key(&from_identity, &both, administrator);
        out.extend(seal(&sealing, &**roster_key));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(roster::max_len(roster.members.len())));
    roster.encode(&mut text);
    out.extend(seal(roster_key, &text));
    let signature = own.sign(&signed(VERSION, group_id, &out));
    out.extend(signature);
    out
}

impl EpochAnnouncement {
    /// Decodes and verifies an announcement of the group with this name and founder, at the proxy
    /// and at members. The caller must compare it with the newest that it knows
    /// ([`EpochAnnouncement::order`]).
    ///
    /// # Errors
    /// If the bytes are malformed, or no administrator signed them.
    pub fn verify(
        bytes: &[u8],
        group: &str,
        founder: &IdentityPublicKey,
    ) -> Result<Self, EpochAnnouncementError> {
        Self::verify_after(None, bytes, group, founder)
    }

    /// The same for somebody who knows an earlier announcement: signatures of changes of the
    /// administrators that are in it are not verified again.
    ///
    /// # Errors
    /// As [`EpochAnnouncement::verify`].
    pub(crate) fn verify_after(
        known: Option<&Self>,
        bytes: &[u8],
        group: &str,
        founder: &IdentityPublicKey,
    ) -> Result<Self, EpochAnnouncementError> {
        let (body, signature) =
            bytes.split_last_chunk::<SIGNATURE_LEN>().ok_or(EpochAnnouncementError::Malformed)?;
        if bytes.len() > MAX_ANNOUNCEMENT_LEN {
            return Err(EpochAnnouncementError::Malformed);
        }
        let group_id = group_id(founder, group);
        let mut reader = FieldReader::new(body);
        let known = known.map(Self::administrators);
        let header = AnnouncementHeader::read(&mut reader, group, founder, known);
        let header = header.ok_or(EpochAnnouncementError::Signature)?;
        if !header.signer.verify(&signed(header.version, &group_id, body), signature) {
            return Err(EpochAnnouncementError::Signature);
        }
        Self::read(bytes, reader, header, group_id).ok_or(EpochAnnouncementError::Malformed)
    }

    fn read(
        bytes: &[u8],
        mut reader: FieldReader<'_>,
        header: AnnouncementHeader,
        group_id: [u8; 32],
    ) -> Option<Self> {
        let AnnouncementHeader { version, epoch, previous, administrators, signer } = header;
        if epoch == 0 {
            return None;
        }
        let proxy = if version == VERSION_BEFORE {
            None
        } else {
            let key = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
            let address = reader.text().ok()?.to_owned();
            Some(ProxyAddress { address, key })
        };
        if proxy.as_ref().is_some_and(|it| !GroupAddress::is_proxy_address(&it.address)) {
            return None;
        }
        let ephemeral = reader.take().ok()?;
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
            let (prekey, key) = (reader.u64().ok()?, reader.take().ok()?);
            members.push(SealedEpochKey { member, prekey, key });
        }
        // Another one would have no name, so that nobody could see or remove it.
        let are_members = administrators.keys().iter().all(|it| known.contains(&it.to_bytes()));
        if version != VERSION_BEFORE && !are_members {
            return None;
        }
        let (names, roster) = if version == VERSION_BEFORE {
            (reader.rest().to_vec(), None)
        } else {
            let names = reader.counted().ok()?.to_vec();
            let keys = administrators.keys().iter().map(|_| reader.take().ok());
            let keys = keys.collect::<Option<Vec<_>>>()?;
            (names, Some(SealedRoster { keys, content: reader.rest().to_vec() }))
        };
        Some(Self {
            bytes: bytes.to_vec(),
            digest: Sha256::digest(bytes).into(),
            group_id,
            administrators,
            signer,
            epoch,
            previous,
            proxy,
            ephemeral,
            members,
            names,
            roster,
        })
    }

    /// The encoded announcement.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The SHA-256 of the encoded announcement.
    pub fn digest(&self) -> &[u8; 32] {
        &self.digest
    }

    /// The number of the epoch, from 1.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The administrators from this epoch on.
    pub fn administrators(&self) -> &AdministratorList {
        &self.administrators
    }

    /// The administrator who has signed it.
    pub fn signer(&self) -> &IdentityPublicKey {
        &self.signer
    }

    /// Where the proxy is; `None` in an announcement of the version before.
    pub fn proxy(&self) -> Option<&ProxyAddress> {
        self.proxy.as_ref()
    }

    /// Whether it was made by an administrator who knew `before` as the newest announcement.
    pub fn follows(&self, before: &Self) -> bool {
        self.previous == before.digest
    }

    /// How it relates to the newest announcement that is known. The order is the same for all: more
    /// changes of the administrators, then a later epoch, then the smaller digest. So everybody
    /// decides in the same way if two administrators have announced the same epoch.
    pub fn order(&self, known: &Self) -> AnnouncementOrder {
        let rank = |it: &Self| (it.administrators.version(), it.epoch, Reverse(it.digest));
        if self.digest == known.digest {
            AnnouncementOrder::Same
        } else if !self.administrators.is_related(&known.administrators) {
            AnnouncementOrder::Fork
        } else if rank(self) > rank(known) {
            AnnouncementOrder::Newer
        } else {
            AnnouncementOrder::Older
        }
    }

    /// Whether a member that knows this announcement believes `past`, of an earlier epoch: it is
    /// the one right before, or its signer is an administrator still. Somebody who was removed
    /// since could have made another one only now, with false keys of others.
    pub fn believes_past(&self, past: &Self) -> bool {
        self.administrators.continues(&past.administrators)
            && (self.follows(past) || self.administrators.contains(&past.signer))
    }

    /// The members' keys, in the order of their numbers.
    pub fn members(&self) -> impl ExactSizeIterator<Item = IdentityPublicKey> {
        self.members.iter().map(|sealed| sealed.member)
    }

    /// The number of a member.
    pub fn index_of(&self, member: &IdentityPublicKey) -> Option<usize> {
        self.members.iter().position(|sealed| sealed.member == *member)
    }

    /// Whether a key is that of a member or an administrator.
    pub fn lists(&self, key: &IdentityPublicKey) -> bool {
        self.index_of(key).is_some() || self.administrators.contains(key)
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
        let from_identity = agree_with(own, &self.signer);
        let sealing =
            self.context().sealing_key(&from_prekey, &from_identity, &sealed.member, sealed.prekey);
        let key = open_key(&sealing, &sealed.key).ok_or(OpenAnnouncementError::Damaged)?;
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

    /// The roster, for the administrator `own`. It takes no prekey, so an administrator that has
    /// lost its state can open it. `None` if `own` is no administrator, or there is no valid
    /// roster.
    pub(super) fn open_roster(&self, own: &IdentitySecretKey) -> Option<Roster> {
        let public = own.public();
        let at = self.administrators.keys().iter().position(|one| *one == public)?;
        let sealed = self.roster.as_ref()?;
        let from_identity = agree(&own.x25519(), &self.ephemeral)?;
        let both = agree_with(own, &self.signer);
        let sealing = self.context().roster_key(&from_identity, &both, &public);
        let key = open_key(&sealing, sealed.keys.get(at)?)?;
        let text = open(&key, &sealed.content)?;
        let mut reader = FieldReader::new(&text);
        let roster = Roster::decode(&mut reader).filter(|_| reader.is_empty())?;
        let listed = roster.members.iter().map(|member| (member.key, member.prekey.number));
        let sealed = self.members.iter().map(|sealed| (sealed.member, sealed.prekey));
        listed.eq(sealed).then_some(roster)
    }

    /// Whether the roster, for the administrator `own`, has the names that all members have opened.
    /// Otherwise this administrator would announce others in the next epoch.
    pub(crate) fn has_names<'a>(
        &self,
        own: &IdentitySecretKey,
        names: impl Iterator<Item = &'a MemberName>,
    ) -> bool {
        self.open_roster(own)
            .is_some_and(|roster| roster.members.iter().map(|member| &member.name).eq(names))
    }

    fn context(&self) -> EpochKeyContext<'_> {
        EpochKeyContext { group_id: &self.group_id, epoch: self.epoch, ephemeral: &self.ephemeral }
    }
}

/// What comes before the members: enough to verify the signature.
struct AnnouncementHeader {
    version: u8,
    epoch: u32,
    previous: [u8; 32],
    administrators: AdministratorList,
    signer: IdentityPublicKey,
}

impl AnnouncementHeader {
    fn read(
        reader: &mut FieldReader<'_>,
        group: &str,
        founder: &IdentityPublicKey,
        known: Option<&AdministratorList>,
    ) -> Option<Self> {
        let (version, epoch) = (reader.u8().ok()?, reader.u32().ok()?);
        let (previous, administrators, signer) = match version {
            VERSION_BEFORE => ([0; 32], AdministratorList::founded(*founder, group), 0),
            VERSION => {
                let previous = reader.take().ok()?;
                let administrators = AdministratorList::decode(reader, *founder, group, known)?;
                (previous, administrators, reader.u8().ok()?)
            }
            _ => return None,
        };
        let signer = *administrators.keys().get(usize::from(signer))?;
        Some(Self { version, epoch, previous, administrators, signer })
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

    fn roster_key(
        &self,
        from_identity: &[u8; 32],
        both: &[u8; 32],
        administrator: &IdentityPublicKey,
    ) -> Zeroizing<[u8; 32]> {
        let (epoch, key) = (self.epoch.to_be_bytes(), administrator.to_bytes());
        let parts: [&[u8]; 6] = [from_identity, both, self.group_id, &epoch, self.ephemeral, &key];
        derive("sunder mix roster 1", &parts)
    }
}

fn open_key(sealing: &[u8; 32], sealed: &[u8]) -> Option<Zeroizing<[u8; KEY_LEN]>> {
    let key = open(sealing, sealed)?;
    Some(Zeroizing::new(<[u8; KEY_LEN]>::try_from(&**key).ok()?))
}

pub(super) fn names_key(key: &[u8; KEY_LEN], epoch: u32) -> Zeroizing<[u8; 32]> {
    derive("sunder mix names 1", &[key, &epoch.to_be_bytes()])
}

pub(super) fn signed(version: u8, group_id: &[u8; 32], body: &[u8]) -> Vec<u8> {
    let label: &[u8] = match version {
        VERSION_BEFORE => b"sunder mix announcement 1",
        _ => b"sunder mix announcement 2",
    };
    [label, &group_id[..], body].concat()
}

/// An announcement of the founder with these members, for tests.
#[cfg(test)]
pub(crate) fn announcement_fixture(
    founder: &IdentitySecretKey,
    group: &str,
    epoch: u32,
    members: &[IdentityPublicKey],
) -> Vec<u8> {
    announcement_after(founder, group, epoch, members, [0; 32])
}

/// The same, after the announcement with this digest.
#[cfg(test)]
pub(crate) fn announcement_after(
    founder: &IdentitySecretKey,
    group: &str,
    epoch: u32,
    members: &[IdentityPublicKey],
    previous: [u8; 32],
) -> Vec<u8> {
    let list = AdministratorList::founded(founder.public(), group);
    announcement_in(&list, founder, group, epoch, members, previous)
}

/// One of the founder that has made the second member an administrator.
#[cfg(test)]
pub(crate) fn announcement_by_two(
    founder: &IdentitySecretKey,
    group: &str,
    epoch: u32,
    members: &[IdentityPublicKey],
) -> Vec<u8> {
    let mut list = AdministratorList::founded(founder.public(), group);
    list.add(founder, members[1]).expect("it is none yet");
    announcement_in(&list, founder, group, epoch, members, [0; 32])
}

#[cfg(test)]
fn announcement_in(
    administrators: &AdministratorList,
    founder: &IdentitySecretKey,
    group: &str,
    epoch: u32,
    members: &[IdentityPublicKey],
    previous: [u8; 32],
) -> Vec<u8> {
    use super::roster::AdmittedMember;

    let prekey = PrekeySecret::new(1, Zeroizing::new([1; 32])).public();
    let admitted = |(number, key): (usize, &IdentityPublicKey)| AdmittedMember {
        key: *key,
        name: MemberName::new(&format!("m{number}")).unwrap(),
        prekey,
    };
    let members = members.iter().enumerate().map(admitted).collect();
    let secret = |byte| Zeroizing::new([byte; 32]);
    let content = AnnouncementContent {
        administrators,
        proxy: &ProxyAddress { address: "127.0.0.1:6700".into(), key: founder.public() },
        epoch,
        previous,
        roster: &Roster { members, ..Roster::default() },
    };
    let secrets = AnnouncementSecrets { key: secret(2), ephemeral: secret(3), roster: secret(4) };
    encode(founder, &group_id(&founder.public(), group), &content, &secrets)
}
