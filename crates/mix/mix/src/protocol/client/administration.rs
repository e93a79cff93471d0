//! The administrators' part of a client: admitting and removing members, and announcing epochs.

use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::MixClient;
use super::report::{AdministratorError, ImportError, MixClientError, NotAdministrator};
use crate::protocol::event::MixClientEvent;
use crate::protocol::membership::{
    Administrator, AdoptedAnnouncement, AnnouncementOrder, ChangeAdministratorsError,
    EpochAnnouncement, Invitation, MemberName, NameBinding, NoRosterError, ProxyAddress,
};
use crate::protocol::wire::MemberToProxy;

/// The minimum interval between two reports of refusals to the administrator. The holder of a used
/// invitation can send any number of requests, under any names.
const REFUSAL_INTERVAL: Duration = Duration::from_secs(60);

/// Limits the rate of reports about refused join requests.
#[derive(Default)]
pub(super) struct JoinRefusalLimiter {
    last_reported: Option<Duration>,
    unreported: u64,
}

impl JoinRefusalLimiter {
    /// If a refusal is to be reported now, returns the number of refusals that were not reported
    /// before.
    fn take_report(&mut self, now: Duration) -> Option<u64> {
        let since = self.last_reported.map(|last| now.saturating_sub(last));
        if since.is_some_and(|since| since < REFUSAL_INTERVAL) {
            self.unreported += 1;
            return None;
        }
        self.last_reported = Some(now);
        Some(std::mem::take(&mut self.unreported))
    }
}

/// The administrator's part.
impl MixClient {
    pub(super) fn handle_join_request(
        &mut self,
        now: Duration,
        key: &IdentityPublicKey,
        request: &[u8],
    ) {
        let calendar = self.calendar(now);
        let (Some(administrator), Some(link)) = (&mut self.administrator, &self.link) else {
            return;
        };
        let max_members = link.terms().shape().members();
        let decision = administrator.handle_join_request(calendar, max_members, key, request);
        // Nothing is said about a request for another administrator.
        let Some(decision) = decision else { return };
        let answer = MemberToProxy::JoinAnswer { key: *key, answer: decision.answer };
        let event = match (decision.outcome, decision.name, decision.invited) {
            (Ok(()), Some(name), Some(invited)) if decision.is_new => {
                Some(MixClientEvent::Admitted { name, invited, key: *key })
            }
            (Ok(()), ..) => None,
            (Err(reason), name, invited) => self
                .refusals
                .take_report(now)
                .map(|others| MixClientEvent::NotAdmitted { name, invited, reason, others }),
        };
        self.events.extend(event);
        if decision.outcome.is_ok() {
            self.membership_changed();
        }
        // A refusal changes nothing. If it had the state written, anybody who has seen an
        // invitation could keep this administrator from writing to others.
        self.membership.extend([answer.encode()]);
        self.announce_if_due(now);
    }

    pub(super) fn handle_notice(&mut self, now: Duration, key: &IdentityPublicKey, notice: &[u8]) {
        let Some(administrator) = &mut self.administrator else { return };
        let left = administrator.handle_notice(key, notice);
        self.events.extend(left.map(|name| MixClientEvent::Left { name }));
        self.membership_changed();
        self.announce_if_due(now);
    }

