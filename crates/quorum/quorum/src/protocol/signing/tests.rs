//! Whole groups in memory.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;
use keys::rsa::RsaEncoding;
use proptest::prelude::*;
use random::RandomGenerator;
use rsa_arithmetic::dealer::DealerKey;
use rsa_arithmetic::fixture::{large_key, short_key, small_key};
use rsa_arithmetic::modulus::RsaElement;

use super::*;
use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};
use crate::protocol::share::ShareRange;

const MESSAGE: &[u8] = b"a message";
const PSS: RsaEncoding = RsaEncoding::Pss { salt: [9; 32] };

struct Server {
    shares: SigningShares,
    identity: IdentitySecretKey,
}

/// A group with all its servers.
struct World {
    group: Arc<SigningGroup>,
    servers: Vec<Server>,
}

impl World {
    fn new(key: &DealerKey, faulty: u8) -> Self {
        let mut generator = RandomGenerator::seeded().unwrap();
        let combination = CombinatorialSharing::new(faulty).unwrap();
        let range = ShareRange::new(key.group().modulus().bits());
        let split = range.split(key.private_exponent(), &combination, &mut generator).unwrap();
        let identities: Vec<IdentitySecretKey> =
            combination.servers().map(|it| IdentitySecretKey::new(&[it.0; 32])).collect();
        let group = Arc::new(SigningGroup {
            epoch: 3,
            key: key.group().clone(),
            combination,
            identities: identities.iter().map(IdentitySecretKey::public).collect(),
        });
        let server = |(index, identity)| {
            let shares = group.combination.labels_of(index);
            let shares = shares.map(|label| (label, split.share(label))).collect();
            let shares = SigningShares::new(group.clone(), index, range, shares).unwrap();
            Server { shares, identity }
        };
        let servers = group.combination.servers().zip(identities).map(server).collect();
        Self { group, servers }
    }

    fn answer(&self, server: ServerIndex, query: &PartialSignQuery) -> PartialSignatures {
        let server = &self.servers[usize::from(server.0)];
        server.shares.answer(query, &server.identity).unwrap()
    }

    /// The answer of a server that changes the values before it signs them.
    fn wrong_answer(
        &self,
        server: ServerIndex,
        query: &PartialSignQuery,
        change: impl Fn(Label, RsaElement) -> RsaElement,
    ) -> PartialSignatures {
        let PartialSignatures { values, .. } = self.answer(server, query);
        let labels =
            PartialSignatures::labels(&self.answer(server, query), &self.group.combination);
        let values = labels.into_iter().zip(values).map(|(label, it)| change(label, it)).collect();
        let identity = &self.servers[usize::from(server.0)].identity;
        PartialSignatures::new(&self.group, server, query, values, identity).unwrap()
    }

    fn request(&self, encoding: RsaEncoding, health: &SignerHealth) -> SignRequest {
        let (group, message) = (self.group.clone(), MESSAGE.to_vec());
        let timeout = Duration::from_secs(10);
        SignRequest::new(group, message, encoding, health, Duration::ZERO, timeout).unwrap()
    }

    fn health(&self) -> SignerHealth {
        SignerHealth::new(&self.group.combination)
    }

    /// Drives a request until it is finished. A server answers at once or never. Returns the events
    /// of the request, and the number of requests that it sent.
    fn run(
        &self,
        request: &mut SignRequest,
        answer: impl Fn(ServerIndex, &PartialSignQuery) -> Option<PartialSignatures>,
    ) -> (Vec<SignRequestEvent>, usize) {
        let (mut events, mut sent, mut now) = (Vec::new(), 0, Duration::ZERO);
        loop {
            while let Some(output) = request.poll_output() {
                match output {
                    SignRequestOutput::Event(event) => events.push(event),
                    SignRequestOutput::Send { to, query } => {
                        sent += 1;
                        let query =
                            PartialSignQuery::parse(&self.group, &query.to_bytes()).unwrap();
                        if let Some(answer) = answer(to, &query) {
                            request.handle_answer(now, to, &answer.to_bytes(&self.group));
                        }
                    }
                }
            }
            let Some(at) = request.poll_timeout() else { return (events, sent) };
            now = at;
            request.handle_timeout(now);
        }
    }

