//! Rules of a server's configuration, by which it signs messages that are not registered.
//!
//! A rule is for messages of one format. Messages that a lenient verifier could take for another
//! format's match no rule ([`SignatureFormat::of`]), unless they match it as a document of OpenPGP,
//! too.

use std::str::FromStr;

use formats::SignatureFormat;
use formats::json;
use formats::jwt::JwtMessage;
use formats::openpgp::{self, OpenPgpKind, OpenPgpMessage};
use formats::x509::{AlternativeName, CertificateFields, CertificatePurpose, DistinguishedName};
use serde_json::{Map, Value};

use crate::protocol::unix_seconds::UnixSeconds;

/// The longest time from the begin of a certificate to now, in seconds: clocks differ, and the
/// certificate is prepared before it is signed.
const MAX_BACKDATING_S: u64 = 3_600;

/// A rule of a server's configuration. The server signs messages that match, even if they are not
/// registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SigningRule {
    /// What the messages contain.
    pub content: SignableContent,
    /// The largest length of a message in bytes. A document of OpenPGP counts without its trailer.
    pub max_len: usize,
}

/// What the messages of a rule contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignableContent {
    /// This prefix, which is not empty, and any bytes of no known format.
    Prefix(Vec<u8>),
    /// A JSON object with these fields and no others.
    Json(Vec<FieldRequirement>),
    /// A certificate.
    Certificate(CertificateRule),
    /// A document of OpenPGP.
    Document(DocumentRule),
    /// A JSON Web Token.
    Token(TokenRule),
}

/// Which certificates are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateRule {
    /// The name of the signer in them.
    pub issuer: DistinguishedName,
    /// The attributes of the subject's name, whose values are patterns.
    pub subject: DistinguishedName,
    /// Patterns, of which each name of a host, IP address and address of electronic mail matches
    /// one, in the extension and in the subject.
    pub names: Vec<String>,
    /// What the keys may be used for.
    pub purposes: Vec<CertificatePurpose>,
    /// Whether certificates of authorities are signed, too.
    pub allows_authorities: bool,
    /// The longest time from now to their end, in seconds.
    pub max_validity_s: u64,
}

/// Which documents of OpenPGP are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentRule {
    /// How they begin. Not empty.
    pub prefix: Vec<u8>,
    /// The kinds of signature.
    pub kinds: Vec<OpenPgpKind>,
}

/// Which tokens are signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenRule {
    /// Their claims, of which there are no others. Without `exp`, `iat` and `nbf`.
    pub claims: Vec<FieldRequirement>,
    /// The longest time from now to `exp`, in seconds.
    pub max_validity_s: u64,
}

/// A field of an object, and its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldRequirement {
    name: String,
    pattern: FieldPattern,
    is_optional: bool,
}

/// The values of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
enum FieldPattern {
    /// A text, in which `*` stands for any characters.
    Text(String),
    /// A whole number, `true` or `false`.
    Exactly(Value),
}

/// Why a text is no requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a field and its value: write NAME=VALUE, or NAME?=VALUE if it may be missing; numbers are \
     whole, and a text that looks like a number is in quotes"
)]
pub struct InvalidFieldRequirement;

impl SigningRule {
    /// A rule for messages with a prefix, which is not empty.
    pub fn with_prefix(prefix: &[u8], max_len: usize) -> Self {
        Self { content: SignableContent::Prefix(prefix.to_vec()), max_len }
    }

    /// Whether it allows a message of this format.
    fn allows(&self, format: SignatureFormat, message: &[u8], time: UnixSeconds) -> bool {
        match (&self.content, format) {
            (SignableContent::Prefix(prefix), SignatureFormat::Raw) => {
                // If it is one of a document, too, the document also begins with the prefix.
                let document = openpgp::version_3_content(message);
                message.starts_with(prefix) && document.is_none_or(|it| it.starts_with(prefix))
            }
            (SignableContent::Json(fields), SignatureFormat::Raw) => {
                json::parse_object(message).is_some_and(|object| have_all(fields, &object))
            }
            (SignableContent::Certificate(rule), SignatureFormat::X509Cert) => {
                CertificateFields::parse(message).is_ok_and(|it| rule.allows(&it, time))
            }
            (SignableContent::Document(rule), SignatureFormat::OpenPgp) => {
                OpenPgpMessage::parse(message).is_ok_and(|document| {
                    document.content.len() <= self.max_len
                        && document.content.starts_with(&rule.prefix)
                        && rule.kinds.contains(&document.kind())
                })
            }
            (SignableContent::Token(rule), SignatureFormat::Jwt) => {
                JwtMessage::parse(message).is_ok_and(|token| rule.allows(token.claims, time))
            }
            _ => false,
        }
    }

    /// Whether a message is not too long. Only the parser of a document knows how long its trailer
    /// is.
    fn is_short(&self, message: &[u8]) -> bool {
        let trailer = match self.content {
            SignableContent::Document(_) => openpgp::MAX_TRAILER_LEN,
            _ => 0,
        };
        message.len() <= self.max_len.saturating_add(trailer)
    }
}

/// Whether one of the rules allows a message.
pub(super) fn is_allowed(rules: &[SigningRule], message: &[u8], time: UnixSeconds) -> bool {
    // Long messages are not parsed.
    let rules: Vec<&SigningRule> = rules.iter().filter(|rule| rule.is_short(message)).collect();
    !rules.is_empty()
        && SignatureFormat::of(message)
            .is_ok_and(|format| rules.iter().any(|rule| rule.allows(format, message, time)))
}

