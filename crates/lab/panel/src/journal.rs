//! The journal of a run, `trials.jsonl`: what `sunder lab run` has put on the disk, whatever became
//! of its events and of this server.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _};

use serde_json::{Map, Value};

use crate::run::RunDirectory;

/// The journal of a run so far.
#[derive(Debug, Default)]
pub(crate) struct RunJournal {
    /// The machine on which the run began; `null` before.
    pub(crate) machine: Value,
    /// The result of each trial that has one, with its number: the attempt with the least lateness.
    pub(crate) trials: Vec<Map<String, Value>>,
    /// The places of the trials at each point of a repetition.
    places: HashMap<String, Vec<usize>>,
}

/// The maximum length of a journal, as of the laboratory.
const MAX_LEN: u64 = 1 << 30;

impl RunJournal {
    /// Reads the journal. Lines that are not whole are left out.
    ///
    /// # Errors
    /// If it cannot be read.
    pub(crate) fn read(directory: &RunDirectory) -> io::Result<Self> {
        let file = match File::open(directory.journal()) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let mut journal = Self::default();
        let mut lines = BufReader::new(file.take(MAX_LEN)).split(b'\n');
        if let Some(line) = lines.next() {
            let mut header: Value = serde_json::from_slice(&line?).unwrap_or_default();
            journal.machine = header.get_mut("machine").map(Value::take).unwrap_or_default();
        }
        for line in lines {
            if let Ok(trial) = serde_json::from_slice(&line?) {
                journal.add(trial);
            }
        }
        Ok(journal)
    }

    /// The numbers of the trials that are invalid.
    pub(crate) fn invalid(&self) -> BTreeSet<usize> {
        let is_invalid =
            |trial: &Map<String, Value>| trial.get("invalid") == Some(&Value::Bool(true));
        let numbered = self.trials.iter().enumerate().filter(|(_, trial)| is_invalid(trial));
        numbered.map(|(place, _)| place + 1).collect()
    }

    /// Adds a line: a trial, or a repeated attempt of one. Trials are in the order of their
    /// numbers.
    fn add(&mut self, mut trial: Map<String, Value>) {
        let attempt = attempts(&trial);
        let part = |name: &str| trial.get(name).map(Value::to_string).unwrap_or_default();
        let point = format!("{} {}", part("repetition"), part("point"));
        let places = self.places.entry(point).or_default();
        let is_repeated = |place: &usize| attempts(&self.trials[*place]) + 1 == attempt;
        let Some(place) = places.iter().copied().find(is_repeated) else {
            let number = self.trials.len() + 1;
            trial.insert("number".into(), number.into());
            places.push(self.trials.len());
            self.trials.push(trial);
            return;
        };
        let earlier = &mut self.trials[place];
        if lateness(&trial) < lateness(earlier) {
            *earlier = trial;
            earlier.insert("number".into(), (place + 1).into());
        }
        earlier.insert("attempts".into(), attempt.into());
    }
}

/// How many packets a trial has lost because the machine was busy, and how late others were.
pub(crate) fn lateness(trial: &Map<String, Value>) -> (u64, f64) {
    let missed = trial.get("missed").and_then(Value::as_u64).unwrap_or_default();
    let late_ms = trial.get("late_ms").and_then(Value::as_f64).unwrap_or_default();
    (missed, late_ms)
}

fn attempts(trial: &Map<String, Value>) -> u64 {
    trial.get("attempts").and_then(Value::as_u64).unwrap_or(1)
}
