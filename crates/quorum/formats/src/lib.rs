//! What signatures with RSA and Ed25519 sign in X.509, CMS, OpenPGP and JSON Web Tokens, and the
//! forms that stock tools verify.
//!
//! A group of servers signs whole messages. For each format, the message is what the standard calls
//! *to be signed*: [`SignatureFormat::describe`] says what it means, and [`SignatureFormat::wrap`]
//! makes the form with its signature. Nothing else is needed for the form, except the certificate
//! of the signer in CMS.
//!
//! One key signs in all formats, so a message of one must not be one of another too.
//! [`SignatureFormat::of`] says which format's message it could be, as any verifier might read it.
//! Messages that could be of two formats have none. The parsers here are stricter than verifiers.
//!
//! OpenPGP is for RSA keys alone: with Ed25519, it signs a digest in place of the message, and a
//! group that signs digests does not know what it signs.
//!
//! ```
//! use keys::RsaPublicKey;
//! use sunder_formats::SignatureFormat;
//! use sunder_formats::jwt::{JwtAlgorithm, token};
//!
//! let key = RsaPublicKey::new(&[0xff; 256])?.into();
//! let message = token(&key, br#"{"sub":"alice"}"#, JwtAlgorithm::Rs256)?;
//! assert_eq!(SignatureFormat::of(&message), Ok(SignatureFormat::Jwt));
//! let line = SignatureFormat::Jwt.describe(&message)?;
//! assert_eq!(line, r#"JSON Web Token (RS256) with {"sub":"alice"}"#);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! - [`x509`]: certificates and requests for them, with `name`. [`certificate`]: fields of any
//!   certificate. [`cms`]: detached signatures. [`SignatureAlgorithm`]: that of each kind of key in
//!   both.
//! - [`openpgp`]: signatures and keys. [`jwt`]: tokens and keys. [`json`]: objects without repeated
//!   names. `der`: the encoding of X.509 and CMS.

mod algorithm;
pub mod certificate;
pub mod cms;
mod der;
pub mod json;
pub mod jwt;
pub mod openpgp;
#[cfg(test)]
mod tests;
pub mod x509;

use std::time::{Duration, UNIX_EPOCH};

use base64ct::{Base64, Encoding as _};
use keys::AnyPublicKey;
use sha2::{Digest as _, Sha256};

pub use algorithm::SignatureAlgorithm;

use cms::{CmsAttributes, SignerCertificate};
use jwt::{JwtAlgorithm, JwtMessage};
use openpgp::{OpenPgpKeyMessage, OpenPgpMessage};
use x509::{CertificateFields, CertificationRequestFields};

/// A format of signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignatureFormat {
    /// Any bytes that no other format signs.
    Raw,
    /// A request for a certificate, PKCS #10.
    X509Csr,
    /// A certificate.
    X509Cert,
    /// Signed attributes.
    Cms,
    /// A document.
    OpenPgp,
    /// A user ID of the group's own key.
    OpenPgpKey,
    /// A JSON Web Token.
    Jwt,
}

/// How a message is encoded before it is signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatEncoding {
    /// RSA: PKCS #1 v1.5 with SHA-256.
    Pkcs1,
    /// RSA: PSS with SHA-256 and a salt of 32 bytes.
    Pss,
    /// Ed25519: not at all.
    Ed25519,
}