    /// Takes over the newest announcement as the administrator's state, and begins or ends to be
    /// one if the list says so.
    pub(super) fn update_administrator(&mut self, now: Duration, newest: &EpochAnnouncement) {
        let calendar = self.calendar(now);
        if !newest.administrators().contains(&self.identity.public()) {
            self.administrator = None;
            return;
        }
        let known = self.administrator.as_ref().map(Administrator::epoch);
        let is_opened = self.epochs.number() == newest.epoch() && newest.proxy().is_some();
        let taken = if is_opened && !newest.has_names(&self.identity, self.epochs.names()) {
            Err(NoRosterError)
        } else if let Some(administrator) = &mut self.administrator {
            administrator.adopt(calendar, newest)
        } else {
            let (own, at) = (Arc::clone(&self.identity), self.settings.group.clone());
            let taken = Administrator::take_over(own, at, newest, calendar);
            taken.map(|administrator| {
                self.administrator = Some(administrator);
                AdoptedAnnouncement::default()
            })
        };
        if let Ok(AdoptedAnnouncement { readmitted, dropped_admissions, .. }) = &taken {
            let (removed, dropped) = (readmitted.clone(), dropped_admissions.clone());
            let removed = MixClientEvent::RemovedAgain { names: removed };
            let dropped = MixClientEvent::AdmissionsDropped { names: dropped };
            self.events.extend((!readmitted.is_empty()).then_some(removed));
            self.events.extend((!dropped_admissions.is_empty()).then_some(dropped));
        }
        let event = match taken {
            Err(why) => {
                // Without it, nothing is announced from an old state.
                self.administrator = None;
                Some(MixClientEvent::CannotTakeOver(why))
            }
            Ok(AdoptedAnnouncement { dropped_changes: count @ 1.., .. }) => {
                Some(MixClientEvent::ChangesDropped { count })
            }
            Ok(_) => {
                let is_behind = known.is_some_and(|known| known.saturating_add(1) < newest.epoch());
                let was_listed = self.was_administrator_of(newest);
                let (epoch, members) = (newest.epoch(), newest.members().len());
                (is_behind || (known.is_none() && was_listed))
                    .then_some(MixClientEvent::TakenOver { epoch, members })
            }
        };
        self.events.extend(event);
    }

    /// Whether this client was an administrator when it last had a state, as far as it can know:
    /// a founder always was.
    fn was_administrator_of(&self, newest: &EpochAnnouncement) -> bool {
        let own = self.identity.public();
        own == self.settings.group.administrator && newest.epoch() > 1
    }

    /// Sends the proposal that the proxy may not have received.
    pub(super) fn continue_proposal(&mut self) {
        let is_current = self.link.as_ref().is_some_and(|link| link.is_current);
        let proposal = self.administrator.as_ref().and_then(Administrator::proposal);
        if is_current && let Some(proposal) = proposal {
            let message = MemberToProxy::Announce(proposal.to_vec()).encode();
            self.membership.extend([message]);
        }
    }

    /// Announces the next epoch, if it is due. An administrator whose state may be older than that
    /// of the proxy first takes over the newer one.
    pub(super) fn announce_if_due(&mut self, now: Duration) {
        let calendar = self.calendar(now);
        let is_current = self.link.as_ref().is_some_and(|link| link.is_current);
        let Some(administrator) = self.administrator.as_mut().filter(|_| is_current) else {
            return;
        };
        let made = administrator.handle_timeout(calendar, &mut self.random).map(<[u8]>::to_vec);
        if let Some(announcement) = made {
            self.membership_changed();
            self.membership.extend([MemberToProxy::Announce(announcement).encode()]);
        }
    }
}

/// The actions of an administrator.
impl MixClient {
    /// Makes an invitation for one person, with a proposed name. For an administrator.
    ///
    /// # Errors
    /// If this is no administrator, there are too many invitations, or the name is taken or mixes
    /// scripts.
    pub fn invite(
        &mut self,
        now: Duration,
        name: MemberName,
        binding: NameBinding,
        lasts: Duration,
    ) -> Result<Invitation, AdministratorError> {
        let now = self.calendar(now);
        let administrator = self.administrator.as_mut().ok_or(NotAdministrator)?;
        let secret = self.random.draw();
        let invitation = administrator.invite(now, name, binding, now + lasts, secret)?;
        self.membership_changed();
        Ok(invitation.with_exchange(self.agreed.exchange()))
    }

    /// Removes a member from the group. For an administrator.
    ///
    /// # Errors
    /// If this is no administrator, or there is no such member.
    pub fn remove(&mut self, now: Duration, name: &MemberName) -> Result<(), AdministratorError> {
        self.change(now, |own| own.remove(name).map_err(AdministratorError::Remove))
    }

