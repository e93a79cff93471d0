//! How long a signature of 2048 bits takes a server and the requester.
//!
//! `cargo bench -p sunder-quorum --bench signing` prints ms, the median of many runs on one core.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keys::SecretKey;
use keys::rsa::Encoding;
use sharing::Generator;
use sunder_quorum::signing::{
    Answer, Event, Health, Output, Query, Request, Shares, Signers, SigningGroup,
};
use sunder_quorum::{Combination, DealerKey, ServerIndex, ShareRange};

const MODULUS_BITS: u32 = 2048;
const MESSAGE: &[u8] = b"addresses: 192.0.2.1";

fn main() {
    let mut generator = Generator::seeded().expect("random bytes");
    let key = DealerKey::generate(MODULUS_BITS, &mut generator).expect("a key");
    println!("ms for a signature of {MODULUS_BITS} bits by servers of which f may be faulty");
    println!("{:>2} {:>10} {:>10} {:>10} {:>10}", "f", "shares", "quick", "full", "requester");
    for faulty in 1..=4 {
        let combination = Combination::new(faulty).expect("small");
        let range = ShareRange::new(MODULUS_BITS);
        let split = key.split(&range, &combination, &mut generator).expect("random bytes");
        let identities: Vec<SecretKey> =
            combination.servers().map(|server| SecretKey::new(&[server.0; 32])).collect();
        let group = Arc::new(SigningGroup {
            epoch: 0,
            key: key.group().clone(),
            combination,
            identities: identities.iter().map(SecretKey::public).collect(),
        });
        let shares = |server| {
            let labels = group.combination.labels_of(server);
            let shares = labels.map(|label| (label, split.share(label))).collect();
            Shares::new(group.clone(), server, range, shares).expect("it has all")
        };
        let signers = group.combination.servers().take(group.combination.signer_count());
        let signers: Vec<ServerIndex> = signers.collect();
        let query = |signers| Query {
            epoch: 0,
            signers,
            encoding: Encoding::Pkcs1,
            message: MESSAGE.to_vec(),
        };
        let quick = query(Signers::new(&group.combination, signers.iter().copied()));
        let answer = |server: ServerIndex, query: &Query| {
            let identity = &identities[usize::from(server.0)];
            shares(server).answer(query, identity).expect("it can sign")
        };
        let answers: Vec<(ServerIndex, Vec<u8>)> =
            signers.iter().map(|&it| (it, answer(it, &quick).to_bytes(&group))).collect();
        let first = shares(signers[0]);
        let measure_answer = |query: &Query, runs| {
            let identity = &identities[usize::from(signers[0].0)];
            median(runs, || {
                drop(black_box::<Answer>(first.answer(query, identity).expect("signs")));
            })
        };
        println!(
            "{faulty:>2} {:>10} {:>10.2} {:>10.1} {:>10.2}",
            group.combination.labels_of(signers[0]).count(),
            measure_answer(&quick, 101),
            measure_answer(&query(None), 5),
            median(101, || request(&group, &answers)),
        );
    }
}

/// The requester's work: it multiplies the answers and verifies the product.
fn request(group: &Arc<SigningGroup>, answers: &[(ServerIndex, Vec<u8>)]) {
    let health = Health::new(&group.combination);
    let (message, timeout) = (MESSAGE.to_vec(), Duration::from_secs(1));
    let now = Duration::ZERO;
    let mut request = Request::new(group.clone(), message, Encoding::Pkcs1, &health, now, timeout)
        .expect("short");
    for (server, answer) in answers {
        request.handle_answer(now, *server, answer);
    }
    let mut outputs = std::iter::from_fn(|| request.poll_output());
    assert!(outputs.any(|it| matches!(it, Output::Event(Event::Signed(_)))));
}

/// The median time of a run, in ms.
fn median(runs: usize, mut run: impl FnMut()) -> f64 {
    let mut times: Vec<Duration> = (0..runs)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed()
        })
        .collect();
    times.sort();
    times[runs / 2].as_secs_f64() * 1e3
}
