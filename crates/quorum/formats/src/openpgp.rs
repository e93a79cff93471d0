//! Signatures and keys of OpenPGP, version 4 (RFC 9580), with RSA and SHA-256.
//!
//! What is signed is the content and then a *trailer*: the hashed part of the signature packet and
//! its length (5.2.4). So the packet can be made from it alone.

use std::fmt;

use keys::RsaPublicKey;
use keys::rsa::PUBLIC_EXPONENT_BYTES;
use sha1::{Digest as _, Sha1};
use sha2::Sha256;

use crate::{FormatError, time_text};

/// When the OpenPGP form of a group's key was created, as it says: the beginning of 2000. The
/// fingerprint depends on this time, so that it must be the same wherever it is computed.
pub const KEY_CREATED: u32 = 946_684_800;

const VERSION: u8 = 4;
const RSA: u8 = 1;
const SHA_256: u8 = 8;

/// The types of signature (5.2.1).
const BINARY: u8 = 0x00;
const TEXT: u8 = 0x01;
const CERTIFICATION: u8 = 0x13;

/// The types of signatures of keys and user IDs (5.2.1).
const OF_KEYS: [u8; 10] = [0x10, 0x11, 0x12, 0x13, 0x18, 0x19, 0x1f, 0x20, 0x28, 0x30];

/// The longest trailer of a message that has a form here, in bytes.
pub const MAX_TRAILER_LEN: usize = 54;

/// The types of subpackets (5.2.3.7).
const CREATED: u8 = 2;
const ISSUER: u8 = 16;
const KEY_FLAGS: u8 = 27;
const ISSUER_FINGERPRINT: u8 = 33;

/// The key certifies and signs (5.2.3.29).
const CERTIFIES_AND_SIGNS: u8 = 3;

/// The longest user ID, in bytes.
const MAX_USER_ID: usize = 256;

/// The begin of a key's packet: the version, the time and the algorithm.
const KEY_HEAD: [u8; 6] = {
    let [a, b, c, d] = KEY_CREATED.to_be_bytes();
    [VERSION, a, b, c, d, RSA]
};

const SIGNATURE_PACKET: u8 = 2;
const KEY_PACKET: u8 = 6;
const USER_ID_PACKET: u8 = 13;

/// The kind of an OpenPGP signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenPgpKind {
    /// Of bytes. It is detached from them.
    Binary,
    /// Of a text, which stands around it: a cleartext signature (RFC 9580, 7).
    Cleartext,
}

/// Something that an OpenPGP signature signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPgpMessage<'a> {
    /// The content, before the trailer.
    pub content: &'a [u8],
    /// The time of the signature, in seconds since 1970.
    pub created: u32,
    /// The fingerprint of the key that is to sign.
    pub fingerprint: [u8; 20],
    /// The type of the signature.
    signature_type: u8,
    /// The part of the packet that is hashed.
    hashed: &'a [u8],
}

/// The fingerprint of a group's key (RFC 9580, 5.5.4.2).
pub fn fingerprint(key: &RsaPublicKey) -> [u8; 20] {
    fingerprint_of(&key_body(key))
}

/// The fingerprint of the key whose packet has this body.
fn fingerprint_of(body: &[u8]) -> [u8; 20] {
    Sha1::digest(framed(body)).into()
}

/// What is signed for a content.
///
/// # Errors
/// If it is to be a cleartext signature, but is not a text.
pub fn document(
    key: &RsaPublicKey,
    content: &[u8],
    kind: OpenPgpKind,
    created: u32,
) -> Result<Vec<u8>, FormatError> {
    Ok(match kind {
        OpenPgpKind::Binary => [content, &trailer(key, BINARY, created, &[])].concat(),
        OpenPgpKind::Cleartext => {
            let text = str::from_utf8(content).map_err(|_| FormatError::NotText)?;
            let text = text.strip_suffix('\n').unwrap_or(text);
            // Without white space at the ends of lines, which are CR LF.
            let lines: Vec<&str> =
                text.split('\n').map(|line| line.trim_end_matches([' ', '\t', '\r'])).collect();
            let text = lines.join("\r\n");
            canonical_lines(text.as_bytes()).ok_or(FormatError::NotText)?;
            [text.as_bytes(), &trailer(key, TEXT, created, &[])].concat()
        }
    })
}

