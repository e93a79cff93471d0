//! An administrator's view of the membership, and its decisions.
//!
//! It continues from the newest announcement, which it has from the proxy or from another member:
//! [`Administrator::adopt`]. It announces the next epoch as a *proposal*: the proxy takes the first
//! one that continues the current epoch, and an administrator whose proposal was not taken makes
//! its changes again on top of the other one.
//!
//! Times are durations since 1970, because invitations expire on a date.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use super::administrators::{AdministratorList, ChangeAdministratorsError};
use super::announcement::{self, AnnouncementContent, AnnouncementSecrets, EpochAnnouncement};
use super::changes::{ChangedMembership, MembershipChange};
use super::crypto::group_id;
use super::invitation::{GroupAddress, Invitation, ProxyAddress};
use super::invitations::{InviteMemberError, IssuedInvitation, IssuedInvitations, NameBinding};
use super::join::{JoinRefusal, JoinRequest, JoinRequestError, encode_answer};
use super::name::MemberName;
use super::prekey::{MemberNotice, Prekey};
use super::roster::{AdmittedMember, Roster, UsedInvitation};
use crate::protocol::random::ForwardSecureRng;
use crate::protocol::shape::MEMBERS;

/// The maximum duration of an epoch.
const MAX_EPOCH: Duration = Duration::from_secs(24 * 60 * 60);
/// The minimum interval between two epochs. Members send their new prekeys meanwhile.
const MIN_EPOCH: Duration = Duration::from_secs(2);
/// How much longer each administrator waits than the one before it in the list. So usually only one
/// of them announces the next epoch.
const RANK_WAIT: Duration = Duration::from_secs(1);
/// The exponential backoff of epochs that are made because a member could not open the last one:
/// the wait doubles up to this many times. Without backoff, if notices are slower than epochs, each
/// notice would cross the next announcement and epochs would follow each other for ever.
const MAX_DOUBLINGS: u32 = 6;

/// An administrator of a group. It contains secrets: those of its invitations.
pub struct Administrator {
    identity: Arc<IdentitySecretKey>,
    /// The group, with the current address of the proxy.
    at: GroupAddress,
    /// The membership after `changes`.
    administrators: AdministratorList,
    roster: Roster,
    changes: Vec<MembershipChange>,
    invitations: IssuedInvitations,
    /// The greatest number of members that the proxy allows, as far as it is known.
    max_members: usize,
    /// The newest announcement; `None` before the first.
    newest: Option<EpochAnnouncement>,
    /// The announcement of the next epoch, until the proxy has taken it or another one.
    proposal: Vec<u8>,
    made_at: Duration,
    /// Whether an epoch is due for another reason than `changes`.
    is_changed: bool,
    /// Whether a member could not open the last epoch.
    has_unopened_epoch: bool,
    /// The number of consecutive epochs that a member could not open.
    consecutive_unopened: u32,
}

/// Why a member is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveMemberError {
    /// There is no such member.
    #[error("no member has this name")]
    Unknown,
    /// It is the administrator itself.
    #[error("an administrator cannot remove itself: hand over first, then leave")]
    Administrator,
    /// It stays an administrator.
    #[error("{0}")]
    List(#[from] ChangeAdministratorsError),
}

/// The decision about a join request.
pub struct JoinDecision {
    /// The encoded answer for the client.
    pub answer: Vec<u8>,
    /// The name that the request was for, if it could be read.
    pub name: Option<MemberName>,
    /// The name of the invitation, if it is known.
    pub invited: Option<MemberName>,
    /// Whether the client is now a member.
    pub outcome: Result<(), JoinRefusal>,
    /// Whether this request has made it a member. Otherwise it may be one already, with another
    /// name than that of the request, which the proxy can repeat at any time.
    pub is_new: bool,
}

/// The effect of the newest announcement on an administrator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdoptedAnnouncement {
    /// The number of decisions that are lost: this administrator was away for several epochs, or
    /// its state is old, and they may not fit any more.
    pub dropped_changes: usize,
    /// The members that were removed in an epoch that the announcement does not continue. They are
    /// removed again.
    pub readmitted: Vec<MemberName>,
}