/// Why bytes are not a message of a format, or have no form in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// Two formats sign such bytes.
    #[error("verifiers of several formats could accept a signature of it: change its content")]
    Ambiguous,
    /// It is of another format.
    #[error(
        "it is {}, which is registered and signed with --format {}",
        .0.description(), .0.name()
    )]
    OtherFormat(SignatureFormat),
    /// It could be of another format, but is not well-formed there.
    #[error(
        "it looks like {}, but has a form that is not supported: {}",
        .0.description(), .0.advice()
    )]
    Unsupported(SignatureFormat),
    /// Not a certificate.
    #[error("this is not what is signed in a certificate")]
    Certificate,
    /// Not a certification request.
    #[error("this is not what is signed in a certification request")]
    CertificationRequest,
    /// Not signed attributes.
    #[error("these are not the signed attributes of CMS")]
    Cms,
    /// Not a document.
    #[error("this is not what is signed in an OpenPGP signature of a document")]
    OpenPgp,
    /// Not a user ID.
    #[error("this is not what is signed to bind a user ID to an OpenPGP key")]
    OpenPgpKey,
    /// Not a token.
    #[error("this is not what is signed in a JSON Web Token with RS256, PS256 or EdDSA")]
    Jwt,
    /// No text.
    #[error("a cleartext signature needs a text in UTF-8: make a detached signature instead")]
    NotText,
    /// No user ID.
    #[error(
        "a user ID has 1 to 256 bytes and no control characters, as in \"Office <a@b.example>\""
    )]
    UserId,
    /// No claims.
    #[error("the claims must be a JSON object in which no name occurs twice")]
    Claims,
    /// It is to be signed by another key.
    #[error("it names another key than the group's: prepare it again with the group's public.pem")]
    OtherKey,
    /// The key has another algorithm.
    #[error(
        "it is for another algorithm than that of the group's key: prepare it again with the \
         group's public.pem"
    )]
    OtherAlgorithm,
    /// The format signs a digest with this kind of key.
    #[error(
        "OpenPGP signs only a digest with Ed25519 keys, and servers sign whole messages: use a \
         group with an RSA key, or for git the ssh agent"
    )]
    SignsDigest,
    /// There is no certificate.
    #[error("CMS needs the certificate of the signer, in PEM (\"BEGIN CERTIFICATE\")")]
    NoCertificate,
    /// It is for another key.
    #[error("the certificate is not for the group's key")]
    CertificateOfAnotherKey,
}

impl SignatureFormat {
    /// All formats.
    pub const ALL: [Self; 7] = [
        Self::Raw,
        Self::X509Csr,
        Self::X509Cert,
        Self::Cms,
        Self::OpenPgp,
        Self::OpenPgpKey,
        Self::Jwt,
    ];

