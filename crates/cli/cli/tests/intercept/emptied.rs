//! Another program empties the rules twice, within milliseconds: again before, while, or after the
//! proxy restores them. `SUNDER_EMPTIED=N` tries each gap N times, and then the rules must be back
//! within 100 ms each time.

use std::env;
use std::thread;
use std::time::{Duration, Instant};

use crate::matrix::{CELLS, Matrix, PATIENCE};
use crate::topology::{SUNDER, until};

/// The longest gap between the two changes, in milliseconds.
const MAX_GAP_MS: u64 = 30;

/// The time after which the rules are in force again, on a machine that is not busy.
const MAX_RESTORATION: Duration = Duration::from_millis(100);

pub(crate) fn a_table_emptied_twice_is_restored() {
    emptied_twice("flush table inet sunder_6522\n");
}

pub(crate) fn chains_emptied_twice_are_restored() {
    emptied_twice("flush chain inet sunder_6522 local\nflush chain inet sunder_6522 leaving\n");
}

pub(crate) fn a_table_removed_twice_is_restored() {
    emptied_twice("add table inet sunder_6522\ndelete table inet sunder_6522\n");
}

fn emptied_twice(change: &str) {
    let tries = env::var("SUNDER_EMPTIED").ok().map(|tries| tries.parse().expect("a number"));
    let matrix = Matrix::new();
    let proxy = matrix.proxy();
    let rules = || matrix.topology.run("client", "nft", &["-s", "list", "ruleset"]).stdout;
    let before = rules();
    let file = matrix.topology.write("change", change);
    let change = || matrix.topology.ask("client", "nft", &["-f", file.to_str().unwrap()]);
    let mut times = Vec::new();
    for gap in 0..=MAX_GAP_MS {
        for _ in 0..tries.unwrap_or(1) {
            change();
            thread::sleep(Duration::from_millis(gap));
            change();
            let changed = Instant::now();
            until("the rules are restored", || rules() == before);
            times.push(changed.elapsed());
        }
    }
    times.sort_unstable();
    let late = times.iter().filter(|time| **time > MAX_RESTORATION).count();
    let (count, median, longest) = (times.len(), times[times.len() / 2], times[times.len() - 1]);
    println!(
        "emptied {count} times: back after {median:?}, {late} times late, at most {longest:?}"
    );
    assert!(tries.is_none() || late == 0, "{late} of {count} late, at most {longest:?}");
    let restored = || proxy.log().matches("which are restored").count() as u64;
    assert!(restored() > 0, "{}", proxy.log());
    let variable = format!("RUNTIME_DIRECTORY={}", matrix.topology.path("").display());
    let values = || {
        let arguments = [&variable, SUNDER, "status", "--metrics"];
        let metrics = matrix.topology.ask("client", "env", &arguments);
        ["sunder_interception_in_force", "sunder_interception_restored_total"].map(|name| {
            let line = metrics.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()
        })
    };
    // The last change may have been restored twice.
    until("the metrics agree with the log", || values() == [1, restored()]);
    // New connections are carried, without another reload.
    for cell in CELLS {
        matrix.connect_within(cell, PATIENCE).unwrap();
    }
}
