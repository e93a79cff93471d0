//! Rules of a server's configuration, by which it signs messages that are not registered.
//!
//! A rule is for messages of one format. Messages that a lenient verifier could take for another
//! format's match no rule ([`SignatureFormat::of`]).

use std::str::FromStr;

use formats::SignatureFormat;
use formats::json;
use formats::jwt::JwtMessage;
use formats::openpgp::{OpenPgpKind, OpenPgpMessage};
use formats::x509::{AlternativeName, CertificateFields, CertificatePurpose, DistinguishedName};
use serde_json::{Map, Value};

use crate::protocol::unix_seconds::UnixSeconds;

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
    /// Patterns, of which each further name of the subject matches one.
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
    /// In a text, `*` stands for any characters. Numbers, `true` and `false` match as JSON writes
    /// them.
    pattern: String,
    is_optional: bool,
}

/// Why a text is no requirement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a field and its value: write NAME=VALUE, or NAME?=VALUE if it may be missing")]
pub struct InvalidFieldRequirement;

impl SigningRule {
    /// A rule for messages with a prefix, which is not empty.
    pub fn with_prefix(prefix: &[u8], max_len: usize) -> Self {
        Self { content: SignableContent::Prefix(prefix.to_vec()), max_len }
    }

    /// Whether it allows a message of this format.
    fn allows(&self, format: SignatureFormat, message: &[u8], time: UnixSeconds) -> bool {
        let is_short = |content: &[u8]| content.len() <= self.max_len;
        match (&self.content, format) {
            (SignableContent::Prefix(prefix), SignatureFormat::Raw) => {
                is_short(message) && message.starts_with(prefix)
            }
            (SignableContent::Json(fields), SignatureFormat::Raw) => {
                let object = is_short(message).then(|| json::parse_object(message)).flatten();
                object.is_some_and(|object| have_all(fields, &object))
            }
            (SignableContent::Certificate(rule), SignatureFormat::X509Cert) => {
                let parsed = is_short(message).then(|| CertificateFields::parse(message).ok());
                parsed.flatten().is_some_and(|certificate| rule.allows(&certificate, time))
            }
            (SignableContent::Document(rule), SignatureFormat::OpenPgp) => {
                OpenPgpMessage::parse(message).is_ok_and(|document| {
                    is_short(document.content)
                        && document.content.starts_with(&rule.prefix)
                        && rule.kinds.contains(&document.kind())
                })
            }
            (SignableContent::Token(rule), SignatureFormat::Jwt) => {
                let parsed = is_short(message).then(|| JwtMessage::parse(message).ok());
                parsed.flatten().is_some_and(|token| rule.allows(token.claims, time))
            }
            _ => false,
        }
    }
}

/// Whether one of the rules allows a message.
pub(super) fn is_allowed(rules: &[SigningRule], message: &[u8], time: UnixSeconds) -> bool {
    let Ok(format) = SignatureFormat::of(message) else { return false };
    rules.iter().any(|rule| rule.allows(format, message, time))
}

impl CertificateRule {
    fn allows(&self, certificate: &CertificateFields, time: UnixSeconds) -> bool {
        let is_purpose = |purpose| self.purposes.contains(purpose);
        // Without purposes, a key may be used for anything.
        let is_limited = !certificate.purposes.is_empty() || certificate.is_authority;
        certificate.issuer == self.issuer
            && is_subject(&self.subject, &certificate.subject)
            && certificate.names.iter().all(|name| self.is_name(name))
            && (self.allows_authorities || !certificate.is_authority)
            && is_limited
            && certificate.purposes.iter().all(is_purpose)
            && certificate.not_after <= time.0.saturating_add(self.max_validity_s)
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
    let has = |field: &FieldRequirement| match object.get(&field.name) {
        None => field.is_optional,
        Some(Value::String(text)) => is_match(&field.pattern, text),
        Some(value @ (Value::Number(_) | Value::Bool(_))) => {
            is_match(&field.pattern, &value.to_string())
        }
        Some(_) => false,
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
        Ok(Self { name: name.to_owned(), pattern: pattern.to_owned(), is_optional })
    }
}

#[cfg(test)]
mod tests;
