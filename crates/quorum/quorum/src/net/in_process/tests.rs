//! A key that many groups hold in succession.

use std::fs;
use std::process::Command;

use keys::rsa::RsaEncoding;
use rsa_arithmetic::fixture::{large_key, small_key};

use super::*;
use crate::protocol::signing::SignerHealth;

const MESSAGE: &[u8] = b"a message";

/// Checks a signature with `openssl`, and the public key from its file.
fn openssl_accepts(public: &str, signature: &[u8]) {
    let place = tempfile::tempdir().unwrap();
    for (name, bytes) in
        [("public", public.as_bytes()), ("message", MESSAGE), ("signature", signature)]
    {
        fs::write(place.path().join(name), bytes).unwrap();
    }
    let output = Command::new("openssl")
        .args(["dgst", "-sha256", "-verify", "public", "-signature", "signature", "message"])
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Verified OK\n", "{output:?}");
}

/// With `SUNDER_QUORUM_SOAK`, the key has 2048 bits, and the groups have up to 10 servers.
#[test]
fn a_key_is_the_same_after_20_refreshes() {
    let is_soak = std::env::var_os("SUNDER_QUORUM_SOAK").is_some();
    let (key, sizes) = if is_soak { (large_key(), [1, 2, 3]) } else { (small_key(), [1, 2, 1]) };
    let mut generator = RandomGenerator::seeded().unwrap();
    let setting =
        GroupKeyParameters::new(key.group(), ShareRange::new(key.group().modulus().bits()));
    let first = CombinatorialSharing::new(1).unwrap();
    let mut group = setting.deal(&key, &first, &mut generator).unwrap();
    let public = key.group().public().to_pem();
    for epoch in 1..=21 {
        let servers = group.signing_servers(&setting);
        assert_eq!(servers.group().epoch, epoch);
        assert_eq!(servers.group().key.public().to_pem(), public);
        let mut health = SignerHealth::new(group.combination());
        let signed = servers.sign(MESSAGE, RsaEncoding::Pkcs1, &mut health, &[]).unwrap();
        openssl_accepts(&public, &signed.signature.unwrap());
        if epoch < 21 {
            let size = sizes[usize::try_from(epoch).unwrap() % sizes.len()];
            let to = CombinatorialSharing::new(size).unwrap();
            let (next, report) = group.refresh(&setting, &to, &mut generator).unwrap();
            assert_eq!(report.new.len(), to.server_count());
            group = next;
        }
    }
}

#[test]
fn a_silent_server_costs_one_hedged_retry_and_f_of_the_others_none() {
    let key = small_key();
    let mut generator = RandomGenerator::seeded().unwrap();
    let setting = GroupKeyParameters::new(key.group(), ShareRange::new(1024));
    let combination = CombinatorialSharing::new(2).unwrap();
    let group = setting.deal(&key, &combination, &mut generator).unwrap();
    let servers = group.signing_servers(&setting);
    let mut health = SignerHealth::new(&combination);
    let mut sign = |silent: &[ServerIndex]| {
        servers.sign(MESSAGE, RsaEncoding::Pkcs1, &mut health, silent).unwrap()
    };
    let [_, usual, with_retry, without_it] =
        [&[][..], &[], &[0, 1].map(ServerIndex), &[0, 1].map(ServerIndex)].map(&mut sign);
    assert_eq!((usual.requests.count, usual.answers.count), (3, 3));
    // The requests to the silent servers, and the retry with two others and the one that answered.
    assert_eq!((with_retry.requests.count, with_retry.answers.count), (6, 4));
    assert!(with_retry.took >= std::time::Duration::from_millis(20));
    assert_eq!((without_it.requests.count, without_it.is_full), (3, false));
    for signed in [usual, with_retry, without_it] {
        assert!(key.group().public().verify(MESSAGE, &signed.signature.unwrap()));
    }
}
