//! Invitations, which allow one person to join a group, and their encoding as text.

use std::fmt;
use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;
use sha2::{Digest, Sha256};
use zeroize::{Zeroize, Zeroizing};

use super::administrators::AdministratorAnchor;
use super::code::{self, InvitationCodeError};
use super::crypto::derive;
use super::name::MemberName;
use crate::protocol::exchange::MixExchangeKind;

const CHECKSUM_LEN: usize = 4;
/// The longest address of a proxy, and the longest name of a group, in bytes.
pub const MAX_ADDRESS_LEN: usize = 255;
/// The longest name of a group, in bytes.
pub const MAX_GROUP_NAME_LEN: usize = 64;

/// The secret that the administrator and the invited person share.
pub(super) type InvitationSecret = Zeroizing<[u8; 16]>;

/// The proxy, name and administrator of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupAddress {
    /// The proxy's address, in the form that the driver uses; at most [`MAX_ADDRESS_LEN`] bytes
    /// without spaces or control characters.
    pub proxy_address: String,
    /// The proxy's key.
    pub proxy: IdentityPublicKey,
    /// The group's name at the proxy, at most [`MAX_GROUP_NAME_LEN`] bytes.
    pub group: crate::protocol::wire::GroupName,
    /// The key of the group's founder, its first administrator. With the name it identifies the
    /// group for ever, even when there are other administrators.
    pub administrator: IdentityPublicKey,
}

/// Where the proxy is, as the administrators have announced it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyAddress {
    /// The address: see [`GroupAddress::proxy_address`].
    pub address: String,
    /// The proxy's key.
    pub key: IdentityPublicKey,
}

/// Permission for one person to join a group. Secret: anyone who obtains it can join in that
/// person's place.
pub struct Invitation {
    pub(super) at: GroupAddress,
    pub(super) name: MemberName,
    pub(super) expires: Duration,
    pub(super) secret: InvitationSecret,
    /// The administrator who has made it, and who admits.
    pub(super) inviter: IdentityPublicKey,
    /// The list of administrators when it was made.
    pub(super) anchor: AdministratorAnchor,
    /// The kind of the group's exchanges, if it is not the broadcast.
    pub(super) exchange: Option<MixExchangeKind>,
}

/// Why a string is not an invitation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvitationError {
    /// The text is mistyped.
    #[error("{0}")]
    Code(#[from] InvitationCodeError),
    /// Each group of characters is valid, but the checksum of the whole is wrong.
    #[error("the invitation is not complete, or mistyped in several places: copy it again")]
    Checksum,
    /// The text was made by a newer or faulty program.
    #[error("the invitation was made by a version of this program that has other invitations")]
    Contents,
}

impl Invitation {
    /// Reads the text that [`Invitation::code`] returns. Spaces, line breaks and capitals are
    /// ignored. O is read as 0, and I and L as 1.
    ///
    /// # Errors
    /// If the text is not an invitation. The error names the mistyped group.
    pub fn parse(text: &str) -> Result<Self, InvitationError> {
        let bytes = code::decode(text)?;
        let (checksum, contents) =
            bytes.split_first_chunk::<CHECKSUM_LEN>().ok_or(InvitationError::Checksum)?;
        let mut reader = FieldReader::new(contents);
        let read = Self::read(&mut reader);
        let rest = reader.rest();
        let len = contents.len() - rest.len();
        if *checksum != checksum_of(&contents[..len]) {
            return Err(InvitationError::Checksum);
        }
        let mut invitation = read.ok_or(InvitationError::Contents)?;
        // The code pads the bytes with zeros.
        if let Some(number) = rest.first().and_then(|byte| byte.checked_sub(1)) {
            if !rest[1..].starts_with(&checksum_of(&contents[..=len])) {
                return Err(InvitationError::Checksum);
            }
            let exchange = MixExchangeKind::from_number(number);
            invitation.exchange = Some(exchange.ok_or(InvitationError::Contents)?);
        }
        Ok(invitation)
    }

    /// The same for a group that makes exchanges of this kind.
    #[must_use]
    pub(crate) fn with_exchange(self, exchange: Option<MixExchangeKind>) -> Self {
        let exchange = exchange.filter(|kind| *kind != MixExchangeKind::Broadcast);
        Self { exchange, ..self }
    }

