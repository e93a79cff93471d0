//! A handover that is cancelled leaves nothing secret in memory.

#[expect(unreachable_pub, reason = "a part of the demonstration, where it is public")]
#[path = "../../../../cli/demo/src/sign/memory_scan.rs"]
mod memory_scan;

use ::handover::element::hash_to_scalar;
use ::handover::scheme::HandoverScheme as _;
use ::handover::{
    HandoverAgreement, HandoverDealer, HandoverReceiver, HandoverTerms, ParticipantId,
};
use random::{RandomGenerator, wipe_stack};
use zeroize::Zeroizing;

use self::memory_scan::SoughtSecrets;
use super::{id, size};
use crate::SchnorrScheme;

type Secrets = Vec<Zeroizing<Vec<u8>>>;

/// A seed on the heap, so that no copy remains where it is moved.
fn random_seed(generator: &mut RandomGenerator) -> Zeroizing<Vec<u8>> {
    let mut seed = Zeroizing::new(vec![0; 32]);
    generator.fill(&mut seed).unwrap();
    seed
}

/// The secret of a session key: `e_i` of a dealer, `r_j` of a receiver.
fn session_secret(seed: &[u8; 32], purpose: &[u8]) -> Zeroizing<Vec<u8>> {
    let secret = hash_to_scalar(&[b"sunder-schnorr session secret v1\0", seed, purpose]);
    Zeroizing::new(Zeroizing::new(secret).as_bytes().to_vec())
}

/// A dealer, and its seed as a driver keeps it. Adds what is secret of it. The stack of this
/// function is overwritten.
#[inline(never)]
fn new_dealer(
    terms: &HandoverTerms<SchnorrScheme>,
    server: ParticipantId,
    generator: &mut RandomGenerator,
    secrets: &mut Secrets,
) -> (HandoverDealer<SchnorrScheme>, Zeroizing<Vec<u8>>) {
    let saved = random_seed(generator);
    let seed = saved.first_chunk().unwrap();
    let polynomial = SchnorrScheme::polynomial(terms, server, None, seed).unwrap();
    let coefficients = polynomial.coefficients.iter();
    secrets.extend(coefficients.map(|it| Zeroizing::new(it.as_bytes().to_vec())));
    secrets.extend([session_secret(seed, b"dealer"), saved.clone()]);
    (HandoverDealer::new(terms, server, None, seed).unwrap(), saved)
}

/// A receiver. Adds the secret of its session key. Its state has its other secrets. The stack of
/// this function is overwritten.
#[inline(never)]
fn new_receiver(
    terms: &HandoverTerms<SchnorrScheme>,
    server: ParticipantId,
    generator: &mut RandomGenerator,
    secrets: &mut Secrets,
) -> HandoverReceiver<SchnorrScheme> {
    let seed = random_seed(generator);
    let seed = seed.first_chunk().unwrap();
    secrets.push(session_secret(seed, b"receiver"));
    HandoverReceiver::new(terms, server, seed).unwrap()
}

/// Receiver 1 sends receiver 4 their common value of the first dealing. Returns what it was. The
/// stack of this function is overwritten.
#[inline(never)]
fn pass_value(
    log: &HandoverAgreement<SchnorrScheme>,
    receivers: &mut [(ParticipantId, HandoverReceiver<SchnorrScheme>)],
) -> Zeroizing<Vec<u8>> {
    let value = receivers[0].1.common_value(id(1), id(4)).unwrap();
    receivers[3].1.handle_value(log, id(1), id(1), &value);
    Zeroizing::new(value.to_vec())
}

#[test]
fn a_cancelled_run_is_wiped_from_memory() {
    let mut generator = RandomGenerator::system();
    let run = generator.array().unwrap();
    let terms = HandoverTerms::<SchnorrScheme> { run, old: None, new: size(1) };
    let mut log = HandoverAgreement::new(terms.clone());
    let (mut dealers, mut receivers) = (Vec::new(), Vec::new());
    let mut secrets = Secrets::new();
    for server in terms.new.participants() {
        dealers.push((server, new_dealer(&terms, server, &mut generator, &mut secrets)));
        receivers.push((server, new_receiver(&terms, server, &mut generator, &mut secrets)));
    }
    // Until the shares are computed, and one server has part of what it repairs.
    for _ in 0..3 {
        let mut entries = Vec::new();
        for (server, (dealer, _)) in dealers.iter().take(2) {
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
