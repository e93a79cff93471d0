//! The contacts of a member: the keys of other members, which of them were verified, and named
//! groups of members.

use std::collections::{BTreeMap, BTreeSet};

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;
use zeroize::Zeroizing;

use crate::protocol::membership::{MemberName, NameSkeletons};

/// The name of the file.
pub(super) const FILE: &str = "contacts";

/// The receiver of a message to all other members.
pub const ALL: &str = "all";

const VERSION: u8 = 2;
/// The version whose groups have names without keys. It is read.
const VERSION_WITHOUT_KEYS: u8 = 1;
/// How many people are remembered, with those who are no longer members.
const MAX_PEOPLE: usize = 4096;
const MAX_GROUPS: usize = 256;

/// The contacts, as they are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChatContactList {
    /// The named groups, with their members.
    pub groups: BTreeMap<String, Vec<String>>,
    /// The names of members whose keys were verified.
    pub verified: BTreeSet<String>,
    /// The names of members that have another key than the one that was verified.
    pub changed: BTreeSet<String>,
}

/// Whether the key of a member, or of the sender of a message, is trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum ContactTrust {
    /// The key that the member had first, or that the user has accepted.
    #[default]
    Seen = 0,
    /// The user has compared the safety number.
    Verified = 1,
    /// Not the key that was verified, and the user has not accepted it yet. Of a sender also: not
    /// the key that its name has now.
    Changed = 2,
}

impl ContactTrust {
    /// The trust with a number; `None` if there is none.
    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::Seen, Self::Verified, Self::Changed].into_iter().find(|it| *it as u8 == number)
    }
}

struct KnownMember {
    name: MemberName,
    /// Those of the name.
    skeletons: NameSkeletons,
    key: IdentityPublicKey,
    trust: ContactTrust,
}

impl KnownMember {
    fn new(name: MemberName, key: IdentityPublicKey, trust: ContactTrust) -> Self {
        Self { skeletons: name.skeletons(), name, key, trust }
    }
}

/// A member of a named group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GroupContact {
    name: String,
    /// Its key when the user named the group. Whoever has the name later is not meant.
    key: IdentityPublicKey,
}

/// See [the module](self).
#[derive(Default)]
pub(super) struct ChatContacts {
    /// Also those who are no longer members: a name may return with another key.
    people: Vec<KnownMember>,
    groups: BTreeMap<String, Vec<GroupContact>>,
}

impl ChatContacts {
    /// The contacts, as they are shown.
    pub(super) fn list(&self) -> ChatContactList {
        let with = |trust| {
            let people = self.people.iter().filter(move |person| person.trust == trust);
            people.map(|person| person.name.to_string()).collect()
        };
        let groups = self.groups.iter().map(|(name, members)| (name.clone(), names_of(members)));
        ChatContactList {
            groups: groups.collect(),
            verified: with(ContactTrust::Verified),
            changed: with(ContactTrust::Changed),
        }
    }

    /// Compares the other members of a new epoch with those that are known. Returns a warning for
    /// each that has another key or another name than before.
    pub(super) fn update(&mut self, members: &[(IdentityPublicKey, MemberName)]) -> Vec<String> {
        let warnings = members.iter().filter_map(|(key, name)| self.meet(key, name)).collect();
        self.forget_former(members);
        warnings
    }

    /// Compares the key of a sender that is not one of the current members: it has written in an
    /// epoch of which this member knows only what the sender's message says. Returns the trust in
    /// the sender, and a warning if its name belongs to another key, or to nobody.
    pub(super) fn meet_former(
        &mut self,
        key: &IdentityPublicKey,
        name: &str,
        members: &[(IdentityPublicKey, MemberName)],
    ) -> (ContactTrust, Option<String>) {
        if let Some(known) = self.person(name) {
            return if known.key == *key {
                (known.trust, None)
            } else {
                (ContactTrust::Changed, Some(former_key_warning(name)))
            };
        }
        let Ok(name) = MemberName::new(name) else { return Default::default() };
        let warning = self.meet_new_name(key, &name);
        self.forget_former(members);
        (self.trust_in(key, name.as_str()), warning)
    }

