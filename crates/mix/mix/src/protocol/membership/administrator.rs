//! An administrator's view of the membership, and its decisions.
//!
//! It continues from the newest announcement, which it has from the proxy or from another member:
//! [`Administrator::adopt`]. It announces the next epoch as a *proposal*: the proxy takes the first
//! one that continues the current epoch, and an administrator whose proposal was not taken makes
//! its changes again on top of the other one.
//!
//! Times are durations since 1970, because invitations expire on a date.

mod requests;
mod stored;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use zeroize::Zeroizing;

use super::administrators::{AdministratorList, ChangeAdministratorsError};
use super::announcement::{self, AnnouncementContent, AnnouncementSecrets, EpochAnnouncement};
use super::changes::{ChangedMembership, MembershipChange};
use super::crypto::group_id;
use super::invitation::{GroupAddress, Invitation, ProxyAddress};
use super::invitations::{InviteMemberError, IssuedInvitation, IssuedInvitations, NameBinding};
use super::join::JoinRefusal;
use super::name::MemberName;
use super::prekey::Prekey;
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
/// How long epochs of other administrators can delay the next one, if there are changes for it.
/// Otherwise nobody could remove one that announces more often than every [`MIN_EPOCH`].
const MAX_DEFERRAL: Duration = Duration::from_secs(10);
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
    /// If there are changes that were made before the newest announcement, which others have made:
    /// since when there are.
    deferred_since: Option<Duration>,
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
    /// The number of decisions that are lost, without admissions: this administrator was away for
    /// several epochs, or its state is old, and they may not fit any more.
    pub dropped_changes: usize,
    /// The people that this administrator had admitted, and that are no members: others announced
    /// newer epochs, or have given the name to somebody else.
    pub dropped_admissions: Vec<MemberName>,
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
            deferred_since: None,
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
        let (mut dropped_changes, mut dropped_admissions) = (0, Vec::new());
        for change in changes {
            if !are_dropped && self.make(change.clone()) {
                continue;
            }
            match change {
                MembershipChange::Admit(member, used) => {
                    dropped_admissions.extend(self.forget_admission(member, used));
                }
                _ => dropped_changes += usize::from(are_dropped),
            }
        }
        for member in &readmitted {
            self.make(MembershipChange::Remove(member.key));
        }
        self.deferred_since =
            if self.has_changes() { self.deferred_since.or(Some(now)) } else { None };
        let readmitted = readmitted.into_iter().map(|member| member.name).collect();
        Ok(AdoptedAnnouncement { dropped_changes, dropped_admissions, readmitted })
    }

    /// An admission is not announced. The person can ask again. Returns its name, unless another
    /// administrator has admitted it.
    fn forget_admission(
        &mut self,
        member: AdmittedMember,
        used: UsedInvitation,
    ) -> Option<MemberName> {
        if !self.roster.is_used(used.id) {
            self.invitations.set_unused(used.id);
        }
        self.roster.member(&member.key).is_none().then_some(member.name)
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
        let (at, exchange) = (self.at.clone(), None);
        Ok(Invitation { at, name, expires, secret, inviter, anchor, exchange })
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

    /// The list of administrators as it was announced last.
    #[cfg(test)]
    pub(super) fn newest_list(&self) -> &AdministratorList {
        self.newest.as_ref().expect("an epoch was announced").administrators()
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
        let has_changes = self.has_changes();
        let wait = if self.newest.is_none() || self.is_changed || has_changes {
            MIN_EPOCH
        } else if self.has_unopened_epoch {
            MIN_EPOCH * 2_u32.pow(self.consecutive_unopened.min(MAX_DOUBLINGS))
        } else {
            MAX_EPOCH
        };
        let own = self.identity.public();
        let rank = self.administrators.keys().iter().position(|key| *key == own).unwrap_or(0);
        let rank_wait = RANK_WAIT * u32::try_from(rank).unwrap_or(u32::MAX);
        let due = self.made_at + wait + rank_wait;
        let deferred = self.deferred_since.filter(|_| has_changes);
        Some(deferred.map_or(due, |since| due.min(since + MAX_DEFERRAL + rank_wait)))
    }

    /// Whether there are changes to announce. That it asks others to take it from the list is none.
    fn has_changes(&self) -> bool {
        self.changes.len() > usize::from(self.steps_down())
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
