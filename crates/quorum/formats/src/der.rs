//! The parts of DER (X.690, 10) that X.509 and CMS need: values with a tag of one byte and a length
//! of at most four.

use base64ct::{Base64, Encoding as _};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const NULL: u8 = 0x05;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTF8_STRING: u8 = 0x0c;
pub(crate) const PRINTABLE_STRING: u8 = 0x13;
pub(crate) const IA5_STRING: u8 = 0x16;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The `AlgorithmIdentifier` of `sha256WithRSAEncryption` (RFC 4055, 5): PKCS #1 v1.5.
pub(crate) const SHA256_WITH_RSA: [u8; 15] =
    [SEQUENCE, 13, OID, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11, NULL, 0];

/// The first second that X.509 writes with a year of four digits (RFC 5280, 4.1.2.5): 2050.
const FIRST_GENERALIZED: u64 = 2_524_608_000;

/// The last second of the year 9999.
pub(crate) const LAST_TIME: u64 = 253_402_300_799;

/// A value with this tag.
pub(crate) fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len().to_be_bytes();
    let zeros = len.iter().take_while(|&&byte| byte == 0).count();
    let len = &len[zeros..];
    let mut value = vec![tag];
    match len {
        [] => value.push(0),
        [short @ ..=0x7f] => value.push(*short),
        _ => {
            value.push(0x80 | u8::try_from(len.len()).expect("at most 8"));
            value.extend_from_slice(len);
        }
    }
    value.extend_from_slice(content);
    value
}

/// A sequence of these values.
pub(crate) fn sequence(values: &[&[u8]]) -> Vec<u8> {
    value(SEQUENCE, &values.concat())
}

/// A number that is not negative, from big-endian bytes.
pub(crate) fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    let mut bytes = bytes[zeros..].to_vec();
    if bytes.first().is_none_or(|byte| byte >> 7 == 1) {
        bytes.insert(0, 0);
    }
    value(INTEGER, &bytes)
}

/// A bit string of whole bytes.
pub(crate) fn bit_string(bytes: &[u8]) -> Vec<u8> {
    value(BIT_STRING, &[&[0], bytes].concat())
}

/// A time in seconds since 1970, at most 9999.
pub(crate) fn time(seconds: u64) -> Vec<u8> {
    let seconds = seconds.min(LAST_TIME);
    let text = humantime::format_rfc3339_seconds(UNIX_EPOCH + Duration::from_secs(seconds));
    let digits: String = text.to_string().chars().filter(char::is_ascii_digit).collect();
    if seconds < FIRST_GENERALIZED {
        value(UTC_TIME, format!("{}Z", &digits[2..]).as_bytes())
    } else {
        value(GENERALIZED_TIME, format!("{digits}Z").as_bytes())
    }
}

/// One value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DerValue<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// With its tag and length.
    pub(crate) encoded: &'a [u8],
}

/// Reads values one after another. Accepts only the shortest form of each length.
#[derive(Clone, Debug)]
pub(crate) struct DerReader<'a>(pub(crate) &'a [u8]);

impl<'a> DerReader<'a> {
    pub(crate) fn is_at_end(&self) -> bool {
        self.0.is_empty()
    }

    /// The next value.
    pub(crate) fn next(&mut self) -> Option<DerValue<'a>> {
        let all = self.0;
        let (&[tag, first], rest) = all.split_first_chunk()?;
        let (len, rest) = match first {
            ..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (len, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                let value = len.iter().fold(0, |value, &byte| value << 8 | usize::from(byte));
                let is_shortest = len[0] != 0 && value > 0x7f;
                (is_shortest.then_some(value)?, rest)
            }
            _ => return None,
        };
        let (content, after) = rest.split_at_checked(len)?;
        self.0 = after;
        Some(DerValue { tag, content, encoded: &all[..all.len() - after.len()] })
    }

    /// The content of the next value, which has this tag.
    pub(crate) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = self.clone();
        let value = ahead.next().filter(|value| value.tag == tag)?;
        *self = ahead;
        Some(value.content)
    }

    /// The values in the next value, which has this tag.
    pub(crate) fn enter(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(DerReader)
    }

    /// The next value with its tag and length, if it has this tag.
    pub(crate) fn take_encoded(&mut self, tag: u8) -> Option<&'a [u8]> {
        let before = self.0;
        self.take(tag)?;
        Some(&before[..before.len() - self.0.len()])
    }

    /// A number that is not negative, big-endian, without leading zeros.
    pub(crate) fn unsigned(&mut self) -> Option<&'a [u8]> {
        match self.take(INTEGER)? {
            [0] => Some(&[]),
            [0, rest @ ..] if rest.first().is_some_and(|byte| byte >> 7 == 1) => Some(rest),
            bytes @ [1..=0x7f, ..] => Some(bytes),
            _ => None,
        }
    }

    /// A time in seconds since 1970, in the form that [`time`] writes.
    pub(crate) fn time(&mut self) -> Option<u64> {
        let value = self.next()?;
        let text = str::from_utf8(value.content).ok()?.strip_suffix('Z')?;
        let digits = match value.tag {
            // RFC 5280, 4.1.2.5.1.
            UTC_TIME => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
            GENERALIZED_TIME => text.to_owned(),
            _ => return None,
        };
        if digits.len() != 14 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let (date, clock) = digits.split_at(8);
        let text = format!(
            "{}-{}-{}T{}:{}:{}Z",
            &date[..4],
            &date[4..6],
            &date[6..],
            &clock[..2],
            &clock[2..4],
            &clock[4..]
        );
        let seconds = seconds_of(humantime::parse_rfc3339(&text).ok()?)?;
        (time(seconds) == value.encoded).then_some(seconds)
    }
}

/// The whole of a value with this tag, as a reader of what it contains.
pub(crate) fn whole(tag: u8, bytes: &[u8]) -> Option<DerReader<'_>> {
    let mut reader = DerReader(bytes);
    let inner = reader.enter(tag)?;
    reader.is_at_end().then_some(inner)
}

/// A text in PEM (RFC 7468).
pub(crate) fn pem(label: &str, der: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}-----END {label}-----\n", crate::base64_lines(der))
}

/// The bytes in the first block with this label of a text in PEM.
pub(crate) fn from_pem(label: &str, text: &str) -> Option<Vec<u8>> {
    all_from_pem(label, text).into_iter().next().flatten()
}

/// The bytes in each block with this label of a text in PEM. `None` for one that is not in base64.
pub(crate) fn all_from_pem(label: &str, text: &str) -> Vec<Option<Vec<u8>>> {
    let (begin, end) = (format!("-----BEGIN {label}-----"), format!("-----END {label}-----"));
    let blocks = text.split(&begin).skip(1);
    let bytes = blocks.map(|block| {
        let (digits, _) = block.split_once(&end)?;
        let digits: String = digits.split_whitespace().collect();
        Base64::decode_vec(&digits).ok()
    });
    bytes.collect()
}

fn seconds_of(time: SystemTime) -> Option<u64> {
    time.duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs())
}
