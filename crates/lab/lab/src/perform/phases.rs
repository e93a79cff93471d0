//! The phases of a trial's programs, while they run.
//!
//! A driver tells a program to write its phases to a file of [`directory`] that is named after the
//! party, one JSON document in each line: `name`, `start_unix_s` (when the phase began, in seconds
//! since 1970), and once it is over `time_s`, `bytes_sent` and `bytes_received`.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::sandbox::SCRATCH;

/// How much of a file is read at a time. A line is shorter.
const CHUNK: usize = 64 << 10;

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

/// Follows the files of a trial.
pub(super) struct PhaseFollower {
    directory: PathBuf,
    /// The trial's number.
    number: usize,
    /// When the measurement began, since 1970.
    begin: Duration,
    /// How much of each file was read, by its name.
    read: BTreeMap<String, u64>,
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
        match fs::remove_dir_all(&directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&directory)?,
        }
        let begin = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self { directory, number, begin, read: BTreeMap::new() })
    }

    /// What was written since the last time, in the order of the phases' starts. What cannot be
    /// read is left out.
    pub(super) fn news(&mut self) -> Vec<TrialPhase> {
        let mut news = Vec::new();
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            if let Ok(party) = entry.file_name().into_string() {
                news.extend(self.news_of(&party, &entry.path()).unwrap_or_default());
            }
        }
        news.sort_by(|a, b| a.start_s.total_cmp(&b.start_s));
        news
    }

    fn news_of(&mut self, party: &str, path: &Path) -> io::Result<Vec<TrialPhase>> {
        let offset = self.read.entry(party.to_owned()).or_default();
        let mut bytes = vec![0; CHUNK];
        let length = File::open(path)?.read_at(&mut bytes, *offset)?;
        bytes.truncate(length);
        // The last line may not be whole yet.
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |last| last + 1);
        let is_too_long = whole == 0 && length == CHUNK;
        let done = if is_too_long { length } else { whole };
        *offset += done as u64;
        let lines = bytes[..whole].split(|byte| *byte == b'\n');
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
        Ok(phases.map(phase).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::slice;

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
