//! What members and clients ask of an administrator: join requests, and notices.

use std::time::Duration;

use keys::IdentityPublicKey;

use super::super::changes::MembershipChange;
use super::super::invitations::NameBinding;
use super::super::join::{JoinRefusal, JoinRequest, JoinRequestError, encode_answer};
use super::super::name::MemberName;
use super::super::prekey::{MemberNotice, Prekey};
use super::super::roster::{AdmittedMember, UsedInvitation};
use super::{Administrator, JoinDecision};
use crate::protocol::shape::MEMBERS;

impl Administrator {
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
        let (founder, group) = (&self.at.administrator, self.at.group.as_str());
        let lists = self.administrators.digests_with(member);
        let notice = MemberNotice::decode(notice, member, founder, group, lists)?;
        match notice {
            MemberNotice::Prekey { prekey, opened }
            | MemberNotice::StepDown { prekey, opened, .. }
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
}
