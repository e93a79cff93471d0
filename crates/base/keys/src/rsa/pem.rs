//! The encoding of an RSA public key: `SubjectPublicKeyInfo` (RFC 5280, 4.1; RFC 3279, 2.3.1) in
//! DER, as a PEM text (RFC 7468).

const BEGIN: &str = "-----BEGIN PUBLIC KEY-----";
const END: &str = "-----END PUBLIC KEY-----";
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
const SEQUENCE: u8 = 0x30;

/// The `AlgorithmIdentifier` of `rsaEncryption`.
const RSA_ENCRYPTION: [u8; 15] =
    [SEQUENCE, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];

/// A PEM text.
pub(crate) fn encode(der: &[u8]) -> String {
    let mut digits = String::with_capacity(der.len() * 2);
    for chunk in der.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * at)) as usize & 63];
            digits.push(if at > chunk.len() { '=' } else { digit.into() });
        }
        // 16 groups of 4 digits are a line.
        if digits.len() % 65 == 64 {
            digits.push('\n');
        }
    }
    format!("{BEGIN}\n{}\n{END}\n", digits.trim_end())
}

/// The bytes in a PEM text that consists of one block, with any line breaks.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let digits: Vec<u8> = without_space(digits).collect();
    let mut der = Vec::with_capacity(digits.len());
    for group in digits.chunks(4) {
        let mut bits = 0;
        for digit in group {
            let value = DIGITS.iter().position(|it| it == digit).unwrap_or(0);
            bits = bits << 6 | u32::try_from(value).ok()?;
        }
        der.extend_from_slice(&bits.to_be_bytes()[1..]);
    }
    let padding = digits.iter().rev().take_while(|&&digit| digit == b'=').count();
    der.truncate(der.len().checked_sub(padding)?);
    // Apart from white space, only one text encodes these bytes.
    without_space(&encode(&der)).eq(without_space(text)).then_some(der)
}

fn without_space(text: &str) -> impl Iterator<Item = u8> {
    text.bytes().filter(|byte| !byte.is_ascii_whitespace())
}

/// The `SubjectPublicKeyInfo` of an RSA key.
pub(super) fn key_with_modulus(modulus: &[u8], exponent: u64) -> Vec<u8> {
    let key = [integer(modulus), integer(&exponent.to_be_bytes())].concat();
    let key = [vec![0], value(SEQUENCE, &key)].concat();
    value(SEQUENCE, &[&RSA_ENCRYPTION[..], &value(BIT_STRING, &key)].concat())
}

/// The modulus in a `SubjectPublicKeyInfo` of an RSA key, with leading zeros. The rest is not
/// checked.
pub(super) fn modulus_of_key(der: &[u8]) -> Option<&[u8]> {
    let info = content(SEQUENCE, der)?;
    let key = content(BIT_STRING, info.strip_prefix(&RSA_ENCRYPTION)?)?;
    content(INTEGER, content(SEQUENCE, key.strip_prefix(&[0])?)?)
}

/// A DER value that is not negative.
fn integer(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    let mut bytes = bytes[zeros..].to_vec();
    if bytes.first().is_none_or(|byte| byte >> 7 == 1) {
        bytes.insert(0, 0);
    }
    value(INTEGER, &bytes)
}

/// A DER value of at most 64 KiB.
fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).expect("keys are short").to_be_bytes();
    let mut value = match len {
        [0, len @ ..=0x7f] => vec![tag, len],
        [0, len] => vec![tag, 0x81, len],
        [high, low] => vec![tag, 0x82, high, low],
    };
    value.extend_from_slice(content);
    value
}

/// The content of the DER value that `der` begins with.
fn content(tag: u8, der: &[u8]) -> Option<&[u8]> {
    let (len, rest) = match der.strip_prefix(&[tag])? {
        [len @ ..=0x7f, rest @ ..] | [0x81, len, rest @ ..] => (usize::from(*len), rest),
        [0x82, high, low, rest @ ..] => (u16::from_be_bytes([*high, *low]).into(), rest),
        _ => return None,
    };
    rest.get(..len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_decoded_to_the_bytes_it_was_made_of() {
        for len in 0..200 {
            let bytes: Vec<u8> = (0..len).collect();
            let text = encode(&bytes);
            assert_eq!(decode(&text), Some(bytes));
            assert!(text.lines().all(|line| line.len() <= 64), "{text}");
            assert_eq!(decode(&text.replacen('\n', "", 1)), decode(&text));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let text = encode(&[1, 2, 3, 4]);
        for wrong in [
            "",
            BEGIN,
            &text[1..],
            &text.replace("AQIDBA==", "AQIDBB=="),
            &text.replace("AQIDBA==", "AQIDBA="),
            &text.replace("AQIDBA==", "AQIDBA"),
            &text.replace("AQIDBA==", "AQ=DBA=="),
            &text.replace("AQIDBA==", "====="),
            &text.replace("AQIDBA==", "AQ-DBA=="),
            &format!("{text}{text}"),
        ] {
            assert_eq!(decode(wrong), None, "{wrong}");
        }
    }
}