/// The newest announcement cannot be continued, because it has no roster for this administrator: it
/// is of the version before, or its roster differs from what the members see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this administrator cannot go on from the newest list of members: the list for administrators \
     is missing in it, or differs from that of the members. Restore a backup of the state if it was \
     lost, or ask the other administrators"
)]
pub struct NoRosterError;

impl Administrator {
    /// The administrator of a new group, of which it is the only member.
    ///
    /// # Panics
    /// If the identity is not that of `at`, or the prekey is not valid.
    pub fn found(
        identity: Arc<IdentitySecretKey>,
        at: GroupAddress,
        name: MemberName,
        prekey: Prekey,
    ) -> Self {
        assert!(identity.public() == at.administrator && prekey.is_sound(), "they are its own");
        let members = vec![AdmittedMember { key: identity.public(), name, prekey }];
        let administrators = AdministratorList::founded(at.administrator, at.group.as_str());
        Self::of(identity, at, administrators, Roster { members, ..Roster::default() })
    }

    /// The administrator of a group that it knows from the newest announcement alone: it has become
    /// one, or has lost its state.
    ///
    /// # Errors
    /// If the announcement has no roster that this administrator can open.
    pub fn take_over(
        identity: Arc<IdentitySecretKey>,
        at: GroupAddress,
        newest: &EpochAnnouncement,
        now: Duration,
    ) -> Result<Self, NoRosterError> {
        let administrators = newest.administrators().clone();
        let mut taken = Self::of(identity, at, administrators, Roster::default());
        taken.adopt(now, newest)?;
        Ok(taken)
    }

    fn of(
        identity: Arc<IdentitySecretKey>,
        at: GroupAddress,
        administrators: AdministratorList,
        roster: Roster,
    ) -> Self {
        Self {
            identity,
            at,
            administrators,
            roster,
            changes: Vec::new(),
            invitations: IssuedInvitations::default(),
            max_members: *MEMBERS.end(),
            newest: None,
            proposal: Vec::new(),
            made_at: Duration::ZERO,
            is_changed: false,
            has_unopened_epoch: false,
            consecutive_unopened: 0,
        }
    }

    /// Continues from the newest announcement, which the caller has compared with the one before.
    /// Decisions that are not in it are made again, if this administrator knew the announcement
    /// before it. Otherwise they are dropped: an old state must not undo what others have decided
    /// since.
    ///
    /// # Errors
    /// If the announcement has no roster that this administrator can open.
    pub fn adopt(
        &mut self,
        now: Duration,
        newest: &EpochAnnouncement,
    ) -> Result<AdoptedAnnouncement, NoRosterError> {
        if self.newest.as_ref().is_some_and(|known| known.digest() == newest.digest()) {
            return Ok(AdoptedAnnouncement::default());
        }
        let mut roster = newest.open_roster(&self.identity).ok_or(NoRosterError)?;
        // As it was announced: a removal that was not may not fit any more.
        let known = self.newest.as_ref().and_then(|known| known.open_roster(&self.identity));
        if let Some(known) = known {
            roster.unite_removed(&known);
        }
        let own = self.identity.public();
        let is_readmitted =
            |member: &&AdmittedMember| member.key != own && roster.is_removed(&member.key);
        let readmitted: Vec<_> = roster.members.iter().filter(is_readmitted).cloned().collect();
        // A member whose prekey has crossed the announcement has erased the one before.
        let mut has_crossed = false;
        for AdmittedMember { key, prekey, .. } in &self.roster.members {
            has_crossed |= roster.set_prekey(key, *prekey);
        }
        let is_next = self.newest.as_ref().is_none_or(|known| newest.follows(known));
        let had_first = self.newest.is_some();
        self.administrators = newest.administrators().clone();
        self.roster = roster;
        if let Some(proxy) = newest.proxy() {
            (self.at.proxy_address, self.at.proxy) = (proxy.address.clone(), proxy.key);
        }
        self.newest = Some(newest.clone());
        self.proposal.clear();
        self.made_at = now;
        (self.is_changed, self.has_unopened_epoch) = (false, has_crossed);
        let changes = std::mem::take(&mut self.changes);
        let are_dropped = !is_next || (!had_first && newest.epoch() > 1);
        let dropped_changes = if are_dropped { changes.len() } else { 0 };
        for change in changes {
            if are_dropped || !self.make(change.clone()) {
                self.forget(&change);
            }
        }
        for member in &readmitted {
            self.make(MembershipChange::Remove(member.key));
        }
        let readmitted = readmitted.into_iter().map(|member| member.name).collect();
        Ok(AdoptedAnnouncement { dropped_changes, readmitted })
    }

