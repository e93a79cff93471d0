//! Measures the time until a generated circuit is ready for computation.
//!
//! usage: `load_speed [RUNS]`
//!
//! Prints medians, with the least and the most, in milliseconds: of generating the circuit, of its
//! digest alone, and of scheduling it, with the digest.

use std::hint::black_box;
use std::time::Instant;

use sunder_circuit::{CircuitSchedule, generate};

fn main() {
    let runs = std::env::args().nth(1).map_or(15, |runs| runs.parse().expect("a number of runs"));
    println!("circuit  generate, digest, schedule; {runs} runs");
    let mut all = [const { [const { Vec::new() }; 3] }; generate::NAMES.len()];
    for _ in 0..runs {
        for (name, times) in generate::NAMES.into_iter().zip(&mut all) {
            let (circuit, generated) = timed(|| generate::named(name).expect("its name"));
            let (_, digested) = timed(|| circuit.digest());
            let (_, scheduled) = timed(|| CircuitSchedule::new(&circuit));
            for (times, time) in times.iter_mut().zip([generated, digested, scheduled]) {
                times.push(time);
            }
        }
    }
    for (name, times) in generate::NAMES.into_iter().zip(all) {
        println!("{name:8} {}", times.map(median).join(" "));
    }
}

/// What a function returns, and how long it took.
fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let result = black_box(work());
    (result, start.elapsed().as_secs_f64() * 1e3)
}

/// The median, the least and the most.
fn median(mut times: Vec<f64>) -> String {
    times.sort_by(f64::total_cmp);
    let most = times[times.len() - 1];
    format!("{:7.2} ({:.2} to {most:.2})", times[times.len() / 2], times[0])
}
