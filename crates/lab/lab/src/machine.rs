//! The properties of the machine that affect measurements.

use std::fs;
use std::num::NonZero;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A machine. Unknown properties are "unknown".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineProperties {
    /// The processor's model.
    pub cpu: String,
    /// How many threads it can run at once.
    pub cores: usize,
    /// The memory in GiB, rounded.
    pub memory_gib: u64,
    /// The kernel's release.
    pub kernel: String,
    /// TCP's default congestion control.
    pub congestion: String,
    /// The version of Sunder.
    pub sunder: String,
    /// The revision of its source, if it was built from a clone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

impl MachineProperties {
    /// This machine.
    pub fn current() -> Self {
        let memory_kib = field("/proc/meminfo", "MemTotal").and_then(|text| {
            text.split_whitespace().next().and_then(|number| number.parse::<u64>().ok())
        });
        let release = rustix::system::uname().release().to_string_lossy().into_owned();
        let congestion = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").ok();
        Self {
            cpu: known(field("/proc/cpuinfo", "model name")),
            cores: thread::available_parallelism().map_or(1, NonZero::get),
            memory_gib: memory_kib.map_or(0, |kib| (kib + (1 << 19)) >> 20),
            kernel: release,
            congestion: known(congestion),
            sunder: env!("CARGO_PKG_VERSION").into(),
            revision: option_env!("SUNDER_REVISION").map(str::to_owned),
        }
    }
}

/// How many of this machine's processors are in use, observed for this time: 0 if it is idle.
/// `None` if the kernel does not say.
pub fn processors_in_use(during: Duration) -> Option<f64> {
    let before = ProcessorTicks::current()?;
    thread::sleep(during);
    let after = ProcessorTicks::current()?;
    let (used, all) = (after.used - before.used, after.all - before.all);
    Some(after.processors * used / all.max(1.0))
}

/// What the kernel has counted since it started, in ticks of all processors.
struct ProcessorTicks {
    processors: f64,
    /// Those in which programs, the kernel, or other virtual machines ran.
    used: f64,
    all: f64,
}

impl ProcessorTicks {
    fn current() -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let ticks = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        // User, nice, system, idle, waiting for disks, interrupts, soft interrupts, stolen.
        let ticks: Vec<f64> = ticks.take(8).map_while(|field| field.parse().ok()).collect();
        let all: f64 = ticks.iter().sum();
        let idle = ticks.get(3)? + ticks.get(4)?;
        let numbered = |line: &&str| {
            line.strip_prefix("cpu")
                .is_some_and(|rest| rest.starts_with(|it: char| it.is_ascii_digit()))
        };
        let processors = text.lines().filter(numbered).map(|_| 1.0).sum();
        Some(Self { processors, used: all - idle, all })
    }
}

/// The value in the first line `NAME : VALUE` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(of, _)| of.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn known(value: Option<String>) -> String {
    value.map_or_else(|| String::from("unknown"), |value| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn busy_processors_are_in_use() {
        let is_done = AtomicBool::new(false);
        let used = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let used = processors_in_use(Duration::from_millis(500));
            is_done.store(true, Ordering::Relaxed);
            used
        });
        let cores = thread::available_parallelism().unwrap().get();
        let used = used.unwrap();
        assert!(used > 0.2 && used <= cores as f64 + 0.1, "{used} of {cores}");
    }
}