    /// The invitation as text: a prefix, and groups of eight characters, each with its own check
    /// character. Secret.
    pub fn code(&self) -> Zeroizing<String> {
        let mut contents = Zeroizing::new(Vec::with_capacity(1024));
        contents.extend(&*self.secret);
        contents
            .extend(u32::try_from(self.expires.as_secs() / 60).unwrap_or(u32::MAX).to_be_bytes());
        contents.extend(self.at.proxy.to_bytes());
        contents.extend(self.at.administrator.to_bytes());
        contents.put_text(&self.at.proxy_address);
        contents.put_text(self.at.group.as_str());
        contents.put_text(self.name.as_str());
        contents.extend(self.inviter.to_bytes());
        self.anchor.encode(&mut contents);
        let checksum = checksum_of(&contents);
        let mut bytes = Zeroizing::new(Vec::with_capacity(1024));
        bytes.extend(checksum);
        bytes.extend(&**contents);
        if let Some(kind) = self.exchange {
            // A version before ignores it, so its checksum is another one.
            contents.push(1 + kind.number());
            bytes.push(1 + kind.number());
            bytes.extend(checksum_of(&contents));
        }
        code::encode(&bytes)
    }

    fn read(reader: &mut FieldReader<'_>) -> Option<Self> {
        let secret = Zeroizing::new(reader.take().ok()?);
        let expires = Duration::from_secs(u64::from(reader.u32().ok()?) * 60);
        let proxy = IdentityPublicKey::from_bytes(&reader.take().ok()?);
        let administrator = IdentityPublicKey::from_bytes(&reader.take().ok()?);
        let (proxy_address, group) =
            (reader.text().ok()?.to_owned(), reader.text().ok()?.parse().ok()?);
        let name = MemberName::new(reader.text().ok()?);
        let inviter = IdentityPublicKey::from_bytes(&reader.take().ok()?);
        let anchor = AdministratorAnchor::decode(reader)?;
        let (proxy, administrator) = (proxy.ok()?, administrator.ok()?);
        let at = GroupAddress { proxy_address, proxy, group, administrator };
        GroupAddress::is_proxy_address(&at.proxy_address).then_some(Self {
            at,
            name: name.ok()?,
            expires,
            secret,
            inviter: inviter.ok()?,
            anchor,
            exchange: None,
        })
    }

    /// The group to join.
    pub fn group(&self) -> &GroupAddress {
        &self.at
    }

    /// The key of the administrator who has made it.
    pub fn inviter(&self) -> &IdentityPublicKey {
        &self.inviter
    }

    /// The administrators of the group must come from this list.
    pub(crate) fn anchor(&self) -> AdministratorAnchor {
        self.anchor
    }

    /// The kind of the group's exchanges, if it is known not to be the broadcast.
    pub fn exchange(&self) -> Option<MixExchangeKind> {
        self.exchange
    }

    /// The name that the administrator proposes for the new member.
    pub fn name(&self) -> &MemberName {
        &self.name
    }

    /// When it expires, since 1970.
    pub fn expires(&self) -> Duration {
        self.expires
    }
}

impl GroupAddress {
    /// Where the proxy is.
    pub fn proxy_address(&self) -> ProxyAddress {
        ProxyAddress { address: self.proxy_address.clone(), key: self.proxy }
    }

    /// Whether an address of a proxy can be encoded in an invitation.
    pub fn is_proxy_address(text: &str) -> bool {
        (1..=MAX_ADDRESS_LEN).contains(&text.len())
            && !text.chars().any(|one| one.is_control() || one.is_whitespace())
    }

    /// Whether this is one address with a port, `HOST:PORT`, without a user or a token before it.
    pub fn is_single_address(text: &str) -> bool {
        let parts = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
        let has_port = parts.is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        has_port && Self::is_proxy_address(text) && !text.contains([',', '@'])
    }
}

impl fmt::Debug for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Invitation")
            .field("at", &self.at)
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The identifier by which the administrator finds an invitation. It does not reveal the secret.
pub(super) fn id_of(secret: &[u8; 16]) -> [u8; 8] {
    let mut id = derive("sunder mix invitation 1", &[secret]);
    let short = *id.first_chunk().expect("32 bytes are more than 8");
    id.zeroize();
    short
}

fn checksum_of(contents: &[u8]) -> [u8; CHECKSUM_LEN] {
    let digest = Sha256::new().chain_update(b"sunder mix invitation 1").chain_update(contents);
    *digest.finalize().first_chunk().expect("32 bytes are more than 4")
}

