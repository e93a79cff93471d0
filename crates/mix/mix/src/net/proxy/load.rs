//! What the whole process uses.

use std::fs;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::status::ProxyLoadStatus;

/// The use of processors and of memory until now.
pub(super) fn load() -> ProxyLoadStatus {
    let processors = thread::available_parallelism().ok().map(usize::from);
    let processor = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime));
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = resident.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    ProxyLoadStatus {
        processor_s: processor.unwrap_or_default().as_secs_f64(),
        processors: processors.and_then(|count| count.try_into().ok()).unwrap_or(1),
        memory_bytes: kib.map(|kib| kib << 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_load_is_that_of_this_process() {
        let ProxyLoadStatus { processor_s, processors, memory_bytes } = load();
        assert!(processor_s > 0.0 && processors > 0);
        assert!(memory_bytes.unwrap() > 1 << 20, "{memory_bytes:?}");
    }
}