    /// Checks that a signature was made, and returns it with the servers that are accused.
    fn signed(&self, events: &[SignRequestEvent]) -> (Vec<u8>, Vec<ServerIndex>) {
        let signatures = events.iter().filter_map(|event| match event {
            SignRequestEvent::Signed(signature) => Some(signature.clone()),
            _ => None,
        });
        let signatures: Vec<_> = signatures.collect();
        assert_eq!(signatures.len(), 1, "{events:?}");
        let (key, signature) = (self.group.key.public(), &signatures[0]);
        let is_sha512 = || key.verify_encoding(&RsaEncoding::Pkcs1Sha512, MESSAGE, signature);
        assert!(key.verify(MESSAGE, signature) || is_sha512());
        (signatures[0].clone(), self.accused(events))
    }

    /// The servers that are accused, with evidence that a third party accepts.
    fn accused(&self, events: &[SignRequestEvent]) -> Vec<ServerIndex> {
        let accused = events.iter().filter_map(|event| match event {
            SignRequestEvent::Faulty { server, evidence } => {
                let evidence = WrongAnswerEvidence::parse(&evidence.to_bytes()).unwrap();
                assert_eq!(evidence.verify(&self.group), Some(*server));
                Some(*server)
            }
            _ => None,
        });
        let mut accused: Vec<_> = accused.collect();
        accused.sort();
        accused
    }
}

/// Every set of `count` servers.
fn choices(group: &CombinatorialSharing, count: usize) -> Vec<Vec<ServerIndex>> {
    (0_u16..1 << group.server_count())
        .filter(|bits| bits.count_ones() as usize == count)
        .map(|bits| group.servers().filter(|server| bits >> server.0 & 1 == 1).collect())
        .collect()
}

/// Checks a signature with `openssl`.
fn openssl_accepts(world: &World, encoding: RsaEncoding, signature: &[u8]) {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        fs::write(place.path().join(name), bytes).unwrap();
    };
    write("public", world.group.key.public().to_pem().as_bytes());
    write("message", MESSAGE);
    write("signature", signature);
    let options: &[&str] = match encoding {
        RsaEncoding::Pkcs1 => &["-sha256"],
        RsaEncoding::Pkcs1Sha512 => &["-sha512"],
        RsaEncoding::Pss { .. } => {
            &["-sha256", "-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:32"]
        }
    };
    let output = Command::new("openssl")
        .args(["dgst", "-verify", "public", "-signature", "signature"])
        .args(options)
        .arg("message")
        .current_dir(place.path())
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "Verified OK\n", "{output:?}");
}

/// A message of 1 MiB is not copied for each server that is asked.
#[test]
fn queries_of_a_request_share_its_message() {
    let world = World::new(&short_key(), 1);
    let mut request = world.request(RsaEncoding::Pkcs1, &world.health());
    let mut messages = Vec::new();
    loop {
        while let Some(output) = request.poll_output() {
            if let SignRequestOutput::Send { query, .. } = output {
                messages.push(query.message);
            }
        }
        let Some(at) = request.poll_timeout() else { break };
        request.handle_timeout(at);
    }
    assert!(messages.len() >= 4, "{}", messages.len());
    assert!(messages.iter().all(|it| it.as_ptr() == messages[0].as_ptr()));
}

#[test]
fn every_f_plus_1_servers_sign_and_openssl_verifies() {
    let groups = [
        (small_key(), 1, PSS),
        (small_key(), 1, RsaEncoding::Pkcs1Sha512),
        (large_key(), 1, RsaEncoding::Pkcs1),
        (small_key(), 2, RsaEncoding::Pkcs1),
    ];
    for (key, faulty, encoding) in groups {
        let world = World::new(&key, faulty);
        let group = &world.group.combination;
        for signers in choices(group, group.signer_count()) {
            let signers = QuickSigners::new(group, signers).unwrap();
            let query = |encoding| PartialSignQuery {
                epoch: 3,
                signers: Some(signers),
                encoding,
                message: MESSAGE.to_vec().into(),
            };
            let servers = signers.servers().into_iter();
            let answers = servers.map(|server| world.answer(server, &query(encoding)));
            let values: Vec<RsaElement> = answers.flat_map(|answer| answer.values).collect();
            let signature = world.group.key.modulus().product(&values).to_be_bytes();
            assert!(world.group.key.public().verify_encoding(&encoding, MESSAGE, &signature));
            openssl_accepts(&world, encoding, &signature);
        }
    }
}