    /// A change is not announced. Somebody whose admission it was can ask again.
    fn forget(&mut self, change: &MembershipChange) {
        if let MembershipChange::Admit(_, used) = change
            && !self.roster.is_used(used.id)
        {
            self.invitations.set_unused(used.id);
        }
    }

    /// Makes a change, and has it announced. Returns whether there was something to change.
    fn make(&mut self, change: MembershipChange) -> bool {
        let mut proxy = self.at.proxy_address();
        let is_made = change.apply(&mut ChangedMembership {
            own: &self.identity,
            max_members: self.max_members,
            administrators: &mut self.administrators,
            roster: &mut self.roster,
            proxy: &mut proxy,
        });
        (self.at.proxy_address, self.at.proxy) = (proxy.address, proxy.key);
        if is_made {
            // Each change is there once: one that only asks others has its effect later.
            self.changes.retain(|before| *before != change);
            self.changes.push(change);
        }
        is_made
    }

    /// Makes an invitation that can be used once, until `expires`. `secret` is random.
    ///
    /// # Errors
    /// If nobody could join with it.
    pub fn invite(
        &mut self,
        now: Duration,
        name: MemberName,
        binding: NameBinding,
        expires: Duration,
        secret: Zeroizing<[u8; 16]>,
    ) -> Result<Invitation, InviteMemberError> {
        name.check_scripts()?;
        if self.roster.members.iter().any(|member| member.name.clashes_with(&name)) {
            return Err(InviteMemberError::NameTaken);
        }
        // The code encodes minutes.
        let expires = Duration::from_secs(expires.as_secs() / 60 * 60);
        let issued = IssuedInvitation {
            secret: secret.clone(),
            name: name.clone(),
            binding,
            expires,
            used: false,
        };
        self.invitations.push(now, issued)?;
        // The list as it was announced: a change of it may not take effect.
        let announced = self.newest.as_ref().map(|newest| newest.administrators().anchor());
        let founded =
            || AdministratorList::founded(self.at.administrator, self.at.group.as_str()).anchor();
        let anchor = announced.unwrap_or_else(founded);
        let inviter = self.identity.public();
        Ok(Invitation { at: self.at.clone(), name, expires, secret, inviter, anchor })
    }

    /// Decides about a join request of the client with this key, for a group of at most
    /// `max_members`. `None` if the request is for another administrator, who has invited the
    /// client.
    pub fn handle_join_request(
        &mut self,
        now: Duration,
        max_members: usize,
        client: &IdentityPublicKey,
        request: &[u8],
    ) -> Option<JoinDecision> {
        self.max_members = max_members.min(*MEMBERS.end());
        if JoinRequest::inviter(request)? != self.identity.public() {
            return None;
        }
        let was_member = self.roster.member(client).is_some();
        let (id, salt) = JoinRequest::header(request).unwrap_or_default();
        let (name, invited, outcome) = match self.read_request(client, id, request) {
            Err(refusal) => (None, None, Err(refusal)),
            Ok((invited, request)) => {
                let outcome = self.decide(now, client, id, &request);
                (Some(request.name), Some(invited), outcome)
            }
        };
        let answer = encode_answer(outcome, &self.identity, &self.group_id(), client, &salt);
        let is_new = outcome.is_ok() && !was_member;
        Some(JoinDecision { answer, name, invited, outcome, is_new })
    }

    /// Decodes the request, and finds the name of its invitation.
    fn read_request(
        &self,
        client: &IdentityPublicKey,
        id: [u8; 8],
        request: &[u8],
    ) -> Result<(MemberName, JoinRequest), JoinRefusal> {
        let issued = self.invitations.find(id).ok_or(JoinRefusal::Unknown)?;
        let group_id = self.group_id();
        JoinRequest::decode(request, client, &self.identity, &group_id, &issued.secret)
            .map(|request| (issued.name.clone(), request))
            .map_err(|error| match error {
                JoinRequestError::NotAuthentic => JoinRefusal::Unknown,
                JoinRequestError::Malformed => JoinRefusal::Malformed,
            })
    }

