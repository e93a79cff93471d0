//! Measures whole runs on loopback, from the connection until both parties have the output,
//! including the set-up.
//!
//! usage: `run_speed [RUNS [pinned]]`
//!
//! The circuits, schemes and levels of security alternate, so that all run under the same
//! conditions. Prints medians, with the least and the most, in milliseconds: of the run, then of
//! phases at the garbler and at the evaluator, which overlap. With `pinned`, each party has one
//! core.

use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Instant;

use circuit::{CircuitSchedule, generate};
use rustix::thread::{CpuSet, sched_setaffinity};
use sunder_compute::{
    ComputePhase, ComputeRole, ComputeSecurity, ComputeSession, ComputeSettings, GarblingScheme,
};

/// The schemes and levels; the first one is the reference.
const KINDS: [(GarblingScheme, ComputeSecurity); 5] = [
    (GarblingScheme::HalfGates, ComputeSecurity::Evaluator),
    (GarblingScheme::HalfGates, ComputeSecurity::SemiHonest),
    (GarblingScheme::HalfGates, ComputeSecurity::Malicious),
    (GarblingScheme::ThreeHalves, ComputeSecurity::Evaluator),
    (GarblingScheme::Glnp15, ComputeSecurity::Evaluator),
];

/// The phases that are printed.
const PHASES: [ComputePhase; 3] = [ComputePhase::Setup, ComputePhase::Inputs, ComputePhase::Gates];

/// The times of one run in milliseconds: the total, and the phases of both parties.
type Times = [f64; 1 + 2 * PHASES.len()];

fn main() {
    let mut arguments = std::env::args().skip(1);
    let runs = arguments.next().map_or(15, |runs| runs.parse().expect("a number of runs"));
    let is_pinned = arguments.next().is_some_and(|word| word == "pinned");
    let circuits = [
        ("AES-128", CircuitSchedule::new(&generate::aes128())),
        ("MinCut", CircuitSchedule::new(&generate::min_cut())),
    ];
    let each: Vec<_> =
        circuits.iter().flat_map(|circuit| KINDS.map(|kind| (circuit, kind))).collect();
    let mut all: Vec<Vec<Times>> = vec![Vec::new(); each.len()];
    for _ in 0..runs {
        for (all, ((_, schedule), kind)) in all.iter_mut().zip(&each) {
            all.push(run(schedule, *kind, is_pinned));
        }
    }
    println!("circuit, scheme, level: run, then setup, inputs, gates of each party; {runs} runs");
    for (all, ((name, _), (scheme, security))) in all.iter().zip(&each) {
        let figures = (0..all[0].len()).map(|at| median(all.iter().map(|times| times[at])));
        let figures: Vec<String> = figures.collect();
        let (scheme, security) = (scheme.name(), security.name());
        println!("{name:8} {scheme:12} {security:11} {}", figures.join(" "));
    }
}

/// Computes with zeros as inputs.
fn run(
    schedule: &CircuitSchedule,
    kind: (GarblingScheme, ComputeSecurity),
    is_pinned: bool,
) -> Times {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let there = TcpStream::connect(listener.local_addr().expect("its address")).expect("there");
    let (here, _) = listener.accept().expect("here");
    let start = Instant::now();
    let (garbler, evaluator) = thread::scope(|scope| {
        let garbler = scope.spawn(|| party(here, ComputeRole::Garbler, schedule, kind, is_pinned));
        let evaluator =
            scope.spawn(|| party(there, ComputeRole::Evaluator, schedule, kind, is_pinned));
        (garbler.join().expect("the garbler"), evaluator.join().expect("the evaluator"))
    });
    let ((garbler_end, garbler), (evaluator_end, evaluator)) = (garbler, evaluator);
    let whole = garbler_end.max(evaluator_end) - start;
    let mut times = [whole.as_secs_f64() * 1e3; 1 + 2 * PHASES.len()];
    times[1..=PHASES.len()].copy_from_slice(&garbler);
    times[1 + PHASES.len()..].copy_from_slice(&evaluator);
    times
}

/// Returns the time at which this party has the output, and the measurements of the phases.
fn party(
    stream: TcpStream,
    role: ComputeRole,
    schedule: &CircuitSchedule,
    (scheme, security): (GarblingScheme, ComputeSecurity),
    is_pinned: bool,
) -> (Instant, [f64; PHASES.len()]) {
    let mut settings = ComputeSettings { scheme, security, ..ComputeSettings::default() };
    if is_pinned {
        // Threads that this one starts inherit the core.
        let mut cores = CpuSet::new();
        cores.set(role as usize - 1);
        sched_setaffinity(None, &cores).expect("a core for each party");
        settings.threads = 1;
    }
    stream.set_nodelay(true).expect("a socket");
    let reader = stream.try_clone().expect("a socket");
    let mut session =
        ComputeSession::over(reader, Writer(stream), role, settings).expect("a session");
    let shape = schedule.shape();
    let bits =
        if role == ComputeRole::Garbler { shape.garbler_inputs } else { shape.evaluator_inputs };
    session.run(schedule, &vec![0; bits.div_ceil(8) as usize]).expect("an output");
    let end = Instant::now();
    let figures = session.figures();
    session.finish().expect("an orderly end");
    (end, PHASES.map(|phase| figures[phase as usize].time.as_secs_f64() * 1e3))
}

/// Shuts down the writing direction on drop.
struct Writer(TcpStream);

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // If the other party is gone, the shutdown is not needed.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// The median, the least and the most.
fn median(times: impl Iterator<Item = f64>) -> String {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    let most = times[times.len() - 1];
    format!("{:7.2} ({:.2} to {most:.2})", times[times.len() / 2], times[0])
}
