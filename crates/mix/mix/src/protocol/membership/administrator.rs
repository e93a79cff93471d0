//! The administrator's list of members, and its decisions.
//!
//! Times are durations since 1970, because invitations expire on a date.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use super::announcement::{self, AnnouncementRecipient};
use super::invitation::{GroupAddress, Invitation, InvitationSecret, id_of};
use super::join::{JoinRefusal, JoinRequest, JoinRequestError, encode_answer};
use super::name::{MemberName, MemberNameError};
use super::prekey::{MemberNotice, Prekey};
use crate::protocol::random::ForwardSecureRng;
use crate::protocol::shape::MEMBERS;

/// The maximum number of remembered invitations: the open ones, and the most recent others.
const MAX_INVITATIONS: usize = 1024;
/// The maximum duration of an epoch.
const MAX_EPOCH: Duration = Duration::from_secs(24 * 60 * 60);
/// The minimum interval between two epochs. Members send their new prekeys meanwhile.
const MIN_EPOCH: Duration = Duration::from_secs(2);
/// The exponential backoff of epochs that are made because a member could not open the last one:
/// the wait doubles up to this many times. Without backoff, if notices are slower than epochs, each
/// notice would cross the next announcement and epochs would follow each other for ever.
const MAX_DOUBLINGS: u32 = 6;

/// The administrator of a group. It contains secrets: those of the invitations.
pub struct Administrator {
    identity: Arc<IdentitySecretKey>,
    at: GroupAddress,
    members: Vec<AdmittedMember>,
    invitations: Vec<IssuedInvitation>,
    epoch: u32,
    made_at: Duration,
    /// The announcement of the last epoch; empty before the first.
    announcement: Vec<u8>,
    /// Whether the list of members has changed since.
    is_changed: bool,
    /// Whether a member could not open it.
    has_unopened_epoch: bool,
    /// The number of consecutive epochs that a member could not open.
    consecutive_unopened: u32,
}

struct AdmittedMember {
    key: IdentityPublicKey,
    name: MemberName,
    prekey: Prekey,
}

struct IssuedInvitation {
    secret: InvitationSecret,
    name: MemberName,
    binding: NameBinding,
    expires: Duration,
    used: bool,
}

/// Whether the invited person must take the name of the invitation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameBinding {
    /// Only the name of the invitation is accepted.
    Invited,
    /// The person may choose another name.
    Any,
}

/// Why an invitation is not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InviteMemberError {
    /// A member has the name, or one that looks like it.
    #[error("a member has this name, or one that looks like it: invite by another name")]
    NameTaken,
    /// The name could be taken for one of another script.
    #[error("{0}")]
    Name(#[from] MemberNameError),
    /// There are too many open invitations.
    #[error("{MAX_INVITATIONS} invitations are open: wait until one is used or expires")]
    TooMany,
}

