//! Measures the speed of garbling and evaluating, by scheme, circuit and number of threads.
//!
//! usage: `garble_speed [KERNEL|best [RUNS [THREADS,.. [SCHEME]]]]`
//!
//! Prints the shortest of a number of runs (15), in which the schemes and the numbers of threads
//! (1, 2 and 4) alternate, and how that compares to the first scheme's (ratio). Several instances
//! of a small circuit are garbled, all are evaluated afterwards, and the two are timed apart.

use std::time::{Duration, Instant};

use blocks::Block;
use blocks::aes::AesKernel;
use circuit::{CircuitSchedule, CircuitSource, evaluate_64, generate};
use sunder_garble::workers::with_workers;
use sunder_garble::{Evaluator, Garbler, GarblingScheme, PartLabelBuffer};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let named = arguments.first().filter(|name| *name != "best");
    let runs = arguments.get(1).map_or(15, |runs| runs.parse().expect("a number of runs"));
    let threads = arguments.get(2).map_or("1,2,4", String::as_str).split(',');
    let threads: Vec<usize> = threads.map(|it| it.parse().expect("numbers of threads")).collect();
    let scheme: Option<GarblingScheme> =
        arguments.get(3).map(|name| name.parse().expect("a scheme"));
    let available = AesKernel::available();
    let kernel = *available
        .iter()
        .find(|kernel| named.is_none_or(|named| named == kernel.name()))
        .expect("a kernel of this processor");
    println!("kernel {kernel}, the shortest of {runs} runs");
    println!(
        "{:8} {:18} {:>7} {:>12} {:>12} {:>6} {:>12} {:>12} {:>6} {:>8}",
        "circuit",
        "scheme",
        "threads",
        "garble ms",
        "M AND/s",
        "ratio",
        "evaluate ms",
        "M AND/s",
        "ratio",
        "B/AND"
    );
    let circuits = [
        ("AES", CircuitSchedule::new(&generate::aes128()), 40),
        ("SHA-256", CircuitSchedule::new(&generate::sha256(32)), 16),
        ("MinCut", CircuitSchedule::new(&generate::min_cut()), 1),
    ];
    let schemes =
        GarblingScheme::ALL.into_iter().filter(|it| scheme.is_none_or(|only| only == *it));
    for (name, schedule, times) in &circuits {
        let benches = schemes.clone().map(|scheme| Bench::new(schedule, scheme, *times, kernel));
        let mut benches: Vec<Bench> = benches.collect();
        let mut shortest = vec![vec![[Duration::MAX; 2]; threads.len()]; benches.len()];
        for _ in 0..runs {
            for (bench, shortest) in benches.iter_mut().zip(&mut shortest) {
                for (threads, shortest) in threads.iter().zip(shortest) {
                    let found = bench.run(*threads);
                    *shortest = [shortest[0].min(found[0]), shortest[1].min(found[1])];
                }
            }
        }
        for (bench, of_bench) in benches.iter().zip(&shortest) {
            for ((threads, found), first) in threads.iter().zip(of_bench).zip(&shortest[0]) {
                bench.report(name, *threads, *found, *first);
            }
        }
    }
}

/// Instances of a circuit, and room for their tables.
struct Bench<'a> {
    schedule: &'a CircuitSchedule,
    scheme: GarblingScheme,
    times: usize,
    kernel: AesKernel,
    /// Of inputs that are all 0.
    outputs: Vec<bool>,
    /// For each part of each instance.
    tables: Vec<Vec<u8>>,
}

struct Job {
    instance: usize,
    part: u64,
    tables: Vec<u8>,
}

impl<'a> Bench<'a> {
    fn new(
        schedule: &'a CircuitSchedule,
        scheme: GarblingScheme,
        times: usize,
        kernel: AesKernel,
    ) -> Self {
        let parts = usize::try_from(schedule.parts()).expect("few parts");
        let zeros = vec![0; schedule.shape().inputs() as usize];
        let outputs = evaluate_64(schedule, &zeros).iter().map(|word| word & 1 == 1).collect();
        let tables = vec![Vec::new(); parts * times];
        Self { schedule, scheme, times, kernel, outputs, tables }
    }

    /// How long garbling and evaluating take.
    fn run(&mut self, threads: usize) -> [Duration; 2] {
        let (schedule, shape, scheme) = (self.schedule, self.schedule.shape(), self.scheme);
        let garblers: Vec<Garbler> = (1..)
            .take(self.times)
            .map(|seed: u128| {
                let seed = Block::from(seed);
                Garbler::with_kernel(scheme, seed, seed, shape, self.kernel)
            })
            .collect();
        let evaluators: Vec<Evaluator> = garblers
            .iter()
            .map(|garbler| {
                let mut evaluator =
                    Evaluator::with_kernel(scheme, garbler.public(), shape, self.kernel);
                for (input, pair) in (0..).zip(garbler.input_pairs(0..shape.inputs())) {
                    evaluator.set_input(input, pair[0]);
                }
                evaluator
            })
            .collect();
        self.tables.iter_mut().for_each(Vec::clear);
        let garbling = self.process(threads, |memory, job| {
            garblers[job.instance].garble(memory, &schedule.part(job.part), &mut job.tables);
        });
        let evaluating = self.process(threads, |memory, job| {
            let part = schedule.part(job.part);
            let evaluated = evaluators[job.instance].evaluate(memory, &part, &job.tables);
            evaluated.expect("whole tables");
        });
        for (garbler, evaluator) in garblers.iter().zip(&evaluators) {
            let outputs = evaluator.decode(&garbler.decoding()).expect("as many outputs");
            assert_eq!(outputs, self.outputs);
        }
        [garbling, evaluating]
    }

    /// Runs `work` for each part of each instance.
    fn process(
        &mut self,
        threads: usize,
        work: impl Fn(&mut PartLabelBuffer, &mut Job) + Sync,
    ) -> Duration {
        let (schedule, tables) = (self.schedule, &mut self.tables);
        let parts = tables.len() / self.times;
        let mut taken = 0;
        with_workers(threads, work, |workers| {
            let start = Instant::now();
            for at in 0..tables.len() {
                if !workers.has_room()
                    && let Some(job) = workers.take()
                {
                    tables[taken] = job.tables;
                    taken += 1;
                }
                let (instance, part) = (at / parts, (at % parts) as u64);
                let tables = std::mem::take(&mut tables[at]);
                workers.add(Job { instance, part, tables }, schedule.part(part).dependencies);
            }
            while let Some(job) = workers.take() {
                tables[taken] = job.tables;
                taken += 1;
            }
            start.elapsed()
        })
    }

    #[allow(clippy::cast_precision_loss)]
    fn report(&self, name: &str, threads: usize, found: [Duration; 2], first: [Duration; 2]) {
        let [garbling, evaluating] = found;
        let times = self.times as f64;
        let (garble, evaluate) = (garbling.as_secs_f64() / times, evaluating.as_secs_f64() / times);
        let bytes = self.tables.iter().map(Vec::len).sum::<usize>() as f64 / times;
        let ands = self.schedule.shape().ands as f64;
        println!(
            "{name:8} {:18} {threads:7} {:12.3} {:12.1} {:6.2} {:12.3} {:12.1} {:6.2} {:8.2}",
            self.scheme.name(),
            garble * 1e3,
            ands / garble / 1e6,
            garbling.as_secs_f64() / first[0].as_secs_f64(),
            evaluate * 1e3,
            ands / evaluate / 1e6,
            evaluating.as_secs_f64() / first[1].as_secs_f64(),
            bytes / ands,
        );
    }
}