impl CertificateRule {
    fn allows(&self, certificate: &CertificateFields, time: UnixSeconds) -> bool {
        let is_purpose = |purpose| self.purposes.contains(purpose);
        // Without purposes, a key may be used for anything.
        let is_limited = !certificate.purposes.is_empty() || certificate.is_authority;
        certificate.issuer == self.issuer
            && is_subject(&self.subject, &certificate.subject)
            && self.has_names_of(&certificate.subject)
            && certificate.names.iter().all(|name| self.is_name(name))
            && (self.allows_authorities || !certificate.is_authority)
            && is_limited
            && certificate.purposes.iter().all(is_purpose)
            && certificate.not_before >= time.0.saturating_sub(MAX_BACKDATING_S)
            && certificate.not_after <= time.0.saturating_add(self.max_validity_s)
    }

    /// Whether the subject has no other names of hosts and addresses. Programs that find none in
    /// the extension look for one in the common name, and accept more than
    /// [`AlternativeName`]s there: parts of names with `*`, other letters, a dot at the end.
    fn has_names_of(&self, subject: &DistinguishedName) -> bool {
        subject.attributes().all(|(kind, value)| {
            let is_name = match kind {
                // No name of a host has a space in it.
                "CN" => !value.trim().contains(' '),
                "emailAddress" => true,
                _ => false,
            };
            !is_name || value.parse().is_ok_and(|name| self.is_name(&name))
        })
    }

    fn is_name(&self, name: &AlternativeName) -> bool {
        self.names.iter().any(|pattern| match name {
            AlternativeName::Dns(host) => is_host(pattern, host),
            other => other.to_string() == *pattern,
        })
    }
}

impl TokenRule {
    fn allows(&self, mut claims: Map<String, Value>, time: UnixSeconds) -> bool {
        let end = claims.remove("exp").and_then(|end| end.as_u64());
        let last = time.0.saturating_add(self.max_validity_s);
        let is_time = |claim: Option<Value>| claim.is_none_or(|value| value.is_u64());
        end.is_some_and(|end| end <= last)
            && is_time(claims.remove("iat"))
            && is_time(claims.remove("nbf"))
            && have_all(&self.claims, &claims)
    }
}

/// Whether the attributes of a name match those of a pattern, one by one.
fn is_subject(pattern: &DistinguishedName, name: &DistinguishedName) -> bool {
    let (patterns, attributes) = (pattern.attributes(), name.attributes());
    patterns.len() == attributes.len()
        && patterns
            .zip(attributes)
            .all(|((kind, pattern), (own, value))| kind == own && is_match(pattern, value))
}

/// Whether the name of a host matches a pattern, in whose parts `*` stands for letters, digits and
/// hyphens.
fn is_host(pattern: &str, host: &str) -> bool {
    let (patterns, parts) = (pattern.split('.'), host.split('.'));
    patterns.clone().count() == parts.clone().count()
        // The name `*.example.org` stands for many hosts, and must be registered.
        && patterns.zip(parts).all(|(pattern, part)| part != "*" && is_match(pattern, part))
}

/// Whether an object has the required fields and no others.
fn have_all(fields: &[FieldRequirement], object: &Map<String, Value>) -> bool {
    let is_known = |name: &String| fields.iter().any(|field| field.name == *name);
    let has = |field: &FieldRequirement| match (&field.pattern, object.get(&field.name)) {
        (_, None) => field.is_optional,
        (FieldPattern::Text(pattern), Some(Value::String(text))) => is_match(pattern, text),
        (FieldPattern::Text(_), Some(_)) => false,
        (FieldPattern::Exactly(wanted), Some(value)) => value == wanted,
    };
    object.keys().all(is_known) && fields.iter().all(has)
}

/// Whether a text matches a pattern, in which `*` stands for any characters except control
/// characters.
fn is_match(pattern: &str, text: &str) -> bool {
    if text.chars().any(char::is_control) {
        return false;
    }
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    // The first place of each part leaves the most for the others.
    for part in parts {
        let Some(at) = text.find(part) else { return false };
        text = &text[at + part.len()..];
    }
    text.ends_with(last)
}

impl FromStr for FieldRequirement {
    type Err = InvalidFieldRequirement;

    fn from_str(text: &str) -> Result<Self, InvalidFieldRequirement> {
        let (name, pattern) = text.split_once('=').ok_or(InvalidFieldRequirement)?;
        let (name, is_optional) = match name.strip_suffix('?') {
            Some(name) => (name, true),
            None => (name, false),
        };
        if name.is_empty() {
            return Err(InvalidFieldRequirement);
        }
        let pattern = match serde_json::from_str(pattern) {
            Ok(Value::String(text)) => FieldPattern::Text(text),
            // A number with a fraction stands for many that are almost the same.
            Ok(Value::Number(number)) if number.is_f64() => return Err(InvalidFieldRequirement),
            Ok(value @ (Value::Bool(_) | Value::Number(_))) => FieldPattern::Exactly(value),
            _ => FieldPattern::Text(pattern.to_owned()),
        };
        Ok(Self { name: name.to_owned(), pattern, is_optional })
    }
}

#[cfg(test)]
mod tests;
