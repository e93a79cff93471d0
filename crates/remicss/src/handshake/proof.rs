//! The proof of a datagram: that it comes from an end that has the shared key, for this channel.
//!
//! HMAC-SHA-256 over a byte with the channel's index and all of the datagram but the proof. Where
//! there is no key it is zeros, and then nothing else passes: ends of which only one has a key do
//! not get past their first datagram.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::message::PROOF;

/// A key that both ends were given before: 32 random bytes. Secret.
#[derive(Clone)]
pub struct SharedKey {
    /// The key is in it already, which takes as long as to add a Hello.
    code: Hmac<Sha256>,
}

impl SharedKey {
    /// A key of random bytes.
    #[expect(clippy::missing_panics_doc, reason = "keys of any length are taken")]
    pub fn new(random: &[u8; 32]) -> Self {
        let code = Hmac::new_from_slice(random).expect("keys of any length are taken");
        Self { code }
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedKey(..)")
    }
}

/// Puts the proof into a datagram, which has zeros in its place.
pub(super) fn prove(key: Option<&SharedKey>, channel: usize, datagram: &mut [u8]) {
    if let Some(key) = key {
        let proof = code(key, channel, datagram).finalize().into_bytes();
        datagram[PROOF].copy_from_slice(&proof);
    }
}

/// True if a datagram's proof is right. Takes as long for any wrong one.
pub(super) fn is_proven(key: Option<&SharedKey>, channel: usize, datagram: &[u8]) -> bool {
    let Some(proof) = datagram.get(PROOF) else {
        return false;
    };
    match key {
        Some(key) => code(key, channel, datagram).verify_slice(proof).is_ok(),
        None => proof.iter().all(|&byte| byte == 0),
    }
}

fn code(key: &SharedKey, channel: usize, datagram: &[u8]) -> Hmac<Sha256> {
    let mut code = key.code.clone();
    let channel = u8::try_from(channel).expect("at most 16 channels");
    code.update(&[channel]);
    code.update(&datagram[..PROOF.start]);
    code.update(&datagram[PROOF.end..]);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proven(key: Option<&SharedKey>) -> Vec<u8> {
        let mut datagram = vec![7; 60];
        datagram[PROOF].fill(0);
        prove(key, 3, &mut datagram);
        datagram
    }

    #[test]
    fn a_proof_is_for_one_key_channel_and_datagram() {
        let (key, other) = (SharedKey::new(&[1; 32]), SharedKey::new(&[2; 32]));
        let datagram = proven(Some(&key));
        assert!(is_proven(Some(&key), 3, &datagram));
        assert!(!is_proven(Some(&key), 4, &datagram));
        assert!(!is_proven(Some(&other), 3, &datagram));
        assert!(!is_proven(None, 3, &datagram));
        for place in 0..datagram.len() {
            let mut changed = datagram.clone();
            changed[place] ^= 0x10;
            assert!(!is_proven(Some(&key), 3, &changed), "byte {place}");
        }
    }

    #[test]
    fn without_a_key_the_proof_is_zeros() {
        let datagram = proven(None);
        assert!(is_proven(None, 3, &datagram));
        assert!(!is_proven(Some(&SharedKey::new(&[0; 32])), 3, &datagram));
        assert!(!is_proven(None, 3, &[0; 40]));
    }

    /// RFC 4231, test case 2: what `hmac` computes is HMAC-SHA-256.
    #[test]
    fn the_code_is_the_published_one() {
        let mut code = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap();
        code.update(b"what do ya want for nothing?");
        let expected = [
            0x5b, 0xdc, 0xc1, 0x46, 0xbf, 0x60, 0x75, 0x4e, 0x6a, 0x04, 0x24, 0x26, 0x08, 0x95,
            0x75, 0xc7, 0x5a, 0x00, 0x3f, 0x08, 0x9d, 0x27, 0x39, 0x83, 0x9d, 0xec, 0x58, 0xb9,
            0x64, 0xec, 0x38, 0x43,
        ];
        assert!(code.verify_slice(&expected).is_ok());
    }
}
