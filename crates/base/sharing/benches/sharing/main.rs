//! Compares the speed of splitting and joining secrets with Intel's libisal in the same run.
//!
//! `cargo bench -p sunder-sharing` prints tables of GB/s of secret; `-- --quick` takes a tenth of
//! the time and is less exact. All buffers begin at a multiple of 64 bytes, for both libraries.

mod isal;
mod point;
mod stopwatch;

use std::fmt::Display;
use std::time::Duration;

use isal::Isal;
use point::{Point, Task};
use random::RandomGenerator;
use stopwatch::Stopwatch;
use sunder_sharing::kernels::FieldKernel;
use sunder_sharing::{SharingParameters, keyed, tamper};

const LENGTHS: [usize; 2] = [1408, 1 << 16];
const SHARINGS: [(u8, u8); 6] = [(1, 1), (2, 2), (2, 3), (3, 5), (5, 5), (5, 8)];

/// The goals: the ratio of our arithmetic's speed to libisal's, and the fraction of our speed that
/// remains if the random bytes are made, too.
const GOALS: (f64, f64) = (2.0, 0.8);

fn main() {
    let quick = std::env::args().any(|argument| argument == "--quick");
    // Slices are short, so that most of them pass without an interruption by another process.
    let stopwatch = if quick {
        Stopwatch { rounds: 15, slice: Duration::from_micros(200) }
    } else {
        Stopwatch { rounds: 101, slice: Duration::from_micros(400) }
    };
    let isal = Isal::load();
    if let Err(error) = &isal {
        println!("NO COMPARISON: libisal is not here ({error}).");
        println!("On Debian and Ubuntu: apt install libisal2\n");
    }
    let isal = isal.ok();
    println!("GB/s of secret, one core, median of {}.", stopwatch.rounds);
    println!(
        "libisal \"textbook\" computes all m shares, \"systematic\" m - k + 1 of them as we do."
    );
    for len in LENGTHS {
        splits(stopwatch, isal.as_ref(), len);
        joins(stopwatch, isal.as_ref(), len);
    }
    tamper_code(stopwatch);
    keyed_hash(stopwatch);
}

fn sharings() -> impl Iterator<Item = SharingParameters> {
    SHARINGS.into_iter().map(|(k, m)| SharingParameters::shamir(k, m).expect("valid"))
}

fn splits(stopwatch: Stopwatch, isal: Option<&Isal>, len: usize) {
    println!("\nSplit {len} bytes: arithmetic by kernel, with random bytes, libisal's arithmetic");
    println!(
        "{}{:>10}{:>10}{:>11}{:>9}{:>9}{:>13}{:>13}",
        kernels_header(),
        "seeded",
        "textbook",
        "systematic",
        "x text",
        "x syst",
        "seeded/text",
        "seeded/syst"
    );
    for sharing in sharings() {
        let mut point = Point::new(sharing, len, isal);
        let tasks = point.split_tasks();
        let speeds = stopwatch.compare(len, &tasks, |task, times| point.run(task, times));
        let speed = |task| tasks.iter().position(|&t| t == task).map(|i| speeds[i]);
        let (ours, seeded) = (speed(Task::Split(0)), speed(Task::Seeded));
        let (textbook, systematic) = (speed(Task::IsalTextbook), speed(Task::IsalSystematic));
        println!(
            "{}{:>10}{:>10}{:>11}{:>9}{:>9}{:>13}{:>13}",
            kernels_row(sharing, &speeds),
            figure(seeded),
            figure(textbook),
            figure(systematic),
            ratio(ours, textbook, GOALS.0),
            ratio(ours, systematic, GOALS.0),
            ratio(seeded, textbook, GOALS.1),
            ratio(seeded, systematic, GOALS.1),
        );
    }
}

fn joins(stopwatch: Stopwatch, isal: Option<&Isal>, len: usize) {
    println!("\nJoin {len} bytes: by kernel, libisal's arithmetic");
    println!("{}{:>10}{:>9}", kernels_header(), "libisal", "x");
    for sharing in sharings() {
        let mut point = Point::new(sharing, len, isal);
        let tasks = point.join_tasks();
        let speeds = stopwatch.compare(len, &tasks, |task, times| point.run(task, times));
        let speed = |task| tasks.iter().position(|&t| t == task).map(|i| speeds[i]);
        let (ours, theirs) = (speed(Task::Join(0)), speed(Task::IsalJoin));
        println!(
            "{}{:>10}{:>9}",
            kernels_row(sharing, &speeds),
            figure(theirs),
            ratio(ours, theirs, GOALS.0)
        );
    }
}

