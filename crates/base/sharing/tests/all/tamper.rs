//! Tests the tamper code against an attacker who knows the message and controls one share.
//!
//! A difference that such an attacker adds to the share is added to the joined record, multiplied
//! by a known weight. So every record in these tests is shared, changed in one share, and joined. A
//! million attempts must all be detected. The same attack on a hash instead of the code must always
//! succeed, which shows why the code is needed.

use polyval::Polyval;
use polyval::universal_hash::UniversalHash;
use random::RandomGenerator;
use sha2::{Digest, Sha256};
use sunder_sharing::{Joiner, SharingParameters, Splitter, tamper};

use crate::textbook::{TestRng, invert, multiply, name};

/// The capacity of a record: a length of one byte, the message's space, and then the check.
const ROOM: usize = 112;

/// The protection of a record: the code, or an insufficient one.
trait Check {
    fn protect(&mut self, message: &[u8]) -> Vec<u8>;

    fn verify(&self, check: &[u8], message: &[u8]) -> bool;

    /// The difference to add to the check of `old` to make it valid for `new`, as far as the
    /// attacker can know it.
    fn craft(&self, old: &[u8], new: &[u8], rng: &mut TestRng) -> Vec<u8>;
}

struct Code(RandomGenerator);

impl Check for Code {
    fn protect(&mut self, message: &[u8]) -> Vec<u8> {
        tamper::protect(&[message], &mut self.0).unwrap().to_vec()
    }

    fn verify(&self, check: &[u8], message: &[u8]) -> bool {
        tamper::verify(check.try_into().unwrap(), &[message]).is_ok()
    }

    /// The point is unknown, so it is guessed. In half of the cases it is changed as well.
    fn craft(&self, old: &[u8], new: &[u8], rng: &mut TestRng) -> Vec<u8> {
        let guess: [u8; 16] = rng.bytes(16).try_into().unwrap();
        let moved = if rng.below(2) == 0 { [0; 16] } else { rng.bytes(16).try_into().unwrap() };
        let tag = add(&documented_tag(&add(&guess, &moved), new), &documented_tag(&guess, old));
        [moved, tag].concat()
    }
}

struct PlainHash;

impl Check for PlainHash {
    fn protect(&mut self, message: &[u8]) -> Vec<u8> {
        Sha256::digest(message).to_vec()
    }

    fn verify(&self, check: &[u8], message: &[u8]) -> bool {
        Sha256::digest(message).as_slice() == check
    }

    fn craft(&self, old: &[u8], new: &[u8], _: &mut TestRng) -> Vec<u8> {
        let (old, new) = (Sha256::digest(old), Sha256::digest(new));
        old.iter().zip(&new).map(|(a, b)| a ^ b).collect()
    }
}

fn add(a: &[u8; 16], b: &[u8; 16]) -> [u8; 16] {
    std::array::from_fn(|i| a[i] ^ b[i])
}

/// The tag as documented: x^(d+2), nothing at x^(d+1), the blocks, the length.
fn documented_tag(point: &[u8; 16], message: &[u8]) -> [u8; 16] {
    let mut hash = Polyval::new(point.into());
    let mut one = [0; 16];
    (one[0], one[15]) = (1, 0xC2);
    hash.update(&[one.into(), [0; 16].into()]);
    hash.update_padded(message);
    if message.len().div_ceil(16) % 2 == 1 {
        hash.update(&[[0; 16].into()]);
    }
    hash.update(&[(message.len() as u128).to_le_bytes().into()]);
    hash.finalize().into()
}

#[test]
fn the_documented_tag_is_accepted() {
    let mut rng = TestRng::new(1);
    for len in (0..200).chain([1408, 70_000]) {
        let message = rng.bytes(len);
        let point: [u8; 16] = rng.bytes(16).try_into().unwrap();
        let code = [point, documented_tag(&point, &message)].concat();
        assert_eq!(tamper::verify(&code.try_into().unwrap(), &[&message]), Ok(()), "{len} bytes");
    }
}

