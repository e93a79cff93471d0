//! Dealers whose rows are as long as permitted, and longer.

use handover::entry::HandoverEntryBody;
use handover::participant::{GroupSize, ParticipantId};
use num_bigint::BigInt;
use rsa_arithmetic::SecretInteger;
use zeroize::Zeroizing;

use super::attacks::{Attack, set};
use super::{RsaGroup, id, reconstruct, size};
use crate::key::ThresholdRsaKey;
use crate::lagrange::{from_bytes, of_width, to_bytes};
use crate::scheme::IntegerDealing;
use crate::sharing::{place, value_bits};

/// More than any integer of these tests needs.
const EXTRA_BITS: u32 = 64;

fn value(integer: &SecretInteger) -> BigInt {
    BigInt::from_signed_bytes_be(&integer.to_be_bytes())
}

/// A row of any size.
fn row(key: &ThresholdRsaKey, dealing: &IntegerDealing, server: ParticipantId) -> Vec<BigInt> {
    let polynomial = &dealing.polynomial;
    let row = polynomial.row(server, key.held_row_bits(polynomial.size) + 2 * EXTRA_BITS);
    row.coefficients().iter().map(value).collect()
}

/// A dealer's encoding of a row, or zeros in place of a row that is too long for it.
pub(super) fn encode_row(
    key: &ThresholdRsaKey,
    dealing: &IntegerDealing,
    receiver: ParticipantId,
) -> Zeroizing<Vec<u8>> {
    let bits = key.dealt_row_bits(dealing.polynomial.size);
    let row = row(key, dealing, receiver);
    let encoded: Option<Vec<_>> = row.iter().map(|it| to_bytes(bits, it)).collect();
    let zeros = || vec![vec![0; SecretInteger::encoded_len(bits)]; row.len()];
    Zeroizing::new(encoded.unwrap_or_else(zeros).concat())
}

/// Adds `by` (u - k) (v - k) to the polynomial of a dealer of a group of size `old`, and changes
/// its correction. The row of server k stays the same. The row of j gains `by` (j - k) (v - k).
pub(super) fn stretch(
    key: &ThresholdRsaKey,
    old: GroupSize,
    dealing: &mut IntegerDealing,
    k: ParticipantId,
    by: &BigInt,
) {
    let size = dealing.polynomial.size;
    let bits = key.held_row_bits(size) + EXTRA_BITS;
    let at = BigInt::from(k.number());
    for (a, b, factor) in [(0, 0, &at * &at), (0, 1, -at), (1, 1, BigInt::from(1))] {
        let coefficient = &mut dealing.polynomial.coefficients[place(size, a, b)];
        let term = of_width(bits, &(by * factor)).expect("a short stretch");
        *coefficient = SecretInteger::sum(bits, [&*coefficient, &term]);
    }
    let bits = key.correction_bits(old);
    let number = BigInt::from(k.number());
    let more = BigInt::from(key.scale().clone()) * by * &number * number;
    let correction = from_bytes(bits, &dealing.correction).expect("its own") + more;
    dealing.correction = to_bytes(bits, &correction).expect("a short stretch");
}

/// A handover in which dealer 2 and receiver 4 are faulty.
///
/// The dealing of dealer 2 gives server 1 a short row, and no ciphertext to server 2. The longest
/// coefficient of the row of server 2, which it repairs, is exactly `longest`. The row of server 3
/// is longer, and its ciphertext is wrong. It reads the log later than the others.
struct StretchedDealing {
    attack: Attack,
    dealing: IntegerDealing,
}

impl StretchedDealing {
    fn new(longest: &BigInt) -> Self {
        let mut attack = Attack::new();
        let key = attack.sharing().key().clone();
        let mut dealing = attack.polynomial(2);
        let by = longest - &row(&key, &dealing, id(2))[1];
        stretch(&key, size(1), &mut dealing, id(1), &by);
        let second = row(&key, &dealing, id(2));
        assert!(second[1] == *longest && second[0] < *longest && -&second[0] < *longest);
        let right = attack.right_dealing(1);
        assert_eq!(attack.deal(1, &right), Ok(handover::HandoverEffect::Counted));
        let receivers = [1, 3, 4].into_iter().map(id);
        let wrong = attack.dealing_to(2, &dealing, receivers);
        assert_eq!(attack.deal(2, &wrong), Ok(handover::HandoverEffect::Counted));
        Self { attack, dealing }
    }

    /// The faulty receiver's common value with another: right, of any size.
    fn faulty_value(&self, other: ParticipantId) -> Vec<u8> {
        let key = self.attack.sharing().key();
        let row = row(key, &self.dealing, id(4));
        let value = &row[0] + &row[1] * other.number();
        let bits = value_bits(size(1), key.held_row_bits(size(1)));
        to_bytes(bits, &value).unwrap_or_default()
    }

