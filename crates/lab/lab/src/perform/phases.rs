//! The phases of a trial's programs, while they run.
//!
//! A driver tells a program to write its phases to a file of [`directory`] that is named after the
//! party, one JSON document in each line: `name`, `start_unix_s` (when the phase began, in seconds
//! since 1970), and once it is over `time_s`, `bytes_sent` and `bytes_received`.

use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::followed::FollowedDirectory;
use crate::sandbox::SCRATCH;

/// A phase of a party has begun, or is over.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialPhase {
    /// The trial's number, from 1.
    pub number: usize,
    /// The party, such as `garbler`.
    pub party: String,
    /// The name of the phase.
    pub name: String,
    /// When it began: seconds since the measurement began.
    pub start_s: f64,
    /// How long it took, in seconds, if it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_s: Option<f64>,
    /// The bytes that the party has sent and received in it, if it is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A line of a file.
#[derive(Deserialize)]
struct WrittenPhase {
    name: String,
    start_unix_s: f64,
    time_s: Option<f64>,
    bytes_sent: Option<u64>,
    bytes_received: Option<u64>,
}

/// The directory for the files of the trial that runs.
pub(super) fn directory() -> PathBuf {
    Path::new(SCRATCH).join("phases")
}

/// Follows the phases of a trial.
pub(super) struct PhaseFollower {
    files: FollowedDirectory,
    /// The trial's number.
    number: usize,
    /// When the measurement began, since 1970.
    begin: Duration,
}

impl PhaseFollower {
    /// Empties the directory. The measurement of the trial with this number begins now.
    ///
    /// # Errors
    /// If the directory cannot be emptied.
    pub(super) fn new(number: usize) -> io::Result<Self> {
        Self::of(directory(), number)
    }

    fn of(directory: PathBuf, number: usize) -> io::Result<Self> {
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self { files: FollowedDirectory::new(directory)?, number, begin })
    }

    /// What was written since the last time, in the order of the phases' starts.
    pub(super) fn news(&mut self) -> Vec<TrialPhase> {
        let news = self.files.news(false);
        let phases = news.iter().flat_map(|(party, lines)| self.phases(party, lines));
        let mut phases: Vec<TrialPhase> = phases.collect();
        phases.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        phases
    }

    /// The phases of complete lines. Other lines are left out.
    fn phases(&self, party: &str, lines: &[u8]) -> Vec<TrialPhase> {
        let lines = lines.split(|byte| *byte == b'\n');
        let phases = lines.filter_map(|line| serde_json::from_slice::<WrittenPhase>(line).ok());
        let (number, begin_s) = (self.number, self.begin.as_secs_f64());
        let phase = |phase: WrittenPhase| TrialPhase {
            number,
            party: party.to_owned(),
            start_s: phase.start_unix_s - begin_s,
            time_s: phase.time_s,
            bytes: phase
                .bytes_sent
                .zip(phase.bytes_received)
                .map(|(sent, received)| sent + received),
            name: phase.name,
        };
        phases.map(phase).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::slice;

    use super::super::followed::CHUNK;
    use super::*;

    /// A follower of an empty directory, and a file in it.
    fn followed(party: &str) -> (tempfile::TempDir, PhaseFollower, File) {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("phases");
        let mut follower = PhaseFollower::of(directory.clone(), 3).unwrap();
        follower.begin = Duration::from_secs(1000);
        let file = File::create(directory.join(party)).unwrap();
        (place, follower, file)
    }

    #[test]
    fn phases_are_read_as_they_are_written() {
        let (_place, mut follower, mut file) = followed("garbler");
        assert_eq!(follower.news(), []);
        let begun = TrialPhase {
            number: 3,
            party: "garbler".into(),
            name: "setup".into(),
            start_s: 0.5,
            time_s: None,
            bytes: None,
        };
        file.write_all(b"{\"name\":\"setup\",\"start_unix_s\":1000.5}\n{\"name\":").unwrap();
        assert_eq!(follower.news(), slice::from_ref(&begun));
        assert_eq!(follower.news(), [], "the line is not whole");
        let rest = b"\"setup\",\"start_unix_s\":1000.5,\"time_s\":2,\"bytes_sent\":3,\
                     \"bytes_received\":4}\n";
        file.write_all(rest).unwrap();
        let over = TrialPhase { time_s: Some(2.0), bytes: Some(7), ..begun };
        assert_eq!(follower.news(), slice::from_ref(&over));
        let document = serde_json::to_value(&over).unwrap();
        assert_eq!((&document["party"], &document["bytes"]), (&"garbler".into(), &7.into()));
        assert_eq!(follower.news(), []);
    }

    #[test]
    fn malformed_phases_are_left_out() {
        let (_place, mut follower, mut file) = followed("evaluator");
        file.write_all(b"\n{}\nno JSON\n{\"name\":5,\"start_unix_s\":1}\n\xff\n").unwrap();
        assert_eq!(follower.news(), []);
        // A line that never ends is not kept.
        file.write_all(&vec![b'x'; 2 * CHUNK]).unwrap();
        assert_eq!((follower.news(), follower.news()), (vec![], vec![]));
        file.write_all(b"\n{\"name\":\"gates\",\"start_unix_s\":1001}\n").unwrap();
        let news = follower.news();
        assert_eq!((news.len(), &news[0].name[..]), (1, "gates"));
    }

    #[test]
    fn phases_of_an_earlier_trial_are_not_read() {
        let (place, _, mut file) = followed("garbler");
        file.write_all(b"{\"name\":\"setup\",\"start_unix_s\":1000.5}\n").unwrap();
        let mut next = PhaseFollower::of(place.path().join("phases"), 4).unwrap();
        assert_eq!(next.news(), []);
    }
}
