//! The processor time of a signature at a server and the requester, and the time of a whole
//! request.
//!
//! `cargo bench -p sunder-quorum --bench signing` prints ms of processor time. The time of a whole
//! request is virtual: each server has its own processor, and links have no delay.

use std::hint::black_box;
use std::time::Duration;

use keys::rsa::RsaEncoding;
use random::RandomGenerator;
use sunder_quorum::in_process::{GroupKeyParameters, SigningServers, measured};
use sunder_quorum::signing::{
    PartialSignQuery, QuickSigners, SignRequest, SignRequestEvent, SignRequestOutput, SignerHealth,
};
use sunder_quorum::{CombinatorialSharing, DealerKey, ServerIndex, ShareRange};

const MODULUS_BITS: u32 = 2048;
const MESSAGE: &[u8] = b"addresses: 192.0.2.1";

/// The number of measured requests.
const SIGNATURES: usize = 300;

fn main() {
    let mut generator = RandomGenerator::seeded().expect("random bytes");
    let key = DealerKey::generate(MODULUS_BITS, &mut generator).expect("a key");
    let setting = GroupKeyParameters::new(key.group(), ShareRange::new(MODULUS_BITS));
    println!("ms for a signature of {MODULUS_BITS} bits by servers of which f may be faulty:");
    println!("medians of one server's answer and of the requester's work, and the whole time");
    println!(
        "{:>2} {:>7} {:>7} {:>7} {:>10} | {:>7} {:>7} | {:>11} {:>7}",
        "f", "shares", "quick", "full", "requester", "p50", "p99", "1 silent: p50", "p99",
    );
    for faulty in 1..=4 {
        let combination = CombinatorialSharing::new(faulty).expect("small");
        let group = setting.deal(&key, &combination, &mut generator).expect("random bytes");
        let servers = group.signing_servers(&setting);
        let signers = combination.servers().take(combination.signer_count());
        let signers: Vec<ServerIndex> = signers.collect();
        let quick = query(&servers, QuickSigners::new(&combination, signers.iter().copied()));
        let full = query(&servers, None);
        let answer = |server, query| servers.answer(server, query).expect("it can sign");
        let answers: Vec<_> = signers.iter().map(|&it| (it, answer(it, &quick))).collect();
        let (usual, silent) = whole(&servers, &combination);
        println!(
            "{faulty:>2} {:>7} {:>7.2} {:>7.1} {:>10.2} | {:>7.2} {:>7.2} | {:>13.1} {:>7.1}",
            combination.labels_of(signers[0]).count(),
            median(101, || drop(black_box(answer(signers[0], &quick)))),
            median(5, || drop(black_box(answer(signers[0], &full)))),
            median(101, || request(&servers, &answers)),
            at(&usual, 50),
            at(&usual, 99),
            at(&silent, 50),
            at(&silent, 99),
        );
    }
}

fn query(servers: &SigningServers, signers: Option<QuickSigners>) -> PartialSignQuery {
    let (epoch, message) = (servers.group().epoch, MESSAGE.to_vec());
    PartialSignQuery { epoch, signers, encoding: RsaEncoding::Pkcs1, message: message.into() }
}

/// The requester's work: it multiplies the answers and verifies the product.
fn request(servers: &SigningServers, answers: &[(ServerIndex, Vec<u8>)]) {
    let group = servers.group().clone();
    let health = SignerHealth::new(&group.combination);
    let (message, timeout) = (MESSAGE.to_vec(), Duration::from_secs(1));
    let now = Duration::ZERO;
    let mut request =
        SignRequest::new(group, message, RsaEncoding::Pkcs1, &health, now, timeout).expect("short");
    for (server, answer) in answers {
        request.handle_answer(now, *server, answer);
    }
    let mut outputs = std::iter::from_fn(|| request.poll_output());
    assert!(outputs.any(|it| matches!(it, SignRequestOutput::Event(SignRequestEvent::Signed(_)))));
}

/// The times from a request to its signature: first if all servers answer, then if one of the
/// chosen servers, which answered before, does not.
fn whole(servers: &SigningServers, group: &CombinatorialSharing) -> (Vec<f64>, Vec<f64>) {
    let mut health = SignerHealth::new(group);
    let sign = |health: &mut SignerHealth, silent: &[ServerIndex]| {
        let signed =
            servers.sign(MESSAGE, RsaEncoding::Pkcs1, health, silent).expect("it can sign");
        assert!(signed.signature.is_some() && !signed.is_full);
        signed.took.as_secs_f64() * 1e3
    };
    let usual = (0..SIGNATURES).map(|_| sign(&mut health, &[])).collect();
    let silent = (0..SIGNATURES).map(|_| {
        let chosen = health.ranking(Duration::ZERO)[0];
        sign(&mut health.clone(), &[chosen])
    });
    (usual, silent.collect())
}

/// A percentile.
fn at(times: &[f64], percent: usize) -> f64 {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times[(times.len() - 1) * percent / 100]
}

/// The median processor time of a run, in ms.
fn median(runs: usize, mut run: impl FnMut()) -> f64 {
    let times: Vec<f64> = (0..runs).map(|_| measured(&mut run).1.as_secs_f64() * 1e3).collect();
    at(&times, 50)
}