    fn decide(
        &mut self,
        now: Duration,
        client: &IdentityPublicKey,
        id: [u8; 8],
        request: &JoinRequest,
    ) -> Result<(), JoinRefusal> {
        let JoinRequest { name, prekey, .. } = request;
        // The client is already a member: the answer or the client's state was lost.
        if self.roster.member(client).is_some() {
            self.is_changed |= self.roster.set_prekey(client, *prekey);
            return Ok(());
        }
        let issued = self.invitations.find(id).ok_or(JoinRefusal::Unknown)?;
        if issued.used || self.roster.is_used(id) {
            return Err(JoinRefusal::Used);
        }
        if issued.expires <= now {
            return Err(JoinRefusal::Expired);
        }
        if issued.binding == NameBinding::Invited && issued.name != *name {
            return Err(JoinRefusal::OtherName);
        }
        // A client checks this before it asks.
        name.check_scripts().map_err(|_| JoinRefusal::Malformed)?;
        if self.roster.members.len() >= self.max_members {
            return Err(JoinRefusal::GroupFull);
        }
        if self.roster.members.iter().any(|member| member.name.clashes_with(name)) {
            return Err(JoinRefusal::NameTaken);
        }
        let used = UsedInvitation::new(id, issued.expires);
        self.invitations.set_used(id);
        let member = AdmittedMember { key: *client, name: name.clone(), prekey: *prekey };
        self.make(MembershipChange::Admit(member, used));
        Ok(())
    }

    /// Handles a member's notice. Returns the member's name if it has left. An old notice, or one
    /// that the member did not make, is ignored.
    pub fn handle_notice(
        &mut self,
        member: &IdentityPublicKey,
        notice: &[u8],
    ) -> Option<MemberName> {
        let AdmittedMember { prekey: known, name, .. } = self.roster.member(member)?;
        let (known, name) = (known.number, name.clone());
        let founder = &self.at.administrator;
        let notice = MemberNotice::decode(notice, member, founder, self.at.group.as_str())?;
        match notice {
            MemberNotice::Prekey { prekey, opened } | MemberNotice::StepDown { prekey, opened }
                if prekey.number > known && prekey.is_sound() =>
            {
                self.set_prekey(member, prekey, opened);
            }
            MemberNotice::Leave { number }
                if number > known && *member != self.identity.public() =>
            {
                return self.make(MembershipChange::Remove(*member)).then_some(name);
            }
            _ => {}
        }
        // It is repeated until it has happened.
        if let MemberNotice::StepDown { prekey, .. } = notice
            && prekey.number >= known
            && *member != self.identity.public()
        {
            self.make(MembershipChange::RemoveAdministrator(*member));
        }
        None
    }

    /// Takes the administrator's own next prekey, as [`MemberNotice::Prekey`].
    pub fn set_own_prekey(&mut self, prekey: Prekey, opened: u32) {
        self.set_prekey(&self.identity.public(), prekey, opened);
    }

    fn set_prekey(&mut self, of: &IdentityPublicKey, prekey: Prekey, opened: u32) {
        self.roster.set_prekey(of, prekey);
        // The member could not open the last announcement, because it had erased the prekey.
        self.has_unopened_epoch |= opened < self.epoch();
    }

    /// The epoch has no further rounds that can be read: another one is announced, after a wait
    /// that doubles.
    pub(crate) fn handle_unreadable_round(&mut self) {
        self.has_unopened_epoch = true;
    }

    /// Removes a member from the next epochs. If it is another administrator, it is none any more.
    ///
    /// # Errors
    /// If there is no such member, it is this administrator, or it cannot be taken from the list of
    /// administrators.
    pub fn remove(&mut self, name: &MemberName) -> Result<(), RemoveMemberError> {
        let key = self.roster.key_of(name).ok_or(RemoveMemberError::Unknown)?;
        if key == self.identity.public() {
            return Err(RemoveMemberError::Administrator);
        }
        if self.administrators.contains(&key) {
            // Says why not, if not.
            self.administrators.clone().remove(&self.identity, key)?;
        }
        self.make(MembershipChange::Remove(key));
        Ok(())
    }

