//! A handover that is cancelled leaves nothing secret in memory.

#[expect(unreachable_pub, reason = "a part of the demonstration, where it is public")]
#[path = "../../../../cli/demo/src/sign/memory_scan.rs"]
mod memory_scan;

use handover::scheme::HandoverScheme as _;
use handover::{HandoverAgreement, HandoverDealer, HandoverReceiver, HandoverTerms, ParticipantId};
use num_bigint::BigInt;
use random::{RandomGenerator, wipe_stack};
use rsa_arithmetic::SecretInteger;
use rsa_arithmetic::fixture::tiny_key;
use zeroize::Zeroizing;

use self::memory_scan::SoughtSecrets;
use super::attacks::Attack;
use super::epochs::first_group;
use super::{id, integer, size};
use crate::ThresholdRsaScheme;
use crate::lagrange::{from_bytes, weights};

/// A run that is cancelled leaves the old shares as they are. The rows of f'+1 receivers, or the
/// seed of a dealer, and the correction in the log would reveal the dealer's share for ever.
#[test]
fn rows_of_a_cancelled_run_would_reveal_the_old_shares() {
    let mut attack = Attack::new();
    let dealing = attack.right_dealing(2);
    attack.deal(2, &dealing).unwrap();
    let key = attack.sharing().key().clone();
    let servers = [id(1), id(3)];
    let constants = servers.map(|server| {
        attack.wanted(server.number());
        let saved = attack.receivers[&server].to_bytes();
        // After the seed, the number of rows and the dealer.
        let bits = key.held_row_bits(size(1));
        let len = SecretInteger::encoded_len(bits);
        from_bytes(bits, &saved[37..37 + len]).unwrap()
    });
    let weights = weights(key.scale(), &servers);
    let scaled: BigInt = weights.iter().zip(&constants).map(|(weight, it)| weight * it).sum();
    let bits = key.correction_bits(size(1));
    let correction = from_bytes(bits, &dealing.sharing.correction).unwrap();
    // L c_i - z_i = F(i, 0)
    assert_eq!(scaled - correction, integer(&attack.old.shares[&id(2)]), "the attack");
}

/// Receiver 1 sends receiver 4 their common value of the first dealing. Returns what it was. The
/// stack of this function is overwritten.
#[inline(never)]
fn pass_value(
    log: &HandoverAgreement<ThresholdRsaScheme>,
    receivers: &mut [(ParticipantId, HandoverReceiver<ThresholdRsaScheme>)],
) -> Zeroizing<Vec<u8>> {
    let value = receivers[0].1.common_value(id(1), id(4)).unwrap();
    receivers[3].1.handle_value(log, id(1), id(1), &value);
    Zeroizing::new(value.to_vec())
}

#[test]
fn a_cancelled_run_is_wiped_from_memory() {
    let mut generator = RandomGenerator::system();
    // On the heap from the beginning: an array that is moved leaves copies on the stack.
    let mut seed = || {
        let mut seed = Zeroizing::new(vec![0; 32]);
        generator.fill(&mut seed).unwrap();
        seed
    };
    let old = first_group(&tiny_key(), 1, 1);
    let terms = HandoverTerms::<ThresholdRsaScheme> {
        run: *seed().first_chunk().unwrap(),
        old: Some(old.sharing().clone()),
        new: size(1),
    };
    let mut log = HandoverAgreement::new(terms.clone());
    let (mut dealers, mut receivers) = (Vec::new(), Vec::new());
    let mut secrets: Vec<Zeroizing<Vec<u8>>> = Vec::new();
    for (server, share) in old.shares.iter().take(2) {
        let seed = seed();
        let seed = seed.first_chunk().unwrap();
        let polynomial = ThresholdRsaScheme::polynomial(&terms, *server, Some(share), seed);
        secrets.extend(
            polynomial.unwrap().polynomial.coefficients.iter().map(SecretInteger::to_be_bytes),
        );
        dealers.push((*server, HandoverDealer::new(&terms, *server, Some(share), seed).unwrap()));
    }
    for server in terms.new.participants() {
        let seed = seed();
        let seed = seed.first_chunk().unwrap();
        receivers.push((server, HandoverReceiver::new(&terms, server, seed).unwrap()));
    }
    // Until the shares are computed, and one server has part of what it repairs.
    for _ in 0..3 {
        let mut entries = Vec::new();
        for (server, dealer) in &dealers {
            entries.extend(dealer.wanted_entry(&log).map(|entry| (*server, entry)));
        }
        for (server, receiver) in receivers.iter_mut().take(3) {
            receiver.handle_log(&log);
            entries.extend(receiver.wanted_entries(&log).into_iter().map(|it| (*server, it)));
        }
        for (author, entry) in entries {
            log.apply(author, &entry).unwrap();
        }
    }
    secrets.push(pass_value(&log, &mut receivers));
    receivers[0].1.handle_log(&log);
    assert!(receivers[0].1.share().is_some() && !log.is_final());
    secrets.push(receivers[0].1.share().unwrap().to_bytes());
    secrets.extend(receivers.iter().map(|(_, it)| it.to_bytes()));

    let sought = SoughtSecrets::of(secrets.iter().map(|it| &**it));
    drop(secrets);
    let before = sought.search("self").unwrap();
    assert_eq!(before.found.len(), before.sought, "all are in memory: {:?}", before.found);
    drop((dealers, receivers));
    wipe_stack();
    let after = sought.search("self").unwrap();
    assert!(after.found.is_empty() && after.bytes > 1 << 20, "{:?}", after.found);
}
