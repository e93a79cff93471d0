//! The events of a run, as server-sent events: those so far, and then each one as it happens.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use axum::response::sse::Event;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::run::{RunDirectory, RunName, RunState};
use crate::runner::RunQueue;

/// How many bytes of events are read at a time.
const CHUNK: u64 = 256 << 10;

/// A viewer of a run.
struct RunViewer {
    queue: Arc<RunQueue>,
    name: RunName,
    directory: RunDirectory,
    changes: watch::Receiver<u64>,
    /// The place in the file of events from which to read.
    offset: u64,
    /// Events that were read and not yet sent, the last one first, with the place after each.
    read: Vec<(u64, String)>,
    /// The state that was sent last.
    shown: Option<RunState>,
    /// Its place among the viewers.
    _place: OwnedSemaphorePermit,
}

/// The events of a run from a place in its file on. Ends when the run is over.
pub(crate) fn events(
    queue: Arc<RunQueue>,
    name: RunName,
    offset: u64,
    place: OwnedSemaphorePermit,
) -> impl Stream<Item = io::Result<Event>> {
    let directory = queue.store().directory_of(&name);
    let changes = queue.changes();
    let (read, shown) = (Vec::new(), None);
    let viewer = RunViewer { queue, name, directory, changes, offset, read, shown, _place: place };
    unfold(viewer, |mut viewer| async move { Some((viewer.next().await?, viewer)) })
}

impl RunViewer {
    /// The next event; `None` after the last.
    async fn next(&mut self) -> Option<io::Result<Event>> {
        loop {
            // What happens from here on wakes this again.
            self.changes.borrow_and_update();
            let record = self.queue.store().get(&self.name).cloned()?;
            if self.read.is_empty() {
                match self.read_lines() {
                    Ok(lines) => self.read = lines,
                    Err(error) => return Some(Err(error)),
                }
            }
            if let Some((after, line)) = self.read.pop() {
                self.offset = after;
                return Some(Ok(Event::default().id(after.to_string()).data(line)));
            }
            if self.shown != Some(record.state) {
                self.shown = Some(record.state);
                let state =
                    json!({ "event": "state", "state": record.state, "error": record.error });
                return Some(Ok(Event::default().data(state.to_string())));
            }
            if record.state.is_over() || self.changes.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Whole lines from the place on, the last one first, with the place after each.
    fn read_lines(&self) -> io::Result<Vec<(u64, String)>> {
        let mut file = match File::open(self.directory.events()) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        file.seek(SeekFrom::Start(self.offset))?;
        let mut bytes = Vec::new();
        file.take(CHUNK).read_to_end(&mut bytes)?;
        let mut after = self.offset;
        let whole = bytes.split_inclusive(|byte| *byte == b'\n');
        let whole = whole.filter(|line| line.ends_with(b"\n"));
        let mut lines: Vec<(u64, String)> = whole
            .map(|line| {
                after += line.len() as u64;
                (after, String::from_utf8_lossy(&line[..line.len() - 1]).into_owned())
            })
            .collect();
        lines.reverse();
        Ok(lines)
    }
}