/// What is signed to bind a user ID to the group's key.
///
/// # Errors
/// If the user ID is empty, longer than 256 bytes, or contains control characters.
pub fn key_with_user_id(key: &RsaPublicKey, user_id: &str) -> Result<Vec<u8>, FormatError> {
    if !is_user_id(user_id) {
        return Err(FormatError::UserId);
    }
    let flags = subpacket(KEY_FLAGS, &[CERTIFIES_AND_SIGNS]);
    let len = u32::try_from(user_id.len()).unwrap_or(u32::MAX).to_be_bytes();
    let framed_id = [&[0xb4], &len[..], user_id.as_bytes()].concat();
    let trailer = trailer(key, CERTIFICATION, KEY_CREATED, &flags);
    Ok([framed(&key_body(key)), framed_id, trailer].concat())
}

impl<'a> OpenPgpMessage<'a> {
    /// Parses the signed bytes of a binary or cleartext signature.
    ///
    /// # Errors
    /// If they are anything else.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        let message = Self::read(bytes).ok_or(FormatError::OpenPgp)?;
        let is_valid = match message.signature_type {
            BINARY => true,
            TEXT => canonical_lines(message.content).is_some(),
            _ => false,
        };
        if is_valid { Ok(message) } else { Err(FormatError::OpenPgp) }
    }

    /// The kind of signature.
    pub fn kind(&self) -> OpenPgpKind {
        if self.signature_type == TEXT { OpenPgpKind::Cleartext } else { OpenPgpKind::Binary }
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (content, hashed) = split_trailer(bytes, VERSION)?;
        let (&[VERSION, signature_type, RSA, SHA_256, high, low], mut rest) =
            hashed.split_first_chunk()?
        else {
            return None;
        };
        if rest.len() != usize::from(u16::from_be_bytes([high, low])) {
            return None;
        }
        let (mut created, mut issuer, mut fingerprint, mut flags) = (None, None, None, None);
        while let [len, after @ ..] = rest {
            let (subpacket, after) = after.split_at_checked(usize::from(*len))?;
            let is_repeated = match subpacket {
                [CREATED, time @ ..] => {
                    created.replace(u32::from_be_bytes(time.try_into().ok()?)).is_some()
                }
                [ISSUER, id @ ..] => issuer.replace(<[u8; 8]>::try_from(id).ok()?).is_some(),
                [ISSUER_FINGERPRINT, VERSION, id @ ..] => {
                    fingerprint.replace(<[u8; 20]>::try_from(id).ok()?).is_some()
                }
                [KEY_FLAGS, CERTIFIES_AND_SIGNS] => flags.replace(()).is_some(),
                _ => return None,
            };
            // A length of 192 or more has another form.
            if is_repeated || *len >= 192 {
                return None;
            }
            rest = after;
        }
        let fingerprint = fingerprint?;
        let is_right = issuer?[..] == fingerprint[12..];
        let is_right = is_right && (signature_type == CERTIFICATION) == flags.is_some();
        let created = created?;
        is_right.then_some(Self { content, created, fingerprint, signature_type, hashed })
    }

    /// The signature packet.
    fn packet(&self, bytes: &[u8], signature: &[u8]) -> Vec<u8> {
        let digest = Sha256::digest(bytes);
        // No subpackets that are not hashed.
        let body = [self.hashed, &[0, 0], &digest[..2], &number(signature)].concat();
        packet(SIGNATURE_PACKET, &body)
    }
}

/// A group's key with a user ID that is to be bound to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenPgpKeyMessage<'a> {
    /// The body of the key's packet: the key whose fingerprint is in the trailer.
    key: &'a [u8],
    /// The user ID.
    pub user_id: &'a str,
    message: OpenPgpMessage<'a>,
}

impl<'a> OpenPgpKeyMessage<'a> {
    /// Parses what [`key_with_user_id`] writes.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, FormatError> {
        Self::read(bytes).ok_or(FormatError::OpenPgpKey)
    }

    fn read(bytes: &'a [u8]) -> Option<Self> {
        let message = OpenPgpMessage::read(bytes)?;
        let (&[0x99, high, low], rest) = message.content.split_first_chunk()? else { return None };
        let (key, rest) = rest.split_at_checked(u16::from_be_bytes([high, low]).into())?;
        // The user ID is bound to the key that signs. Otherwise it certifies the key of another.
        let is_own = fingerprint_of(key) == message.fingerprint && key.starts_with(&KEY_HEAD);
        let (&[0xb4, a, b, c, d], user_id) = rest.split_first_chunk()? else { return None };
        let len = usize::try_from(u32::from_be_bytes([a, b, c, d])).ok()?;
        let user_id =
            str::from_utf8(user_id).ok().filter(|id| id.len() == len && is_user_id(id))?;
        let is_right = message.signature_type == CERTIFICATION && message.created == KEY_CREATED;
        (is_own && is_right).then_some(Self { key, user_id, message })
    }

    /// The key with its user ID and signature, in armor.
    pub(crate) fn armored(&self, bytes: &[u8], signature: &[u8]) -> String {
        let packets = [
            packet(KEY_PACKET, self.key),
            packet(USER_ID_PACKET, self.user_id.as_bytes()),
            self.message.packet(bytes, signature),
        ];
        armor("PGP PUBLIC KEY BLOCK", &packets.concat())
    }

    /// Whether it is about this key, and to be signed by it.
    pub(crate) fn is_of(&self, key: &RsaPublicKey) -> bool {
        self.key == key_body(key) && self.message.fingerprint == fingerprint(key)
    }
}

