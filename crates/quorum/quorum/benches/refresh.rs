//! The duration of a refresh, with all servers of both groups on this host.
//!
//! `cargo bench -p sunder-quorum --bench refresh` measures f = 1 to 3; `-- 4` measures f = 4, which
//! needs 8 GiB of memory and some minutes.

#![allow(clippy::cast_precision_loss, reason = "lengths are far below 2^52")]

use std::env;
use std::time::{Duration, Instant};

use random::RandomGenerator;
use sunder_quorum::in_process::{
    GroupKeyParameters, RefreshProcessorTime, RefreshReport, SentVolume, ServerRefreshReport,
};
use sunder_quorum::{CombinatorialSharing, DealerKey, ShareRange};

/// The number of refreshes for each f. The median is reported.
const RUNS: [usize; 4] = [9, 5, 3, 1];

fn main() {
    let asked: Vec<u8> = env::args().filter_map(|argument| argument.parse().ok()).collect();
    let sizes = if asked.is_empty() { vec![1, 2, 3] } else { asked };
    let mut generator = RandomGenerator::seeded().expect("random bytes");
    for bits in [1024, 2048] {
        let key = DealerKey::generate(bits, &mut generator).expect("a key");
        let begin = Instant::now();
        let setting = GroupKeyParameters::new(key.group(), ShareRange::new(bits));
        println!("{bits} bits, tables of powers in {:.0} ms", ms(begin.elapsed()));
        println!(
            "{:>2} {:>9} {:>9} {:>9} | {:>8} {:>8} {:>8} {:>8} {:>9} | {:>9} {:>9} {:>9}",
            "f",
            "took, s",
            "least, s",
            "cpu, s",
            "prove, s",
            "seal",
            "verify",
            "compute",
            "exchange",
            "old, KB",
            "new, KB",
            "log, KB",
        );
        for &faulty in &sizes {
            let combination = CombinatorialSharing::new(faulty).expect("at most 4");
            let mut group = setting.deal(&key, &combination, &mut generator).expect("random bytes");
            let mut runs = Vec::new();
            for _ in 0..RUNS[usize::from(faulty - 1)] {
                let refreshed = group.refresh(&setting, &combination, &mut generator);
                let (next, report) = refreshed.expect("random bytes");
                group = next;
                runs.push(report);
            }
            print(faulty, &mut runs);
        }
    }
}

fn print(faulty: u8, runs: &mut [RefreshReport]) {
    runs.sort_by_key(RefreshReport::took);
    let median = &runs[runs.len() / 2];
    let servers = || median.old.iter().chain(&median.new);
    let total = |part: fn(&RefreshProcessorTime) -> Duration| {
        servers().map(|server| part(&server.work)).sum::<Duration>().as_secs_f64()
    };
    let mean = |servers: &[ServerRefreshReport], part: fn(&ServerRefreshReport) -> SentVolume| {
        let bytes: usize = servers.iter().map(|server| part(server).bytes).sum();
        bytes as f64 / 1e3 / servers.len() as f64
    };
    let entries: usize = servers().map(|server| server.entries.bytes).sum();
    println!(
        "{faulty:>2} {:>9.3} {:>9.3} {:>9.3} | {:>8.3} {:>8.3} {:>8.3} {:>8.3} {:>9.3} | {:>9.1} {:>9.1} {:>9.1}",
        median.took().as_secs_f64(),
        runs[0].took().as_secs_f64(),
        total(RefreshProcessorTime::total),
        total(|work| work.proving),
        total(|work| work.sealing),
        total(|work| work.verifying),
        total(|work| work.computing),
        total(|work| work.exchanging),
        mean(&median.old, |server| server.messages),
        mean(&median.new, |server| server.messages),
        entries as f64 / 1e3,
    );
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