    /// Whether somebody is or was known by this name.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.person(name).is_some()
    }

    /// The trust in a sender with this key and name.
    pub(super) fn trust_in(&self, key: &IdentityPublicKey, name: &str) -> ContactTrust {
        let known = self.person(name).filter(|known| known.key == *key);
        known.map_or(ContactTrust::Changed, |known| known.trust)
    }

    /// Forgets people beyond [`MAX_PEOPLE`].
    fn forget_former(&mut self, members: &[(IdentityPublicKey, MemberName)]) {
        let is_member = |person: &KnownMember| members.iter().any(|(key, _)| *key == person.key);
        while self.people.len() > MAX_PEOPLE {
            // Of the former members, first one that was never verified.
            let former = self.people.iter().enumerate().filter(|(_, person)| !is_member(person));
            let least = former.min_by_key(|(_, person)| person.trust != ContactTrust::Seen);
            self.people.remove(least.map_or(0, |(index, _)| index));
        }
    }

    /// Compares a member with the one that had this name before.
    fn meet(&mut self, key: &IdentityPublicKey, name: &MemberName) -> Option<String> {
        let Some(before) = self.people.iter_mut().find(|person| person.name == *name) else {
            return self.meet_new_name(key, name);
        };
        if before.key == *key {
            return None;
        }
        let was_verified = before.trust != ContactTrust::Seen;
        before.key = *key;
        before.trust = if was_verified { ContactTrust::Changed } else { ContactTrust::Seen };
        Some(other_key_warning(name, None, was_verified))
    }

    /// Compares a member with a new name with those that had its key, or a name that looks like
    /// its name. These are kept: they may still be members.
    fn meet_new_name(&mut self, key: &IdentityPublicKey, name: &MemberName) -> Option<String> {
        let skeletons = name.skeletons();
        let same_key = self.people.iter().filter(|person| person.key == *key);
        let alike = self.people.iter().filter(|person| person.skeletons.clash_with(&skeletons));
        // Several may have such names: the one that was verified matters most.
        let most_trusted = |person: &&KnownMember| person.trust;
        let (same_key, alike) = (same_key.max_by_key(most_trusted), alike.max_by_key(most_trusted));
        let old = same_key.into_iter().chain(alike).map(|person| person.trust).max();
        let was_verified = old.is_some_and(|trust| trust != ContactTrust::Seen);
        let warning = match (same_key, alike) {
            (_, Some(alike)) if alike.key != *key => {
                Some(other_key_warning(name, Some(&alike.name), was_verified))
            }
            (Some(old), _) => Some(format!("the member {name} has the key that {} had", old.name)),
            _ => None,
        };
        let trust = if was_verified { ContactTrust::Changed } else { ContactTrust::Seen };
        self.people.push(KnownMember::new(name.clone(), *key, trust));
        warning
    }

    /// Sets the trust in a member of the group: its key is verified, or accepted without that.
    pub(super) fn trust(&mut self, name: &str, is_verified: bool) {
        let trust = if is_verified { ContactTrust::Verified } else { ContactTrust::Seen };
        if let Some(person) = self.people.iter_mut().find(|person| person.name.as_str() == name) {
            person.trust = trust;
        }
    }

    /// Whether the key of the member with this name was verified.
    pub(super) fn is_verified(&self, name: &str) -> bool {
        self.person(name).is_some_and(|person| person.trust == ContactTrust::Verified)
    }

    fn person(&self, name: &str) -> Option<&KnownMember> {
        self.people.iter().find(|person| person.name.as_str() == name)
    }

    /// The members to which a message is sent that is addressed to `to`: a member, a named group,
    /// or [`ALL`] the others.
    ///
    /// # Errors
    /// The error message, if nothing is to be sent.
    pub(super) fn recipients(&self, to: &str, others: &[String]) -> Result<Vec<String>, String> {
        let is_member = |name: &str| others.iter().any(|other| other == name);
        let recipients = match self.groups.get(to) {
            _ if to == ALL && others.is_empty() => return Err("there are no other members".into()),
            _ if to == ALL => others.to_vec(),
            Some(_) if is_member(to) => {
                return Err(format!(
                    "{to} is a member and a group of yours: /ungroup {to} removes the group"
                ));
            }
            Some(members) => names_of(members),
            None => vec![to.to_owned()],
        };
        if let Some(gone) = recipients.iter().find(|name| !is_member(name)) {
            let of_group = recipients.len() > 1 || gone != to;
            let group = if of_group { format!(": change the group {to}") } else { String::new() };
            return Err(format!("no member has the name {gone}{group}"));
        }
        let is_changed =
            |name: &&String| self.person(name).is_some_and(|it| it.trust == ContactTrust::Changed);
        if let Some(name) = recipients.iter().find(is_changed) {
            return Err(format!(
                "{name} has another key than the one that you verified: compare the new number \
                 (/verify {name}), or accept the new key (/trust {name})"
            ));
        }
        let of_group = self.groups.get(to).filter(|_| to != ALL).into_iter().flatten();
        match of_group.into_iter().find(|contact| !self.has_key(contact)) {
            None => Ok(recipients),
            Some(GroupContact { name, .. }) => Err(format!(
                "{name} has another key than when you named the group {to}: ask {name}, and then \
                 change the group {to}"
            )),
        }
    }

    /// The members whose messages are cancelled with those to `to`: as [`Self::recipients`], but
    /// without those of a group that are gone, and whether or not their keys are trusted.
    ///
    /// # Errors
    /// The error message, if there is neither a member nor a group with this name.
    pub(super) fn cancelled(&self, to: &str, others: &[String]) -> Result<Vec<String>, String> {
        let is_member = |name: &String| others.contains(name);
        let of_group = self.groups.get(to).into_iter().flatten();
        let of_group = of_group.filter(|contact| is_member(&contact.name) && self.has_key(contact));
        let mut names: BTreeSet<String> = of_group.map(|contact| contact.name.clone()).collect();
        names.extend(Some(to.to_owned()).filter(is_member));
        if names.is_empty() && !self.groups.contains_key(to) {
            return Err(format!("no member has the name {to}"));
        }
        Ok(names.into_iter().collect())
    }

    /// Whether the name of a group's member still has the same key.
    fn has_key(&self, contact: &GroupContact) -> bool {
        self.person(&contact.name).is_some_and(|person| person.key == contact.key)
    }

    /// Names a group of members, or forgets the group if `members` is empty.
    ///
    /// # Errors
    /// The error message, if the group cannot have this name or these members.
    pub(super) fn set_group(
        &mut self,
        name: &MemberName,
        members: &[String],
        others: &[String],
    ) -> Result<(), String> {
        let name = name.as_str();
        if members.is_empty() {
            let removed = self.groups.remove(name);
            return removed.map(drop).ok_or_else(|| format!("there is no group {name}"));
        }
        if name == ALL || others.iter().any(|other| other == name) {
            return Err(format!("a group cannot have the name {name}"));
        }
        let members: BTreeSet<&String> = members.iter().collect();
        let contact = |name: &String| {
            let known = self.person(name).filter(|_| others.contains(name));
            let key = known.ok_or_else(|| format!("no member has the name {name}"))?.key;
            Ok(GroupContact { name: name.clone(), key })
        };
        let members = members.into_iter().map(contact).collect::<Result<Vec<_>, String>>()?;
        if self.groups.len() >= MAX_GROUPS && !self.groups.contains_key(name) {
            return Err(format!("there are {MAX_GROUPS} groups already"));
        }
        self.groups.insert(name.to_owned(), members);
        Ok(())
    }

    /// The encoded contacts. Secret.
    pub(super) fn encode(&self) -> Zeroizing<Vec<u8>> {
        let members: usize = self.groups.values().flatten().map(|it| 33 + it.name.len()).sum();
        let len = 16 + 256 * (self.people.len() + self.groups.len()) + members;
        let mut out = Zeroizing::new(Vec::with_capacity(len));
        out.push(VERSION);
        out.put_u32(u32::try_from(self.people.len()).unwrap_or(0));
        for KnownMember { name, key, trust, .. } in &self.people {
            out.put_text(name.as_str());
            out.extend(key.to_bytes());
            out.push(*trust as u8);
        }
        for (name, members) in &self.groups {
            out.put_text(name);
            out.put_u32(u32::try_from(members.len()).unwrap_or(0));
            for GroupContact { name, key } in members {
                out.put_text(name);
                out.extend(key.to_bytes());
            }
        }
        out
    }

    /// The contacts that [`Self::encode`] has encoded; `None` if they are not valid.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = FieldReader::new(bytes);
        let mut contacts = Self::default();
        let version = reader.u8().ok()?;
        if ![VERSION, VERSION_WITHOUT_KEYS].contains(&version) {
            return None;
        }
        for _ in 0..reader.u32().ok()? {
            let name = MemberName::new(reader.text().ok()?).ok()?;
            let key = IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?;
            let trust = ContactTrust::from_number(reader.u8().ok()?)?;
            contacts.people.push(KnownMember::new(name, key, trust));
        }
        while !reader.is_empty() {
            let name = reader.text().ok()?.to_owned();
            let mut members = Vec::new();
            for _ in 0..reader.u32().ok()? {
                let member = reader.text().ok()?.to_owned();
                let key = match version {
                    VERSION => Some(IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?),
                    _ => contacts.person(&member).map(|known| known.key),
                };
                members.push(key.map(|key| GroupContact { name: member, key }));
            }
            // A group of somebody of whom nothing is known any more could not be written to.
            let members: Option<Vec<GroupContact>> = members.into_iter().collect();
            contacts.groups.extend(members.map(|members| (name, members)));
        }
        Some(contacts)
    }
}

fn names_of(members: &[GroupContact]) -> Vec<String> {
    members.iter().map(|contact| contact.name.clone()).collect()
}

/// The warning before a message of a key whose name has another key now.
fn former_key_warning(name: &str) -> String {
    format!(
        "ATTENTION: the next message of {name} is from ANOTHER KEY than the one that {name} has \
         now. The sender had this name when it wrote, and may be another person"
    )
}

/// The warning that a member has another key than before, or than the one of a name that looks
/// like its name.
fn other_key_warning(name: &MemberName, alike: Option<&MemberName>, was_verified: bool) -> String {
    let than = alike.map(|alike| format!(" than {alike}")).unwrap_or_default();
    if was_verified {
        format!(
            "ATTENTION: {name} has ANOTHER KEY{than} than the one that you verified. It may be \
             another person. Nothing is sent to {name} until you compare the new number (/verify \
             {name}) or accept the new key (/trust {name})"
        )
    } else {
        let before = if alike.is_some() { "" } else { " than before" };
        format!(
            "ATTENTION: {name} has ANOTHER KEY{than}{before}. It may be another person, or the \
             same with a new installation: ask, and compare /verify {name}"
        )
    }
}

#[cfg(test)]
mod tests;
