//! A group's key in OpenSSH's formats, and the messages of an ssh agent that has it
//! (draft-ietf-sshm-ssh-agent). Integers and strings are those of RFC 4251, 5.

use base64ct::{Base64, Encoding as _};
use encoding::{FieldReader, FieldWrite as _};
use keys::RsaPublicKey;
use keys::rsa::PUBLIC_EXPONENT_BYTES;

use super::signing::MAX_MESSAGE_LEN;

/// The longest message to an agent, in bytes: as OpenSSH's own agent takes.
pub const MAX_AGENT_MESSAGE_LEN: usize = 256 << 10;

const _: () = assert!(MAX_AGENT_MESSAGE_LEN <= MAX_MESSAGE_LEN);

const KEY_TYPE: &[u8] = b"ssh-rsa";

const FAILURE: u8 = 5;
const REQUEST_IDENTITIES: u8 = 11;
const IDENTITIES_ANSWER: u8 = 12;
const SIGN_REQUEST: u8 = 13;
const SIGN_RESPONSE: u8 = 14;

/// The flags of a sign request that choose the hash. Without one of them it is SHA-1.
const FLAG_SHA256: u32 = 2;
const FLAG_SHA512: u32 = 4;

/// The hash of a signature of an RSA key (RFC 8332).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshRsaHash {
    /// `rsa-sha2-256`.
    Sha256,
    /// `rsa-sha2-512`.
    Sha512,
}

/// A message to the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshAgentRequest<'a> {
    /// It asks for the keys.
    Identities,
    /// It asks for a signature.
    Sign {
        /// The key, as in [`public_key_blob`].
        key: &'a [u8],
        /// The whole message to sign.
        data: &'a [u8],
        /// The hash. `None` for SHA-1, which is not secure.
        hash: Option<SshRsaHash>,
    },
    /// Any other message, which this agent does not support.
    Other(u8),
}

impl<'a> SshAgentRequest<'a> {
    /// Parses a message without its length. `None` if it is malformed.
    pub fn parse(message: &'a [u8]) -> Option<Self> {
        let mut fields = FieldReader::new(message);
        let request = match fields.u8().ok()? {
            REQUEST_IDENTITIES => Self::Identities,
            SIGN_REQUEST => {
                let (key, data) = (fields.counted().ok()?, fields.counted().ok()?);
                let hash = match fields.u32().ok()? {
                    flags if flags & FLAG_SHA256 != 0 => Some(SshRsaHash::Sha256),
                    flags if flags & FLAG_SHA512 != 0 => Some(SshRsaHash::Sha512),
                    _ => None,
                };
                Self::Sign { key, data, hash }
            }
            kind => return Some(Self::Other(kind)),
        };
        fields.finish().ok()?;
        Some(request)
    }
}

/// The answer to a request for the keys, with its length: one key.
pub fn identities_answer(key: &RsaPublicKey, comment: &str) -> Vec<u8> {
    let mut answer = vec![IDENTITIES_ANSWER];
    answer.put_u32(1);
    answer.put_counted(&public_key_blob(key));
    answer.put_counted(comment.as_bytes());
    with_length(&answer)
}

/// The answer to a request for a signature, with its length.
pub fn sign_response(hash: SshRsaHash, signature: &[u8]) -> Vec<u8> {
    let name: &[u8] = match hash {
        SshRsaHash::Sha256 => b"rsa-sha2-256",
        SshRsaHash::Sha512 => b"rsa-sha2-512",
    };
    let mut named = Vec::new();
    named.put_counted(name);
    named.put_counted(signature);
    let mut answer = vec![SIGN_RESPONSE];
    answer.put_counted(&named);
    with_length(&answer)
}

/// The answer to what the agent does not do, with its length. The protocol has no place for a
/// reason.
pub fn failure() -> Vec<u8> {
    with_length(&[FAILURE])
}

/// A public key as an ssh agent and an `authorized_keys` file have it (RFC 4253, 6.6).
pub fn public_key_blob(key: &RsaPublicKey) -> Vec<u8> {
    let mut blob = Vec::new();
    blob.put_counted(KEY_TYPE);
    put_mpint(&mut blob, &PUBLIC_EXPONENT_BYTES);
    put_mpint(&mut blob, &key.modulus());
    blob
}