fn kernels_header() -> String {
    row("k", "m", FieldKernel::available())
}

/// The speeds of the kernels, which are the first ones.
fn kernels_row(sharing: SharingParameters, speeds: &[f64]) -> String {
    let figures = speeds[..FieldKernel::available().len()].iter().map(|&speed| figure(Some(speed)));
    row(sharing.threshold(), sharing.shares(), figures)
}

fn row<T: Display>(
    k: impl Display,
    m: impl Display,
    figures: impl IntoIterator<Item = T>,
) -> String {
    format!("{k:>3} {m:>3}{}", cells(figures))
}

fn cells<T: Display>(cells: impl IntoIterator<Item = T>) -> String {
    cells.into_iter().fold(String::new(), |row, cell| row + &format!("{cell:>14}"))
}

fn figure(speed: Option<f64>) -> String {
    speed.map_or_else(|| "-".into(), |speed| format!("{speed:.2}"))
}

/// The ratio of the speeds, and whether it reaches the goal.
fn ratio(ours: Option<f64>, theirs: Option<f64>, goal: f64) -> String {
    let Some((ours, theirs)) = ours.zip(theirs) else { return "-".into() };
    let ratio = ours / theirs;
    format!("{ratio:.2} {}", if ratio >= goal { "ok" } else { "NO" })
}

fn tamper_code(stopwatch: Stopwatch) {
    println!("\nTamper code");
    println!("{:>7}{:>14}{:>14}", "bytes", "protect", "verify");
    let mut generator = RandomGenerator::seeded().expect("random bytes");
    for len in [100, LENGTHS[0], 16_384, LENGTHS[1]] {
        let message = vec![0x5A; len];
        let code = tamper::protect(&[&message], &mut generator).expect("random bytes");
        let speeds = stopwatch.compare(len, &[true, false], |protect, times| {
            for _ in 0..times {
                if protect {
                    let code = tamper::protect(&[std::hint::black_box(&message)], &mut generator);
                    std::hint::black_box(code.expect("random bytes"));
                } else {
                    let intact = tamper::verify(&code, &[std::hint::black_box(&message)]);
                    assert!(intact.is_ok(), "not changed");
                }
            }
        });
        println!("{len:>7}{:>14.2}{:>14.2}", speeds[0], speeds[1]);
    }
}

fn keyed_hash(stopwatch: Stopwatch) {
    println!("\nKeyed hash: ns for a tag, by kernel; \"new\" is a new point's powers");
    let kernels = keyed::HashKernel::available();
    println!("{:>7}{}", "bytes", cells(kernels.iter()));
    let hashes =
        kernels.into_iter().map(|kernel| keyed::KeyedHash::new([0xA5; 8]).with_kernel(kernel));
    let hashes: Vec<keyed::KeyedHash> = hashes.collect();
    for len in [40, 100, 1400, LENGTHS[0], 9000, 65_535] {
        let message = vec![0x5A; len];
        let tasks: Vec<usize> = (0..hashes.len()).collect();
        let speeds = stopwatch.compare(len, &tasks, |kernel, times| {
            for _ in 0..times {
                let tag = hashes[kernel].tag(std::hint::black_box(&message), len as u64);
                std::hint::black_box(tag);
            }
        });
        #[allow(clippy::cast_precision_loss)] // A figure of three digits.
        let ns = speeds.iter().map(|speed| format!("{:.1}", len as f64 / speed));
        println!("{len:>7}{}", cells(ns));
    }
    let speeds = stopwatch.compare(1, &[()], |(), times| {
        for _ in 0..times {
            std::hint::black_box(keyed::KeyedHash::new(std::hint::black_box([0xA5; 8])));
        }
    });
    println!("{:>7}{}", "new", cells([format!("{:.0}", 1.0 / speeds[0])]));
}