/// The attacker's change of the message, which it knows.
#[derive(Clone, Copy, Debug)]
enum Change {
    FlipBit,
    Replace,
    SwapHalves,
    SwapBlocks,
    /// Removes bytes; if the message ends in zeros, only zeros.
    Shorten,
    /// Appends zeros, so that padding becomes part of the message.
    Lengthen,
}

const CHANGES: [Change; 6] = [
    Change::FlipBit,
    Change::Replace,
    Change::SwapHalves,
    Change::SwapBlocks,
    Change::Shorten,
    Change::Lengthen,
];

impl Change {
    /// The changed message, which always differs from the original.
    fn apply(self, message: &[u8], rng: &mut TestRng) -> Vec<u8> {
        let mut new = message.to_vec();
        match self {
            Self::FlipBit => new[rng.below(message.len())] ^= 1 << rng.below(8),
            Self::Replace => new = rng.bytes(message.len()),
            Self::SwapHalves => new.rotate_left(message.len() / 2),
            Self::SwapBlocks => new.chunks_exact_mut(32).for_each(|pair| pair.rotate_left(16)),
            Self::Shorten => new.truncate(message.len() - [1, 16, 32][rng.below(3)]),
            Self::Lengthen => new.resize(message.len() + [1, 16, 32][rng.below(3)], 0),
        }
        if new == message {
            new[0] ^= 1;
        }
        new
    }
}

/// The attacker's change of the check.
#[derive(Clone, Copy, Debug)]
enum Forgery {
    None,
    Random,
    Crafted,
}

/// A sharing in which the attacker controls the share at `held`, which is joined with others.
struct Target<'a, C> {
    splitter: Splitter,
    joiner: Joiner,
    generator: RandomGenerator,
    joined: Vec<u8>,
    /// The position of the attacker's share among the joined ones.
    held: usize,
    check: &'a mut C,
}

impl<'a, C: Check> Target<'a, C> {
    fn new(sharing: SharingParameters, rng: &mut TestRng, check: &'a mut C) -> Self {
        let (k, m) = (usize::from(sharing.threshold()), usize::from(sharing.shares()));
        Self {
            splitter: Splitter::new(sharing),
            joiner: Joiner::new(sharing),
            generator: RandomGenerator::seeded().unwrap(),
            joined: crate::textbook::coordinates(&rng.choose(k, m)),
            held: rng.below(k),
            check,
        }
    }

    /// Shares a record, adds `difference` to the joined record through one share, and returns the
    /// message if it is accepted.
    fn deliver(&mut self, message: &[u8], difference: &[u8]) -> Option<Vec<u8>> {
        let record = self.record(message);
        let mut shares = vec![vec![0; record.len()]; self.splitter.sharing().shares().into()];
        let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
        self.splitter.split(&record, &mut views, &mut self.generator).unwrap();

        let factor = invert(self.weight());
        let held = &mut shares[usize::from(self.joined[self.held]) - 1];
        held.iter_mut().zip(difference).for_each(|(byte, &d)| *byte ^= multiply(d, factor));

        let views: Vec<&[u8]> =
            self.joined.iter().map(|&x| shares[usize::from(x) - 1].as_slice()).collect();
        let mut received = vec![0; record.len()];
        self.joiner.join(&self.joined, &views, &mut received).unwrap();
        let (room, check) = received[1..].split_at(ROOM);
        let message = room.get(..received[0].into())?;
        self.check.verify(check, message).then(|| message.to_vec())
    }

    fn record(&mut self, message: &[u8]) -> Vec<u8> {
        [room(message), self.check.protect(message)].concat()
    }

    /// The weight of the attacker's share when the shares are joined.
    fn weight(&self) -> u8 {
        if self.splitter.sharing()
            == SharingParameters::xor(self.splitter.sharing().shares()).unwrap()
        {
            return 1;
        }
        let x = self.joined[self.held];
        let others = self.joined.iter().filter(|&&other| other != x);
        others.fold(1, |weight, &other| multiply(weight, multiply(other, invert(other ^ x))))
    }