    /// Its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::X509Csr => "x509-csr",
            Self::X509Cert => "x509-cert",
            Self::Cms => "cms",
            Self::OpenPgp => "openpgp",
            Self::OpenPgpKey => "openpgp-key",
            Self::Jwt => "jwt",
        }
    }

    /// What it signs, in a few words.
    fn description(self) -> &'static str {
        match self {
            Self::Raw => "a message of no known format",
            Self::X509Csr => "what is signed in a certification request",
            Self::X509Cert => "what is signed in a certificate",
            Self::Cms => "what is signed in CMS",
            Self::OpenPgp => "what OpenPGP signs",
            Self::OpenPgpKey => "what is signed to bind a user ID to an OpenPGP key",
            Self::Jwt => "what is signed in a JSON Web Token",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::OpenPgp => "sign a file with its SHA-256 instead",
            _ => "write it with sunder quorum prepare",
        }
    }

    /// The format whose message this is. Whatever a lenient verifier of X.509, CMS, OpenPGP or JSON
    /// Web Tokens could accept is not [`Self::Raw`], with one exception: OpenPGP of version 3 after
    /// bytes that are no text ([`openpgp::version_3_content`]).
    ///
    /// # Errors
    /// If it could be a message of two formats, or if it looks like one but is not well-formed.
    pub fn of(message: &[u8]) -> Result<Self, FormatError> {
        let families = [
            (looks_like_x509(message), Self::X509Cert),
            (looks_like_cms(message), Self::Cms),
            (openpgp::may_be_signed(message), Self::OpenPgp),
            (jwt::may_be_signed(message), Self::Jwt),
        ];
        let mut families = families.into_iter().filter(|(is_likely, _)| *is_likely);
        let family = match (families.next(), families.next()) {
            (None, _) => return Ok(Self::Raw),
            (Some((_, family)), None) => family,
            (Some(_), Some(_)) => return Err(FormatError::Ambiguous),
        };
        let of_family: &[Self] = match family {
            Self::X509Cert => &[Self::X509Cert, Self::X509Csr],
            Self::OpenPgp => &[Self::OpenPgpKey, Self::OpenPgp],
            _ => &[family],
        };
        let parsed = of_family.iter().find(|format| format.is_message(message));
        parsed.copied().ok_or(FormatError::Unsupported(family))
    }

    /// One line that says what a signature of a message would mean.
    ///
    /// # Errors
    /// If it is not a message of this format alone.
    pub fn describe(self, message: &[u8]) -> Result<String, FormatError> {
        match Self::of(message)? {
            format if format == self => self.line(message),
            // No user sees the name of the kind of document.
            other => Err(FormatError::OtherFormat(other)),
        }
    }

    /// How the message is to be encoded for a signature by this key.
    ///
    /// # Errors
    /// If it is not a message of this format.
    pub fn encoding(
        self,
        message: &[u8],
        key: &AnyPublicKey,
    ) -> Result<FormatEncoding, FormatError> {
        match self {
            _ if matches!(key, AnyPublicKey::Ed25519(_)) => Ok(FormatEncoding::Ed25519),
            Self::Jwt if JwtMessage::parse(message)?.algorithm == JwtAlgorithm::Ps256 => {
                Ok(FormatEncoding::Pss)
            }
            _ => Ok(FormatEncoding::Pkcs1),
        }
    }

    /// Checks that a signature of the message by this key has a form. The message names the key, or
    /// its algorithm.
    ///
    /// # Errors
    /// If it is not a message of this format, or is to be signed by another key.
    pub fn check_key(self, message: &[u8], key: &AnyPublicKey) -> Result<(), FormatError> {
        let algorithm = SignatureAlgorithm::of(key);
        let (fits, otherwise) = match self {
            Self::Raw => return Ok(()),
            Self::X509Csr => {
                let request = CertificationRequestFields::parse(message)?;
                (request.key == key.to_der(), FormatError::OtherKey)
            }
            Self::X509Cert => {
                let certificate = CertificateFields::parse(message)?;
                (certificate.algorithm == algorithm, FormatError::OtherAlgorithm)
            }
            Self::Cms => {
                let attributes = CmsAttributes::parse(message)?;
                (attributes.algorithm() == algorithm, FormatError::OtherAlgorithm)
            }
            Self::OpenPgp => {
                let key = openpgp::key_of(key)?;
                let named = OpenPgpMessage::parse(message)?.fingerprint;
                (named == openpgp::fingerprint(key), FormatError::OtherKey)
            }
            Self::OpenPgpKey => {
                let key = openpgp::key_of(key)?;
                (OpenPgpKeyMessage::parse(message)?.is_of(key), FormatError::OtherKey)
            }
            Self::Jwt => {
                let token = JwtMessage::parse(message)?;
                (token.algorithm.is_of(key), FormatError::OtherAlgorithm)
            }
        };
        if fits { Ok(()) } else { Err(otherwise) }
    }

    /// The form of a message with its signature by this key: bytes for raw signatures and CMS,
    /// otherwise a text.
    ///
    /// # Errors
    /// If it is not a message of this format, or if CMS has no certificate.
    pub fn wrap(
        self,
        message: &[u8],
        signature: &[u8],
        key: &AnyPublicKey,
        certificate: Option<&SignerCertificate>,
    ) -> Result<Vec<u8>, FormatError> {
        let algorithm = SignatureAlgorithm::of(key);
        let to_pem = |label| x509::signed_to_pem(label, message, algorithm, signature);
        Ok(match self {
            Self::Raw => signature.to_vec(),
            Self::X509Csr => to_pem("CERTIFICATE REQUEST").into_bytes(),
            Self::X509Cert => to_pem("CERTIFICATE").into_bytes(),
            Self::Cms => {
                CmsAttributes::parse(message)?;
                let certificate = certificate.ok_or(FormatError::NoCertificate)?;
                cms::signed_data(message, algorithm, signature, certificate)
            }
            Self::OpenPgp => {
                let parsed = OpenPgpMessage::parse(message)?;
                openpgp::armored(&parsed, message, signature).into_bytes()
            }
            Self::OpenPgpKey => {
                OpenPgpKeyMessage::parse(message)?.armored(message, signature).into_bytes()
            }
            Self::Jwt => jwt::signed(message, signature),
        })
    }

    /// Whether bytes are a message of this format, as its parser reads them.
    fn is_message(self, message: &[u8]) -> bool {
        match self {
            Self::Raw => true,
            Self::X509Csr => CertificationRequestFields::parse(message).is_ok(),
            Self::X509Cert => CertificateFields::parse(message).is_ok(),
            Self::Cms => CmsAttributes::parse(message).is_ok(),
            Self::OpenPgp => OpenPgpMessage::parse(message).is_ok(),
            Self::OpenPgpKey => OpenPgpKeyMessage::parse(message).is_ok(),
            Self::Jwt => JwtMessage::parse(message).is_ok(),
        }
    }

    /// What a message of this format says, in one line.
    fn line(self, message: &[u8]) -> Result<String, FormatError> {
        Ok(match self {
            Self::Raw => format!("{} bytes", message.len()),
            Self::X509Csr => CertificationRequestFields::parse(message)?.to_string(),
            Self::X509Cert => CertificateFields::parse(message)?.to_string(),
            Self::Cms => CmsAttributes::parse(message)?.to_string(),
            Self::OpenPgp => OpenPgpMessage::parse(message)?.to_string(),
            Self::OpenPgpKey => OpenPgpKeyMessage::parse(message)?.to_string(),
            Self::Jwt => JwtMessage::parse(message)?.to_string(),
        })
    }
}

