//! Join requests of invited persons, and the answers of the administrator who has invited them.

use encoding::{FieldError, FieldReader, FieldWrite as _};
use keys::{IdentityPublicKey, IdentitySecretKey};
use zeroize::Zeroizing;

use super::crypto::{TAG_LEN, agree_with, derive, group_id, open, seal};
use super::invitation::{Invitation, InvitationSecret, id_of};
use super::name::{MemberName, MemberNameError};
use super::prekey::Prekey;

const INVITER_LEN: usize = 32;
const ID_LEN: usize = 8;
const SALT_LEN: usize = 16;
const SIGNATURE_LEN: usize = 64;

/// The longest join request, in bytes.
pub const MAX_JOIN_REQUEST_LEN: usize =
    INVITER_LEN + ID_LEN + SALT_LEN + 8 + 32 + 1 + 128 + TAG_LEN;
/// The length of an answer to a join request, in bytes.
pub const JOIN_ANSWER_LEN: usize = 1 + SIGNATURE_LEN;

/// A request to join a group. Only the administrator who has made the invitation can read it.
pub struct JoinRequest {
    /// The name that the person wants.
    pub name: MemberName,
    /// The prekey for which the key of its first epoch will be sealed.
    pub prekey: Prekey,
    /// Drawn anew for each request.
    pub salt: [u8; SALT_LEN],
}

/// Why a join request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// The invitation is unknown.
    #[error("the administrator does not know this invitation: ask for another one")]
    Unknown,
    /// The invitation was used.
    #[error("this invitation was used by somebody else: ask the administrator for another one")]
    Used,
    /// The invitation has expired.
    #[error("this invitation has expired: ask the administrator for another one")]
    Expired,
    /// The group has its maximum number of members.
    #[error("the group is full: ask the administrator to remove somebody, then join again")]
    GroupFull,
    /// A member has the name, or one that looks like it.
    #[error("the name is taken, or looks like that of a member: join with another name")]
    NameTaken,
    /// The request is not one of this version.
    #[error("the administrator's program does not understand the request: use the same version")]
    Malformed,
    /// The invitation is for another name.
    #[error("the invitation is for another name: join with that name, or ask for another one")]
    OtherName,
}

impl JoinRefusal {
    const ALL: [Self; 7] = [
        Self::Unknown,
        Self::Used,
        Self::Expired,
        Self::GroupFull,
        Self::NameTaken,
        Self::Malformed,
        Self::OtherName,
    ];
}

/// Why a request could not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinRequestError {
    /// It was not made by this key with this invitation.
    NotAuthentic,
    /// Its content is malformed.
    Malformed,
}

impl From<FieldError> for JoinRequestError {
    fn from(_: FieldError) -> Self {
        Self::Malformed
    }
}

impl From<MemberNameError> for JoinRequestError {
    fn from(_: MemberNameError) -> Self {
        Self::Malformed
    }
}

impl JoinRequest {
    /// Encodes the request of the client `own`.
    pub fn encode(&self, own: &IdentitySecretKey, invitation: &Invitation) -> Vec<u8> {
        let at = &invitation.at;
        let agreed = agree_with(own, &invitation.inviter);
        let id = group_id(&at.administrator, at.group.as_str());
        let key = request_key(&agreed, &invitation.secret, &id, &own.public(), &self.salt);
        let mut text = Vec::with_capacity(MAX_JOIN_REQUEST_LEN);
        text.extend(self.prekey.number.to_be_bytes());
        text.extend(self.prekey.public);
        text.put_text(self.name.as_str());
        let inviter = invitation.inviter.to_bytes();
        [&inviter[..], &id_of(&invitation.secret), &self.salt, &seal(&key, &text)].concat()
    }

    /// The administrator that a request is for; `None` if it is malformed.
    pub(crate) fn inviter(request: &[u8]) -> Option<IdentityPublicKey> {
        IdentityPublicKey::from_bytes(request.first_chunk()?).ok()
    }

    /// The identifier of the invitation that a request names, and its salt; `None` if it is too
    /// short.
    pub(super) fn header(request: &[u8]) -> Option<([u8; ID_LEN], [u8; SALT_LEN])> {
        let mut reader = FieldReader::new(request.get(INVITER_LEN..)?);
        Some((reader.take().ok()?, reader.take().ok()?))
    }

    /// The salt of a request.
    pub(crate) fn salt(request: &[u8]) -> Option<[u8; SALT_LEN]> {
        Self::header(request).map(|(_, salt)| salt)
    }

    /// Reads the request of `client`, made with the invitation that has this secret.
    pub(super) fn decode(
        request: &[u8],
        client: &IdentityPublicKey,
        administrator: &IdentitySecretKey,
        group_id: &[u8; 32],
        secret: &InvitationSecret,
    ) -> Result<Self, JoinRequestError> {
        let (_, salt) = Self::header(request).ok_or(JoinRequestError::Malformed)?;
        let agreed = agree_with(administrator, client);
        let key = request_key(&agreed, secret, group_id, client, &salt);
        let text = open(&key, &request[INVITER_LEN + ID_LEN + SALT_LEN..])
            .ok_or(JoinRequestError::NotAuthentic)?;
        let mut reader = FieldReader::new(&text);
        let prekey = Prekey { number: reader.u64()?, public: reader.take()? };
        let name = MemberName::new(reader.text()?)?;
        reader.finish()?;
        if prekey.is_sound() {
            Ok(Self { name, prekey, salt })
        } else {
            Err(JoinRequestError::Malformed)
        }
    }
}

