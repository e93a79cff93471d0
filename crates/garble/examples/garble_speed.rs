//! How fast one core garbles and evaluates, by scheme and circuit.
//!
//! usage: `garble_speed [KERNEL [RUNS]]`
//!
//! Prints the shortest of a number of runs (15). The tables of a batch are evaluated when they are
//! made, and the two sides are timed apart.

use std::time::{Duration, Instant};

use blocks::Block;
use blocks::aes::Kernel;
use circuit::{Schedule, Source, generate};
use sunder_garble::{Evaluator, Garbler, Scheme};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let named = arguments.next();
    let runs = arguments.next().map_or(15, |runs| runs.parse().expect("a number of runs"));
    let available = Kernel::available();
    let kernel = *available
        .iter()
        .find(|kernel| named.as_deref().is_none_or(|named| named == kernel.name()))
        .expect("a kernel of this processor");
    println!("kernel {kernel}, the shortest of {runs} runs");
    println!(
        "{:8} {:18} {:>12} {:>12} {:>12} {:>12} {:>8}",
        "circuit", "scheme", "garble ms", "M AND/s", "evaluate ms", "M AND/s", "B/AND"
    );
    let circuits = [
        ("AES", Schedule::new(&generate::aes128()), 10),
        ("SHA-256", Schedule::new(&generate::sha256(32)), 3),
        ("MinCut", Schedule::new(&generate::min_cut()), 1),
    ];
    for (name, schedule, times) in circuits {
        for scheme in Scheme::ALL {
            report(name, scheme, &schedule, times, runs, kernel);
        }
    }
}

fn report(name: &str, scheme: Scheme, circuit: &Schedule, times: u32, runs: usize, kernel: Kernel) {
    let found: Vec<_> = (0..runs).map(|_| run(scheme, circuit, times, kernel)).collect();
    let bytes = found[0].2;
    let shortest = |of: fn(&(Duration, Duration, usize)) -> Duration| {
        found.iter().map(of).min().unwrap_or_default().as_secs_f64() / f64::from(times)
    };
    let (garble, evaluate) = (shortest(|run| run.0), shortest(|run| run.1));
    #[allow(clippy::cast_precision_loss)]
    let (ands, bytes) = (circuit.source().shape().ands as f64, bytes as f64);
    println!(
        "{name:8} {:18} {:12.3} {:12.1} {:12.3} {:12.1} {:8.2}",
        scheme.name(),
        garble * 1e3,
        ands / garble / 1e6,
        evaluate * 1e3,
        ands / evaluate / 1e6,
        bytes / ands,
    );
}

/// The durations of garbling and evaluating a circuit a number of times, and the bytes of one.
fn run(
    scheme: Scheme,
    circuit: &Schedule,
    times: u32,
    kernel: Kernel,
) -> (Duration, Duration, usize) {
    let mut source = circuit.source();
    let shape = source.shape().clone();
    let (mut garbling, mut evaluating, mut bytes) = (Duration::ZERO, Duration::ZERO, 0);
    let mut tables = Vec::with_capacity(1 << 20);
    for seed in 0..times {
        let seed = Block::from(u128::from(seed) + 1);
        let mut garbler = Garbler::with_kernel(scheme, seed, seed, &shape, kernel);
        let mut evaluator = Evaluator::with_kernel(scheme, garbler.public(), &shape, kernel);
        for (input, pair) in (0..).zip(garbler.input_pairs(0..shape.inputs())) {
            evaluator.set_input(input, pair[0]);
        }
        source.rewind();
        bytes = 0;
        while let Some(batch) = source.next_batch() {
            tables.clear();
            let start = Instant::now();
            garbler.garble(batch, &mut tables);
            garbling += start.elapsed();
            let start = Instant::now();
            evaluator.evaluate(batch, &tables).expect("whole tables");
            evaluating += start.elapsed();
            bytes += tables.len();
        }
    }
    (garbling, evaluating, bytes)
}