    /// Makes a member an administrator, from the next epoch on.
    ///
    /// # Errors
    /// If there is no such member, it is one, or there are too many.
    pub fn add_administrator(
        &mut self,
        name: &MemberName,
    ) -> Result<(), ChangeAdministratorsError> {
        let key = self.roster.key_of(name).ok_or(ChangeAdministratorsError::Unknown)?;
        // Says why not, if not.
        self.administrators.clone().add(&self.identity, key)?;
        self.make(MembershipChange::AddAdministrator(key));
        Ok(())
    }

    /// Takes a member, which may be this one, from the administrators. It stays a member. This one
    /// stays an administrator until another one has taken it from the list.
    ///
    /// # Errors
    /// If there is no such administrator, or it is the only one.
    pub fn remove_administrator(
        &mut self,
        name: &MemberName,
    ) -> Result<(), ChangeAdministratorsError> {
        let key = self.roster.key_of(name).ok_or(ChangeAdministratorsError::Unknown)?;
        self.administrators.clone().remove(&self.identity, key)?;
        self.make(MembershipChange::RemoveAdministrator(key));
        Ok(())
    }

    /// Whether this administrator asks the others to take it from the list. It cannot do that
    /// itself, because it could not sign the announcement of it.
    pub fn steps_down(&self) -> bool {
        let own = self.identity.public();
        self.changes.contains(&MembershipChange::RemoveAdministrator(own))
    }

    /// Announces a new address or key of the proxy with the next epoch.
    pub fn move_proxy(&mut self, proxy: ProxyAddress) {
        self.make(MembershipChange::Move(proxy));
    }

    /// The number of the newest epoch, or 0.
    pub fn epoch(&self) -> u32 {
        self.newest.as_ref().map_or(0, EpochAnnouncement::epoch)
    }

    /// The announcement of the next epoch, if it was made and the proxy has not taken it.
    pub fn proposal(&self) -> Option<&[u8]> {
        (!self.proposal.is_empty()).then_some(&self.proposal)
    }

    /// When the next epoch is due; `None` while the proxy has not answered the last proposal.
    pub fn poll_timeout(&self) -> Option<Duration> {
        if self.proposal().is_some() {
            return None;
        }
        let own_wish = usize::from(self.steps_down());
        let has_changes = self.changes.len() > own_wish;
        let wait = if self.newest.is_none() || self.is_changed || has_changes {
            MIN_EPOCH
        } else if self.has_unopened_epoch {
            MIN_EPOCH * 2_u32.pow(self.consecutive_unopened.min(MAX_DOUBLINGS))
        } else {
            MAX_EPOCH
        };
        let own = self.identity.public();
        let rank = self.administrators.keys().iter().position(|key| *key == own).unwrap_or(0);
        Some(self.made_at + wait + RANK_WAIT * u32::try_from(rank).unwrap_or(u32::MAX))
    }

