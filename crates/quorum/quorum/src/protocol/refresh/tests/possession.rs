//! The proof that a new server has its shares.

use super::super::possession::{prove, verify};
use super::*;
use crate::protocol::wire::Sha256Digest;

const RUN: Sha256Digest = Sha256Digest([1; 32]);

#[test]
fn a_proof_holds_for_its_run_server_and_witnesses_only() {
    let mut generator = RandomGenerator::seeded().unwrap();
    let setting = Setting::new(1, 1, &mut generator);
    let Setting { parameters, old, witnesses, shares, .. } = &setting;
    let group = old.combination();
    for server in group.servers() {
        let held = || shares[usize::from(server.0)].iter().map(|(label, it)| (*label, it));
        let digest = witnesses.digest();
        let proof = prove(RUN, server, digest, held(), parameters, &mut generator).unwrap();
        let holds = |proof: &[u8], run, server, witnesses| {
            verify(proof, run, server, witnesses, group, parameters)
        };
        assert!(holds(&proof, RUN, server, witnesses));
        assert!(!holds(&proof, Sha256Digest([2; 32]), server, witnesses));
        let another = ServerIndex((server.0 + 1) % 4);
        assert!(!holds(&proof, RUN, another, witnesses));
        let mut bytes = witnesses.to_bytes();
        bytes.rotate_left(parameters.element_len());
        let other = ShareWitnesses::parse(&bytes, 4, &parameters.modulus).unwrap();
        assert!(!holds(&proof, RUN, server, &other));
        for len in 0..proof.len() {
            assert!(!holds(&proof[..len], RUN, server, witnesses));
        }
        for at in 0..proof.len() {
            let mut wrong = proof.clone();
            wrong[at] ^= 1;
            assert!(!holds(&wrong, RUN, server, witnesses), "byte {at}");
        }
        // Without one share, or with another.
        let fewer = prove(RUN, server, digest, held().skip(1), parameters, &mut generator);
        assert!(!holds(&fewer.unwrap(), RUN, server, witnesses));
        let labels: Vec<_> = held().map(|(label, _)| label).collect();
        let turned = held().map(|(_, it)| it).cycle().skip(1);
        let wrong = labels.into_iter().zip(turned);
        let wrong = prove(RUN, server, digest, wrong, parameters, &mut generator).unwrap();
        assert!(!holds(&wrong, RUN, server, witnesses));
    }
}

#[test]
fn each_proof_has_its_own_commitment_and_responses() {
    let mut generator = RandomGenerator::seeded().unwrap();
    let setting = Setting::new(1, 1, &mut generator);
    let server = ServerIndex(0);
    let held = || setting.shares[0].iter().map(|(label, it)| (*label, it));
    let mut proof = || {
        let digest = setting.witnesses.digest();
        prove(RUN, server, digest, held(), &setting.parameters, &mut generator).unwrap()
    };
    // Two responses to different challenges under one commitment would give the shares away.
    let (one, another) = (proof(), proof());
    let len = setting.parameters.element_len();
    assert_ne!(one[..len], another[..len]);
    assert_ne!(one[len..], another[len..]);
}