    /// Makes a member an administrator. For an administrator.
    ///
    /// # Errors
    /// If this is no administrator, there is no such member, or it is an administrator.
    pub fn add_administrator(
        &mut self,
        now: Duration,
        name: &MemberName,
    ) -> Result<(), AdministratorError> {
        self.change(now, |own| own.add_administrator(name).map_err(AdministratorError::Change))
    }

    /// Takes a member, which may be this one, from the administrators. For an administrator.
    ///
    /// # Errors
    /// If this is no administrator, there is no such administrator, or it is the only one.
    pub fn remove_administrator(
        &mut self,
        now: Duration,
        name: &MemberName,
    ) -> Result<(), AdministratorError> {
        self.change(now, |own| own.remove_administrator(name).map_err(AdministratorError::Change))?;
        if self.administrator.as_ref().is_some_and(Administrator::steps_down) && self.link.is_some()
        {
            self.send_notices(now);
        }
        Ok(())
    }

    /// Makes a member an administrator in the place of this one. For an administrator.
    ///
    /// # Errors
    /// If this is no administrator, or there is no such member.
    pub fn hand_over(&mut self, now: Duration, to: &MemberName) -> Result<(), AdministratorError> {
        let own = self.epochs.own_name().unwrap_or(&self.settings.name).clone();
        let added = self.add_administrator(now, to);
        if added != Err(AdministratorError::Change(ChangeAdministratorsError::Already)) {
            added?;
        }
        self.remove_administrator(now, &own)
    }

    /// Announces that the proxy has another address or key. For an administrator.
    ///
    /// # Errors
    /// If this is no administrator.
    pub fn move_proxy(&mut self, now: Duration, to: ProxyAddress) -> Result<(), NotAdministrator> {
        self.administrator.as_mut().ok_or(NotAdministrator)?.move_proxy(to);
        self.membership_changed();
        self.announce_if_due(now);
        Ok(())
    }

    fn change(
        &mut self,
        now: Duration,
        change: impl FnOnce(&mut Administrator) -> Result<(), AdministratorError>,
    ) -> Result<(), AdministratorError> {
        change(self.administrator.as_mut().ok_or(NotAdministrator)?)?;
        self.membership_changed();
        self.announce_if_due(now);
        Ok(())
    }

    /// The newest announcement: the members, their keys and, sealed for the administrators, their
    /// names and prekeys. `None` before the first epoch.
    pub fn export(&self) -> Option<&[u8]> {
        self.epochs.newest().map(EpochAnnouncement::bytes)
    }

    /// Takes over an announcement that [`MixClient::export`] returned, at any member, if it is
    /// newer than the newest one.
    ///
    /// # Errors
    /// If it is not newer, or not of this group.
    pub fn import(&mut self, now: Duration, exported: &[u8]) -> Result<(), ImportError> {
        let at = &self.settings.group;
        let announcement =
            EpochAnnouncement::verify(exported, at.group.as_str(), &at.administrator)?;
        match self.epochs.order(&announcement) {
            AnnouncementOrder::Newer => {}
            AnnouncementOrder::Fork => return Err(ImportError::Fork),
            _ => return Err(ImportError::NotNewer(self.epochs.newest_number())),
        }
        let is_first = self.epochs.newest().is_none();
        let taken = self.take_announcement(now, &announcement);
        taken.map_err(|error| match error {
            MixClientError::NotAsInvited => ImportError::NotAsInvited,
            _ => ImportError::Damaged,
        })?;
        let configured = self.settings.group.proxy_address();
        if let Some(proxy) = announcement.proxy().filter(|it| is_first && **it != configured) {
            self.epochs.set_moved(proxy.clone());
            self.handle_moved();
        }
        self.finish_import();
        Ok(())
    }

    /// The newest announcement was imported: the proxy may not have it.
    pub(super) fn finish_import(&mut self) {
        if let Some(link) = &mut self.link {
            link.is_current = false;
        }
        let _ = self.begin_member();
        self.restore_proxy();
    }
}
