//! The administrators of a group: a list of keys, and the signed changes that led to it. The first
//! list has only the founder. Each change is signed by an administrator of the list before it.

use encoding::FieldReader;
use keys::{IdentityPublicKey, IdentitySecretKey};
use sha2::{Digest, Sha256};

use super::crypto::group_id;

/// The maximum number of administrators.
pub const MAX_ADMINISTRATORS: usize = 16;
/// The maximum number of changes of the list in the life of a group.
pub const MAX_ADMINISTRATOR_CHANGES: usize = 64;

pub(super) const CHANGE_LEN: usize = 1 + 32 + 1 + 64;
/// The longest encoded list, in bytes.
pub(super) const MAX_LIST_LEN: usize = 1 + MAX_ADMINISTRATOR_CHANGES * CHANGE_LEN;
const LABEL: &[u8] = b"sunder mix administrators 1";
const ADD: u8 = 1;
const REMOVE: u8 = 2;

/// The administrators of a group. All signatures are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdministratorList {
    keys: Vec<IdentityPublicKey>,
    changes: Vec<AdministratorChange>,
    /// The digest before the first change, and after each.
    digests: Vec<[u8; 32]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AdministratorChange {
    kind: u8,
    key: IdentityPublicKey,
    /// The index of the signing administrator in the list before.
    signer: u8,
    signature: [u8; 64],
}

/// The version of a list that somebody has seen: later ones must continue it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdministratorAnchor {
    pub(super) version: u8,
    /// The first bytes of the digest after this number of changes.
    pub(super) digest: [u8; 8],
}

/// Why the list of administrators is not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeAdministratorsError {
    /// No member has this name.
    #[error("no member has this name")]
    Unknown,
    /// The member is an administrator.
    #[error("this member is an administrator already")]
    Already,
    /// The member is not an administrator.
    #[error("this member is not an administrator")]
    NotAdministrator,
    /// It is the last administrator.
    #[error("it is the only administrator: make somebody else one first")]
    Last,
    /// There are too many administrators.
    #[error("a group has at most {MAX_ADMINISTRATORS} administrators: remove one first")]
    TooMany,
    /// The list has changed too often: the changes that are left are for removals.
    #[error(
        "of the {MAX_ADMINISTRATOR_CHANGES} changes of administrators in the life of a group, only \
         those to remove them are left: found a new group for further ones"
    )]
    TooOften,
}

impl AdministratorList {
    /// The list of a new group.
    pub fn founded(founder: IdentityPublicKey, group: &str) -> Self {
        let digest = Sha256::new().chain_update(LABEL).chain_update(group_id(&founder, group));
        Self { keys: vec![founder], changes: Vec::new(), digests: vec![digest.finalize().into()] }
    }

    /// The administrators, at least one.
    pub fn keys(&self) -> &[IdentityPublicKey] {
        &self.keys
    }

    /// Whether this key is that of an administrator.
    pub fn contains(&self, key: &IdentityPublicKey) -> bool {
        self.keys.contains(key)
    }

    /// The number of changes since the group was founded.
    pub fn version(&self) -> usize {
        self.changes.len()
    }

    /// The digest of this version.
    #[expect(clippy::missing_panics_doc, reason = "there is one before the first change")]
    pub fn digest(&self) -> &[u8; 32] {
        self.digests.last().expect("there is one before the first change")
    }

    /// The digests of all versions since this key was last made that of an administrator; none if
    /// it is not one.
    pub(super) fn digests_with(&self, key: &IdentityPublicKey) -> &[[u8; 32]] {
        let is_added = |change: &AdministratorChange| change.kind == ADD && change.key == *key;
        let since = self.changes.iter().rposition(is_added).map_or(0, |at| at + 1);
        if self.contains(key) { &self.digests[since..] } else { &[] }
    }

    /// Whether one of the two lists continues the other.
    pub fn is_related(&self, other: &Self) -> bool {
        self.continues(other) || other.continues(self)
    }

    /// Whether this list is `other`, or came from it by further changes.
    pub fn continues(&self, other: &Self) -> bool {
        self.digests.get(other.version()) == other.digests.last()
    }

    /// Whether this list is the one of which somebody has seen the version, or came from it.
    pub fn continues_anchor(&self, anchor: &AdministratorAnchor) -> bool {
        let digest = self.digests.get(usize::from(anchor.version));
        digest.is_some_and(|digest| digest.starts_with(&anchor.digest))
    }

