//! The proof of a datagram: it comes from an end that has the shared key, for this channel.
//!
//! HMAC-SHA-256 over a byte with the channel's index and all of the datagram except the proof.
//! Without a key it is zeros, and anything else is rejected: if only one end has a key, the first
//! datagram is rejected.

use keys::SharedKey;

use crate::protocol::wire::handshake::PROOF;

/// Writes the proof into a datagram.
pub(in crate::protocol::control) fn prove(
    key: Option<&SharedKey>,
    channel: usize,
    datagram: &mut [u8],
) {
    if let Some(key) = key {
        let proof = key.authenticate(&proven(&[index(channel)], datagram));
        datagram[PROOF].copy_from_slice(&proof);
    }
}

/// Whether a datagram's proof is right, in constant time.
pub(in crate::protocol::control) fn is_proven(
    key: Option<&SharedKey>,
    channel: usize,
    datagram: &[u8],
) -> bool {
    let Some(proof) = datagram.get(PROOF) else {
        return false;
    };
    match key {
        Some(key) => key.verify(&proven(&[index(channel)], datagram), proof),
        None => proof.iter().all(|&byte| byte == 0),
    }
}

/// The parts of the bytes that a datagram's proof covers.
fn proven<'a>(channel: &'a [u8; 1], datagram: &'a [u8]) -> [&'a [u8]; 3] {
    [channel, &datagram[..PROOF.start], &datagram[PROOF.end..]]
}

fn index(channel: usize) -> u8 {
    u8::try_from(channel).expect("at most 16 channels")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram_with_proof(key: Option<&SharedKey>) -> Vec<u8> {
        let mut datagram = vec![7; 60];
        datagram[PROOF].fill(0);
        prove(key, 3, &mut datagram);
        datagram
    }

    #[test]
    fn a_proof_is_for_one_key_channel_and_datagram() {
        let (key, other) = (SharedKey::new(&[1; 32]), SharedKey::new(&[2; 32]));
        let datagram = datagram_with_proof(Some(&key));
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
        let datagram = datagram_with_proof(None);
        assert!(is_proven(None, 3, &datagram));
        assert!(!is_proven(Some(&SharedKey::new(&[0; 32])), 3, &datagram));
        assert!(!is_proven(None, 3, &[0; 40]));
    }
}
