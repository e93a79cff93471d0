//! RSA public keys, and the messages of signing: what parses has one encoding, nothing invented is
//! a signature or an answer, and no bytes are evidence.
#![no_main]

use std::sync::LazyLock;

use keys::{IdentitySecretKey, RsaPublicKey};
use libfuzzer_sys::fuzz_target;
use quorum::signing::{PartialSignQuery, PartialSignatures, SigningGroup, WrongAnswerEvidence};
use quorum::{CombinatorialSharing, GroupPublicKey};

static GROUP: LazyLock<SigningGroup> = LazyLock::new(|| {
    // N = 2^1024 - 1 and g_0 = 4: nobody has its private key.
    let mut key = vec![0xff; 128];
    key.extend([0; 127]);
    key.push(4);
    let combination = CombinatorialSharing::new(1).expect("it is small");
    let identities =
        combination.servers().map(|server| IdentitySecretKey::new(&[server.0; 32]).public());
    SigningGroup {
        epoch: 0,
        key: GroupPublicKey::from_bytes(&key).expect("a key"),
        identities: identities.collect(),
        combination,
    }
});

fuzz_target!(|bytes: &[u8]| {
    if let Ok(text) = str::from_utf8(bytes)
        && let Ok(key) = RsaPublicKey::from_pem(text)
    {
        assert_eq!(RsaPublicKey::from_pem(&key.to_pem()), Ok(key));
    }
    if let Some(query) = PartialSignQuery::parse(&GROUP, bytes) {
        assert_eq!(query.to_bytes(), bytes);
    }
    assert_eq!(PartialSignatures::parse(&GROUP, bytes), None);
    if let Some(evidence) = WrongAnswerEvidence::parse(bytes) {
        assert_eq!(evidence.to_bytes(), bytes);
        assert_eq!(evidence.verify(&GROUP), None);
    }
    GROUP.key.public().verify(b"a message", bytes);
});