    /// Makes the announcement of the next epoch, if it is due. The caller has made sure that the
    /// proxy has no newer announcement than the one that this administrator has adopted.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Duration,
        random: &mut ForwardSecureRng,
    ) -> Option<&[u8]> {
        // A clock that was wrong earlier could otherwise delay the next epoch for years.
        self.made_at = self.made_at.min(now);
        if now < self.poll_timeout()? {
            return None;
        }
        let epoch = self.epoch().checked_add(1)?;
        self.consecutive_unopened =
            if self.has_unopened_epoch { self.consecutive_unopened + 1 } else { 0 };
        self.roster.forget_expired(now);
        let content = AnnouncementContent {
            administrators: &self.administrators,
            proxy: &self.at.proxy_address(),
            epoch,
            previous: self.newest.as_ref().map_or([0; 32], |newest| *newest.digest()),
            roster: &self.roster,
        };
        let secrets = AnnouncementSecrets {
            key: random.draw(),
            ephemeral: random.draw(),
            roster: random.draw(),
        };
        self.proposal = announcement::encode(&self.identity, &self.group_id(), &content, &secrets);
        Some(&self.proposal)
    }

    fn group_id(&self) -> [u8; 32] {
        group_id(&self.at.administrator, self.at.group.as_str())
    }

    /// The group.
    pub fn group(&self) -> &GroupAddress {
        &self.at
    }

    /// The encoded state, for [`Administrator::from_bytes`]. Secret.
    #[expect(clippy::missing_panics_doc, reason = "there are not as many changes")]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let newest = self.newest.as_ref().map_or(&[][..], EpochAnnouncement::bytes);
        let entries = self.roster.members.len() + self.changes.len() + self.invitations.len();
        let len = (32 << 10) + newest.len() + self.proposal.len() + 256 * entries;
        let mut out = Zeroizing::new(Vec::with_capacity(len));
        out.extend(self.at.proxy.to_bytes());
        out.put_text(&self.at.proxy_address);
        out.extend(self.made_at.as_secs().to_be_bytes());
        out.push(u8::from(self.is_changed) | u8::from(self.has_unopened_epoch) << 1);
        self.administrators.encode(&mut out);
        self.roster.encode(&mut out);
        self.invitations.encode(&mut out);
        out.extend(u16::try_from(self.changes.len()).expect("few").to_be_bytes());
        self.changes.iter().for_each(|change| change.encode(&mut out));
        out.put_counted(newest);
        out.put_counted(&self.proposal);
        out
    }

    /// Decodes the output of [`Administrator::to_bytes`], for the group at `at`; `None` if the
    /// bytes are malformed.
    pub fn from_bytes(
        identity: Arc<IdentitySecretKey>,
        at: &GroupAddress,
        bytes: &[u8],
    ) -> Option<Self> {
        let (founder, group) = (at.administrator, at.group.as_str());
        let mut reader = FieldReader::new(bytes);
        let at = GroupAddress {
            proxy: IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?,
            proxy_address: reader.text().ok()?.to_owned(),
            ..at.clone()
        };
        let made_at = Duration::from_secs(reader.u64().ok()?);
        let reasons = reader.u8().ok()?;
        let administrators = AdministratorList::decode(&mut reader, founder, group)?;
        let roster = Roster::decode(&mut reader)?;
        let invitations = IssuedInvitations::decode(&mut reader)?;
        let mut changes = Vec::new();
        for _ in 0..reader.u16().ok()? {
            changes.push(MembershipChange::decode(&mut reader)?);
        }
        let newest = match reader.counted().ok()? {
            [] => None,
            bytes => Some(EpochAnnouncement::verify(bytes, group, &founder).ok()?),
        };
        let proposal = reader.counted().ok()?.to_vec();
        let is_whole = reader.is_empty() && GroupAddress::is_proxy_address(&at.proxy_address);
        is_whole.then_some(Self {
            changes,
            invitations,
            newest,
            proposal,
            made_at,
            is_changed: reasons & 1 != 0,
            has_unopened_epoch: reasons & 2 != 0,
            ..Self::of(identity, at, administrators, roster)
        })
    }

    /// Decodes the state of the only administrator, the founder, of the version before; `None` if
    /// the bytes are malformed.
    pub(crate) fn from_bytes_before(
        identity: Arc<IdentitySecretKey>,
        bytes: &[u8],
    ) -> Option<Self> {
        let mut reader = FieldReader::new(bytes);
        let at = GroupAddress {
            proxy: IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?,
            proxy_address: reader.text().ok()?.to_owned(),
            group: reader.text().ok()?.parse().ok()?,
            administrator: identity.public(),
        };
        let (_epoch, made_at) = (reader.u32().ok()?, Duration::from_secs(reader.u64().ok()?));
        let reasons = reader.u8().ok()?;
        let members = Roster::decode_members(&mut reader)?;
        let roster = Roster { members, ..Roster::default() };
        let invitations = IssuedInvitations::decode(&mut reader)?;
        let group = at.group.as_str();
        let newest = match reader.rest() {
            [] => None,
            bytes => Some(EpochAnnouncement::verify(bytes, group, &at.administrator).ok()?),
        };
        let administrators = AdministratorList::founded(at.administrator, group);
        let is_whole = GroupAddress::is_proxy_address(&at.proxy_address)
            && roster.member(&identity.public()).is_some();
        is_whole.then_some(Self {
            invitations,
            newest,
            made_at,
            // What was changed is in the list, and the first announcement of this version has a
            // roster.
            is_changed: true,
            has_unopened_epoch: reasons & 2 != 0,
            ..Self::of(identity, at, administrators, roster)
        })
    }
}

impl fmt::Debug for Administrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.roster.members.iter().map(|member| member.name.as_str()).collect();
        f.debug_struct("Administrator")
            .field("epoch", &self.epoch())
            .field("members", &names)
            .finish_non_exhaustive()
    }
}