/// All choices yield the same signature, byte for byte, because PKCS #1 v1.5 has no randomness. So
/// `openssl` verifies it once. With `SUNDER_QUORUM_SOAK`, the key has 2048 bits, and `openssl`
/// verifies each.
#[test]
fn every_choice_of_many_servers_makes_one_signature_that_openssl_verifies() {
    let is_soak = std::env::var_os("SUNDER_QUORUM_SOAK").is_some();
    let key = if is_soak { large_key() } else { short_key() };
    for (faulty, choices_of_signers) in [(1, 6), (2, 35), (3, 210), (4, 1287)] {
        let world = World::new(&key, faulty);
        let group = &world.group.combination;
        let mut signatures = BTreeMap::new();
        for servers in choices(group, group.signer_count()) {
            let signers = QuickSigners::new(group, servers.iter().copied());
            let query = PartialSignQuery {
                epoch: 3,
                signers,
                encoding: RsaEncoding::Pkcs1,
                message: MESSAGE.to_vec().into(),
            };
            let answers = servers.into_iter().map(|server| world.answer(server, &query));
            let values: Vec<RsaElement> = answers.flat_map(|answer| answer.values).collect();
            let signature = world.group.key.modulus().product(&values).to_be_bytes();
            if is_soak {
                openssl_accepts(&world, RsaEncoding::Pkcs1, &signature);
            }
            *signatures.entry(signature).or_insert(0) += 1;
        }
        let (signature, count) = signatures.pop_first().unwrap();
        assert_eq!((signatures.len(), count), (0, choices_of_signers));
        assert!(world.group.key.public().verify(MESSAGE, &signature));
        openssl_accepts(&world, RsaEncoding::Pkcs1, &signature);
    }
}

#[test]
fn without_faults_f_plus_1_servers_are_asked() {
    for faulty in 1..=2 {
        let world = World::new(&small_key(), faulty);
        for encoding in [RsaEncoding::Pkcs1, RsaEncoding::Pkcs1Sha512, PSS] {
            let mut request = world.request(encoding, &world.health());
            let (events, sent) =
                world.run(&mut request, |server, query| Some(world.answer(server, query)));
            assert_eq!(sent, world.group.combination.signer_count());
            let (signature, accused) = world.signed(&events);
            assert_eq!(accused, []);
            openssl_accepts(&world, encoding, &signature);
        }
    }
}

#[test]
fn with_f_plus_1_servers_up_there_is_a_signature_and_with_f_none() {
    for faulty in 1..=2 {
        let world = World::new(&short_key(), faulty);
        let group = &world.group.combination;
        for count in [group.faulty(), group.signer_count()] {
            for up in choices(group, count) {
                let mut request = world.request(RsaEncoding::Pkcs1, &world.health());
                let (events, _) = world.run(&mut request, |server, query| {
                    up.contains(&server).then(|| world.answer(server, query))
                });
                if count == group.faulty() {
                    assert_eq!(events.last(), Some(&SignRequestEvent::Failed), "{up:?}");
                    assert!(!events.iter().any(|it| matches!(it, SignRequestEvent::Signed(_))));
                } else {
                    assert_eq!(world.signed(&events).1, [], "{up:?}");
                }
            }
        }
    }
}

