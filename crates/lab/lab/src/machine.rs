//! The properties of the machine that affect measurements.

use std::fs;
use std::num::NonZero;
use std::thread;

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

/// The value in the first line `NAME : VALUE` of a file.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(of, _)| of.trim() == name).map(|(_, value)| value.trim().to_owned())
}

fn known(value: Option<String>) -> String {
    value.map_or_else(|| String::from("unknown"), |value| value.trim().to_owned())
}
