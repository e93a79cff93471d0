//! How long one full-rate program takes (IV-D), beside scipy's `linprog` (HiGHS) where Python has
//! it: the same programs in the same run, in turns. `make bench` runs it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use sim::SeededRng;
use sunder_model::{
    ChannelModel, ChannelSet, LossProbability, OptimalSchedule, PlanRequest, RiskProbability,
    ScheduleObjective, ScheduleRequirements,
};

const OBJECTIVES: [(&str, ScheduleObjective); 3] = [
    ("risk", ScheduleObjective::Risk),
    ("loss", ScheduleObjective::Loss),
    ("delay", ScheduleObjective::Delay),
];

/// How many channels, how many programs for each objective, and whether `linprog` is asked too: it
/// needs every column written down, half a million of them for 16 channels.
const SIZES: [(usize, usize, bool); 5] =
    [(3, 50, true), (5, 50, true), (10, 20, true), (16, 5, false), (20, 3, false)];

fn main() {
    let mut linprog = Linprog::start();
    if linprog.is_none() {
        println!("no scipy in this Python, so nothing to compare with: pip install scipy\n");
    }
    println!("one full-rate program; times in ms: median (highest); gap relative to the value\n");
    println!(
        "{:>2}  {:<9}  {:>18}  {:>18}  {:>7}  {:>6}  {:>7}  {:>8}  {:>10}",
        "n", "objective", "here", "linprog", "ratio", "rounds", "columns", "gap", "difference"
    );
    let mut rng = SeededRng::new(3);
    for (n, count, compared) in SIZES {
        let cases: Vec<Case> = (0..count).map(|_| Case::random(n, &mut rng)).collect();
        for objective in OBJECTIVES {
            let linprog = linprog.as_mut().filter(|_| compared);
            println!("{}", row(n, &cases, objective, linprog));
        }
        println!("    peak memory so far: {} MiB", peak_mib());
    }
}

/// Channels with kappa and mu.
struct Case {
    set: ChannelSet,
    kappa: f64,
    mu: f64,
}

impl Case {
    fn random(n: usize, rng: &mut SeededRng) -> Self {
        let count = f64::from(u8::try_from(n).unwrap_or(u8::MAX));
        let channels = (0..n).map(|_| {
            ChannelModel::new(
                RiskProbability(unit(rng)),
                LossProbability(0.1 * unit(rng)),
                100.0 * unit(rng),
                1.0 + 99.0 * unit(rng),
            )
        });
        let channels = channels.collect::<Result<Vec<ChannelModel>, _>>().expect("within range");
        let kappa = 1.0 + unit(rng) * (count - 1.0);
        let mu = kappa + unit(rng) * (count - kappa);
        Self { set: ChannelSet::new(channels).expect("few channels"), kappa, mu }
    }

    fn solve(&self, objective: ScheduleObjective) -> OptimalSchedule {
        let request = ScheduleRequirements {
            kappa: Some(self.kappa),
            mu: Some(self.mu),
            full_rate: true,
            objectives: vec![objective],
            ..ScheduleRequirements::default()
        };
        let request = PlanRequest::new(request).expect("consistent");
        self.set.plan(&request).expect("there is a schedule for every kappa and mu")
    }
}

fn row(
    n: usize,
    cases: &[Case],
    (name, objective): (&str, ScheduleObjective),
    mut linprog: Option<&mut Linprog>,
) -> String {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (mut rounds, mut columns, mut gap, mut difference) = (0, 0, 0.0f64, 0.0f64);
    for case in cases {
        let start = Instant::now();
        let optimum = case.solve(objective).certificates[0];
        ours.push(start.elapsed().as_secs_f64() * 1e3);
        rounds = rounds.max(optimum.rounds);
        columns = columns.max(optimum.columns);
        gap = gap.max(optimum.gap / optimum.value);
        if let Some((ms, value)) = linprog.as_mut().map(|linprog| linprog.solve(case, name)) {
            theirs.push(ms);
            difference = difference.max((value - optimum.value).abs());
        }
    }
    let ratio = median(&theirs) / median(&ours);
    let compared = |text: String| if theirs.is_empty() { String::from("-") } else { text };
    format!(
        "{n:>2}  {name:<9}  {:>18}  {:>18}  {:>7}  {rounds:>6}  {columns:>7}  {gap:>8.0e}  {:>10}",
        times(&ours),
        compared(times(&theirs)),
        compared(format!("{ratio:.0}x")),
        compared(format!("{difference:.0e}")),
    )
}

/// The same programs by `linprog`, in a Python that runs beside this.
struct Linprog {
    python: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Linprog {
    fn start() -> Option<Self> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/linprog.py");
        let mut python = Command::new("python3")
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut answers = BufReader::new(python.stdout.take()?);
        let mut ready = String::new();
        answers.read_line(&mut ready).ok()?;
        (ready.trim() == "ready").then_some(Self { python, answers })
    }

    /// The time in milliseconds, for the solver alone, and the value.
    fn solve(&mut self, case: &Case, objective: &str) -> (f64, f64) {
        let rate = case.set.best_rate(case.mu).expect("mu is within range");
        let mut question = format!("{objective} {} {}", case.kappa, case.mu);
        for channel in case.set.channels() {
            let usage = (channel.rate() / rate).min(1.0);
            let quantities = [channel.risk(), channel.loss(), channel.delay_ms(), usage];
            question.extend(quantities.map(|quantity| format!(" {quantity}")));
        }
        let stdin = self.python.stdin.as_mut().expect("it was piped");
        writeln!(stdin, "{question}").expect("Python is running");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("Python answers");
        let mut numbers = answer.split_whitespace().map(|n| n.parse().expect("a number"));
        (numbers.next().expect("a time"), numbers.next().expect("a value"))
    }
}

fn times(ms: &[f64]) -> String {
    format!("{:.2} ({:.2})", median(ms), ms.iter().copied().fold(0.0, f64::max))
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Uniform within 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
fn unit(rng: &mut SeededRng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// The most memory this process has had.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
