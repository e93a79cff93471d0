//! Distinguished names (RFC 5280, 4.1.2.4), and names of hosts.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use crate::der::{self, DerReader, IA5_STRING, OID, PRINTABLE_STRING, SEQUENCE, SET, UTF8_STRING};

/// The types of attributes that are known, with the content of their OID.
const ATTRIBUTES: [(&str, &[u8]); 8] = [
    ("CN", &[0x55, 4, 3]),
    ("serialNumber", &[0x55, 4, 5]),
    ("C", &[0x55, 4, 6]),
    ("L", &[0x55, 4, 7]),
    ("ST", &[0x55, 4, 8]),
    ("O", &[0x55, 4, 10]),
    ("OU", &[0x55, 4, 11]),
    ("emailAddress", &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 9, 1]),
];

/// The most attributes in a name.
const MAX_ATTRIBUTES: usize = 16;

/// The longest value of an attribute, in bytes.
const MAX_VALUE_LEN: usize = 256;

/// A distinguished name: attributes such as `CN=www.example.org`, in the order in which they are
/// encoded. As a text they are separated by commas, and `\` stands before a comma or `\` in a
/// value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DistinguishedName(Vec<(&'static str, String)>);

/// Why a text is not a distinguished name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a distinguished name: write it as in CN=www.example.org,O=Example, with the attributes \
     CN, O, OU, C, L, ST, serialNumber or emailAddress"
)]
pub struct InvalidDistinguishedName;

/// A name in the extension `subjectAltName` (RFC 5280, 4.2.1.6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AlternativeName {
    /// The name of a host. It may begin with `*.`.
    Dns(String),
    /// An address of electronic mail.
    Email(String),
    /// An IP address.
    Ip(IpAddr),
}

impl DistinguishedName {
    /// Its attributes: the type and the value of each.
    pub fn attributes(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(kind, value)| (*kind, value.as_str()))
    }

    /// The name without attributes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn to_der(&self) -> Vec<u8> {
        let attribute = |(kind, value): &(&str, String)| {
            let (_, oid) = ATTRIBUTES.iter().find(|(known, _)| known == kind).expect("it is known");
            let value = der::value(tag_of(kind), value.as_bytes());
            der::value(SET, &der::sequence(&[&der::value(OID, oid), &value]))
        };
        der::value(SEQUENCE, &self.0.iter().flat_map(attribute).collect::<Vec<u8>>())
    }

    /// Reads the next name. One attribute in each set, of a known type, and a text.
    pub(crate) fn read(reader: &mut DerReader<'_>) -> Option<Self> {
        let mut sets = reader.enter(SEQUENCE)?;
        let mut attributes = Vec::new();
        while !sets.is_at_end() {
            let mut set = sets.enter(SET)?;
            let mut attribute = set.enter(SEQUENCE)?;
            let oid = attribute.take(OID)?;
            let (kind, _) = ATTRIBUTES.iter().find(|(_, known)| *known == oid)?;
            let value = attribute.next()?;
            if ![UTF8_STRING, PRINTABLE_STRING, IA5_STRING].contains(&value.tag) {
                return None;
            }
            let text = str::from_utf8(value.content).ok()?;
            if !attribute.is_at_end() || !set.is_at_end() || !is_value(text) {
                return None;
            }
            attributes.push((*kind, text.to_owned()));
        }
        (attributes.len() <= MAX_ATTRIBUTES).then_some(Self(attributes))
    }
}

fn tag_of(kind: &str) -> u8 {
    match kind {
        "C" | "serialNumber" => PRINTABLE_STRING,
        "emailAddress" => IA5_STRING,
        _ => UTF8_STRING,
    }
}

fn is_value(text: &str) -> bool {
    (1..=MAX_VALUE_LEN).contains(&text.len()) && !text.chars().any(char::is_control)
}

impl FromStr for DistinguishedName {
    type Err = InvalidDistinguishedName;

    fn from_str(text: &str) -> Result<Self, InvalidDistinguishedName> {
        // The parts between commas before which there is no `\`.
        let mut parts = vec![String::new()];
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            let part = parts.last_mut().expect("there is one");
            match c {
                '\\' => part.push(chars.next().ok_or(InvalidDistinguishedName)?),
                ',' => parts.push(String::new()),
                _ => part.push(c),
            }
        }
        let attribute = |part: String| {
            let (kind, value) = part.split_once('=')?;
            let (kind, value) = (kind.trim(), value.trim());
            let (kind, _) = ATTRIBUTES.iter().find(|(known, _)| *known == kind)?;
            let is_encodable = tag_of(kind) == UTF8_STRING || value.is_ascii();
            (is_value(value) && is_encodable).then(|| (*kind, value.to_owned()))
        };
        let attributes: Option<Vec<_>> = parts.into_iter().map(attribute).collect();
        let attributes = attributes.filter(|all| all.len() <= MAX_ATTRIBUTES);
        Ok(Self(attributes.ok_or(InvalidDistinguishedName)?))
    }
}

impl fmt::Display for DistinguishedName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (kind, value)) in self.0.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace(',', "\\,");
            write!(out, "{}{kind}={value}", if at == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl AlternativeName {
    pub(crate) fn to_der(&self) -> Vec<u8> {
        match self {
            Self::Email(text) => der::value(0x81, text.as_bytes()),
            Self::Dns(text) => der::value(0x82, text.as_bytes()),
            Self::Ip(IpAddr::V4(address)) => der::value(0x87, &address.octets()),
            Self::Ip(IpAddr::V6(address)) => der::value(0x87, &address.octets()),
        }
    }

    pub(crate) fn read(reader: &mut DerReader<'_>) -> Option<Self> {
        let value = reader.next()?;
        let name = match (value.tag, value.content) {
            (0x81 | 0x82, text) => str::from_utf8(text).ok()?.parse().ok()?,
            (0x87, bytes) => Self::Ip(match bytes.len() {
                4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
                16 => <[u8; 16]>::try_from(bytes).ok()?.into(),
                _ => return None,
            }),
            _ => return None,
        };
        // A text of the wrong kind is another name.
        (name.to_der() == value.encoded).then_some(name)
    }
}

/// Why a text is not a name of a subject.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a host, an IP address or an address of electronic mail")]
pub struct InvalidAlternativeName;

impl FromStr for AlternativeName {
    type Err = InvalidAlternativeName;

    fn from_str(text: &str) -> Result<Self, InvalidAlternativeName> {
        if let Ok(address) = text.parse() {
            return Ok(Self::Ip(address));
        }
        if let Some((user, host)) = text.split_once('@') {
            let is_user = !user.is_empty() && user.len() <= 64;
            let is_user = is_user && user.bytes().all(|c| c.is_ascii_graphic() && c != b'@');
            return if is_user && is_host(host) {
                Ok(Self::Email(text.to_owned()))
            } else {
                Err(InvalidAlternativeName)
            };
        }
        let host = text.strip_prefix("*.").unwrap_or(text);
        if is_host(host) { Ok(Self::Dns(text.to_owned())) } else { Err(InvalidAlternativeName) }
    }
}

fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-' || c == b'_')
    };
    text.len() <= 253 && text.split('.').all(is_label)
}

impl fmt::Display for AlternativeName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(text) | Self::Email(text) => out.write_str(text),
            Self::Ip(address) => address.fmt(out),
        }
    }
}