    /// The version that others can check later lists against.
    #[expect(clippy::missing_panics_doc, reason = "there are not as many changes")]
    pub fn anchor(&self) -> AdministratorAnchor {
        let digest = self.digests.last().and_then(|digest| digest.first_chunk());
        let version = u8::try_from(self.version()).expect("at most 64");
        AdministratorAnchor { version, digest: *digest.expect("32 bytes are more than 8") }
    }

    /// Makes another member an administrator.
    ///
    /// # Errors
    /// If it is one, or the maximum is reached, or `own` is not an administrator.
    pub(super) fn add(
        &mut self,
        own: &IdentitySecretKey,
        key: IdentityPublicKey,
    ) -> Result<(), ChangeAdministratorsError> {
        self.sign(own, ADD, key)
    }

    /// Takes an administrator, which may be `own`, from the list.
    ///
    /// # Errors
    /// If it is none, or the last one, or `own` is not an administrator.
    pub(super) fn remove(
        &mut self,
        own: &IdentitySecretKey,
        key: IdentityPublicKey,
    ) -> Result<(), ChangeAdministratorsError> {
        self.sign(own, REMOVE, key)
    }

    fn sign(
        &mut self,
        own: &IdentitySecretKey,
        kind: u8,
        key: IdentityPublicKey,
    ) -> Result<(), ChangeAdministratorsError> {
        let signer = self.keys.iter().position(|one| *one == own.public());
        let signer = signer.and_then(|at| u8::try_from(at).ok());
        let signer = signer.ok_or(ChangeAdministratorsError::NotAdministrator)?;
        let signature = own.sign(&self.signed(kind, &key));
        self.apply(&AdministratorChange { kind, key, signer, signature })
    }

    fn signed(&self, kind: u8, key: &IdentityPublicKey) -> Vec<u8> {
        [LABEL, &self.digest()[..], &[kind], &key.to_bytes()].concat()
    }

    /// Applies a change whose signature is valid.
    fn apply(&mut self, change: &AdministratorChange) -> Result<(), ChangeAdministratorsError> {
        let place = self.keys.iter().position(|one| *one == change.key);
        // After one more, enough changes are left to remove all others, whoever has used up the
        // changes.
        let is_reserved = self.changes.len() + 1 + self.keys.len() > MAX_ADMINISTRATOR_CHANGES;
        match (change.kind, place) {
            (ADD, Some(_)) => return Err(ChangeAdministratorsError::Already),
            (ADD, None) if self.keys.len() >= MAX_ADMINISTRATORS => {
                return Err(ChangeAdministratorsError::TooMany);
            }
            (ADD, None) if is_reserved => return Err(ChangeAdministratorsError::TooOften),
            (ADD, None) => self.keys.push(change.key),
            (_, None) => return Err(ChangeAdministratorsError::NotAdministrator),
            (_, Some(_)) if self.keys.len() == 1 => return Err(ChangeAdministratorsError::Last),
            (_, Some(place)) => _ = self.keys.remove(place),
        }
        let digest = Sha256::new().chain_update(self.digest()).chain_update(change.encode());
        self.digests.push(digest.finalize().into());
        self.changes.push(*change);
        Ok(())
    }

    /// Appends what [`Self::decode`] reads.
    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::try_from(self.changes.len()).expect("at most 64"));
        for change in &self.changes {
            out.extend(change.encode());
        }
    }

    /// Decodes a list, and verifies its signatures, except those of the first changes if they are
    /// those of `known`, which is of the same group.
    pub(super) fn decode(
        reader: &mut FieldReader<'_>,
        founder: IdentityPublicKey,
        group: &str,
        known: Option<&Self>,
    ) -> Option<Self> {
        let mut list = Self::founded(founder, group);
        for at in 0..usize::from(reader.u8().ok()?) {
            let change = AdministratorChange {
                kind: reader.u8().ok()?,
                key: IdentityPublicKey::from_bytes(&reader.take().ok()?).ok()?,
                signer: reader.u8().ok()?,
                signature: reader.take().ok()?,
            };
            let signer = list.keys.get(usize::from(change.signer))?;
            let is_known = known.is_some_and(|known| {
                known.digests.get(at) == list.digests.last()
                    && known.changes.get(at) == Some(&change)
            });
            let is_signed =
                || signer.verify(&list.signed(change.kind, &change.key), &change.signature);
            if !matches!(change.kind, ADD | REMOVE) || !(is_known || is_signed()) {
                return None;
            }
            list.apply(&change).ok()?;
        }
        Some(list)
    }
}