#[test]
fn exactly_the_servers_with_wrong_answers_are_accused() {
    for faulty in 1..=2 {
        let world = World::new(&short_key(), faulty);
        let group = &world.group.combination;
        let modulus = world.group.key.modulus();
        let two = modulus.element(&[&[0; 63][..], &[2]].concat()).unwrap();
        for liars in choices(group, group.faulty()) {
            // They answer wrongly in the quick sign only, in the full sign only, or in both.
            for (quick, full) in [(true, false), (false, true), (true, true)] {
                let mut request = world.request(RsaEncoding::Pkcs1, &world.health());
                let lies = |server, query: &PartialSignQuery| {
                    liars.contains(&server) && if query.signers.is_some() { quick } else { full }
                };
                let (events, _) = world.run(&mut request, |server, query| {
                    let lie = |_, value: RsaElement| value.times(&two);
                    Some(if lies(server, query) {
                        world.wrong_answer(server, query, lie)
                    } else {
                        world.answer(server, query)
                    })
                });
                let (_, accused) = world.signed(&events);
                // The first f+1 servers are chosen.
                let asked = |it: &&ServerIndex| usize::from(it.0) <= group.faulty();
                let chosen: Vec<ServerIndex> = liars.iter().filter(asked).copied().collect();
                match (quick, full) {
                    (true, false) => assert_eq!(accused, chosen),
                    (false, _) => assert_eq!(accused, []),
                    (true, true) if chosen.is_empty() => assert_eq!(accused, []),
                    (true, true) => {
                        assert!(chosen.iter().all(|it| accused.contains(it)), "{accused:?}");
                        assert!(accused.iter().all(|it| liars.contains(it)), "{accused:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn wrong_answers_that_cancel_out_are_harmless() {
    // Two faulty servers multiply and divide by 2, so the product of the quick sign is right.
    let world = World::new(&short_key(), 2);
    let modulus = world.group.key.modulus();
    let two = modulus.element(&[&[0; 63][..], &[2]].concat()).unwrap();
    let mut request = world.request(RsaEncoding::Pkcs1, &world.health());
    let (events, _) = world.run(&mut request, |server, query| {
        Some(match server.0 {
            0 => world.wrong_answer(server, query, |_, it| it.times(&two)),
            1 => world.wrong_answer(server, query, |_, it| it.times(&two.inverse().unwrap())),
            _ => world.answer(server, query),
        })
    });
    assert_eq!(world.signed(&events).1, []);
}

#[test]
fn refusals_are_replaced_at_once() {
    let world = World::new(&short_key(), 1);
    let mut request = world.request(RsaEncoding::Pkcs1, &world.health());
    request.handle_refusal(Duration::ZERO, ServerIndex(0));
    let (events, _) = world
        .run(&mut request, |server, query| (server.0 > 0).then(|| world.answer(server, query)));
    assert_eq!(world.signed(&events).1, []);
    assert!(!events.iter().any(|event| matches!(event, SignRequestEvent::Silent(_))), "{events:?}");
    // If all refuse, there is no signature.
    let mut request = world.request(RsaEncoding::Pkcs1, &world.health());
    for server in world.group.combination.servers().chain(world.group.combination.servers()) {
        request.handle_refusal(Duration::ZERO, server);
    }
    let outputs = std::iter::from_fn(|| request.poll_output());
    assert_eq!(outputs.last(), Some(SignRequestOutput::Event(SignRequestEvent::Failed)));
    assert!(request.is_finished());
}

#[test]
fn a_silent_server_is_replaced_and_then_avoided() {
    let world = World::new(&short_key(), 1);
    let mut health = world.health();
    let mut request = world.request(RsaEncoding::Pkcs1, &health);
    assert_eq!(request.poll_timeout(), Some(Duration::from_secs(1)));
    let (events, sent) = world
        .run(&mut request, |server, query| (server.0 > 0).then(|| world.answer(server, query)));
    world.signed(&events);
    assert_eq!(sent, 4);
    for event in &events {
        match event {
            SignRequestEvent::Answered { server, took } => health.answered(*server, *took),
            SignRequestEvent::Silent(server) => health.silent(*server, Duration::ZERO),
            _ => {}
        }
    }
    assert_eq!(health.ranking(Duration::ZERO).last(), Some(&ServerIndex(0)));
    assert_eq!(health.hedge_delay(Duration::ZERO), Duration::from_millis(20));
    assert_eq!(health.ranking(Duration::from_secs(11)).len(), 4);
    health.faulty(ServerIndex(1));
    assert_eq!(health.ranking(Duration::ZERO), [2, 3, 0].map(ServerIndex));
}

#[test]
fn answers_that_do_not_belong_to_the_request_are_ignored() {
    let world = World::new(&short_key(), 1);
    let mut request = world.request(RsaEncoding::Pkcs1, &world.health());
    let Some(SignRequestOutput::Send { to, query }) = request.poll_output() else {
        panic!("it asks")
    };
    let right = world.answer(to, &query);
    let bytes = right.to_bytes(&world.group);
    assert_eq!(PartialSignatures::parse(&world.group, &bytes), Some(right));
    for len in 0..bytes.len() {
        assert_eq!(PartialSignatures::parse(&world.group, &bytes[..len]), None);
        let mut wrong = bytes.clone();
        wrong[len] ^= 1;
        assert_eq!(PartialSignatures::parse(&world.group, &wrong), None);
    }
    let other_message = PartialSignQuery { message: b"another".to_vec().into(), ..query.clone() };
    let other_signers = QuickSigners::new(&world.group.combination, [0, 3].map(ServerIndex));
    let others = PartialSignQuery { signers: other_signers, ..query.clone() };
    let full = PartialSignQuery { signers: None, ..query.clone() };
    while request.poll_output().is_some() {}
    for query in [other_message, others, full] {
        let answer = world.answer(to, &query).to_bytes(&world.group);
        request.handle_answer(Duration::ZERO, to, &answer);
    }
    request.handle_answer(Duration::ZERO, ServerIndex(1), &bytes);
    assert_eq!(request.poll_output(), None);
    request.handle_answer(Duration::ZERO, to, &bytes);
    assert!(request.poll_output().is_some());
}

#[test]
fn evidence_against_correct_servers_is_not_accepted() {
    let world = World::new(&short_key(), 1);
    let group = &world.group.combination;
    let full = PartialSignQuery {
        epoch: 3,
        signers: None,
        encoding: RsaEncoding::Pkcs1,
        message: MESSAGE.to_vec().into(),
    };
    let modulus = world.group.key.modulus();
    let answers: Vec<PartialSignatures> =
        group.servers().map(|it| world.answer(it, &full)).collect();
    let lie = world.wrong_answer(ServerIndex(3), &full, |_, _| modulus.one());
    let evidence = |accused: &PartialSignatures, others: &[PartialSignatures]| {
        WrongAnswerEvidence::new(&world.group, accused, others.iter()).verify(&world.group)
    };
    assert_eq!(evidence(&lie, &answers), Some(ServerIndex(3)));
    for answer in &answers {
        assert_eq!(evidence(answer, &answers), None);
        // One faulty server repeats itself.
        assert_eq!(evidence(answer, &[lie.clone(), lie.clone(), lie.clone()]), None);
        assert_eq!(evidence(answer, &[&answers[..3], std::slice::from_ref(&lie)].concat()), None);
    }
    assert_eq!(evidence(&lie, &answers[..1]), None);
    // Answers on another message do not count.
    let other = PartialSignQuery { message: b"another".to_vec().into(), ..full };
    let others: Vec<PartialSignatures> =
        group.servers().map(|it| world.answer(it, &other)).collect();
    assert_eq!(evidence(&answers[0], &others), None);
    assert_eq!(WrongAnswerEvidence::parse(&[]).unwrap().verify(&world.group), None);
    assert_eq!(WrongAnswerEvidence::parse(&[0, 0, 0, 9, 1]), None);
}

#[test]
fn requests_of_other_groups_are_refused() {
    let world = World::new(&short_key(), 1);
    let signers = QuickSigners::new(&world.group.combination, [1, 2].map(ServerIndex));
    for encoding in [RsaEncoding::Pkcs1, RsaEncoding::Pkcs1Sha512, PSS] {
        let query =
            PartialSignQuery { epoch: 3, signers, encoding, message: MESSAGE.to_vec().into() };
        assert_eq!(PartialSignQuery::parse(&world.group, &query.to_bytes()), Some(query.clone()));
        let server = &world.servers[0];
        let refused = server.shares.answer(&query, &server.identity);
        let expected = match encoding {
            RsaEncoding::Pkcs1 => PartialSignError::NotASigner,
            _ => PartialSignError::Number,
        };
        assert_eq!(refused, Err(expected));
        let other = PartialSignQuery { epoch: 4, ..query.clone() };
        assert_eq!(PartialSignQuery::parse(&world.group, &other.to_bytes()), None);
        let long = PartialSignQuery { message: vec![0; MAX_MESSAGE_LEN + 1].into(), ..query };
        assert_eq!(PartialSignQuery::parse(&world.group, &long.to_bytes()), None);
    }
    for bytes in [&[][..], &[0; 10], &[0, 0, 0, 0, 0, 0, 0, 3, 0, 7, 1], &[0; 11]] {
        assert_eq!(PartialSignQuery::parse(&world.group, bytes), None);
    }
    for servers in [&[0][..], &[0, 4], &[0, 1, 2], &[0, 0], &[200, 1]] {
        let servers = servers.iter().copied().map(ServerIndex);
        assert_eq!(QuickSigners::new(&world.group.combination, servers), None);
    }
}

/// What a faulty server does with one request.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Silence,
    Refusal,
    Right,
    /// It changes each value whose label is among these bits.
    Wrong(u32),
    Noise,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Silence),
        Just(Fault::Refusal),
        Just(Fault::Right),
        any::<u32>().prop_map(Fault::Wrong),
        Just(Fault::Noise),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]
    /// Whatever f servers do, and in any order of messages, there is a signature, and no correct
    /// server is accused.
    #[test]
    fn any_f_faulty_servers_neither_prevent_a_signature_nor_blame_others(
        faulty in 1u8..=2,
        at in prop::collection::vec(any::<prop::sample::Index>(), 2),
        faults in prop::collection::vec([fault(), fault(), fault()], 2),
        order in prop::collection::vec(any::<prop::sample::Index>(), 1..50),
        delays in prop::collection::vec(0u64..3, 1..10),
    ) {
        let world = World::new(&short_key(), faulty);
        let group = &world.group.combination;
        let two = world.group.key.modulus().element(&[&[0; 63][..], &[2]].concat()).unwrap();
        let behaviour: BTreeMap<usize, [Fault; 3]> = at
            .iter()
            .map(|at| at.index(group.server_count()))
            .zip(faults)
            .take(group.faulty())
            .collect();
        let mut request = world.request(RsaEncoding::Pkcs1, &world.health());
        let (mut now, mut waiting, mut events) = (Duration::ZERO, Vec::new(), Vec::new());
        let (mut order, mut delays) = (order.iter().cycle(), delays.iter().cycle());
        loop {
            while let Some(output) = request.poll_output() {
                match output {
                    SignRequestOutput::Event(event) => events.push(event),
                    SignRequestOutput::Send { to, query } => waiting.push((to, query)),
                }
            }
            if request.is_finished() {
                break;
            }
            let timeout = request.poll_timeout().unwrap();
            if waiting.is_empty() {
                now = timeout;
                request.handle_timeout(now);
                continue;
            }
            now += Duration::from_millis(400) * u32::try_from(*delays.next().unwrap()).unwrap();
            if now >= timeout && now < Duration::from_secs(9) {
                request.handle_timeout(now);
                continue;
            }
            now = now.min(Duration::from_secs(9));
            let (to, query) = waiting.swap_remove(order.next().unwrap().index(waiting.len()));
            let faults = behaviour.get(&usize::from(to.0));
            // A quick sign, a full sign, another quick sign.
            let fault = faults.map_or(Fault::Right, |faults| match query.signers {
                None => faults[1],
                Some(signers) => faults[usize::from(!signers.contains(ServerIndex(0))) * 2],
            });
            let wrong = |label: Label, value: RsaElement| {
                match fault {
                    Fault::Wrong(bits) if bits >> label.0 & 1 == 1 => value.times(&two),
                    _ => value,
                }
            };
            match fault {
                Fault::Silence => {}
                Fault::Refusal => request.handle_refusal(now, to),
                Fault::Noise => request.handle_answer(now, to, &[7; 99]),
                Fault::Right | Fault::Wrong(_) => {
                    let answer = world.wrong_answer(to, &query, wrong).to_bytes(&world.group);
                    request.handle_answer(now, to, &answer);
                }
            }
        }
        let (_, accused) = world.signed(&events);
        prop_assert!(accused.iter().all(|it| behaviour.contains_key(&usize::from(it.0))));
    }
}