/// Whether bytes could be a certificate, a request for one, a revocation list, or another structure
/// that X.509 signs, in DER or BER.
fn looks_like_x509(bytes: &[u8]) -> bool {
    match ber_content(der::SEQUENCE, bytes) {
        // A version or a number, tagged or not.
        Some([der::INTEGER | 0xa0..=0xa2, ..]) => true,
        Some([tag, ..]) if is_long_tag(*tag) => true,
        // An algorithm.
        Some([der::SEQUENCE, rest @ ..]) => begins_with_oid(rest),
        _ => false,
    }
}

/// Whether bytes could be signed attributes of CMS.
fn looks_like_cms(bytes: &[u8]) -> bool {
    match ber_content(der::SET, bytes) {
        Some([der::SEQUENCE, rest @ ..]) => begins_with_oid(rest),
        Some([tag, ..]) => is_long_tag(*tag),
        _ => false,
    }
}

/// Whether a tag goes on in the next bytes. Some readers of BER accept any tag in this form, also
/// one that has a shorter form.
fn is_long_tag(tag: u8) -> bool {
    tag & 0x1f == 0x1f
}

/// Whether the bytes after a tag are a length and the tag of an object identifier.
fn begins_with_oid(bytes: &[u8]) -> bool {
    let content = match bytes {
        [first @ 0x81..=0xff, rest @ ..] => rest.get(usize::from(first & 0x7f)..),
        [_, rest @ ..] => Some(rest),
        [] => None,
    };
    let tag = content.and_then(|content| content.first());
    tag.is_some_and(|tag| *tag == der::OID || is_long_tag(*tag))
}

/// What is in a value of BER that spans all bytes, and has this tag or a long one.
fn ber_content(tag: u8, bytes: &[u8]) -> Option<&[u8]> {
    let (&first, mut rest) = bytes.split_first()?;
    // Constructed, as all sequences and sets are.
    if is_long_tag(first) && first & 0x20 != 0 {
        let end = rest.iter().position(|byte| byte >> 7 == 0)?;
        rest = &rest[end + 1..];
    } else if first != tag {
        return None;
    }
    match rest {
        [0x80, content @ .., 0, 0] => Some(content),
        [len @ ..=0x7f, content @ ..] => (usize::from(*len) == content.len()).then_some(content),
        [count @ 0x81..=0xfe, rest @ ..] => {
            let (len, content) = rest.split_at_checked(usize::from(count & 0x7f))?;
            let len = len.iter().try_fold(0_usize, |value, &byte| {
                value.checked_mul(256)?.checked_add(usize::from(byte))
            })?;
            (len == content.len()).then_some(content)
        }
        _ => None,
    }
}

/// Base64 in lines of 64 digits, each with a line break.
fn base64_lines(bytes: &[u8]) -> String {
    let digits = Base64::encode_string(bytes);
    let lines = digits.as_bytes().chunks(64).map(|line| str::from_utf8(line).unwrap_or_default());
    lines.flat_map(|line| [line, "\n"]).collect()
}

fn sha256_text(bytes: &[u8]) -> String {
    format!("{:x}", base16ct::HexDisplay(&Sha256::digest(bytes)))
}

/// A time in seconds since 1970, as in RFC 3339.
fn time_text(seconds: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(seconds.min(der::LAST_TIME));
    humantime::format_rfc3339_seconds(time).to_string()
}
