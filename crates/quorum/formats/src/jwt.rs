//! JSON Web Tokens (RFC 7519) that are signed with RS256 or PS256 (RFC 7518, 3.3 and 3.5), and the
//! key as a JSON Web Key (RFC 7517).

use std::fmt;

use base64ct::{Base64UrlUnpadded, Encoding as _};
use keys::RsaPublicKey;
use keys::rsa::PUBLIC_EXPONENT_BYTES;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use crate::{FormatError, json};

/// The algorithm of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JwtAlgorithm {
    /// PKCS #1 v1.5 with SHA-256.
    #[default]
    Rs256,
    /// PSS with SHA-256.
    Ps256,
}

impl JwtAlgorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
        }
    }
}

/// What is signed in a token.
#[derive(Clone, Debug, PartialEq)]
pub struct JwtMessage {
    /// The algorithm that its header names.
    pub algorithm: JwtAlgorithm,
    /// Its claims.
    pub claims: Map<String, Value>,
}

/// What is signed for claims, a JSON object. The header names the algorithm and the key.
///
/// # Errors
/// If the claims are anything else, or a name occurs twice.
pub fn token(
    key: &RsaPublicKey,
    claims: &[u8],
    algorithm: JwtAlgorithm,
) -> Result<Vec<u8>, FormatError> {
    json::parse_object(claims).ok_or(FormatError::Claims)?;
    let header = json!({ "alg": algorithm.name(), "kid": key_id(key), "typ": "JWT" });
    let digits = |bytes: &[u8]| Base64UrlUnpadded::encode_string(bytes);
    Ok(format!("{}.{}", digits(header.to_string().as_bytes()), digits(claims)).into_bytes())
}

impl JwtMessage {
    /// Parses what is signed in a token. Its header has `alg`, and perhaps `typ` and `kid`.
    ///
    /// # Errors
    /// If it is anything else.
    pub fn parse(bytes: &[u8]) -> Result<Self, FormatError> {
        Self::read(bytes).ok_or(FormatError::Jwt)
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let (header, claims) = str::from_utf8(bytes).ok()?.split_once('.')?;
        let object = |digits| json::parse_object(&Base64UrlUnpadded::decode_vec(digits).ok()?);
        let (header, claims) = (object(header)?, object(claims)?);
        let algorithm = header.get("alg")?.as_str()?;
        let algorithms = [JwtAlgorithm::Rs256, JwtAlgorithm::Ps256];
        let algorithm = algorithms.into_iter().find(|known| known.name() == algorithm)?;
        let is_known = |(name, value): (&String, &Value)| match name.as_str() {
            "alg" => true,
            "typ" => value.as_str().is_some_and(|typ| typ.eq_ignore_ascii_case("JWT")),
            "kid" => value.is_string(),
            _ => false,
        };
        header.iter().all(is_known).then_some(Self { algorithm, claims })
    }
}

/// Whether bytes could be what is signed in a token, also one whose payload is not encoded (RFC
/// 7797): they begin with an encoded object and a dot, as the most lenient decoders read it.
pub(crate) fn may_be_signed(bytes: &[u8]) -> bool {
    let Some(end) = bytes.iter().position(|&byte| byte == b'.') else { return false };
    // Decoders skip other characters, which for some of them include those of another alphabet.
    ["+/-_", "+/", "-_"].into_iter().any(|more| begins_like_object(&decoded(&bytes[..end], more)))
}

/// What the digits of base64 stand for, in groups of four: letters, numerals, and these further
/// characters. All other bytes are skipped.
fn decoded(bytes: &[u8], more: &str) -> Vec<u8> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || more.as_bytes().contains(byte);
    let mut digits: Vec<u8> = bytes.iter().copied().filter(is_digit).collect();
    // Decoders disagree about the last bits of another group.
    digits.truncate(digits.len() / 4 * 4);
    for digit in &mut digits {
        *digit = match *digit {
            b'+' => b'-',
            b'/' => b'_',
            other => other,
        };
    }
    str::from_utf8(&digits)
        .ok()
        .and_then(|it| Base64UrlUnpadded::decode_vec(it).ok())
        .unwrap_or_default()
}

/// Whether bytes begin like an object of JSON, in UTF-8, UTF-16 or UTF-32.
fn begins_like_object(bytes: &[u8]) -> bool {
    let is_space = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0;
    // The byte order mark.
    let is_skipped = |byte: &u8| is_space(byte) || [0xef, 0xbb, 0xbf, 0xfe, 0xff].contains(byte);
    let mut bytes = bytes.iter().skip_while(|byte| is_skipped(byte));
    bytes.next() == Some(&b'{')
        && bytes.find(|byte| !is_space(byte)).is_some_and(|byte| [b'"', b'}'].contains(byte))
}

/// The token.
pub(crate) fn signed(bytes: &[u8], signature: &[u8]) -> Vec<u8> {
    let signature = Base64UrlUnpadded::encode_string(signature);
    [bytes, b".", signature.as_bytes()].concat()
}

/// The key as a JSON Web Key, whose `kid` is its thumbprint (RFC 7638).
pub fn json_web_key(key: &RsaPublicKey) -> Value {
    let (exponent, modulus) = numbers(key);
    json!({ "e": exponent, "kid": key_id(key), "kty": "RSA", "n": modulus, "use": "sig" })
}

fn key_id(key: &RsaPublicKey) -> String {
    let (exponent, modulus) = numbers(key);
    // The required members in the order of their names.
    let text = json!({ "e": exponent, "kty": "RSA", "n": modulus }).to_string();
    Base64UrlUnpadded::encode_string(&Sha256::digest(text))
}

/// e and N, as digits in base64.
fn numbers(key: &RsaPublicKey) -> (String, String) {
    let digits = |bytes: &[u8]| Base64UrlUnpadded::encode_string(bytes);
    (digits(&PUBLIC_EXPONENT_BYTES), digits(&key.modulus()))
}

/// One line: what it says.
impl fmt::Display for JwtMessage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let claims = Value::Object(self.claims.clone());
        write!(out, "JSON Web Token ({}) with {claims}", self.algorithm.name())
    }
}
