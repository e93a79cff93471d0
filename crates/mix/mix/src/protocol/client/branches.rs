//! Two branches of a group. If the proxy keeps two administrators apart and both change the list of
//! administrators, there are two lists that do not follow each other, for ever. A member follows
//! the other one only if its user says so (`docs/protocols/mix.md`, order of announcements).

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use keys::IdentityPublicKey;

use super::MixClient;
use super::epochs::MAX_LEFT;
use super::report::ImportError;
use crate::protocol::membership::{
    AnnouncementOrder, EpochAnnouncement, MemberName, OpenAnnouncementError, ProxyAddress,
};

/// How the list of members of another branch differs from that of this client. Members are named,
/// or, if this client does not know the name, given by their keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberListDifference {
    /// The newest epoch of this client, and that of the other list.
    pub epochs: [u32; 2],
    /// The members in both lists.
    pub both: Vec<String>,
    /// The members that are only in the list of this client.
    pub only_own: Vec<String>,
    /// The members that are only in the other list.
    pub only_other: Vec<String>,
    /// The administrators in the list of this client, and in the other one.
    pub administrators: [Vec<String>; 2],
    /// The administrator who has signed the other list.
    pub signer: String,
    /// Where the proxy is in the other list, if elsewhere.
    pub proxy: Option<ProxyAddress>,
}

impl fmt::Display for MemberListDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [own, other] = self.epochs;
        let [administrators, others] = &self.administrators;
        let list = |names: &[String]| match names {
            [] => "nobody".to_owned(),
            names => names.join(", "),
        };
        writeln!(f, "in both lists: {}", list(&self.both))?;
        writeln!(f, "only in the list of this chat (epoch {own}): {}", list(&self.only_own))?;
        writeln!(f, "only in the other list (epoch {other}): {}", list(&self.only_other))?;
        writeln!(f, "administrators in the list of this chat: {}", list(administrators))?;
        writeln!(f, "administrators in the other list: {}", list(others))?;
        if let Some(ProxyAddress { address, key }) = &self.proxy {
            writeln!(f, "the proxy of the other list: {address} with the key {key}")?;
        }
        write!(f, "the other list is signed by {}", self.signer)
    }
}

impl MixClient {
    /// How the exported list of another branch of the group differs from the list of this client.
    ///
    /// # Errors
    /// If [`MixClient::replace_list`] would not follow it.
    pub fn compare_list(&self, exported: &[u8]) -> Result<MemberListDifference, ImportError> {
        let (other, names) = self.check_branch(exported)?;
        let own = self.epochs.newest().ok_or(ImportError::NoFork)?;
        let other_name = |key: &IdentityPublicKey| {
            names.as_ref().zip(other.index_of(key)).map(|(names, at)| &names[at])
        };
        let name = |key: &IdentityPublicKey| {
            let name = self.epochs.name_of(key).or_else(|| other_name(key));
            name.map_or_else(|| key.to_string(), ToString::to_string)
        };
        // Keys are shown where a name stands for another one.
        let in_both = |key: IdentityPublicKey| match other_name(&key) {
            Some(other) if *other.as_str() != name(&key) => {
                format!("{} (in the other list {other}), with the key {key}", name(&key))
            }
            _ => name(&key),
        };
        let own_names: BTreeSet<String> = own.members().map(|key| name(&key)).collect();
        let in_other_only = |key: IdentityPublicKey| match name(&key) {
            name if own_names.contains(&name) => format!("{name} (with ANOTHER KEY: {key})"),
            name => name,
        };
        let named = |keys: &mut dyn Iterator<Item = IdentityPublicKey>| -> Vec<String> {
            keys.map(|key| name(&key)).collect()
        };
        let in_other = |key: &IdentityPublicKey| other.index_of(key).is_some();
        let administrators =
            [own, &other].map(|it| named(&mut it.administrators().keys().iter().copied()));
        let proxy = other.proxy().filter(|proxy| own.proxy() != Some(proxy)).cloned();
        Ok(MemberListDifference {
            epochs: [own.epoch(), other.epoch()],
            both: own.members().filter(in_other).map(in_both).collect(),
            only_own: named(&mut own.members().filter(|key| !in_other(key))),
            only_other: other
                .members()
                .filter(|key| own.index_of(key).is_none())
                .map(in_other_only)
                .collect(),
            administrators,
            signer: name(other.signer()),
            proxy,
        })
    }

    /// Leaves the branch of the group that this client knows, and follows that of an exported list,
    /// which an administrator has signed whom this client knows. Nothing older of the branch that
    /// was left is taken again. Conversations with those who are in both lists continue.
    ///
    /// # Errors
    /// If the list is not of another branch, not signed by a known administrator, does not have
    /// this client, or is older than what this client knew when it left that branch.
    pub fn replace_list(&mut self, now: Duration, exported: &[u8]) -> Result<(), ImportError> {
        let (other, _) = self.check_branch(exported)?;
        self.end_member();
        self.epochs.leave_branch(&other);
        self.forget_position(other.epoch());
        self.follow(now, &other, true).map_err(|_| ImportError::Damaged)?;
        self.finish_import();
        Ok(())
    }

    /// The announcement of another branch that this client may follow, and the names in it if they
    /// can be opened.
    fn check_branch(
        &self,
        exported: &[u8],
    ) -> Result<(EpochAnnouncement, Option<Vec<MemberName>>), ImportError> {
        let at = &self.settings.group;
        let other = EpochAnnouncement::verify(exported, at.group.as_str(), &at.administrator)?;
        match self.epochs.order(&other) {
            AnnouncementOrder::Fork => {}
            AnnouncementOrder::Newer => return Err(ImportError::NoFork),
            _ => return Err(ImportError::NotNewer(self.epochs.newest_number())),
        }
        let left = self.epochs.left();
        let orders = || left.iter().map(|left| other.order(left));
        let is_old = |order| matches!(order, AnnouncementOrder::Same | AnnouncementOrder::Older);
        if orders().any(is_old) {
            return Err(ImportError::LeftBefore);
        }
        if left.len() >= MAX_LEFT && !orders().any(|order| order == AnnouncementOrder::Newer) {
            return Err(ImportError::TooOften);
        }
        let known = self.epochs.newest().map(EpochAnnouncement::administrators);
        if known.is_none_or(|known| !known.contains(other.signer())) {
            return Err(ImportError::UnknownSigner(Box::new(*other.signer())));
        }
        match self.epochs.names_in(&other, &self.identity) {
            Ok(names) => Ok((other, names)),
            Err(OpenAnnouncementError::NotAMember) => Err(ImportError::NotListed),
            Err(_) => Err(ImportError::Damaged),
        }
    }
}
