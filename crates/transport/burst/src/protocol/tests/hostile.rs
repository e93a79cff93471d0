//! Attackers on the path, who see every packet and can inject any.

use super::pair::Attacker;
use sim::SeededRng;

/// Injects changed copies of the packets it sees, copies of earlier packets, and random bytes.
pub(super) fn attacker(seed: u64) -> Attacker {
    let mut rng = SeededRng::new(seed ^ 0xbad);
    let mut seen: Vec<Vec<u8>> = Vec::new();
    Box::new(move |datagram| {
        if seen.len() < 100 || rng.chance(1) {
            seen.push(datagram.to_vec());
        }
        let mut datagrams = Vec::new();
        if rng.chance(20) {
            let mut changed = datagram.to_vec();
            let at = rng.index(changed.len());
            // The other headers of a handshake are not changed, as they are not authenticated.
            if changed[..7] != *b"SNDRBST" || at >= 35 {
                changed[at] ^= 1 << rng.index(8);
                datagrams.push(changed);
            }
        }
        if rng.chance(5) {
            datagrams.push(datagram[..rng.index(datagram.len() + 1)].to_vec());
        }
        if rng.chance(20) {
            datagrams.extend(rng.pick(&seen).cloned());
        }
        if rng.chance(5) {
            let random: [u8; 1500] = rng.bytes();
            datagrams.push(random[..rng.index(1500)].to_vec());
        }
        datagrams
    })
}
