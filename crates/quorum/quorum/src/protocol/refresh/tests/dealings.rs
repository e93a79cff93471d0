//! The dealings of a faulty dealer that a new server keeps.

use super::super::manifest::{MAX_ROUNDS, proofs_digest};
use super::agreement::{dealt, sign};
use super::*;

const RECEIVER: Address = (RefreshRole::New, ServerIndex(0));

/// Another dealing of the same labels, in another round.
fn in_round(dealing: &dealing::Dealing, round: u8) -> RefreshMessage {
    let mut dealing = dealing.clone();
    let mut proofs = (*dealing.proofs).clone();
    proofs.manifest.round = DealingRound(round);
    proofs.digest = proofs.manifest.digest();
    dealing.proofs = Arc::new(proofs);
    sign(&mut dealing);
    RefreshMessage::Dealing(dealing)
}

fn deliver(world: &mut World, from: ServerIndex, message: &RefreshMessage) -> (usize, usize) {
    world.deliver((RefreshRole::Old, from), RECEIVER, &message.to_bytes());
    world.poll(RECEIVER);
    let Machine::New(server) = &world.machines[&RECEIVER] else { unreachable!() };
    server.kept_dealings(from)
}

#[test]
fn one_dealing_per_label_is_kept_and_rejected_ones_are_dropped() {
    let (mut world, dealings) = dealt();
    let dealer = |it: &dealing::Dealing| it.proofs.manifest.dealer;
    let first = dealer(&dealings[0]);
    for round in 0..MAX_ROUNDS {
        let kept = deliver(&mut world, first, &in_round(&dealings[0], round));
        assert_eq!(kept, (1, 1), "round {round}");
    }
    // Proofs that are not of the old share: the dealing is refused, and so are others in its place.
    let mut wrong = dealings[1].clone();
    let mut proofs = (*wrong.proofs).clone();
    let len = proofs.rows[0].len() / 2;
    proofs.rows[0].rotate_left(len);
    proofs.rows[0][..len].reverse();
    proofs.rows[0][0] = 0;
    proofs.manifest.rows[0].1 = proofs_digest(&proofs.rows[0]);
    wrong.proofs = Arc::new(proofs);
    for round in 0..MAX_ROUNDS {
        let kept = deliver(&mut world, dealer(&wrong), &in_round(&wrong, round));
        assert_eq!(kept, (1, 0), "round {round}");
    }
    // The others are not affected.
    assert_eq!(deliver(&mut world, dealer(&dealings[2]), &in_round(&dealings[2], 0)), (1, 1));
    world.run();
    assert!(world.begun.contains_key(&RECEIVER.1));
}
