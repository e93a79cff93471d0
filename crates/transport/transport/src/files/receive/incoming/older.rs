//! Makes a file from an older version at the receiver and what has changed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;

use sha2::Digest;

use super::{IncomingFileTransfer, PartialFileError, TransferStopReason, next, protocol};
use crate::files::chunking::{chunk_digest, chunks_of};
use crate::files::{FileTransferEvent, REPORT_INTERVAL, digest};
use crate::protocol::file::{
    ChunkLengths, DIGEST_LEN, FileChunkList, FileReceiverMessage, FileSenderMessage, MAX_DATA_LEN,
    OlderChunks, RebuildPlan, RebuildSource, RebuildStep, closed_early,
};

/// A file that was made from an older version.
pub(super) struct RebuiltFile {
    pub(super) digest: [u8; DIGEST_LEN],
    /// How many bytes the sender has not sent.
    pub(super) had: u64,
}

impl IncomingFileTransfer<'_> {
    /// Receives the file as changes of an older version. Returns `None` if the result is not the
    /// sender's file: the older version was changed meanwhile, or digests of chunks collide. Then
    /// nothing is kept.
    pub(super) fn rebuild(
        &mut self,
        older: &File,
        mut list: FileChunkList,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<Option<RebuiltFile>, TransferStopReason> {
        self.put(&FileReceiverMessage::HaveOlder)?;
        let (lengths, is_stopped) = (list.lengths(), AtomicBool::new(false));
        let chunks = thread::scope(|scope| {
            let (done, finding) = sync_channel(1);
            let is_stopped = &is_stopped;
            scope.spawn(move || done.send(find_chunks(older, lengths, is_stopped)));
            let listed = self.read_list(&mut list, observe);
            let found = listed.and_then(|()| self.wait_for(&finding));
            is_stopped.store(true, Ordering::Relaxed);
            found
        })?;
        let kept = self.keep_part(&list)?;
        // The sender sends nothing that is far after this.
        self.put(&FileReceiverMessage::Progress(self.position))?;
        let plan = RebuildPlan::new(&list, kept, &chunks);
        self.put(&FileReceiverMessage::WantedChunks(plan.wanted.clone()))?;
        let had = self.length - plan.bytes_from_sender();
        for step in plan.steps {
            if !self.take_step(step, older, observe)? {
                return Ok(None);
            }
        }
        let stated = loop {
            match next(self.connection)? {
                FileSenderMessage::End(digest) => break digest,
                FileSenderMessage::Working => {}
                _ => return Err(protocol("an unexpected message")),
            }
        };
        let digest = digest::value(&self.state);
        Ok((digest == stated).then_some(RebuiltFile { digest, had }))
    }

    /// Reads the sender's chunks.
    fn read_list(
        &mut self,
        list: &mut FileChunkList,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<(), TransferStopReason> {
        observe(FileTransferEvent::Comparing);
        let mut is_listing = false;
        while !list.is_complete() {
            match next(self.connection)? {
                FileSenderMessage::Chunks(chunks) => {
                    is_listing = true;
                    let added = chunks.into_iter().try_for_each(|chunk| list.add(chunk));
                    added.map_err(|error| protocol(&error.to_string()))?;
                }
                FileSenderMessage::Working => {}
                // It was sent before the sender knew that there is an older version.
                FileSenderMessage::Data(len) if !is_listing => self.ignore(len)?,
                FileSenderMessage::End(_) if !is_listing => {}
                _ => return Err(protocol("an unexpected message")),
            }
            self.report_comparison()?;
        }
        Ok(())
    }

    fn ignore(&mut self, len: usize) -> Result<(), TransferStopReason> {
        let mut left = len;
        while left > 0 {
            let read = self.connection.read(&mut self.buffer[..left]);
            match read.map_err(TransferStopReason::Broken)? {
                0 => return Err(TransferStopReason::Broken(closed_early())),
                count => left -= count,
            }
            self.report_comparison()?;
        }
        Ok(())
    }

    /// Reports that this end is alive, while nothing is written.
    fn report_comparison(&mut self) -> Result<(), TransferStopReason> {
        if self.reported.elapsed() < REPORT_INTERVAL {
            return Ok(());
        }
        self.entered.note_activity();
        self.put(&FileReceiverMessage::Progress(self.position))
    }

    fn wait_for<T>(&mut self, work: &Receiver<T>) -> Result<T, TransferStopReason> {
        loop {
            match work.recv_timeout(REPORT_INTERVAL) {
                Ok(result) => return Ok(result),
                Err(RecvTimeoutError::Timeout) => self.report_comparison()?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(TransferStopReason::Broken(io::ErrorKind::Other.into()));
                }
            }
        }
    }

    /// Keeps what an earlier attempt has left, as far as it is the beginning of the file. Returns
    /// the number of its chunks.
    fn keep_part(&mut self, list: &FileChunkList) -> Result<usize, TransferStopReason> {
        let (mut kept, mut left, mut data) = (0, self.part.len(), Vec::new());
        for chunk in list.chunks() {
            if u64::from(chunk.len) > left {
                break;
            }
            data.resize(chunk.len as usize, 0);
            // Another program may have truncated it.
            let read = self.part.read_at(self.position, &mut data);
            if read.is_err() || chunk_digest(&data) != chunk.digest {
                break;
            }
            self.state.update(&data);
            self.position += u64::from(chunk.len);
            left -= u64::from(chunk.len);
            kept += 1;
            self.report_comparison()?;
        }
        self.part.truncate(self.position).map_err(PartialFileError::into_stop)?;
        Ok(kept)
    }

    /// Returns false if the older version cannot be read any more.
    fn take_step(
        &mut self,
        step: RebuildStep,
        older: &File,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<bool, TransferStopReason> {
        match step.source {
            RebuildSource::Older(offset) => self.copy(older, offset, step.len, observe),
            RebuildSource::Sender => self.take_chunks(step.len, observe).map(|()| true),
        }
    }

    fn copy(
        &mut self,
        older: &File,
        mut offset: u64,
        len: u64,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<bool, TransferStopReason> {
        let mut left = len;
        while left > 0 {
            let count = usize::try_from(left).unwrap_or(MAX_DATA_LEN).min(MAX_DATA_LEN);
            let data = &mut self.buffer[..count];
            if older.read_exact_at(data, offset).is_err() {
                return Ok(false);
            }
            self.state.update(&*data);
            self.part.append(data).map_err(PartialFileError::into_stop)?;
            self.position += count as u64;
            (offset, left) = (offset + count as u64, left - count as u64);
            self.report_if_due(observe)?;
        }
        Ok(true)
    }

    /// Takes this many bytes of data from the sender.
    fn take_chunks(
        &mut self,
        len: u64,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<(), TransferStopReason> {
        let mut left = len;
        while left > 0 {
            match next(self.connection)? {
                FileSenderMessage::Data(len) if len as u64 <= left => {
                    self.take(len, observe)?;
                    left -= len as u64;
                }
                FileSenderMessage::Working => {}
                _ => return Err(protocol("an unexpected message")),
            }
            self.report_if_due(observe)?;
        }
        Ok(())
    }
}

/// Finds the chunks of the older version. If it cannot be read, there are fewer or none.
fn find_chunks(older: &File, lengths: ChunkLengths, is_stopped: &AtomicBool) -> OlderChunks {
    let (mut found, mut offset) = (OlderChunks::default(), 0);
    for chunk in chunks_of(older, lengths) {
        let Ok((chunk, _)) = chunk else { break };
        // A short one at the end would be easy to guess for a sender that may not know it.
        let is_whole = chunk.len as usize >= lengths.min;
        if (is_whole && !found.add(offset, chunk)) || is_stopped.load(Ordering::Relaxed) {
            break;
        }
        offset += u64::from(chunk.len);
    }
    found
}
