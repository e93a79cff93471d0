//! Handovers with random schedules and faulty servers.

use rsa_arithmetic::fixture::tiny_key;
use sim::{SeededRng, run_seeds};

use super::epochs::first_group;
use super::size;
use super::world::HandoverWorld;

/// Two handovers to groups of random sizes.
fn run(seed: u64) -> [usize; 2] {
    let mut rng = SeededRng::new(seed);
    let mut group = first_group(&tiny_key(), 1, 2);
    let mut accused = [0; 2];
    for _ in 0..2 {
        let faulty = if rng.chance(75) { 1 } else { 2 };
        let (new, state) = HandoverWorld::new(&group, size(faulty), &mut rng).run();
        accused[0] += state.faulty_dealers().len();
        accused[1] += state.faulty_receivers().len();
        group = new;
    }
    accused
}

fn run_all(seeds: u64) {
    let accused = run_seeds(seeds, run);
    let of = |role: usize| accused.iter().map(|it| it[role]).sum::<usize>();
    assert!(of(0) > 0 && of(1) > 0, "faulty servers are found out: {accused:?}");
}

#[test]
fn handovers_end_with_right_shares_and_accuse_only_faulty_servers() {
    run_all(20);
}

#[test]
#[ignore = "minutes: for make soak"]
fn thousands_of_handovers_end_with_right_shares_and_accuse_only_faulty_servers() {
    run_all(2000);
}
