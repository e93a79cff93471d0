//! The invitations that an administrator has made. Only the administrator itself knows them.

use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use zeroize::Zeroizing;

use super::invitation::{InvitationSecret, id_of};
use super::name::{MemberName, MemberNameError};

/// The maximum number of remembered invitations: the open ones, and the most recent others.
pub(super) const MAX_INVITATIONS: usize = 1024;

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

#[derive(Default)]
pub(super) struct IssuedInvitations(Vec<IssuedInvitation>);

pub(super) struct IssuedInvitation {
    pub(super) secret: InvitationSecret,
    pub(super) name: MemberName,
    pub(super) binding: NameBinding,
    pub(super) expires: Duration,
    pub(super) used: bool,
}

impl IssuedInvitations {
    /// Adds an invitation.
    ///
    /// # Errors
    /// If the maximum number is open.
    pub(super) fn push(
        &mut self,
        now: Duration,
        invitation: IssuedInvitation,
    ) -> Result<(), InviteMemberError> {
        if self.0.len() >= MAX_INVITATIONS {
            let closed = self.0.iter().position(|one| one.used || one.expires <= now);
            self.0.remove(closed.ok_or(InviteMemberError::TooMany)?);
        }
        self.0.push(invitation);
        Ok(())
    }

    /// The invitation with this identifier.
    pub(super) fn find(&self, id: [u8; 8]) -> Option<&IssuedInvitation> {
        self.0.iter().find(|issued| id_of(&issued.secret) == id)
    }

    pub(super) fn set_used(&mut self, id: [u8; 8]) {
        let issued = self.0.iter_mut().find(|issued| id_of(&issued.secret) == id);
        if let Some(issued) = issued {
            issued.used = true;
        }
    }

    /// Nobody has joined with the invitation after all.
    pub(super) fn set_unused(&mut self, id: [u8; 8]) {
        let issued = self.0.iter_mut().find(|issued| id_of(&issued.secret) == id);
        if let Some(issued) = issued {
            issued.used = false;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend(u16::try_from(self.0.len()).expect("at most 1024").to_be_bytes());
        for IssuedInvitation { secret, name, binding, expires, used } in &self.0 {
            out.extend(&**secret);
            out.put_text(name.as_str());
            out.extend(expires.as_secs().to_be_bytes());
            out.push(u8::from(*used) | u8::from(*binding == NameBinding::Invited) << 1);
        }
    }

    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        let mut all = Vec::new();
        for _ in 0..reader.u16().ok()? {
            let secret = Zeroizing::new(reader.take().ok()?);
            let name = MemberName::new(reader.text().ok()?).ok()?;
            let expires = Duration::from_secs(reader.u64().ok()?);
            let flags = reader.u8().ok()?;
            let binding = if flags & 2 != 0 { NameBinding::Invited } else { NameBinding::Any };
            let used = flags & 1 != 0;
            all.push(IssuedInvitation { secret, name, binding, expires, used });
        }
        (all.len() <= MAX_INVITATIONS).then_some(Self(all))
    }
}
