//! Prekeys, and members' notices to the administrators. A member makes a prekey in advance, and an
//! administrator seals the key of one epoch for it. A notice announces a prekey, or that the member
//! leaves. It is signed, so that each administrator can verify it.

use std::fmt;

use encoding::FieldReader;
use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use super::crypto::{agree, group_id, x25519_public};

const PREKEY: u8 = 1;
const LEAVE: u8 = 2;
const STEP_DOWN: u8 = 3;
const SIGNATURE_LEN: usize = 64;

/// The longest notice, in bytes.
pub const MAX_NOTICE_LEN: usize = 1 + 8 + 4 + 32 + SIGNATURE_LEN;

/// The owner's part of a prekey. Secret. It is erased as soon as it has opened the key of an epoch.
pub struct PrekeySecret {
    number: u64,
    secret: Zeroizing<[u8; 32]>,
}

/// The public part of a prekey.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prekey {
    /// The prekey's number, greater than those of all earlier prekeys of this member.
    pub number: u64,
    /// The X25519 public key.
    pub public: [u8; 32],
}

impl PrekeySecret {
    /// A prekey made of random bytes.
    pub fn new(number: u64, random: Zeroizing<[u8; 32]>) -> Self {
        Self { number, secret: random }
    }

    /// The prekey's number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The public part.
    pub fn public(&self) -> Prekey {
        Prekey { number: self.number, public: x25519_public(&self.secret) }
    }

    /// The random bytes of [`Self::new`]. Secret.
    pub fn secret(&self) -> &[u8; 32] {
        &self.secret
    }
}

impl fmt::Debug for PrekeySecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrekeySecret({}, ..)", self.number)
    }
}

impl Prekey {
    /// Whether key agreement with it yields a secret, because it is not a point of small order.
    pub(super) fn is_sound(&self) -> bool {
        agree(&[1; 32], &self.public).is_some()
    }
}

/// A member's notice to the administrators. The proxy forwards it and cannot forge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberNotice {
    /// The member's next prekey.
    Prekey {
        /// The prekey.
        prekey: Prekey,
        /// The greatest number of an epoch whose key it has opened, or 0.
        opened: u32,
    },
    /// As [`MemberNotice::Prekey`], of an administrator that asks the others to take it from the
    /// list. It counts until this member is made an administrator again.
    StepDown {
        /// The prekey.
        prekey: Prekey,
        /// The greatest number of an epoch whose key it has opened, or 0.
        opened: u32,
        /// The digest of the list of administrators in which it asks. It is signed, and not in the
        /// notice: the others know the lists.
        list: [u8; 32],
    },
    /// The member leaves.
    Leave {
        /// A number greater than those of all its prekeys.
        number: u64,
    },
}

impl MemberNotice {
    /// Encodes a notice of the member `own`, for the group with this founder and name.
    pub fn encode(
        &self,
        own: &IdentitySecretKey,
        founder: &IdentityPublicKey,
        group: &str,
    ) -> Vec<u8> {
        let mut notice = Vec::with_capacity(MAX_NOTICE_LEN);
        match self {
            Self::Prekey { prekey, opened } | Self::StepDown { prekey, opened, .. } => {
                let is_only_prekey = matches!(self, Self::Prekey { .. });
                notice.push(if is_only_prekey { PREKEY } else { STEP_DOWN });
                notice.extend(prekey.number.to_be_bytes());
                notice.extend(opened.to_be_bytes());
                notice.extend(prekey.public);
            }
            Self::Leave { number } => {
                notice.push(LEAVE);
                notice.extend(number.to_be_bytes());
            }
        }
        let id = group_id(founder, group);
        let signature = own.sign(&match self {
            Self::StepDown { list, .. } => signed_in_list(&id, list, &notice),
            _ => signed(&id, &notice),
        });
        notice.extend(signature);
        notice
    }

    /// Whether a notice is a [`MemberNotice::Leave`], if it is valid.
    pub fn is_leave(notice: &[u8]) -> bool {
        notice.first() == Some(&LEAVE)
    }

    /// The number in a notice, if it is valid. Each is greater than those of the member's earlier
    /// notices.
    pub fn number_in(notice: &[u8]) -> Option<u64> {
        notice.get(1..9)?.try_into().ok().map(u64::from_be_bytes)
    }

