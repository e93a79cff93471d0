//! Writes to a file when each phase of a run begins and ends, while it runs.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use compute::{ComputeProgress, PhaseFigures, PhaseProgress};
use console::CommandFailure;
use serde::Serialize;

use super::polling::PollingThread;

/// How often the phases are looked at.
const INTERVAL: Duration = Duration::from_millis(20);

/// The option for the file.
#[derive(clap::Args)]
#[group(skip)]
pub(super) struct PhaseFileOptions {
    /// Write to FILE, at once, when each phase begins and when it is over: a JSON document in each
    /// line
    #[arg(long, value_name = "FILE", conflicts_with = "dry_run")]
    phases: Option<PathBuf>,
}

/// The file to which phases are written, if there is one.
#[derive(Clone)]
pub(super) struct PhaseFile(Option<Arc<Mutex<File>>>);

/// A line: a phase begins, or is over.
#[derive(Serialize)]
struct PhaseFileLine {
    name: &'static str,
    /// When it began: seconds since 1970.
    start_unix_s: f64,
    #[serde(flatten)]
    end: Option<PhaseFileEnd>,
}

/// What is known of a phase that is over.
#[derive(Serialize)]
struct PhaseFileEnd {
    time_s: f64,
    bytes_sent: u64,
    bytes_received: u64,
}

impl PhaseFileOptions {
    pub(super) fn is_given(&self) -> bool {
        self.phases.is_some()
    }

    /// Creates the file.
    ///
    /// # Errors
    /// If it cannot be created.
    pub(super) fn create(&self) -> Result<PhaseFile, CommandFailure> {
        let Some(path) = &self.phases else { return Ok(PhaseFile(None)) };
        let file = File::create(path).map_err(|error| {
            CommandFailure::Usage(format!("cannot write to {}: {error}", path.display()))
        })?;
        Ok(PhaseFile(Some(Arc::new(Mutex::new(file)))))
    }
}

impl PhaseFile {
    /// This party begins to connect.
    pub(super) fn connecting(&self) {
        self.write(&PhaseFileLine::new("connect", SystemTime::now(), None));
    }

    /// This party has connected.
    pub(super) fn connected(&self, connect: &PhaseFigures) {
        let start = SystemTime::now() - connect.time;
        self.write(&PhaseFileLine::new("connect", start, Some(connect)));
    }

    /// Follows a session that began at a time. `None` without a file.
    pub(super) fn follow(
        &self,
        session: ComputeProgress,
        begin: SystemTime,
    ) -> Option<PollingThread> {
        self.0.as_ref()?;
        let (file, mut changes) = (self.clone(), PhaseChanges::default());
        let look = move || {
            for line in changes.lines(&session.phases(), begin) {
                file.write(&line);
            }
        };
        Some(PollingThread::start("phases", INTERVAL, look))
    }

    /// Writes a line. A run goes on even if a full disk does not take it.
    fn write(&self, line: &PhaseFileLine) {
        let Some(file) = &self.0 else { return };
        let Ok(mut line) = serde_json::to_vec(line) else { return };
        line.push(b'\n');
        let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(&line);
    }
}

impl PhaseFileLine {
    fn new(name: &'static str, start: SystemTime, end: Option<&PhaseFigures>) -> Self {
        let start_unix_s = start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let end = end.map(|figures| PhaseFileEnd {
            time_s: figures.time.as_secs_f64(),
            bytes_sent: figures.bytes_sent,
            bytes_received: figures.bytes_received,
        });
        Self { name, start_unix_s, end }
    }
}

/// What has been written of the phases of a session.
#[derive(Default)]
struct PhaseChanges {
    /// By the name of a phase that has begun: its time, if an end was written.
    written: BTreeMap<&'static str, Option<Duration>>,
}

impl PhaseChanges {
    /// The lines for what has changed. Of several instances, each has an end.
    fn lines(&mut self, phases: &[PhaseProgress], begin: SystemTime) -> Vec<PhaseFileLine> {
        let mut lines = Vec::new();
        for PhaseProgress { phase, figures, is_over } in phases {
            let (name, start) = (phase.name(), begin + figures.start);
            let ended = self.written.entry(name).or_insert_with(|| {
                lines.push(PhaseFileLine::new(name, start, None));
                None
            });
            if *is_over && *ended != Some(figures.time) {
                lines.push(PhaseFileLine::new(name, start, Some(figures)));
                *ended = Some(figures.time);
            }
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use compute::ComputePhase;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_phase_is_written_when_it_begins_and_when_it_is_over() {
        let phase = |phase, time_ms, is_over| {
            let figures = PhaseFigures {
                start: Duration::from_millis(500),
                time: Duration::from_millis(time_ms),
                bytes_sent: 7,
                ..PhaseFigures::default()
            };
            PhaseProgress { phase, figures, is_over }
        };
        let mut changes = PhaseChanges::default();
        let mut lines = |phases: &[PhaseProgress]| -> Vec<Value> {
            let lines = changes.lines(phases, UNIX_EPOCH + Duration::from_secs(10));
            lines.iter().map(|line| serde_json::to_value(line).unwrap()).collect()
        };
        let begun = |name: &str| json!({ "name": name, "start_unix_s": 10.5 });
        let over = |name: &str, time_s: f64| {
            json!({
                "name": name, "start_unix_s": 10.5, "time_s": time_s, "bytes_sent": 7,
                "bytes_received": 0,
            })
        };
        assert_eq!(lines(&[]), [] as [Value; 0]);
        let [setup, gates] = [ComputePhase::Setup, ComputePhase::Gates];
        assert_eq!(lines(&[phase(setup, 0, false)]), [begun("setup")]);
        assert_eq!(lines(&[phase(setup, 0, false)]), [] as [Value; 0]);
        let both = [phase(setup, 250, true), phase(gates, 1000, true)];
        assert_eq!(lines(&both), [over("setup", 0.25), begun("gates"), over("gates", 1.0)]);
        assert_eq!(lines(&both), [] as [Value; 0]);
        // The next instance.
        assert_eq!(lines(&[phase(setup, 250, true), phase(gates, 1000, false)]), [] as [Value; 0]);
        let second = [phase(setup, 250, true), phase(gates, 1500, true)];
        assert_eq!(lines(&second), [over("gates", 1.5)]);
    }
}
