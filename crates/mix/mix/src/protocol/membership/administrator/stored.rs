//! The stored state of an administrator.

use std::sync::Arc;
use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use super::super::administrators::AdministratorList;
use super::super::announcement::EpochAnnouncement;
use super::super::changes::MembershipChange;
use super::super::invitation::GroupAddress;
use super::super::invitations::IssuedInvitations;
use super::super::roster::Roster;
use super::Administrator;

impl Administrator {
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
        let administrators = AdministratorList::decode(&mut reader, founder, group, None)?;
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