    /// Decodes a notice of `member`; `None` if that member did not make it. `lists` are the digests
    /// of the lists of administrators in which the member can ask to be taken from the list. The
    /// version before did not name the list, so what it asked could be repeated: it counts as
    /// [`MemberNotice::Prekey`].
    pub fn decode<'a>(
        notice: &[u8],
        member: &IdentityPublicKey,
        founder: &IdentityPublicKey,
        group: &str,
        lists: impl IntoIterator<Item = &'a [u8; 32]>,
    ) -> Option<Self> {
        let (body, signature) = notice.split_last_chunk::<SIGNATURE_LEN>()?;
        let id = group_id(founder, group);
        let asks = body.first() == Some(&STEP_DOWN);
        let is_of = |list: &&[u8; 32]| member.verify(&signed_in_list(&id, list, body), signature);
        let list = asks.then(|| lists.into_iter().find(is_of)).flatten();
        if list.is_none() && !member.verify(&signed(&id, body), signature) {
            return None;
        }
        let mut reader = FieldReader::new(body);
        let (kind, number) = (reader.u8().ok()?, reader.u64().ok()?);
        let notice = match kind {
            PREKEY | STEP_DOWN => {
                let opened = reader.u32().ok()?;
                let prekey = Prekey { number, public: reader.take().ok()? };
                match list {
                    None => Self::Prekey { prekey, opened },
                    Some(list) => Self::StepDown { prekey, opened, list: *list },
                }
            }
            LEAVE => Self::Leave { number },
            _ => return None,
        };
        reader.is_empty().then_some(notice)
    }
}

fn signed(group_id: &[u8; 32], body: &[u8]) -> Vec<u8> {
    [b"sunder mix notice 2", &group_id[..], body].concat()
}

fn signed_in_list(group_id: &[u8; 32], list: &[u8; 32], body: &[u8]) -> Vec<u8> {
    [b"sunder mix notice 3", &group_id[..], list, body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: &str = "friends";

    #[test]
    fn a_notice_is_bound_to_its_member_and_group() {
        let [administrator, member, other] =
            [1, 2, 3].map(|byte| IdentitySecretKey::new(&[byte; 32]));
        let prekey = PrekeySecret::new(5, Zeroizing::new([9; 32])).public();
        for notice in [
            MemberNotice::Prekey { prekey, opened: 7 },
            MemberNotice::StepDown { prekey, opened: 7, list: [4; 32] },
            MemberNotice::Leave { number: 8 },
        ] {
            let bytes = notice.encode(&member, &administrator.public(), GROUP);
            let decode = |bytes: &[u8], member: &IdentitySecretKey, group| {
                let lists = [&[3; 32], &[4; 32]];
                MemberNotice::decode(bytes, &member.public(), &administrator.public(), group, lists)
            };
            assert_eq!(decode(&bytes, &member, GROUP), Some(notice));
            let leaves = matches!(notice, MemberNotice::Leave { .. });
            assert_eq!(MemberNotice::is_leave(&bytes), leaves);
            assert_eq!(decode(&bytes, &other, GROUP), None);
            assert_eq!(decode(&bytes, &member, "others"), None);
            assert_eq!(decode(&bytes[1..], &member, GROUP), None);
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 1;
                assert_eq!(decode(&changed, &member, GROUP), None);
            }
        }
    }

    #[test]
    fn what_an_administrator_asks_counts_in_its_list_only() {
        let [administrator, member] = [1, 2].map(|byte| IdentitySecretKey::new(&[byte; 32]));
        let prekey = PrekeySecret::new(5, Zeroizing::new([9; 32])).public();
        let asked = MemberNotice::StepDown { prekey, opened: 7, list: [4; 32] };
        let bytes = asked.encode(&member, &administrator.public(), GROUP);
        let decode = |bytes: &[u8], lists: &[[u8; 32]]| {
            MemberNotice::decode(bytes, &member.public(), &administrator.public(), GROUP, lists)
        };
        assert_eq!(decode(&bytes, &[[4; 32]]), Some(asked));
        assert_eq!(decode(&bytes, &[[5; 32]]), None);
        // Of the version before, whose notice has the same fields and no list.
        let mut before = bytes[..bytes.len() - SIGNATURE_LEN].to_vec();
        let signature = member.sign(&signed(&group_id(&administrator.public(), GROUP), &before));
        before.extend(signature);
        let only_prekey = MemberNotice::Prekey { prekey, opened: 7 };
        assert_eq!(decode(&before, &[[4; 32]]), Some(only_prekey));
    }

    #[test]
    fn a_prekey_of_small_order_is_noticed() {
        assert!(PrekeySecret::new(1, Zeroizing::new([9; 32])).public().is_sound());
        for byte in [0, 1] {
            let mut public = [0; 32];
            public[0] = byte;
            assert!(!Prekey { number: 1, public }.is_sound());
        }
    }
}