/// A public key as a line of an `authorized_keys` file, without a line break.
pub fn public_key_line(key: &RsaPublicKey, comment: &str) -> String {
    format!("ssh-rsa {} {comment}", Base64::encode_string(&public_key_blob(key)))
}

/// A positive integer, big-endian: without leading zeros, but with one before a highest bit of 1.
fn put_mpint(out: &mut Vec<u8>, number: &[u8]) {
    let first = number.iter().position(|&byte| byte != 0).unwrap_or(number.len());
    let number = &number[first..];
    let is_negative = number.first().is_some_and(|byte| byte >> 7 == 1);
    let zero: &[u8] = if is_negative { &[0] } else { &[] };
    out.put_counted(&[zero, number].concat());
}

fn with_length(message: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(4 + message.len());
    framed.put_counted(message);
    framed
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The fields of a sign request, as RFC 4251 encodes them.
    fn sign_request(key: &[u8], data: &[u8], flags: u32) -> Vec<u8> {
        let mut message = vec![SIGN_REQUEST];
        message.put_counted(key);
        message.put_counted(data);
        message.put_u32(flags);
        message
    }

    #[test]
    fn the_hash_of_an_agents_signature_follows_from_the_flags() {
        for (flags, expected) in [
            (0, None),
            (1, None),
            (2, Some(SshRsaHash::Sha256)),
            (4, Some(SshRsaHash::Sha512)),
            (6, Some(SshRsaHash::Sha256)),
            (u32::MAX ^ 6, None),
        ] {
            let message = sign_request(b"key", b"data", flags);
            let Some(SshAgentRequest::Sign { hash, .. }) = SshAgentRequest::parse(&message) else {
                panic!("{flags}")
            };
            assert_eq!(hash, expected, "{flags}");
        }
    }

    #[test]
    fn an_agent_takes_whole_messages_only() {
        let message = sign_request(b"key", b"data", 2);
        assert!(SshAgentRequest::parse(&message).is_some());
        for len in 0..message.len() {
            assert_eq!(SshAgentRequest::parse(&message[..len]), None, "{len}");
        }
        assert_eq!(SshAgentRequest::parse(&[&message[..], &[0]].concat()), None);
        assert_eq!(SshAgentRequest::parse(&[REQUEST_IDENTITIES, 0]), None);
        assert_eq!(SshAgentRequest::parse(&[27, 1, 2]), Some(SshAgentRequest::Other(27)));
        // Lengths beyond the end.
        let mut long = vec![SIGN_REQUEST];
        long.put_u32(u32::MAX);
        assert_eq!(SshAgentRequest::parse(&[&long[..], b"key"].concat()), None);
    }

    #[test]
    fn an_integer_has_no_sign_and_no_leading_zeros() {
        // The examples of RFC 4251, 5.
        for (number, expected) in [
            (&[][..], &[0, 0, 0, 0][..]),
            (&[0, 0], &[0, 0, 0, 0]),
            (&[0x80], &[0, 0, 0, 2, 0, 0x80]),
            (&[0, 0, 0x7f], &[0, 0, 0, 1, 0x7f]),
        ] {
            let mut out = Vec::new();
            put_mpint(&mut out, number);
            assert_eq!(out, expected);
        }
    }

    proptest! {
        #[test]
        fn any_message_to_an_agent_is_parsed_or_refused(
            message in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            if let Some(SshAgentRequest::Sign { key, data, .. }) = SshAgentRequest::parse(&message) {
                let flags: [u8; 4] = *message.last_chunk().unwrap();
                prop_assert_eq!(sign_request(key, data, u32::from_be_bytes(flags)), message);
            }
        }

        #[test]
        fn what_a_client_writes_is_parsed(
            key in prop::collection::vec(any::<u8>(), 0..50),
            data in prop::collection::vec(any::<u8>(), 0..50),
        ) {
            let message = sign_request(&key, &data, FLAG_SHA512);
            let hash = Some(SshRsaHash::Sha512);
            let expected = SshAgentRequest::Sign { key: &key, data: &data, hash };
            prop_assert_eq!(SshAgentRequest::parse(&message), Some(expected));
        }
    }
}
