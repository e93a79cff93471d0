//! Measurements of the phases: time, processor time, traffic and memory.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use serde::Serialize;

use crate::error::ComputePhase;
use crate::wire::ComputeFrameKind;

/// The measurements of one phase at this party. Phases overlap, so their times do not add up.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PhaseFigures {
    /// From the start of the session to that of the phase.
    pub start: Duration,
    /// From the start of the phase to its end; of all instances together.
    pub time: Duration,
    /// Processor time, of all threads.
    pub cpu: Duration,
    /// Bytes sent, with the frames' headers.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// The peak memory of the process until the end of the phase, in bytes; 0 if unknown.
    pub peak_memory: u64,
}

/// A phase that has begun, in a session that may be under way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseProgress {
    /// The phase.
    pub phase: ComputePhase,
    /// Its measurements so far. Its time is without that since it has begun again.
    pub figures: PhaseFigures,
    /// Whether it has ended. It begins again with the next instance.
    pub is_over: bool,
}

/// [`PhaseFigures`] for a JSON document. Times are in seconds, memory in bytes.
#[derive(Serialize)]
pub struct PhaseDocument {
    name: &'static str,
    /// From the connection on; `null` if the phase is before that.
    start_s: Option<f64>,
    time_s: f64,
    cpu_s: f64,
    bytes_sent: u64,
    bytes_received: u64,
    peak_memory_bytes: u64,
}

impl PhaseDocument {
    /// The document of work before the session.
    pub fn before(name: &'static str, figures: &PhaseFigures) -> Self {
        Self {
            name,
            start_s: None,
            time_s: figures.time.as_secs_f64(),
            cpu_s: figures.cpu.as_secs_f64(),
            bytes_sent: figures.bytes_sent,
            bytes_received: figures.bytes_received,
            peak_memory_bytes: figures.peak_memory,
        }
    }

    /// The document of a phase.
    pub fn new(phase: ComputePhase, figures: &PhaseFigures) -> Self {
        let start_s = Some(figures.start.as_secs_f64());
        Self { start_s, ..Self::before(phase.name(), figures) }
    }
}

/// The figures of all phases, in the order of [`ComputePhase::ALL`].
#[derive(Debug)]
pub(crate) struct PhaseFiguresRecorder {
    session_start: Instant,
    phases: Mutex<[PhaseFiguresEntry; ComputePhase::ALL.len()]>,
    ands: AtomicU64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PhaseFiguresEntry {
    figures: PhaseFigures,
    /// When the phase was entered, if it was not left yet.
    entered_at: Option<Instant>,
    has_begun: bool,
}

impl PhaseFiguresRecorder {
    pub(crate) fn new() -> Self {
        Self { session_start: Instant::now(), phases: Mutex::default(), ands: AtomicU64::new(0) }
    }

    fn change(&self, phase: ComputePhase, change: impl FnOnce(&mut PhaseFiguresEntry)) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut phases[phase as usize]);
    }

    /// Starts the time of a phase, until [`Self::leave`].
    pub(crate) fn enter(&self, phase: ComputePhase) {
        let now = Instant::now();
        self.change(phase, |entry| {
            if !entry.has_begun {
                entry.has_begun = true;
                entry.figures.start = now - self.session_start;
            }
            entry.entered_at.get_or_insert(now);
        });
    }

    /// Stops the time of a phase.
    pub(crate) fn leave(&self, phase: ComputePhase) {
        let peak_memory = peak_memory();
        self.change(phase, |entry| {
            if let Some(entered_at) = entry.entered_at.take() {
                entry.figures.time += entered_at.elapsed();
            }
            entry.figures.peak_memory = entry.figures.peak_memory.max(peak_memory);
        });
    }

    /// Counts the processor time of this thread in `work` for a phase.
    pub(crate) fn count<T>(&self, phase: ComputePhase, work: impl FnOnce() -> T) -> T {
        let before = thread_cpu();
        let result = work();
        let cpu = thread_cpu().saturating_sub(before);
        self.change(phase, |entry| entry.figures.cpu += cpu);
        result
    }

    pub(crate) fn sent(&self, kind: ComputeFrameKind, bytes: usize) {
        self.change(phase_of(kind), |entry| entry.figures.bytes_sent += bytes as u64);
    }

    pub(crate) fn received(&self, kind: ComputeFrameKind, bytes: usize) {
        self.change(phase_of(kind), |entry| entry.figures.bytes_received += bytes as u64);
    }

    /// Counts ANDs that were garbled, evaluated or opened.
    pub(crate) fn add_ands(&self, ands: u64) {
        self.ands.fetch_add(ands, Ordering::Relaxed);
    }

    pub(crate) fn ands(&self) -> u64 {
        self.ands.load(Ordering::Relaxed)
    }

    /// The phases that have begun, in the order of [`ComputePhase::ALL`].
    pub(crate) fn begun(&self) -> Vec<PhaseProgress> {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = ComputePhase::ALL.into_iter().zip(*phases).filter(|(_, it)| it.has_begun);
        let progress = |(phase, PhaseFiguresEntry { figures, entered_at, .. })| PhaseProgress {
            phase,
            figures,
            is_over: entered_at.is_none(),
        };
        begun.map(progress).collect()
    }

    pub(crate) fn phases(&self) -> [PhaseFigures; ComputePhase::ALL.len()] {
        let phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        phases.map(|entry| entry.figures)
    }
}

/// The phase to which a frame belongs.
pub(crate) fn phase_of(kind: ComputeFrameKind) -> ComputePhase {
    match kind {
        ComputeFrameKind::Hello | ComputeFrameKind::Base => ComputePhase::Setup,
        ComputeFrameKind::Begin | ComputeFrameKind::Abort => ComputePhase::Agreement,
        ComputeFrameKind::Labels
        | ComputeFrameKind::Extend
        | ComputeFrameKind::Answer
        | ComputeFrameKind::Share => ComputePhase::Inputs,
        ComputeFrameKind::Triples => ComputePhase::Triples,
        ComputeFrameKind::Tables | ComputeFrameKind::Open | ComputeFrameKind::Alive => {
            ComputePhase::Gates
        }
        ComputeFrameKind::Decoding
        | ComputeFrameKind::Result
        | ComputeFrameKind::Output
        | ComputeFrameKind::Hashes
        | ComputeFrameKind::Proof => ComputePhase::Output,
    }
}

/// The processor time of this thread.
fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// The peak memory of this process in bytes; 0 if unknown.
pub fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up() {
        let figures = PhaseFiguresRecorder::new();
        figures.enter(ComputePhase::Gates);
        figures.count(ComputePhase::Gates, || {
            while thread_cpu().is_zero() {
                std::hint::spin_loop();
            }
        });
        figures.sent(ComputeFrameKind::Tables, 10);
        figures.received(ComputeFrameKind::Tables, 3);
        figures.received(ComputeFrameKind::Hello, 5);
        figures.leave(ComputePhase::Gates);
        let [begun] = figures.begun()[..] else { panic!("one phase has begun") };
        assert_eq!((begun.phase, begun.is_over), (ComputePhase::Gates, true));
        figures.enter(ComputePhase::Gates);
        assert!(!figures.begun()[0].is_over, "it has begun again");
        figures.leave(ComputePhase::Gates);
        let [setup, _, _, _, gates, _] = figures.phases();
        assert_eq!((gates.bytes_sent, gates.bytes_received, setup.bytes_received), (10, 3, 5));
        assert!(gates.peak_memory > 1 << 20 && gates.time > Duration::ZERO);
    }
}
