//! A member's state of epochs: the newest announcement, the key and the members of the current
//! epoch, and the prekey for the next one. While the member catches up with rounds that it has
//! missed, also those of the epochs of these rounds.

use std::cmp::Ordering;
use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use crate::protocol::epoch::{GroupMember, MemberEpoch, MemberEpochError};
use crate::protocol::group_key::MixGroupKey;
use crate::protocol::membership::{
    AnnouncementOrder, EpochAnnouncement, GroupAddress, MemberName, OpenAnnouncementError,
    OpenedAnnouncement, Prekey, PrekeySecret, ProxyAddress,
};
use crate::protocol::random::ForwardSecureRng;
use crate::protocol::shape::{MEMBERS, MailboxShape, READS};
use crate::protocol::wire::ArchivedRound;

/// The maximum number of earlier epochs, and of used prekeys, that are kept to catch up.
const MAX_PAST: usize = 64;

/// The maximum number of branches of the group that a member can leave.
pub(super) const MAX_LEFT: usize = 4;

/// The epoch that a member has opened, if any, and its current prekey. Secret.
pub(super) struct ClientEpochs {
    current: Option<OpenedEpoch>,
    prekey: PrekeySecret,
    /// The newest announcement, whether or not it could be opened. A proxy that has lost it gets it
    /// from here. None in a state of the version before.
    newest: Option<EpochAnnouncement>,
    /// The newest announcements of the branches that this member has left for another one. Nothing
    /// older of them is taken again.
    left: Vec<EpochAnnouncement>,
    /// Where the proxy moves, or has moved, if the administrators have announced a move.
    moved: Option<ProxyAddress>,
    /// Where the proxy was found last, if it was not where the configuration says.
    found: Option<ProxyAddress>,
    /// The number of the last notice that this member leaves, while it wishes to: until it has seen
    /// an epoch without it.
    leaving: Option<u64>,
    /// Earlier epochs of which rounds may be read, in ascending order.
    past: Vec<OpenedEpoch>,
    /// Prekeys for which the keys of epochs may be sealed that this member has missed.
    past_prekeys: Vec<PrekeySecret>,
}

