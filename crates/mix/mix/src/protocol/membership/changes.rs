//! Changes of the membership that an administrator has decided, and that are in no announcement
//! yet. If another administrator announces the next epoch first, they are made again after it.

use encoding::{FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};

use super::administrators::AdministratorList;
use super::invitation::{GroupAddress, ProxyAddress};
use super::roster::{AdmittedMember, Roster, UsedInvitation};

const ADMIT: u8 = 1;
const REMOVE: u8 = 2;
const ADD_ADMINISTRATOR: u8 = 3;
const REMOVE_ADMINISTRATOR: u8 = 4;
const MOVE: u8 = 5;

/// A change of the membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum MembershipChange {
    /// Somebody becomes a member, with an invitation.
    Admit(AdmittedMember, UsedInvitation),
    /// A member leaves or is removed.
    Remove(IdentityPublicKey),
    AddAdministrator(IdentityPublicKey),
    RemoveAdministrator(IdentityPublicKey),
    /// The proxy has a new address or key.
    Move(ProxyAddress),
}

/// What changes apply to.
pub(super) struct ChangedMembership<'a> {
    pub(super) own: &'a IdentitySecretKey,
    pub(super) max_members: usize,
    pub(super) administrators: &'a mut AdministratorList,
    pub(super) roster: &'a mut Roster,
    pub(super) proxy: &'a mut ProxyAddress,
}

impl MembershipChange {
    /// Makes the change. Returns whether there was something to change: after the announcement of
    /// another administrator, it may be done or impossible.
    pub(super) fn apply(&self, to: &mut ChangedMembership<'_>) -> bool {
        match self {
            Self::Admit(member, used) => {
                let is_free = !to.roster.is_used(used.id)
                    && to.roster.members.len() < to.max_members
                    && to.roster.member(&member.key).is_none()
                    && !to.roster.members.iter().any(|it| it.name.clashes_with(&member.name));
                if is_free {
                    to.roster.used.push(*used);
                    to.roster.members.push(member.clone());
                    to.roster.set_admitted(&member.key);
                }
                is_free
            }
            Self::Remove(key) => {
                let is_administrator = to.administrators.contains(key);
                // A member that is removed is no administrator either.
                if is_administrator && to.administrators.remove(to.own, *key).is_err() {
                    return false;
                }
                let before = to.roster.members.len();
                to.roster.members.retain(|member| member.key != *key);
                let is_removed = to.roster.members.len() < before;
                if is_removed {
                    to.roster.set_removed(key);
                }
                is_removed
            }
            Self::AddAdministrator(key) => {
                let is_member = to.roster.member(key).is_some();
                is_member && to.administrators.add(to.own, *key).is_ok()
            }
            Self::RemoveAdministrator(key) if *key == to.own.public() => {
                // Another administrator makes it: this one only asks for it.
                to.administrators.contains(key)
            }
            Self::RemoveAdministrator(key) => to.administrators.remove(to.own, *key).is_ok(),
            Self::Move(proxy) => std::mem::replace(to.proxy, proxy.clone()) != *proxy,
        }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Admit(AdmittedMember { key, name, prekey }, UsedInvitation { id, expires }) => {
                out.push(ADMIT);
                out.extend(key.to_bytes());
                out.put_text(name.as_str());
                out.extend(prekey.number.to_be_bytes());
                out.extend(prekey.public);
                out.extend(id);
                out.extend(expires.to_be_bytes());
            }
            Self::Remove(key) => out.extend([&[REMOVE][..], &key.to_bytes()].concat()),
            Self::AddAdministrator(key) => {
                out.extend([&[ADD_ADMINISTRATOR][..], &key.to_bytes()].concat());
            }
            Self::RemoveAdministrator(key) => {
                out.extend([&[REMOVE_ADMINISTRATOR][..], &key.to_bytes()].concat());
            }
            Self::Move(ProxyAddress { address, key }) => {
                out.push(MOVE);
                out.extend(key.to_bytes());
                out.put_text(address);
            }
        }
    }

    pub(super) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        let kind = reader.u8().ok()?;
        if kind == ADMIT {
            let member = AdmittedMember::decode(reader)?;
            let used = UsedInvitation { id: reader.take().ok()?, expires: reader.u32().ok()? };
            return Some(Self::Admit(member, used));
        }
        let key = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
        match kind {
            REMOVE => Some(Self::Remove(key)),
            ADD_ADMINISTRATOR => Some(Self::AddAdministrator(key)),
            REMOVE_ADMINISTRATOR => Some(Self::RemoveAdministrator(key)),
            MOVE => {
                let proxy = ProxyAddress { address: reader.text().ok()?.to_owned(), key };
                GroupAddress::is_proxy_address(&proxy.address).then_some(Self::Move(proxy))
            }
            _ => None,
        }
    }
}
