//! Handovers with random schedules and faulty servers.

use sim::{SeededRng, run_seeds};

use super::size;
use super::world::{HandoverWorld, KeyGroup};

/// A key generation and two resharings to groups of random sizes.
fn run(seed: u64) -> [usize; 2] {
    let mut rng = SeededRng::new(seed);
    let mut group: Option<KeyGroup> = None;
    let mut accused = [0; 2];
    for _ in 0..3 {
        let faulty = if rng.chance(75) { 1 } else { 2 };
        let world = HandoverWorld::new(group.as_ref(), size(faulty), &mut rng);
        let (new, state) = world.run();
        accused[0] += state.faulty_dealers().len();
        accused[1] += state.faulty_receivers().len();
        group = Some(new);
    }
    accused
}

#[test]
fn handovers_end_with_right_shares_and_accuse_only_faulty_servers() {
    let accused = run_seeds(12, run);
    let of = |role: usize| accused.iter().map(|it| it[role]).sum::<usize>();
    assert!(of(0) > 0 && of(1) > 0, "faulty servers are found out: {accused:?}");
}