    /// A correct receiver reads the log, asks the others, and its entries are committed.
    fn act(&mut self, receiver: u8) {
        let attack = &mut self.attack;
        attack.wanted(receiver);
        let wanted = attack.receivers[&id(receiver)].wanted_values(&attack.log);
        for (dealer, holders) in wanted {
            for holder in holders.iter() {
                let value = if holder == id(4) {
                    Some(Zeroizing::new(self.faulty_value(id(receiver))))
                } else {
                    self.attack.receivers[&holder].common_value(dealer, id(receiver))
                };
                let Attack { receivers, log, .. } = &mut self.attack;
                let Some(value) = value else { continue };
                receivers.get_mut(&id(receiver)).unwrap().handle_value(log, holder, dealer, &value);
            }
        }
        for entry in self.attack.wanted(receiver) {
            let _repeated = self.attack.log.apply(id(receiver), &entry);
        }
    }

    /// All but server 3 act, and the faulty receiver says that it holds all.
    fn begin(&mut self) {
        self.act(1);
        self.attack.apply(4, HandoverEntryBody::Hold(set(&[1, 2]))).unwrap();
        self.act(2);
        assert_eq!(self.attack.receivers[&id(2)].held(), set(&[1, 2]), "it has repaired its row");
    }

    /// The three correct receivers act until nothing changes.
    fn end(&mut self) {
        for server in [3, 1, 2, 3, 1, 2, 3] {
            self.act(server);
        }
    }

    /// All correct servers have shares of the same key.
    fn assert_final(self) {
        assert!(self.attack.log.is_final());
        let shares =
            self.attack.receivers.into_values().filter_map(handover::HandoverReceiver::into_share);
        let group = RsaGroup::new(shares);
        assert_eq!(group.shares.len(), 3);
        let secret = reconstruct(self.attack.old.shares.values());
        assert_eq!(reconstruct(group.shares.values()), secret);
        assert_eq!(reconstruct(group.shares.values().skip(1)), secret);
    }
}

fn power_of_2(bits: u32) -> BigInt {
    BigInt::from(1) << bits
}

/// If server 2 said that it holds a row that is longer than a dealer may send, server 3 could never
/// repair its row, and too few servers could confirm.
#[test]
fn a_receiver_does_not_hold_a_long_row_that_it_repaired() {
    let key = Attack::new().sharing().key().clone();
    let (dealt, held) = (key.dealt_row_bits(size(1)), key.held_row_bits(size(1)));
    let mut stuck = StretchedDealing::new(&(power_of_2(held) - 1));
    stuck.begin();
    stuck.attack.apply(2, HandoverEntryBody::Hold(set(&[2]))).unwrap();
    assert_eq!(stuck.attack.log.chosen(), set(&[1, 2]), "the attack");
    stuck.end();
    assert!(!stuck.attack.log.is_final(), "the attack");
    assert_eq!(stuck.attack.receivers[&id(3)].held(), set(&[1]), "the attack");

    for longest in [power_of_2(dealt), power_of_2(held) - 1] {
        let mut world = StretchedDealing::new(&longest);
        world.begin();
        assert_eq!(world.attack.log.holders(id(1)), set(&[1, 2, 4]));
        assert_eq!(world.attack.log.holders(id(2)), set(&[1, 4]));
        // Server 3 shows that its ciphertext is wrong, and another dealer deals.
        world.act(3);
        assert_eq!(world.attack.log.faulty_dealers(), set(&[2]));
        let right = world.attack.right_dealing(3);
        assert_eq!(world.attack.deal(3, &right), Ok(handover::HandoverEffect::Counted));
        world.end();
        assert_eq!(world.attack.log.chosen(), set(&[1, 3]));
        assert!(world.attack.log.faulty_receivers().is_empty());
        world.assert_final();
    }
}

/// The longest rows that a server may say it has leave those of all others in their range.
#[test]
fn rows_of_the_longest_permitted_length_let_others_repair_theirs() {
    let key = Attack::new().sharing().key().clone();
    let longest = power_of_2(key.dealt_row_bits(size(1))) - 1;
    let mut world = StretchedDealing::new(&longest);
    world.begin();
    assert_eq!(world.attack.log.chosen(), set(&[1, 2]), "it is held");
    let third = row(&key, &world.dealing, id(3));
    assert!(third[1] > longest, "longer than a dealer may send");
    world.end();
    assert_eq!(world.attack.receivers[&id(3)].held(), set(&[1, 2]));
    world.assert_final();
}

/// A receiver that starts again comes to the same result: what its store has says whether it may.
#[test]
fn a_long_row_is_not_held_after_a_restart() {
    let key = Attack::new().sharing().key().clone();
    let mut world = StretchedDealing::new(&power_of_2(key.dealt_row_bits(size(1))));
    world.begin();
    let Attack { receivers, log, .. } = &mut world.attack;
    assert_eq!(log.holders(id(2)), set(&[1, 4]));
    let saved = receivers[&id(2)].to_bytes();
    let again = handover::HandoverReceiver::from_bytes(log.terms(), id(2), &saved).unwrap();
    assert_eq!(again.held(), set(&[1, 2]));
    assert_eq!(again.wanted_entries(log), []);
}
