//! Datagrams of attackers.

use std::time::Duration;

use sim::SeededRng;

use super::pair::{Pair, Path};

/// Changes some bytes, the length or nothing.
pub(super) fn mutate(rng: &mut SeededRng, datagram: &[u8]) -> Vec<u8> {
    let mut mutated = datagram.to_vec();
    for _ in 0..rng.index(4) {
        let index = rng.index(mutated.len());
        mutated[index] = rng.below(256).to_le_bytes()[0];
    }
    if rng.below(4) == 0 {
        mutated.truncate(1 + rng.index(60));
    }
    mutated
}

/// A datagram from an attacker who has seen another one, and does not know its destination socket.
pub(super) fn forge(rng: &mut SeededRng, seen: &[u8]) -> Vec<u8> {
    let mut forged = mutate(rng, seen);
    if let Some(destination) = forged.get_mut(12..16) {
        let real = <[u8; 4]>::try_from(&seen[12..16]).unwrap();
        let mask = u32::from_be_bytes(rng.bytes()).max(1);
        destination.copy_from_slice(&(u32::from_be_bytes(real) ^ mask).to_be_bytes());
    }
    forged
}

#[test]
fn who_does_not_know_the_sockets_changes_nothing() {
    for seed in 0..30 {
        let mut pair = Pair::connect(seed, Path::drawn(seed));
        let mut rng = SeededRng::new(seed);
        pair.attack(Box::new(move |seen| vec![forge(&mut rng, seen)]));
        pair.transfer(seed, 100_000);
    }
}

#[test]
fn no_datagram_makes_an_end_panic_or_grow() {
    for seed in 0..50 {
        let mut pair = Pair::connect(seed, Path::drawn(seed));
        let mut rng = SeededRng::new(seed);
        pair.attack(Box::new(move |seen| (0..3).map(|_| mutate(&mut rng, seen)).collect()));
        pair.run_until(Duration::from_secs(5));
    }
}
