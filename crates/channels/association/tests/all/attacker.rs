//! The handshake against an attacker on n-1 of n channels, 20,000 seeded runs.
//!
//! A failing run prints its seed and n; `TestBed::new(seed, n, ..)` is that run again.

mod adversary;
mod forgery;
mod test_bed;

use test_bed::{Flaw, Outcome, TestBed};

const ATTACKS_PER_N: u64 = 5_000;

fn run(seed: u64, n: u8, attacked: bool) -> Outcome {
    match TestBed::new(seed, n, attacked, Flaw::None).run() {
        Ok(outcome) => outcome,
        Err(violation) => panic!("seed {seed}, n = {n}: {violation}"),
    }
}

/// `SUNDER_SEEDS=N` runs as many attacks.
fn attack(n: u8) {
    let outcomes = sim::run_seeds(ATTACKS_PER_N, |seed| run(seed, n, true));
    let count = |wanted: Outcome| outcomes.iter().filter(|it| **it == wanted).count();
    let counts =
        [Outcome::Completed, Outcome::ServerOnly, Outcome::Excluded, Outcome::Neither].map(count);
    println!("n = {n}: {counts:?} completed, at the server only, excluded, neither");
    // An attack that always fails at the first step would show nothing.
    assert!(counts.iter().all(|count| 100 * count > outcomes.len()), "{counts:?}");
}

#[test]
fn attacker_on_1_of_2_channels() {
    attack(2);
}

#[test]
fn attacker_on_2_of_3_channels() {
    attack(3);
}

#[test]
fn attacker_on_3_of_4_channels() {
    attack(4);
}

#[test]
fn attacker_on_4_of_5_channels() {
    attack(5);
}

#[test]
fn without_an_attacker_it_always_completes() {
    for seed in 0..2_000 {
        for n in 1..=5 {
            assert_eq!(run(seed, n, false), Outcome::Untouched, "seed {seed}, n = {n}");
        }
    }
}

/// The violations that the checks find in flawed ends, in 2,000 attacks.
fn violations(flaw: Flaw) -> Vec<String> {
    let runs = (0..2_000).map(|seed| TestBed::new(seed, 3, true, flaw).run());
    runs.filter_map(Result::err).collect()
}

#[test]
fn a_client_that_trusts_one_confirm_is_caught() {
    let violations = violations(Flaw::OneConfirmIsEnough);
    assert!(violations.iter().any(|found| found.contains("without its honest channel")));
}

#[test]
fn a_server_that_trusts_one_list_is_caught() {
    let violations = violations(Flaw::OneListIsEnough);
    assert!(violations.iter().any(|found| found.contains("not the one the victim sent")));
}
