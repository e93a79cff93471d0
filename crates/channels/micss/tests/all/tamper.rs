//! An attacker who knows the content, reads all channels but one and changes them arbitrarily, in a
//! million attempts: nothing is delivered but what was sent.
//!
//! Each attempt ends in an error, or with the receiver waiting, for a bounded time, for bytes that
//! do not arrive. Both are counted.

mod attack;
mod layout;
mod receiver;
mod wire;

use attack::{Attack, Attacker};
use receiver::{Tally, receive};
use wire::Recording;

/// The attackers on `n` channels: each single channel, and all but each.
fn attackers(n: usize) -> Vec<Attacker> {
    let single = (0..n).map(|channel| Attacker::new(vec![channel]));
    let all_but_one = (0..n).map(|honest| Attacker::new((0..n).filter(|&i| i != honest).collect()));
    // With two channels they are the same.
    if n == 2 { single.collect() } else { single.chain(all_but_one).collect() }
}

/// Whether the receiver gets the same stream: nothing changed by chance, or only bytes after its
/// end, or the changes of several channels cancel out.
fn same_sum(changed: &[Vec<u8>], sent: &[Vec<u8>]) -> bool {
    let len = sent[0].len();
    let sum =
        |shares: &[Vec<u8>], place: usize| shares.iter().fold(0, |sum, share| sum ^ share[place]);
    changed.iter().all(|share| share.len() >= len)
        && (0..len).all(|place| sum(changed, place) == sum(sent, place))
}

#[test]
fn every_bit_of_every_record() {
    let mut tally = Tally::default();
    for n in 2..=5 {
        let recording = Recording::new(n);
        for channel in 0..n {
            for bit in 0..8 * recording.len() {
                let mut shares = recording.shares.clone();
                shares[channel][bit / 8] ^= 1 << (bit % 8);
                tally.count(receive(&shares, &recording.sent), || {
                    format!("{n} channels, channel {channel}, bit {bit}")
                });
            }
        }
    }
    println!("{tally}");
    assert!(tally.attempts() > 100_000);
}

#[test]
fn a_million_attempts() {
    const ROUNDS: usize = 1_900;
    let mut tally = Tally::default();
    for n in 2..=5 {
        for mut attacker in attackers(n) {
            for round in 0..ROUNDS {
                // A new recording from time to time, with new points.
                let recording = Recording::short(n, round);
                let other = Recording::short(n, round);
                for attack in Attack::ALL {
                    let shares = attacker.apply(attack, &recording, &other);
                    if same_sum(&shares, &recording.shares) {
                        continue;
                    }
                    tally.count(receive(&shares, &recording.sent), || {
                        format!("{n} channels, {attacker:?}, {attack:?}")
                    });
                }
            }
        }
    }
    println!("{tally}");
    assert!(tally.attempts() >= 1_000_000, "{tally}");
    assert!(tally.waiting > 0 && tally.errors > 0, "{tally}");
}