    fn attempt(&mut self, change: Change, forgery: Forgery, rng: &mut TestRng) -> Attempt {
        // Two or more blocks. Half of the messages are zeros, so that only their length is
        // significant.
        let len = 33 + rng.below(ROOM - 64);
        let message = if rng.below(2) == 0 { vec![0; len] } else { rng.bytes(len) };
        let new = change.apply(&message, rng);
        let payload: Vec<u8> =
            room(&message).iter().zip(room(&new)).map(|(&old, new)| old ^ new).collect();
        let check = match forgery {
            Forgery::None => vec![],
            Forgery::Random => rng.bytes(32),
            Forgery::Crafted => self.check.craft(&message, &new, rng),
        };
        match self.deliver(&message, &[payload, check].concat()) {
            None => Attempt::Reported,
            Some(accepted) if accepted == new => Attempt::Succeeded,
            Some(_) => Attempt::Accepted,
        }
    }
}

#[derive(Debug, PartialEq)]
enum Attempt {
    Reported,
    /// The attacker's message was accepted.
    Succeeded,
    /// Another message was accepted.
    Accepted,
}

/// The record's content: the length, and the message in its space.
fn room(message: &[u8]) -> Vec<u8> {
    let mut room = vec![u8::try_from(message.len()).unwrap()];
    room.extend(message);
    room.resize(1 + ROOM, 0);
    room
}

/// XOR with n = 2..5, and Shamir with several thresholds, with each single share. With n = 1, an
/// attacker with one share has reached the threshold.
fn targets() -> Vec<SharingParameters> {
    let xor = (2..=5).map(|n| SharingParameters::xor(n).unwrap());
    let shamir = [(2, 2), (2, 3), (3, 3), (3, 5), (5, 8)];
    xor.chain(shamir.map(|(k, m)| SharingParameters::shamir(k, m).unwrap())).collect()
}

#[test]
fn a_million_attempts_are_all_reported() {
    let mut rng = TestRng::new(2);
    let mut code = Code(RandomGenerator::seeded().unwrap());
    let mut attempts = 0;
    while attempts < 1_000_000 {
        for sharing in targets() {
            let mut target = Target::new(sharing, &mut rng, &mut code);
            for change in CHANGES {
                for forgery in [Forgery::None, Forgery::Random, Forgery::Crafted] {
                    for _ in 0..25 {
                        let outcome = target.attempt(change, forgery, &mut rng);
                        let what = format_args!("{}: {change:?}, {forgery:?}", name(sharing));
                        assert_eq!(outcome, Attempt::Reported, "{what}");
                        attempts += 1;
                    }
                }
            }
            // Unchanged messages must be accepted; otherwise the attempts would show nothing.
            assert_eq!(target.deliver(b"as it was", &[]).as_deref(), Some(&b"as it was"[..]));
        }
    }
}

/// The reason for the code: an attacker who knows the message also knows the difference of two
/// hashes, and only needs to add it to one share. SHA-256 is broken every time, without guessing.
#[test]
fn the_same_attack_on_a_plain_hash_always_succeeds() {
    let mut rng = TestRng::new(3);
    for sharing in targets() {
        let mut hash = PlainHash;
        let mut target = Target::new(sharing, &mut rng, &mut hash);
        for change in CHANGES.into_iter().cycle().take(600) {
            let outcome = target.attempt(change, Forgery::Crafted, &mut rng);
            assert_eq!(outcome, Attempt::Succeeded, "{}: {change:?}", name(sharing));
        }
    }
}

/// Replacing a share by that of another record is a difference as well.
#[test]
fn shares_of_different_records_do_not_mix() {
    let mut generator = RandomGenerator::seeded().unwrap();
    let mut record = |message: &[u8]| {
        let code = tamper::protect(&[message], &mut generator).unwrap();
        crate::textbook::split(SharingParameters::xor(3).unwrap(), &[message, &code].concat())
    };
    for _ in 0..1000 {
        let (first, second) = (record(b"the same message"), record(b"the same message"));
        for i in 0..3 {
            let mut mixed = first.clone();
            mixed[i].clone_from(&second[i]);
            let joined: Vec<u8> =
                (0..48).map(|j| mixed[0][j] ^ mixed[1][j] ^ mixed[2][j]).collect();
            let (message, code) = joined.split_at(16);
            assert!(tamper::verify(code.try_into().unwrap(), &[message]).is_err());
        }
    }
}

