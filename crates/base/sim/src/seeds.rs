//! Runs a simulation with many seeds.

use std::env;
use std::num::NonZero;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Calls `run` with `count` seeds, starting at 0, on all processors, and returns the results in the
/// order of the seeds. The environment variable `SUNDER_SEEDS=N` changes the number of seeds, and
/// `SUNDER_SEED=S` runs only seed S.
///
/// # Panics
/// If a run panics; then its seed is printed, and no other run begins. If one of the variables is
/// not a number.
pub fn run_seeds<T: Send>(count: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    let (first, end) = match (number("SUNDER_SEED"), number("SUNDER_SEEDS")) {
        (Some(seed), _) => (seed, seed + 1),
        (None, count_wanted) => (0, count_wanted.unwrap_or(count)),
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let next = AtomicU64::new(first);
    let work = || {
        let mut results = Vec::new();
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= end {
                return results;
            }
            let _named = FailedSeedReporter { seed, next: &next, end };
            results.push((seed, run(seed)));
        }
    };
    let mut results: Vec<(u64, T)> = thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended =
            running.into_iter().map(|it| it.join().unwrap_or_else(|why| resume_unwind(why)));
        ended.flatten().collect()
    });
    results.sort_unstable_by_key(|(seed, _)| *seed);
    results.into_iter().map(|(_, result)| result).collect()
}

fn number(variable: &str) -> Option<u64> {
    let value = env::var(variable).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{variable}={value} is not a number")))
}

/// Prints the seed of a run that panics, and prevents further runs.
struct FailedSeedReporter<'a> {
    seed: u64,
    next: &'a AtomicU64,
    end: u64,
}

impl Drop for FailedSeedReporter<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("SUNDER_SEED={} shows it again", self.seed);
            self.next.store(self.end, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // These tests do not change the variables of the process, and are skipped if the variables are
    // set.
    fn is_set() -> bool {
        ["SUNDER_SEED", "SUNDER_SEEDS"].iter().any(|name| env::var_os(name).is_some())
    }

    #[test]
    fn results_have_the_order_of_the_seeds() {
        if is_set() {
            return println!("skipped: SUNDER_SEED or SUNDER_SEEDS is set");
        }
        assert_eq!(run_seeds(100, |seed| seed * 2), (0..100).map(|it| it * 2).collect::<Vec<_>>());
        assert!(run_seeds(0, |seed| seed).is_empty());
    }

    #[test]
    #[should_panic(expected = "seed 7")]
    fn a_run_that_fails_fails_all() {
        assert!(!is_set(), "seed 7: skipped, because SUNDER_SEED or SUNDER_SEEDS is set");
        run_seeds(1_000_000_000_000, |seed| assert_ne!(seed, 7, "seed 7"));
    }
}