impl AdministratorChange {
    fn encode(&self) -> [u8; CHANGE_LEN] {
        let mut out = Vec::with_capacity(CHANGE_LEN);
        out.push(self.kind);
        out.extend(self.key.to_bytes());
        out.push(self.signer);
        out.extend(self.signature);
        out.try_into().expect("the parts have this length")
    }
}

impl AdministratorAnchor {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.version);
        out.extend(self.digest);
    }

    pub(crate) fn decode(reader: &mut FieldReader<'_>) -> Option<Self> {
        Some(Self { version: reader.u8().ok()?, digest: reader.take().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "friends";

    fn person(byte: u8) -> IdentitySecretKey {
        IdentitySecretKey::new(&[byte; 32])
    }

    fn founded() -> AdministratorList {
        AdministratorList::founded(person(1).public(), GROUP)
    }

    fn read(bytes: &[u8], group: &str) -> Option<AdministratorList> {
        let mut reader = FieldReader::new(bytes);
        let list = AdministratorList::decode(&mut reader, person(1).public(), group, None);
        list.filter(|_| reader.is_empty())
    }

    #[test]
    fn changes_are_signed_by_an_administrator_of_the_list_before() {
        let [alice, bob, carol] = [1, 2, 3].map(person);
        let mut list = founded();
        let not_one = Err(ChangeAdministratorsError::NotAdministrator);
        assert_eq!(list.add(&bob, bob.public()), not_one);
        assert_eq!(list.remove(&alice, alice.public()), Err(ChangeAdministratorsError::Last));
        list.add(&alice, bob.public()).unwrap();
        assert_eq!(list.add(&bob, bob.public()), Err(ChangeAdministratorsError::Already));
        list.remove(&bob, alice.public()).unwrap();
        assert_eq!(list.add(&alice, carol.public()), not_one, "handed over");
        list.add(&bob, carol.public()).unwrap();
        assert_eq!(list.keys(), [bob.public(), carol.public()]);
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        assert_eq!(read(&bytes, GROUP), Some(list));
        assert_eq!(read(&bytes, "others"), None);
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed, GROUP), None, "byte {at}");
        }
    }

    #[test]
    fn a_fork_does_not_continue_the_list() {
        let [alice, bob, carol] = [1, 2, 3].map(person);
        let mut before = founded();
        before.add(&alice, bob.public()).unwrap();
        let (mut one, mut other) = (before.clone(), before.clone());
        one.remove(&alice, bob.public()).unwrap();
        other.remove(&bob, alice.public()).unwrap();
        other.add(&bob, carol.public()).unwrap();
        assert!(one.continues(&before) && other.continues(&before) && one.continues(&one));
        assert!(!before.continues(&one) && !one.continues(&other) && !other.continues(&one));
        assert!(one.continues_anchor(&before.anchor()) && one.continues_anchor(&one.anchor()));
        assert!(!other.continues_anchor(&one.anchor()) && !before.continues_anchor(&one.anchor()));
    }

    #[test]
    fn the_list_is_bounded() {
        let alice = person(1);
        let mut list = founded();
        for byte in 2..=16 {
            list.add(&alice, person(byte).public()).unwrap();
        }
        let too_many = Err(ChangeAdministratorsError::TooMany);
        assert_eq!(list.add(&alice, person(17).public()), too_many);
        let too_often = Err(ChangeAdministratorsError::TooOften);
        loop {
            list.remove(&alice, person(16).public()).unwrap();
            match list.add(&alice, person(16).public()) {
                Ok(()) => {}
                added => break assert_eq!(added, too_often),
            }
        }
        // All others can still be removed.
        for byte in 2..=15 {
            list.remove(&alice, person(byte).public()).unwrap();
        }
        assert_eq!(list.add(&alice, person(2).public()), too_often);
        assert_eq!((list.version(), list.keys().len()), (MAX_ADMINISTRATOR_CHANGES, 1));
        let mut bytes = Vec::new();
        list.encode(&mut bytes);
        assert_eq!((bytes.len(), read(&bytes, GROUP)), (MAX_LIST_LEN, Some(list)));
    }
}
