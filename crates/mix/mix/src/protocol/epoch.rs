//! An epoch: the members of a group between two membership changes, and the group key.

use std::collections::HashSet;

use keys::IdentityPublicKey;

use crate::{MailboxShape, MixGroupKey};

/// An epoch as one of its members knows it. The fields are checked.
#[derive(Debug)]
pub struct MemberEpoch {
    number: u32,
    shape: MailboxShape,
    own: u16,
    key: MixGroupKey,
    members: Vec<GroupMember>,
}

/// A member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMember {
    /// Its name in the group.
    pub name: String,
    /// Its identity key.
    pub key: IdentityPublicKey,
}

/// Why a list of members is not valid for an epoch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberEpochError {
    /// This client's key is not in the list.
    #[error("this client is not a member of epoch {0}")]
    NotAMember(u32),
    /// The group does not have slots for this many members.
    #[error("{members} members are more than {max}, for which the group has slots")]
    TooMany {
        /// The number of members in the list.
        members: usize,
        /// The maximum of the group.
        max: usize,
    },
    /// Two members have the same name or key.
    #[error("two members have the name or the key of {0}")]
    Twice(String),
}

impl MemberEpoch {
    /// An epoch as the member with the identity `own` knows it. A member's number is its index in
    /// `members`.
    ///
    /// # Errors
    /// If `own` is not the key of a member, there are more members than the shape allows, or two
    /// members have the same name or key.
    pub fn new(
        number: u32,
        shape: MailboxShape,
        own: &IdentityPublicKey,
        key: MixGroupKey,
        members: Vec<GroupMember>,
    ) -> Result<Self, MemberEpochError> {
        let max = shape.members();
        if members.len() > max {
            return Err(MemberEpochError::TooMany { members: members.len(), max });
        }
        let (mut names, mut keys) = (HashSet::new(), HashSet::new());
        let mut all = members.iter();
        if let Some(twice) =
            all.find(|it| !names.insert(&it.name) || !keys.insert(it.key.to_bytes()))
        {
            return Err(MemberEpochError::Twice(twice.name.clone()));
        }
        let own = members.iter().position(|member| member.key == *own);
        let own = own.and_then(|own| u16::try_from(own).ok());
        let own = own.ok_or(MemberEpochError::NotAMember(number))?;
        Ok(Self { number, shape, own, key, members })
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The shape of the group's mailbox.
    pub fn shape(&self) -> &MailboxShape {
        &self.shape
    }

    /// This member's number.
    pub fn own(&self) -> u16 {
        self.own
    }

    /// The group key.
    pub fn key(&self) -> &MixGroupKey {
        &self.key
    }

    /// All members, by number.
    pub fn members(&self) -> &[GroupMember] {
        &self.members
    }

    /// The number of the member with a name.
    pub fn number_of(&self, name: &str) -> Option<u16> {
        let number = self.members.iter().position(|member| member.name == name)?;
        u16::try_from(number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keys::IdentitySecretKey;

    #[test]
    fn member_epoch_is_checked() {
        let member = |name: &str, key: u8| GroupMember {
            name: name.to_owned(),
            key: IdentitySecretKey::new(&[key; 32]).public(),
        };
        let epoch = |own: u8, members: &[GroupMember]| {
            let own = IdentitySecretKey::new(&[own; 32]).public();
            let shape = MailboxShape::new(3, 2, 1, 3, 64).unwrap();
            MemberEpoch::new(4, shape, &own, MixGroupKey::new([0; 32]), members.to_vec())
                .map(|epoch| epoch.own())
        };
        let (alice, bob, carol) = (member("alice", 1), member("bob", 2), member("carol", 3));
        let three = [alice.clone(), bob.clone(), carol.clone()];
        assert_eq!(epoch(2, &three), Ok(1));
        assert_eq!(epoch(3, &three[..2]), Err(MemberEpochError::NotAMember(4)));
        let four = [alice.clone(), bob.clone(), carol, member("dave", 4)];
        assert_eq!(epoch(1, &four), Err(MemberEpochError::TooMany { members: 4, max: 3 }));
        let twice = Err(MemberEpochError::Twice("bob".to_owned()));
        assert_eq!(epoch(1, &[alice.clone(), bob.clone(), member("bob", 3)]), twice);
        let other = Err(MemberEpochError::Twice("eve".to_owned()));
        assert_eq!(epoch(1, &[alice, bob, member("eve", 2)]), other);
    }
}