/// The signature in armor: with its text, if it is a cleartext signature.
pub(crate) fn armored(message: &OpenPgpMessage<'_>, bytes: &[u8], signature: &[u8]) -> String {
    let armored = armor("PGP SIGNATURE", &message.packet(bytes, signature));
    let Some(lines) = canonical_lines(message.content).filter(|_| message.signature_type == TEXT)
    else {
        return armored;
    };
    let mut text = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n".to_owned();
    for line in lines {
        // RFC 9580, 7.2.
        text += if line.starts_with('-') { "- " } else { "" };
        text += line;
        text += "\n";
    }
    text + &armored
}

/// Whether bytes could be what an OpenPGP signature of any version signs: what ends like a trailer
/// of version 4, 5 or 6 does, or like one of version 3 after a key or a text.
pub(crate) fn may_be_signed(bytes: &[u8]) -> bool {
    let is_of_version = |version| split_trailer(bytes, version).is_some();
    let is_version_5 = || {
        let (_, trailer) = bytes.split_last_chunk::<10>()?;
        let (head, len) = trailer.split_first_chunk::<2>()?;
        let len = usize::try_from(u64::from_be_bytes(len.try_into().ok()?)).ok()?;
        let from = bytes.len().checked_sub(10)?.checked_sub(len)?;
        Some(*head == [5, 0xff] && bytes[from] == 5)
    };
    // Many files of other bytes end like a trailer of version 3, which is short.
    let is_version_3 = || match split_trailer_3(bytes) {
        Some((content, BINARY | TEXT)) => looks_like_text(content),
        Some((content, kind)) => OF_KEYS.contains(&kind) && begins_with_key(content),
        None => false,
    };
    is_of_version(4) || is_of_version(6) || is_version_5().unwrap_or(false) || is_version_3()
}

/// The content of a document, if a signature of these bytes could be one of version 3 of it: all
/// but the last five bytes. [`SignatureFormat::of`](crate::SignatureFormat::of) takes it for an
/// OpenPGP message only if it looks like a text.
pub fn version_3_content(bytes: &[u8]) -> Option<&[u8]> {
    split_trailer_3(bytes).filter(|(_, kind)| *kind <= TEXT).map(|(content, _)| content)
}

/// The content and the type of a signature, of bytes that end with a trailer of version 3: the type
/// and a time since this key was created.
fn split_trailer_3(bytes: &[u8]) -> Option<(&[u8], u8)> {
    let (content, [kind, time @ ..]) = bytes.split_last_chunk::<5>()?;
    (u32::from_be_bytes(*time) >= KEY_CREATED).then_some((content, *kind))
}

/// Whether bytes begin like a key of any version, as it is hashed.
fn begins_with_key(bytes: &[u8]) -> bool {
    matches!(bytes, [0x99, _, _, 2..=6, ..] | [0x9a | 0x9b, _, _, _, _, 5 | 6, ..])
}

/// Whether bytes are a text in UTF-8, or at least three quarters of them are of one in ASCII.
fn looks_like_text(bytes: &[u8]) -> bool {
    let is_text = |byte: &&u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let count = bytes.iter().filter(is_text).count();
    str::from_utf8(bytes).is_ok() || count >= bytes.len() - bytes.len() / 4
}

/// The content and the hashed part, of bytes that end with a trailer of version 4 or 6.
fn split_trailer(bytes: &[u8], version: u8) -> Option<(&[u8], &[u8])> {
    let (before, [last_version, 0xff, len @ ..]) = bytes.split_last_chunk::<6>()? else {
        return None;
    };
    let len = usize::try_from(u32::from_be_bytes(*len)).ok()?;
    let (content, hashed) = before.split_at_checked(before.len().checked_sub(len)?)?;
    (*last_version == version && hashed.first() == Some(&version)).then_some((content, hashed))
}