fn request_key(
    agreed: &[u8; 32],
    secret: &InvitationSecret,
    group_id: &[u8; 32],
    client: &IdentityPublicKey,
    salt: &[u8; SALT_LEN],
) -> Zeroizing<[u8; 32]> {
    derive("sunder mix join 1", &[agreed, &**secret, group_id, &client.to_bytes(), salt])
}

/// The administrator's answer to the request of `client` with this salt.
pub(super) fn encode_answer(
    answer: Result<(), JoinRefusal>,
    administrator: &IdentitySecretKey,
    group_id: &[u8; 32],
    client: &IdentityPublicKey,
    salt: &[u8; SALT_LEN],
) -> Vec<u8> {
    let code = match answer {
        Ok(()) => 0,
        Err(refusal) => refusal as u8 + 1,
    };
    let signed = signed_answer(code, group_id, client, salt);
    [&[code][..], &administrator.sign(&signed)].concat()
}

/// Decodes the answer to the client's last request; `None` if the administrator who has
/// invited it did not sign it.
pub fn decode_answer(
    answer: &[u8],
    inviter: &IdentityPublicKey,
    group_id: &[u8; 32],
    client: &IdentityPublicKey,
    salt: &[u8; SALT_LEN],
) -> Option<Result<(), JoinRefusal>> {
    let (&code, signature) = answer.split_first()?;
    let signed = signed_answer(code, group_id, client, salt);
    if !inviter.verify(&signed, signature.try_into().ok()?) {
        return None;
    }
    let Some(reason) = usize::from(code).checked_sub(1) else { return Some(Ok(())) };
    // A newer administrator may have other reasons.
    let refusal = JoinRefusal::ALL.get(reason).copied();
    Some(Err(refusal.unwrap_or(JoinRefusal::Malformed)))
}

fn signed_answer(
    code: u8,
    group_id: &[u8; 32],
    client: &IdentityPublicKey,
    salt: &[u8; SALT_LEN],
) -> Vec<u8> {
    [b"sunder mix join answer 1", &group_id[..], &client.to_bytes(), salt, &[code]].concat()
}

#[cfg(test)]
mod tests {
    use super::super::prekey::PrekeySecret;
    use super::*;

    #[test]
    fn answers_have_the_codes_of_the_specification() {
        for (at, refusal) in JoinRefusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at);
        }
    }

    #[test]
    fn a_request_ends_with_the_name() {
        let [administrator, client] = [1, 2].map(|byte| IdentitySecretKey::new(&[byte; 32]));
        let (secret, salt) = (Zeroizing::new([3; 16]), [4; SALT_LEN]);
        let prekey = PrekeySecret::new(1, Zeroizing::new([5; 32])).public();
        let agreed = agree_with(&client, &administrator.public());
        let id = group_id(&administrator.public(), "friends");
        let key = request_key(&agreed, &secret, &id, &client.public(), &salt);
        let decode = |text: &[u8]| {
            let inviter = administrator.public().to_bytes();
            let request = [&inviter[..], &id_of(&secret), &salt, &seal(&key, text)].concat();
            JoinRequest::decode(&request, &client.public(), &administrator, &id, &secret).map(drop)
        };
        let mut text = prekey.number.to_be_bytes().to_vec();
        text.extend(prekey.public);
        text.put_text("bob");
        assert_eq!(decode(&text), Ok(()));
        text.push(0);
        assert_eq!(decode(&text), Err(JoinRequestError::Malformed));
    }

    #[test]
    fn a_join_answer_is_bound_to_its_request() {
        let [administrator, client, other] =
            [1, 2, 3].map(|byte| IdentitySecretKey::new(&[byte; 32]));
        let (client, other) = (client.public(), other.public());
        let id = |group| group_id(&administrator.public(), group);
        for answer in JoinRefusal::ALL.map(Err).into_iter().chain([Ok(())]) {
            let bytes = encode_answer(answer, &administrator, &id("friends"), &client, &[4; 16]);
            assert_eq!(bytes.len(), JOIN_ANSWER_LEN);
            let decode = |bytes: &[u8], group, client, salt| {
                decode_answer(bytes, &administrator.public(), &id(group), client, &salt)
            };
            assert_eq!(decode(&bytes, "friends", &client, [4; 16]), Some(answer));
            assert_eq!(decode(&bytes, "others", &client, [4; 16]), None);
            assert_eq!(decode(&bytes, "friends", &other, [4; 16]), None);
            assert_eq!(decode(&bytes, "friends", &client, [5; 16]), None);
            assert_eq!(decode(&bytes[..60], "friends", &client, [4; 16]), None);
            let mut changed = bytes.clone();
            changed[0] ^= 1;
            assert_eq!(decode(&changed, "friends", &client, [4; 16]), None);
        }
        assert_eq!(decode_answer(&[], &other, &id("friends"), &client, &[4; 16]), None);
    }
}
