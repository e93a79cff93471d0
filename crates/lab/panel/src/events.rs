//! The events of a run, as server-sent events: those so far, and then each one as it happens.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::sse::Event;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::run::{RunDirectory, RunName, RunRecord, RunState};
use crate::runner::{MAX_LINE, RunQueue};
use crate::visitor::PageVisitor;

/// How many bytes of events are read at a time, and the line after them.
const CHUNK: u64 = 64 << 10;

/// How often the session of a viewer is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

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
    /// Who watches. The stream ends when they may not see the run any more.
    visitor: PageVisitor,
    /// When the session was checked last.
    checked: Instant,
    /// Its places among the viewers.
    _places: Vec<OwnedSemaphorePermit>,
}

/// The events of a run from a place in its file on. Ends when the run is over, or when the link or
/// the session by which it is seen is not valid any more.
pub(crate) fn events(
    queue: Arc<RunQueue>,
    name: RunName,
    offset: u64,
    visitor: PageVisitor,
    places: Vec<OwnedSemaphorePermit>,
) -> impl Stream<Item = io::Result<Event>> {
    let directory = queue.store().directory_of(&name);
    let changes = queue.changes();
    let (read, shown) = (Vec::new(), None);
    let viewer = RunViewer {
        queue,
        name,
        directory,
        changes,
        offset,
        read,
        shown,
        visitor,
        checked: Instant::now(),
        _places: places,
    };
    unfold(viewer, |mut viewer| async move { Some((viewer.next().await?, viewer)) })
}

impl RunViewer {
    /// The next event; `None` after the last.
    async fn next(&mut self) -> Option<io::Result<Event>> {
        loop {
            // What happens from here on wakes this again.
            self.changes.borrow_and_update();
            let record = self.queue.store().get(&self.name).cloned()?;
            if !self.may_go_on(&record) {
                return None;
            }
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

    /// Whether the link or the session of the viewer is still valid.
    fn may_go_on(&mut self, record: &RunRecord) -> bool {
        match &self.visitor {
            PageVisitor::Owner => true,
            PageVisitor::LinkHolder(linked) => record.link.as_ref() == Some(&linked.link),
            PageVisitor::Account(_) if self.checked.elapsed() < CHECK_INTERVAL => true,
            PageVisitor::Account(visitor) => {
                self.checked = Instant::now();
                let accounts = self.queue.accounts();
                let account = accounts.and_then(|it| it.account_of(visitor.session.as_str()));
                account.as_ref() == Some(&visitor.account)
            }
            PageVisitor::Stranger => false,
        }
    }

    /// Whole lines from the place on, the last one first, with the place after each.
    fn read_lines(&self) -> io::Result<Vec<(u64, String)>> {
        let mut file = match File::open(self.directory.events()) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        if file.metadata()?.len() <= self.offset {
            return Ok(Vec::new());
        }
        file.seek(SeekFrom::Start(self.offset))?;
        let mut reader = BufReader::new(file);
        let (mut after, mut lines) = (self.offset, Vec::new());
        while after < self.offset + CHUNK {
            let mut line = Vec::new();
            (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)?;
            after += line.len() as u64;
            // The rest of the last line is not written yet.
            if line.pop() != Some(b'\n') {
                break;
            }
            lines.push((after, String::from_utf8_lossy(&line).into_owned()));
        }
        lines.reverse();
        Ok(lines)
    }
}
