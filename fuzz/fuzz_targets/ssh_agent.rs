//! The messages of an ssh agent that has a group's key: any bytes, and changed requests.
#![no_main]

mod changes;

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use changes::Changes;
use keys::{AnyPublicKey, Ed25519PublicKey, RsaPublicKey};
use libfuzzer_sys::fuzz_target;
use quorum::ssh::{
    SshAgentRequest, SshSignatureAlgorithm, failure, identities_answer, public_key_blob,
    sign_response,
};

/// An RSA key, and the example of RFC 8032, 7.1.
static KEYS: LazyLock<[AnyPublicKey; 2]> = LazyLock::new(|| {
    let point = [
        0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07,
        0x3a, 0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07,
        0x51, 0x1a,
    ];
    let rsa = RsaPublicKey::new(&[0xc5; 256]).expect("it is odd");
    [rsa.into(), Ed25519PublicKey::from_bytes(&point).expect("a key").into()]
});

static EXAMPLES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let data = b"SSHSIG\0\0\0\x04file".to_vec();
    let mut examples = vec![vec![11], vec![27, 1, 2]];
    for key in &*KEYS {
        let request = sign_request(&public_key_blob(key), &data);
        examples.extend([0_u32, 2, 4].map(|flags| [&request[..], &flags.to_be_bytes()].concat()));
    }
    examples
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
                let algorithms = KEYS.iter().map(|key| SshSignatureAlgorithm::of(key, hash));
                for algorithm in algorithms.flatten() {
                    assert_framed(&sign_response(algorithm, data), 14);
                }
            }
            Some(SshAgentRequest::Other(kind)) => assert_eq!(message.first(), Some(&kind)),
            None => {}
        }
        for key in &*KEYS {
            assert_framed(&identities_answer(key, &String::from_utf8_lossy(message)), 12);
        }
    }
    assert_framed(&failure(), 5);
});
