//! Channels with faults that a seed draws, for each kappa and mu, with known and learnt rates, by
//! UDP and by one TCP connection.
//!
//! `SUNDER_SEEDS=N` runs the seeds below N, `SUNDER_SEED=S` one of them. Without either, only those
//! of the first seeds run whose faults are short.

use std::env;
use std::sync::Mutex;
use std::time::Duration;

use sim::run_seeds;

use crate::channel_faults::ChannelFault;
use crate::recovery::{Measurement, Setting};

/// The means of k and m.
const MEANS: [(f64, f64); 5] = [(1.0, 1.0), (1.0, 2.0), (2.0, 2.0), (2.0, 2.5), (2.0, 3.0)];

/// The number of seeds, and the longest faults that are run, without `SUNDER_SEEDS`.
const SEEDS: u64 = 14;
const MAX_FAULT: Duration = Duration::from_secs(3);

pub(crate) fn channels_recover_from_random_faults() {
    let is_short = ["SUNDER_SEEDS", "SUNDER_SEED"].iter().all(|name| env::var_os(name).is_none());
    println!(
        "| seed | kappa, mu | rates | load | faults | before | during | possible | after | |\n\
         |---|---|---|---|---|---|---|---|---|---|"
    );
    let failures = Mutex::new(Vec::new());
    run_seeds(SEEDS, |seed| {
        let faults = ChannelFault::draw(seed);
        if is_short && faults.iter().any(|fault| fault.end > MAX_FAULT) {
            return;
        }
        let setting = setting(seed);
        let measured = Measurement::of(setting, &faults);
        let failure = measured.failure();
        println!("{}", row(seed, setting, &faults, &measured));
        if let Some(failure) = failure {
            failures.lock().unwrap().push(format!("SUNDER_SEED={seed}: {failure}"));
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{} seeds failed:\n{}", failures.len(), failures.join("\n"));
}

/// The setting of a seed: twenty in turn.
fn setting(seed: u64) -> Setting {
    let (kappa, mu) = MEANS[usize::try_from(seed % 5).unwrap()];
    let (knows_rates, is_tcp) = (seed / 5 % 2 == 1, seed / 10 % 2 == 1);
    let setting = if is_tcp { Setting::tcp(kappa, mu) } else { Setting::udp(kappa, mu) };
    Setting { knows_rates, ..setting }
}

/// A row of the table.
fn row(seed: u64, setting: Setting, faults: &[ChannelFault], measured: &Measurement) -> String {
    let Setting { kappa, mu, knows_rates, load, .. } = setting;
    let faults: Vec<String> = faults.iter().map(ToString::to_string).collect();
    let rates = if knows_rates { "known" } else { "learnt" };
    let verdict = if measured.failure().is_some() { "FAILED" } else { "" };
    let disturbance = measured.disturbance.as_deref().unwrap_or_default();
    format!(
        "| {seed} | {kappa}, {mu} | {rates} | {load} | {} | {measured} | {verdict} {disturbance} |",
        faults.join("; ")
    )
}