/// Why a member is not removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RemoveMemberError {
    /// There is no such member.
    #[error("no member has this name")]
    Unknown,
    /// It is the administrator itself.
    #[error("the administrator cannot be removed")]
    Administrator,
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
}

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
        Self {
            members: vec![AdmittedMember { key: identity.public(), name, prekey }],
            identity,
            at,
            invitations: Vec::new(),
            epoch: 0,
            made_at: Duration::ZERO,
            announcement: Vec::new(),
            is_changed: true,
            has_unopened_epoch: false,
            consecutive_unopened: 0,
        }
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
        if self.members.iter().any(|member| member.name.clashes_with(&name)) {
            return Err(InviteMemberError::NameTaken);
        }
        if self.invitations.len() >= MAX_INVITATIONS {
            let closed = self.invitations.iter().position(|one| one.used || one.expires <= now);
            self.invitations.remove(closed.ok_or(InviteMemberError::TooMany)?);
        }
        // The code encodes minutes.
        let expires = Duration::from_secs(expires.as_secs() / 60 * 60);
        self.invitations.push(IssuedInvitation {
            secret: secret.clone(),
            name: name.clone(),
            binding,
            expires,
            used: false,
        });
        Ok(Invitation { at: self.at.clone(), name, expires, secret })
    }

    /// Decides about a join request of the client with this key, for a group of at most
    /// `max_members`.
    pub fn handle_join_request(
        &mut self,
        now: Duration,
        max_members: usize,
        client: &IdentityPublicKey,
        request: &[u8],
    ) -> JoinDecision {
        let (id, salt) = JoinRequest::header(request).unwrap_or_default();
        let (name, invited, outcome) = match self.read_request(client, id, request) {
            Err(refusal) => (None, None, Err(refusal)),
            Ok((at, request)) => {
                let invited = self.invitations[at].name.clone();
                let outcome = self.decide(now, max_members, client, at, &request);
                (Some(request.name), Some(invited), outcome)
            }
        };
        let answer = encode_answer(outcome, &self.identity, self.at.group.as_str(), client, &salt);
        JoinDecision { answer, name, invited, outcome }
    }

    /// Decodes the request, and finds its invitation.
    fn read_request(
        &self,
        client: &IdentityPublicKey,
        id: [u8; 8],
        request: &[u8],
    ) -> Result<(usize, JoinRequest), JoinRefusal> {
        let at = self.invitations.iter().position(|issued| id_of(&issued.secret) == id);
        let at = at.ok_or(JoinRefusal::Unknown)?;
        let secret = &self.invitations[at].secret;
        JoinRequest::decode(request, client, &self.identity, self.at.group.as_str(), secret)
            .map(|request| (at, request))
            .map_err(|error| match error {
                JoinRequestError::NotAuthentic => JoinRefusal::Unknown,
                JoinRequestError::Malformed => JoinRefusal::Malformed,
            })
    }

    fn decide(
        &mut self,
        now: Duration,
        max_members: usize,
        client: &IdentityPublicKey,
        at: usize,
        request: &JoinRequest,
    ) -> Result<(), JoinRefusal> {
        let JoinRequest { name, prekey, .. } = request;
        // The client is already a member: the answer or the client's state was lost.
        if let Some(member) = self.members.iter_mut().find(|member| member.key == *client) {
            if prekey.number > member.prekey.number {
                member.prekey = *prekey;
                self.is_changed = true;
            }
            return Ok(());
        }
        let issued = &self.invitations[at];
        if issued.used {
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
        if self.members.len() >= max_members.min(*MEMBERS.end()) {
            return Err(JoinRefusal::GroupFull);
        }
        if self.members.iter().any(|member| member.name.clashes_with(name)) {
            return Err(JoinRefusal::NameTaken);
        }
        self.invitations[at].used = true;
        self.members.push(AdmittedMember { key: *client, name: name.clone(), prekey: *prekey });
        self.is_changed = true;
        Ok(())
    }

    /// Handles a member's notice. Returns the member's name if it has left. An old notice, or one
    /// that the member did not make, is ignored.
    pub fn handle_notice(
        &mut self,
        member: &IdentityPublicKey,
        notice: &[u8],
    ) -> Option<MemberName> {
        let at = self.members.iter().position(|other| other.key == *member)?;
        let known = self.members[at].prekey.number;
        match MemberNotice::decode(notice, member, &self.identity, self.at.group.as_str())? {
            MemberNotice::Prekey { prekey, opened }
                if prekey.number > known && prekey.is_sound() =>
            {
                self.set_prekey(at, prekey, opened);
                None
            }
            MemberNotice::Leave { number } if number > known && at > 0 => {
                self.is_changed = true;
                Some(self.members.remove(at).name)
            }
            _ => None,
        }
    }

    /// Takes the administrator's own next prekey, as [`MemberNotice::Prekey`].
    pub fn set_own_prekey(&mut self, prekey: Prekey, opened: u32) {
        self.set_prekey(0, prekey, opened);
    }

    fn set_prekey(&mut self, at: usize, prekey: Prekey, opened: u32) {
        self.members[at].prekey = prekey;
        // The administrator could not open its own last announcement, because it had erased the
        // prekey.
        self.has_unopened_epoch |= opened < self.epoch;
    }

    /// Removes a member from the next epochs.
    ///
    /// # Errors
    /// If there is no such member, or it is the administrator.
    pub fn remove(&mut self, name: &MemberName) -> Result<(), RemoveMemberError> {
        let at = self.members.iter().position(|member| member.name == *name);
        match at.ok_or(RemoveMemberError::Unknown)? {
            0 => Err(RemoveMemberError::Administrator),
            at => {
                self.members.remove(at);
                self.is_changed = true;
                Ok(())
            }
        }
    }

    /// Handles the number of the proxy's current epoch, or 0. Returns the last announcement if it
    /// must be sent to the proxy.
    pub fn handle_epoch(&mut self, epoch: u32) -> Option<&[u8]> {
        if epoch > self.epoch {
            // This list was restored from a copy of the state that is older than the proxy's epoch.
            self.epoch = epoch;
            self.is_changed = true;
        }
        (epoch < self.epoch && !self.announcement.is_empty()).then_some(&*self.announcement)
    }

    /// When the next epoch is due.
    pub fn poll_timeout(&self) -> Duration {
        let wait = if self.is_changed {
            MIN_EPOCH
        } else if self.has_unopened_epoch {
            MIN_EPOCH * 2_u32.pow(self.consecutive_unopened.min(MAX_DOUBLINGS))
        } else {
            MAX_EPOCH
        };
        self.made_at + wait
    }

    /// Makes the announcement of the next epoch, if it is due.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Duration,
        random: &mut ForwardSecureRng,
    ) -> Option<&[u8]> {
        // A clock that was wrong earlier could otherwise delay the next epoch for years.
        self.made_at = self.made_at.min(now);
        if now < self.poll_timeout() {
            return None;
        }
        self.epoch = self.epoch.checked_add(1)?;
        self.consecutive_unopened =
            if self.has_unopened_epoch { self.consecutive_unopened + 1 } else { 0 };
        (self.made_at, self.is_changed, self.has_unopened_epoch) = (now, false, false);
        let recipients: Vec<_> = self
            .members
            .iter()
            .map(|AdmittedMember { key, name, prekey }| AnnouncementRecipient {
                member: *key,
                name,
                prekey: *prekey,
            })
            .collect();
        self.announcement = announcement::encode(
            &self.identity,
            self.at.group.as_str(),
            self.epoch,
            &recipients,
            &random.draw(),
            &random.draw(),
        );
        Some(&self.announcement)
    }

    /// The group.
    pub fn group(&self) -> &GroupAddress {
        &self.at
    }

    /// The encoded state, for [`Administrator::from_bytes`]. Secret.
    #[expect(clippy::missing_panics_doc, reason = "there are not as many members")]
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let len =
            1024 + self.announcement.len() + 256 * (self.members.len() + self.invitations.len());
        let mut out = Zeroizing::new(Vec::with_capacity(len));
        out.extend(self.at.proxy.to_bytes());
        out.put_text(&self.at.proxy_address);
        out.put_text(self.at.group.as_str());
        out.extend(self.epoch.to_be_bytes());
        out.extend(self.made_at.as_secs().to_be_bytes());
        out.push(u8::from(self.is_changed) | u8::from(self.has_unopened_epoch) << 1);
        out.extend(u16::try_from(self.members.len()).expect("at most 1024").to_be_bytes());
        for AdmittedMember { key, name, prekey } in &self.members {
            out.extend(key.to_bytes());
            out.put_text(name.as_str());
            out.extend(prekey.number.to_be_bytes());
            out.extend(prekey.public);
        }
        out.extend(u16::try_from(self.invitations.len()).expect("at most 1024").to_be_bytes());
        for IssuedInvitation { secret, name, binding, expires, used } in &self.invitations {
            out.extend(&**secret);
            out.put_text(name.as_str());
            out.extend(expires.as_secs().to_be_bytes());
            out.push(u8::from(*used) | u8::from(*binding == NameBinding::Invited) << 1);
        }
        out.extend(&self.announcement);
        out
    }

    /// Decodes the output of [`Administrator::to_bytes`]; `None` if the bytes are malformed.
    pub fn from_bytes(identity: Arc<IdentitySecretKey>, bytes: &[u8]) -> Option<Self> {
        let mut reader = FieldReader::new(bytes);
        let at = GroupAddress {
            proxy: IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?,
            proxy_address: reader.text().ok()?.to_owned(),
            group: reader.text().ok()?.parse().ok()?,
            administrator: identity.public(),
        };
        let (epoch, made_at) = (reader.u32().ok()?, Duration::from_secs(reader.u64().ok()?));
        let reasons = reader.u8().ok()?;
        let mut members = Vec::new();
        for _ in 0..reader.u16().ok()? {
            let key = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
            let name = MemberName::new(reader.text().ok()?).ok()?;
            let prekey = Prekey { number: reader.u64().ok()?, public: reader.take().ok()? };
            members.push(AdmittedMember { key, name, prekey });
        }
        let mut invitations = Vec::new();
        for _ in 0..reader.u16().ok()? {
            let (secret, name) =
                (Zeroizing::new(reader.take().ok()?), MemberName::new(reader.text().ok()?).ok()?);
            let expires = Duration::from_secs(reader.u64().ok()?);
            let flags = reader.u8().ok()?;
            let binding = if flags & 2 != 0 { NameBinding::Invited } else { NameBinding::Any };
            invitations.push(IssuedInvitation {
                secret,
                name,
                binding,
                expires,
                used: flags & 1 != 0,
            });
        }
        let announcement = reader.rest().to_vec();
        let is_whole = GroupAddress::is_proxy_address(&at.proxy_address)
            && members.first().is_some_and(|first| first.key == identity.public())
            && members.len() <= *MEMBERS.end()
            && members.iter().all(|member| member.prekey.is_sound())
            && invitations.len() <= MAX_INVITATIONS;
        is_whole.then_some(Self {
            identity,
            at,
            members,
            invitations,
            epoch,
            made_at,
            announcement,
            is_changed: reasons & 1 != 0,
            has_unopened_epoch: reasons & 2 != 0,
            consecutive_unopened: 0,
        })
    }
}

impl fmt::Debug for Administrator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.members.iter().map(|member| member.name.as_str()).collect();
        f.debug_struct("Administrator")
            .field("epoch", &self.epoch)
            .field("members", &names)
            .finish_non_exhaustive()
    }
}
