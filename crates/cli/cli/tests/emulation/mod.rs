//! What tests on emulated hosts share: networks, programs on their hosts, and waiting.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use lab::{EmulatedHost, EmulatedNetwork, Trial, TrialContext};

/// The time limit for conditions without one of their own.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// The interval at which conditions are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Waits until a condition holds. Returns the time at which it was observed.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) -> Instant {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {WAIT_TIMEOUT:?}: {what}");
        thread::sleep(POLL_INTERVAL);
    }
    Instant::now()
}

/// The network of a topology in TOML. Its taps write to the directory `results`.
pub(crate) fn network(topology: &str, results: &Path) -> EmulatedNetwork {
    let trial: Trial = toml::from_str(topology).unwrap();
    let context = TrialContext { seed: 1, files: results, results, number: 1 };
    EmulatedNetwork::new(&trial, context).unwrap()
}

/// A program on a host. It is killed when this is dropped.
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Starts a program on a host. Its standard output and error replace the file `log`.
    pub(crate) fn start(host: &EmulatedHost, command: &mut Command, log: &Path) -> Self {
        let file = File::create(log).unwrap();
        command.stdin(Stdio::null()).stdout(file.try_clone().unwrap()).stderr(file);
        Self(host.run(|| command.spawn()).unwrap().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