/// Tests the theorem exhaustively over a small field, GF(2^4).
mod small_field {
    /// The number of elements of the field.
    const Q: u8 = 16;

    /// Modulo `x^4 + x + 1`.
    fn multiply(a: u8, b: u8) -> u8 {
        let mut product =
            (0..4).fold(0, |sum, bit| sum ^ (u8::from(b >> bit & 1 == 1) * (a << bit)));
        for bit in (4..7).rev() {
            product ^= u8::from(product >> bit & 1 == 1) * (0b1_0011 << (bit - 4));
        }
        product
    }

    /// `x^(d+2) + s_1 x + .. + s_d x^d`.
    fn tag(x: u8, s: &[u8]) -> u8 {
        let horner = |sum, &coefficient: &u8| multiply(sum, x) ^ coefficient;
        // The constant is zero; x^(d+1) is not there, x^(d+2) is one.
        [1, 0].iter().chain(s.iter().rev()).chain(&[0]).fold(0, horner)
    }

    /// The number of points for which a change is accepted, with the best difference to the tag.
    fn accepted(s: &[u8], new: &[u8], moved: u8) -> u8 {
        let mut by_difference = [0; Q as usize];
        for x in 0..Q {
            by_difference[usize::from(tag(x ^ moved, new) ^ tag(x, s))] += 1;
        }
        by_difference.into_iter().max().unwrap()
    }

    fn messages(d: u32) -> impl Iterator<Item = Vec<u8>> {
        let block = |number: u32, i: u32| u8::try_from(number >> (4 * i) & 0xF).unwrap();
        (0..1u32 << (4 * d)).map(move |number| (0..d).map(|i| block(number, i)).collect())
    }

    /// The largest number of points for which any change is accepted: all messages, changed into
    /// each of `news`, with all differences to the point and the tag. Changes of the tag alone are
    /// never accepted and are left out.
    fn worst(d: u32, news: &[Vec<u8>]) -> u8 {
        let of = |s: Vec<u8>| {
            let changes = news.iter().flat_map(|new| (0..Q).map(move |moved| (new, moved)));
            let real = changes.filter(|&(new, moved)| *new != s || moved != 0);
            real.map(|(new, moved)| accepted(&s, new, moved)).max()
        };
        messages(d).filter_map(of).max().unwrap()
    }

    #[test]
    fn the_bound_holds_for_odd_d() {
        let all: Vec<Vec<u8>> = messages(1).collect();
        assert!(worst(1, &all) <= 2);
        // For a given change of the point, the polynomial of the check takes all values (except for
        // the constant, which belongs to the tag) as the message takes all values, whatever the new
        // message is. So a few new messages are as good as all.
        let few: Vec<Vec<u8>> = messages(3).step_by(1365).collect();
        assert!(worst(3, &few) <= 4);
    }

    #[test]
    fn the_bound_is_reached() {
        assert_eq!(worst(3, &[vec![0, 0, 0]]), 4);
    }

    /// Shows why the number of blocks is made odd.
    #[test]
    fn the_bound_fails_for_even_d() {
        // With two blocks, the point can be changed undetected if the message stays the same.
        assert_eq!(accepted(&[3, 9], &[3, 9], 5), Q);
        assert!(messages(2).all(|s| messages(2).all(|new| s == new || accepted(&s, &new, 5) <= 3)));
        // With four blocks, the message changes, and is accepted for every point.
        let new = vec![1, 2, 3, 4];
        let forged = |s: &Vec<u8>| *s != new && (1..4).any(|moved| accepted(s, &new, moved) == Q);
        assert_eq!(messages(4).filter(forged).count(), 3, "one for each");
    }
}