struct OpenedEpoch {
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
        Self::of(None, PrekeySecret::new(micros(now), random.draw()))
    }

    fn of(current: Option<OpenedEpoch>, prekey: PrekeySecret) -> Self {
        Self {
            current,
            prekey,
            newest: None,
            left: Vec::new(),
            moved: None,
            found: None,
            leaving: None,
            past: Vec::new(),
            past_prekeys: Vec::new(),
        }
    }

    /// The newest announcement.
    pub(super) fn newest(&self) -> Option<&EpochAnnouncement> {
        self.newest.as_ref()
    }

    /// The number of the newest epoch that this client has heard of, or 0.
    pub(super) fn newest_number(&self) -> u32 {
        self.newest.as_ref().map_or(self.number(), EpochAnnouncement::epoch)
    }

    /// How an announcement relates to the newest one.
    pub(super) fn order(&self, announcement: &EpochAnnouncement) -> AnnouncementOrder {
        match &self.newest {
            Some(newest) => announcement.order(newest),
            // Of the version before, only the number is known.
            None => match announcement.epoch().cmp(&self.number()) {
                Ordering::Less => AnnouncementOrder::Older,
                Ordering::Equal => AnnouncementOrder::Same,
                Ordering::Greater => AnnouncementOrder::Newer,
            },
        }
    }

    /// The newest announcements of the branches that this member has left.
    pub(super) fn left(&self) -> &[EpochAnnouncement] {
        &self.left
    }

    /// Leaves the branch of the newest announcement for that of `other`. All keys of the branch are
    /// erased.
    pub(super) fn leave_branch(&mut self, other: &EpochAnnouncement) {
        self.left.retain(|left| other.order(left) != AnnouncementOrder::Newer);
        self.left.extend(self.newest.clone());
        // A proxy of that branch.
        self.found = None;
        self.forget_current();
        self.forget_past();
    }

    /// The names in an announcement that was not taken over, if this member can open it.
    ///
    /// # Errors
    /// If nobody can open it, or this member is not listed.
    pub(super) fn names_in(
        &self,
        announcement: &EpochAnnouncement,
        own: &IdentitySecretKey,
    ) -> Result<Option<Vec<MemberName>>, OpenAnnouncementError> {
        match announcement.open(own, std::slice::from_ref(&self.prekey)) {
            Ok(opened) => Ok(Some(opened.names)),
            Err(OpenAnnouncementError::Prekey) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// An announcement that was imported by a client without a state says that the proxy is not
    /// where its configuration says.
    pub(super) fn set_moved(&mut self, to: ProxyAddress) {
        self.moved = Some(to);
    }

    /// Where the proxy moves, or has moved, if that was announced.
    pub(super) fn moved(&self) -> Option<&ProxyAddress> {
        self.moved.as_ref()
    }

    /// Where the proxy was found last, if it was not where the configuration says.
    pub(super) fn found(&self) -> Option<&ProxyAddress> {
        self.found.as_ref()
    }

    /// Remembers where the proxy was found, if it was not where the configuration says.
    pub(super) fn set_found(&mut self, at: Option<ProxyAddress>) {
        self.found = at;
    }

    /// Keeps the newest announcement. Returns whether it says that the proxy has moved.
    pub(super) fn set_newest(&mut self, announcement: EpochAnnouncement) -> bool {
        let before = self.newest.as_ref().and_then(EpochAnnouncement::proxy);
        let now = announcement.proxy().filter(|now| before.is_some_and(|before| before != *now));
        let has_moved = now.is_some();
        if let Some(now) = now {
            self.moved = Some(now.clone());
        }
        self.newest = Some(announcement);
        has_moved
    }

    /// The current epoch was replaced by another one whose number is not greater.
    pub(super) fn forget_current(&mut self) {
        self.current = None;
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

    /// The names of all members, in the order of their numbers.
    pub(super) fn names(&self) -> impl Iterator<Item = &MemberName> {
        self.current.iter().flat_map(|current| &current.members).map(|(_, name)| name)
    }

    /// The keys and names of the other members.
    pub(super) fn others(&self) -> impl Iterator<Item = (&IdentityPublicKey, &MemberName)> {
        self.current.iter().flat_map(|OpenedEpoch { own, members, .. }| {
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
        Some(self.current.as_ref()?.epoch(shape))
    }

    /// The epoch of a round that was kept, with slots of this number and length. `None` if this
    /// member does not have the epoch's key.
    pub(super) fn epoch_of(&self, round: &ArchivedRound) -> Option<MemberEpoch> {
        let all = self.past.iter().chain(&self.current);
        let epoch = all.into_iter().find(|epoch| epoch.number == round.epoch)?;
        let (slots, slot_len) = (round.slots_per_member.into(), round.slot_len.into());
        let members = epoch.members.len().max(*MEMBERS.start());
        let shape = MailboxShape::new(members, slots, slots, *READS.start(), slot_len).ok()?;
        epoch.epoch(&shape).ok()
    }

    /// Opens the key of an earlier epoch, whose rounds follow.
    pub(super) fn handle_past_announcement(
        &mut self,
        announcement: &EpochAnnouncement,
        own: &IdentitySecretKey,
    ) {
        let number = announcement.epoch();
        let is_missed =
            number < self.number() && self.past.iter().all(|epoch| epoch.number != number);
        if is_missed
            && self.past.len() < MAX_PAST
            && let Some(opened) = OpenedEpoch::open(announcement, own, &self.past_prekeys)
        {
            let at = self.past.partition_point(|epoch| epoch.number < opened.number);
            self.past.insert(at, opened);
        }
    }

    /// All rounds of epochs before this one have been read. Returns whether something was erased.
    pub(super) fn forget_before(&mut self, epoch: u32) -> bool {
        let before = self.past.len();
        self.past.retain(|past| past.number >= epoch);
        self.past.len() < before
    }

    /// All rounds have been read. Returns whether something was erased.
    pub(super) fn forget_past(&mut self) -> bool {
        let is_empty = self.past.is_empty() && self.past_prekeys.is_empty();
        self.past.clear();
        self.past_prekeys.clear();
        !is_empty
    }

    /// The public part of the prekey.
    pub(super) fn prekey(&self) -> Prekey {
        self.prekey.public()
    }

    /// A number greater than those of all prekeys and notices so far.
    fn next_number(&self, now: Duration) -> u64 {
        let last = self.prekey.number().max(self.leaving.unwrap_or(0));
        micros(now).max(last.saturating_add(1))
    }

    /// Whether this member wishes to leave the group, and was not removed yet.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    /// This member wishes to leave. Returns the number of the notice that says so. Each is greater
    /// than those of the prekeys that administrators know.
    pub(super) fn leave(&mut self, now: Duration) -> u64 {
        let number = self.next_number(now);
        self.leaving = Some(number);
        number
    }

    /// This member was removed, or wishes to be a member again. A prekey with which it joins is
    /// newer than its notice, which the proxy could repeat.
    pub(super) fn end_leaving(&mut self, now: Duration, random: &mut ForwardSecureRng) {
        if self.leaving.is_some() {
            self.prekey = PrekeySecret::new(self.next_number(now), random.draw());
            self.leaving = None;
        }
    }

    /// Handles an announcement that is not older than the newest one. The prekey that opened it is
    /// replaced. Unless rounds were missed, it is erased, and so is the previous epoch.
    ///
    /// # Errors
    /// If nobody could open it.
    pub(super) fn handle_announcement(
        &mut self,
        now: Duration,
        announcement: &EpochAnnouncement,
        own: &IdentitySecretKey,
        has_missed: bool,
        random: &mut ForwardSecureRng,
    ) -> Result<AnnouncementEffect, OpenAnnouncementError> {
        if announcement.epoch() == self.number() {
            return Ok(AnnouncementEffect::Known);
        }
        let public = own.public();
        match announcement.open(own, std::slice::from_ref(&self.prekey)) {
            Ok(opened) => {
                let opened = OpenedEpoch::new(announcement, &public, opened)
                    .ok_or(OpenAnnouncementError::Damaged)?;
                let before = self.current.replace(opened);
                let next = PrekeySecret::new(self.next_number(now), random.draw());
                let used = std::mem::replace(&mut self.prekey, next);
                if has_missed {
                    self.past.extend(before);
                    self.past_prekeys.push(used);
                    let most = self.past.len().saturating_sub(MAX_PAST);
                    self.past.drain(..most);
                    let most = self.past_prekeys.len().saturating_sub(MAX_PAST);
                    self.past_prekeys.drain(..most);
                }
                Ok(AnnouncementEffect::Opened)
            }
            Err(OpenAnnouncementError::NotAMember) => {
                self.end_leaving(now, random);
                match self.current.take() {
                    Some(_) => Ok(AnnouncementEffect::Removed),
                    None => Ok(AnnouncementEffect::NotYet),
                }
            }
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
        match &self.current {
            Some(current) => current.encode(out),
            None => out.extend(0_u32.to_be_bytes()),
        }
        out.extend(u16::try_from(self.past.len()).expect("few").to_be_bytes());
        self.past.iter().for_each(|epoch| epoch.encode(out));
        out.extend(u16::try_from(self.past_prekeys.len()).expect("few").to_be_bytes());
        for prekey in &self.past_prekeys {
            out.extend(prekey.number().to_be_bytes());
            out.extend(prekey.secret());
        }
        out.put_counted(self.newest.as_ref().map_or(&[], EpochAnnouncement::bytes));
        encode_address(self.moved.as_ref(), out);
    }

    /// Appends what [`ClientEpochs::decode_found`] reads.
    pub(super) fn encode_found(&self, out: &mut Vec<u8>) {
        encode_address(self.found.as_ref(), out);
    }

    /// Decodes where the proxy was found last.
    pub(super) fn decode_found(&mut self, reader: &mut FieldReader<'_>) -> Option<()> {
        decode_address(reader, &mut self.found)
    }

    /// Appends what [`ClientEpochs::decode_leaving`] reads.
    pub(super) fn encode_leaving(&self, out: &mut Vec<u8>) {
        out.extend(self.leaving.unwrap_or(0).to_be_bytes());
    }

    /// Decodes whether this member wishes to leave.
    pub(super) fn decode_leaving(&mut self, reader: &mut FieldReader<'_>) -> Option<()> {
        self.leaving = Some(reader.u64().ok()?).filter(|number| *number > 0);
        Some(())
    }

    /// Appends what [`ClientEpochs::decode_left`] reads.
    pub(super) fn encode_left(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.left.len()).expect("few"));
        self.left.iter().for_each(|left| out.put_counted(left.bytes()));
    }

    /// Decodes the branches that this member has left.
    pub(super) fn decode_left(
        &mut self,
        reader: &mut FieldReader<'_>,
        at: &GroupAddress,
    ) -> Option<()> {
        for _ in 0..reader.u8().ok()? {
            let bytes = reader.counted().ok()?;
            let left = EpochAnnouncement::verify(bytes, at.group.as_str(), &at.administrator);
            self.left.push(left.ok()?);
        }
        (self.left.len() <= MAX_LEFT).then_some(())
    }

    /// Decodes a stored state of the group at `at`. Those of the versions before have no past
    /// epochs, or no newest announcement.
    pub(super) fn decode(
        reader: &mut FieldReader<'_>,
        at: &GroupAddress,
        has_past: bool,
        has_newest: bool,
    ) -> Option<Self> {
        let prekey = decode_prekey(reader)?;
        let current = match reader.u32().ok()? {
            0 => None,
            number => Some(OpenedEpoch::decode(number, reader)?),
        };
        let mut epochs = Self::of(current, prekey);
        if has_past {
            for _ in 0..reader.u16().ok()? {
                let number = reader.u32().ok()?;
                epochs.past.push(OpenedEpoch::decode(number, reader)?);
            }
            for _ in 0..reader.u16().ok()? {
                epochs.past_prekeys.push(decode_prekey(reader)?);
            }
        }
        if has_newest {
            let (group, founder) = (at.group.as_str(), &at.administrator);
            epochs.newest = match reader.counted().ok()? {
                [] => None,
                bytes => Some(EpochAnnouncement::verify(bytes, group, founder).ok()?),
            };
            decode_address(reader, &mut epochs.moved)?;
        }
        Some(epochs)
    }
}

fn encode_address(at: Option<&ProxyAddress>, out: &mut Vec<u8>) {
    out.put_text(at.map_or("", |at| &at.address));
    out.extend(at.iter().flat_map(|at| at.key.to_bytes()));
}

/// Decodes what [`encode_address`] has written.
fn decode_address(reader: &mut FieldReader<'_>, to: &mut Option<ProxyAddress>) -> Option<()> {
    let address = reader.text().ok()?.to_owned();
    *to = if address.is_empty() {
        None
    } else {
        let key = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
        Some(ProxyAddress { address, key })
    };
    Some(())
}

fn decode_prekey(reader: &mut FieldReader<'_>) -> Option<PrekeySecret> {
    let number = reader.u64().ok()?;
    Some(PrekeySecret::new(number, Zeroizing::new(reader.take().ok()?)))
}

impl OpenedEpoch {
    fn open(
        announcement: &EpochAnnouncement,
        own: &IdentitySecretKey,
        prekeys: &[PrekeySecret],
    ) -> Option<Self> {
        let opened = announcement.open(own, prekeys).ok()?;
        Self::new(announcement, &own.public(), opened)
    }

    fn new(
        announcement: &EpochAnnouncement,
        own: &IdentityPublicKey,
        opened: OpenedAnnouncement,
    ) -> Option<Self> {
        Some(Self {
            number: announcement.epoch(),
            own: announcement.index_of(own).and_then(|at| u16::try_from(at).ok())?,
            key: opened.key,
            members: announcement.members().zip(opened.names).collect(),
        })
    }

    /// The epoch, as [`crate::MixMember`] takes it.
    fn epoch(&self, shape: &MailboxShape) -> Result<MemberEpoch, MemberEpochError> {
        let own = &self.members[usize::from(self.own)].0;
        let member = |(key, name): &(IdentityPublicKey, MemberName)| GroupMember {
            name: name.as_str().to_owned(),
            key: *key,
        };
        let all = self.members.iter().map(member).collect();
        MemberEpoch::new(self.number, *shape, own, MixGroupKey::new(*self.key), all)
    }

    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.number.to_be_bytes());
        out.extend(self.own.to_be_bytes());
        out.extend(&*self.key);
        out.extend(u16::try_from(self.members.len()).expect("at most 1024").to_be_bytes());
        for (key, name) in &self.members {
            out.extend(key.to_bytes());
            out.put_text(name.as_str());
        }
    }

    /// Decodes what follows the number.
    fn decode(number: u32, reader: &mut FieldReader<'_>) -> Option<Self> {
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
        Some(Self { number, own, key, members })
    }
}

fn micros(since_1970: Duration) -> u64 {
    u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX)
}
