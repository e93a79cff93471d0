//! The messages of an ssh agent that has a group's key: any bytes, and changed requests.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use keys::RsaPublicKey;
use libfuzzer_sys::fuzz_target;
use quorum::ssh::{
    SshAgentRequest, SshRsaHash, failure, identities_answer, public_key_blob, sign_response,
};

static KEY: LazyLock<RsaPublicKey> =
    LazyLock::new(|| RsaPublicKey::new(&[0xc5; 256]).expect("it is odd"));

static EXAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let data = b"SSHSIG\0\0\0\x04file".to_vec();
    let sign =
        |flags: u32| [sign_request(&public_key_blob(&KEY), &data), flags.to_be_bytes().to_vec()];
    vec![vec![11], vec![27, 1, 2], sign(0).concat(), sign(2).concat(), sign(4).concat()]
});

/// A request for a signature before its flags.
fn sign_request(key: &[u8], data: &[u8]) -> Vec<u8> {
    [&[13][..], &counted(key), &counted(data)].concat()
}

fn counted(bytes: &[u8]) -> Vec<u8> {
    let len = u32::try_from(bytes.len()).expect("they are short").to_be_bytes();
    [&len[..], bytes].concat()
}

/// Asserts that an answer is one message with its length, and of this kind.
fn assert_framed(answer: &[u8], kind: u8) {
    let (len, message) = answer.split_first_chunk().expect("a length");
    assert_eq!(u32::from_be_bytes(*len) as usize, message.len());
    assert_eq!(message.first(), Some(&kind));
}

#[derive(Arbitrary, Debug)]
struct Input {
    any: Vec<u8>,
    request: Changes,
}

fuzz_target!(|input: Input| {
    for message in [&input.any, &input.request.of_one(&EXAMPLES)] {
        match SshAgentRequest::parse(message) {
            Some(SshAgentRequest::Identities) => assert_eq!(message[..], [11]),
            Some(SshAgentRequest::Sign { key, data, hash }) => {
                let flags = message.last_chunk::<4>().expect("it has flags");
                assert_eq!([&sign_request(key, data)[..], flags].concat(), *message);
                let is_sha1 = u32::from_be_bytes(*flags) & 6 == 0;
                assert_eq!(hash.is_none(), is_sha1);
                assert_framed(&sign_response(hash.unwrap_or(SshRsaHash::Sha512), data), 14);
            }
            Some(SshAgentRequest::Other(kind)) => assert_eq!(message.first(), Some(&kind)),
            None => {}
        }
        assert_framed(&identities_answer(&KEY, &String::from_utf8_lossy(message)), 12);
    }
    assert_framed(&failure(), 5);
});
