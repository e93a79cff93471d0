//! RSA public keys, and the messages of signing: what parses has one encoding, nothing invented is
//! a signature or an answer, and no bytes are evidence.
#![no_main]

use std::sync::LazyLock;

use keys::{RsaPublicKey, SecretKey};
use libfuzzer_sys::fuzz_target;
use quorum::signing::{Answer, Evidence, Query, SigningGroup};
use quorum::{Combination, GroupKey};

static GROUP: LazyLock<SigningGroup> = LazyLock::new(|| {
    // N = 2^1024 - 1 and g_0 = 4: nobody has its private key.
    let mut key = vec![0xff; 128];
    key.extend([0; 127]);
    key.push(4);
    let combination = Combination::new(1).expect("it is small");
    let identities = combination.servers().map(|server| SecretKey::new(&[server.0; 32]).public());
    SigningGroup {
        epoch: 0,
        key: GroupKey::from_bytes(&key).expect("a key"),
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
    if let Some(query) = Query::parse(&GROUP, bytes) {
        assert_eq!(query.to_bytes(), bytes);
    }
    assert_eq!(Answer::parse(&GROUP, bytes), None);
    if let Some(evidence) = Evidence::parse(bytes) {
        assert_eq!(evidence.to_bytes(), bytes);
        assert_eq!(evidence.verify(&GROUP), None);
    }
    GROUP.key.public().verify(b"a message", bytes);
});