fn trailer(key: &RsaPublicKey, signature_type: u8, created: u32, more: &[u8]) -> Vec<u8> {
    let fingerprint = fingerprint(key);
    let subpackets = [
        subpacket(CREATED, &created.to_be_bytes()),
        subpacket(ISSUER_FINGERPRINT, &[&[VERSION], &fingerprint[..]].concat()),
        subpacket(ISSUER, &fingerprint[12..]),
        more.to_vec(),
    ];
    let subpackets = subpackets.concat();
    let len = u16::try_from(subpackets.len()).expect("they are short").to_be_bytes();
    let hashed = [&[VERSION, signature_type, RSA, SHA_256], &len[..], &subpackets].concat();
    let len = u32::try_from(hashed.len()).expect("it is short").to_be_bytes();
    [&hashed[..], &[VERSION, 0xff], &len].concat()
}

fn subpacket(kind: u8, content: &[u8]) -> Vec<u8> {
    let len = u8::try_from(content.len() + 1).expect("it is short");
    [&[len, kind], content].concat()
}

/// The body of a key's packet, of less than 64 KiB, as it is hashed.
fn framed(body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).expect("keys are short").to_be_bytes();
    [&[0x99], &len[..], body].concat()
}

fn key_body(key: &RsaPublicKey) -> Vec<u8> {
    let exponent = number(&PUBLIC_EXPONENT_BYTES);
    [&KEY_HEAD[..], &number(&key.modulus()), &exponent].concat()
}

/// A number with its length in bits (RFC 9580, 3.2).
fn number(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    let bytes = &bytes[zeros..];
    let unused = bytes.first().map_or(0, |byte| byte.leading_zeros() as usize);
    let bits = u16::try_from(bytes.len() * 8 - unused).expect("keys are short");
    [&bits.to_be_bytes(), bytes].concat()
}

/// A packet (RFC 9580, 4.2).
fn packet(tag: u8, body: &[u8]) -> Vec<u8> {
    let len = u32::try_from(body.len()).expect("it is short").to_be_bytes();
    [&[0xc0 | tag, 0xff], &len[..], body].concat()
}

fn armor(label: &str, bytes: &[u8]) -> String {
    let check = crc24(bytes).to_be_bytes();
    let check = crate::base64_lines(&check[1..]);
    format!(
        "-----BEGIN {label}-----\n\n{}={check}-----END {label}-----\n",
        crate::base64_lines(bytes)
    )
}

/// The checksum of armor (RFC 9580, 6.1.1).
fn crc24(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x00b7_04ce, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte) << 16, |crc, _| {
            let shifted = crc << 1;
            if shifted & 0x0100_0000 == 0 { shifted } else { shifted ^ 0x0186_4cfb }
        })
    })
}

/// The lines of a canonical text: separated by CR LF, without white space at their ends.
fn canonical_lines(content: &[u8]) -> Option<Vec<&str>> {
    let text = str::from_utf8(content).ok()?;
    let lines: Vec<&str> = text.split("\r\n").collect();
    let is_line = |line: &&str| !line.contains(['\r', '\n', '\0']) && !line.ends_with([' ', '\t']);
    lines.iter().all(is_line).then_some(lines)
}

fn is_user_id(text: &str) -> bool {
    (1..=MAX_USER_ID).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// One line: what it says.
impl fmt::Display for OpenPgpMessage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = canonical_lines(self.content).filter(|_| self.kind() == OpenPgpKind::Cleartext);
        if let Some(lines) = text {
            let text = lines.join("\n") + "\n";
            write!(out, "cleartext OpenPGP signature of {} bytes with SHA-256 ", text.len())?;
            write!(out, "{}, as lines that end with LF", crate::sha256_text(text.as_bytes()))?;
        } else {
            let len = self.content.len();
            write!(out, "detached OpenPGP signature of {len} bytes with SHA-256 ")?;
            write!(out, "{}", crate::sha256_text(self.content))?;
        }
        let fingerprint = base16ct::HexDisplay(&self.fingerprint);
        write!(out, ", at {}, by the key {fingerprint:X}", time_text(self.created.into()))
    }
}

/// One line: what it says.
impl fmt::Display for OpenPgpKeyMessage<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fingerprint = fingerprint_of(self.key);
        let fingerprint = base16ct::HexDisplay(&fingerprint);
        write!(out, "user ID {:?} of the OpenPGP key {fingerprint:X}", self.user_id)
    }
}