#[cfg(test)]
mod tests {
    use keys::IdentitySecretKey;
    use proptest::prelude::*;

    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            at: GroupAddress {
                proxy_address: "chat.example.org:4711".to_owned(),
                proxy: IdentitySecretKey::new(&[1; 32]).public(),
                group: "friends".parse().unwrap(),
                administrator: IdentitySecretKey::new(&[2; 32]).public(),
            },
            name: MemberName::new("bob").unwrap(),
            expires: Duration::from_secs(1_800_000_000),
            secret: Zeroizing::new([7; 16]),
            inviter: IdentitySecretKey::new(&[3; 32]).public(),
            anchor: AdministratorAnchor { version: 3, digest: [4; 8] },
            exchange: None,
        }
    }

    #[test]
    fn invitation_code_round_trip() {
        let code = invitation().code();
        let wrapped = code.to_uppercase().replace('-', "-\n ");
        for text in [&**code, &wrapped, &format!("  {}\n", *code)] {
            let read = Invitation::parse(text).unwrap();
            assert_eq!(read.at, invitation().at);
            assert_eq!(read.name, invitation().name);
            assert_eq!(read.expires, invitation().expires);
            assert_eq!(*read.secret, [7; 16]);
            let expected = invitation();
            assert_eq!((read.inviter, read.anchor), (expected.inviter, expected.anchor));
            assert_eq!(read.exchange(), None);
        }
    }

    #[test]
    fn an_invitation_names_the_kind_of_exchange_after_what_versions_before_read() {
        let before = invitation().code();
        for kind in MixExchangeKind::ALL {
            let code = invitation().with_exchange(Some(kind)).code();
            let read = Invitation::parse(&code).unwrap();
            assert_eq!((&read.at, read.anchor), (&invitation().at, invitation().anchor));
            if kind == MixExchangeKind::Broadcast {
                assert_eq!((read.exchange(), &*code), (None, &*before));
                continue;
            }
            assert_eq!(read.exchange(), Some(kind));
            // A version before compares the checksum with these bytes, and ignores the rest.
            let [bytes, bytes_before] = [&code, &before].map(|code| code::decode(code).unwrap());
            let len = bytes_before.iter().rposition(|byte| *byte != 0).unwrap() + 1;
            assert_eq!(bytes[..len], bytes_before[..len]);
        }
        let bytes = code::decode(&before).unwrap();
        let len = bytes.iter().rposition(|byte| *byte != 0).unwrap() + 1;
        let followed_by = |more: &[u8]| {
            let code = code::encode(&[&bytes[..len], more].concat());
            Invitation::parse(&code).unwrap_err()
        };
        let checksum = checksum_of(&[&bytes[CHECKSUM_LEN..len], &[200]].concat());
        let unknown = [&[200][..], &checksum].concat();
        assert_eq!(followed_by(&unknown), InvitationError::Contents);
        assert_eq!(followed_by(&[1]), InvitationError::Checksum);
        assert_eq!(followed_by(&[&[1][..], &checksum].concat()), InvitationError::Checksum);
    }

    #[test]
    fn the_secret_is_not_printed() {
        let printed = format!("{:?}", invitation());
        assert!(printed.contains("friends") && !printed.contains("7, 7"), "{printed}");
    }

    #[test]
    fn a_missing_group_at_the_end_is_noticed() {
        let code = invitation().code();
        let short = &code[..code.rfind('-').unwrap()];
        assert_eq!(Invitation::parse(short).unwrap_err(), InvitationError::Checksum);
    }

    proptest! {
        #[test]
        fn a_wrong_character_is_named_with_its_group(at in 0_usize..200, step in 1_usize..32) {
            let code = invitation().code();
            let groups = &code[code::PREFIX.len()..];
            let places: Vec<_> =
                groups.char_indices().filter(|(_, one)| *one != '-').map(|(at, _)| at).collect();
            let at = places[at % places.len()];
            let old = code::ALPHABET.find(&groups[at..=at]).unwrap();
            let new = (old + step) % 32;
            let mut wrong = groups.to_owned();
            wrong.replace_range(at..=at, &code::ALPHABET[new..=new]);
            let number = groups[..at].matches('-').count() + 1;
            let text = wrong.split('-').nth(number - 1).unwrap().to_owned();
            let error = Invitation::parse(&format!("{}{wrong}", code::PREFIX)).unwrap_err();
            prop_assert_eq!(error, InvitationError::Code(InvitationCodeError::Mistyped { number, text }));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "(sunder-mix-2-)?[0-9a-z -]{0,300}") {
            let _ = Invitation::parse(&text);
        }

        #[test]
        fn any_contents_are_read_or_refused(contents in proptest::collection::vec(any::<u8>(), 0..300)) {
            let bytes = [&checksum_of(&contents)[..], &contents].concat();
            let _ = Invitation::parse(&code::encode(&bytes));
        }
    }
}
