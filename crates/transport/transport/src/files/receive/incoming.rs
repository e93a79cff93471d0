//! The transfer of one file that arrives.

mod older;

use std::fs::File;
use std::io::{self, Read};
use std::time::Instant;

use base16ct::lower::encode_string;
use sha2::{Digest, Sha256};

use super::{
    FileNameReservation, PartialFileError, TransferStopReason, failed, next, protocol, put, skip,
};
use crate::files::part::PartialFile;
use crate::files::{FileTransferEvent, REPORT_INTERVAL, digest};
use crate::net::Connection;
use crate::protocol::file::{
    DIGEST_LEN, FileChunkList, FileReceiverMessage, FileSenderMessage, FileTransferFailureReason,
    MAX_DATA_LEN, closed_early,
};
use older::RebuiltFile;

/// After this many bytes progress is reported at once: the sender of a changed file sends nothing
/// that is far after the reported position.
const MAX_UNREPORTED: u64 = 32 << 20;

/// The transfer of one connection's file.
pub(super) struct IncomingFileTransfer<'a> {
    pub(super) connection: &'a mut Connection,
    pub(super) part: PartialFile,
    pub(super) length: u64,
    pub(super) position: u64,
    /// The digest of what was written.
    pub(super) state: Sha256,
    /// When progress was last reported, and which.
    pub(super) reported: Instant,
    reported_position: u64,
    pub(super) entered: &'a FileNameReservation<'a>,
    pub(super) buffer: Vec<u8>,
    /// Whether the sender has sent chunks, which were of no use.
    is_restarted: bool,
}

impl<'a> IncomingFileTransfer<'a> {
    /// The transfer of a file of this length.
    pub(super) fn new(
        connection: &'a mut Connection,
        part: PartialFile,
        length: u64,
        entered: &'a FileNameReservation<'a>,
    ) -> Self {
        Self {
            connection,
            part,
            length,
            position: 0,
            state: Sha256::new(),
            reported: Instant::now(),
            reported_position: 0,
            entered,
            buffer: vec![0; MAX_DATA_LEN],
            is_restarted: false,
        }
    }

    /// Returns the complete file, its digest, and how many of its bytes were not sent now.
    pub(super) fn receive(
        mut self,
        older: Option<(File, FileChunkList)>,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<(PartialFile, String, u64), TransferStopReason> {
        let rebuilt = match older {
            None => None,
            Some((older, list)) => {
                let rebuilt = self.rebuild(&older, list, observe)?;
                if rebuilt.is_none() {
                    self.part.clear().map_err(PartialFileError::into_stop)?;
                    self.is_restarted = true;
                }
                rebuilt
            }
        };
        let (digest, had) = match rebuilt {
            Some(RebuiltFile { digest, had }) => (encode_string(&digest), had),
            None => self.receive_data(observe)?,
        };
        Ok((self.part, digest, had))
    }

    /// Returns the digest, and how many bytes had arrived earlier.
    fn receive_data(
        &mut self,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<(String, u64), TransferStopReason> {
        let mut have = self.part.len();
        let mut resumed_from = 0;
        self.put(&FileReceiverMessage::Have(have))?;
        let mut is_ignoring = have > 0 || self.is_restarted;
        loop {
            match next(self.connection)? {
                FileSenderMessage::Start { offset: 0, .. } if is_ignoring => {
                    self.part.clear().map_err(PartialFileError::into_stop)?;
                    (self.state, self.position, is_ignoring) = (Sha256::new(), 0, false);
                }
                FileSenderMessage::Start { offset, digest } if is_ignoring && offset == have => {
                    if self.compare(have, &digest, observe)? {
                        (self.position, resumed_from, is_ignoring) = (have, have, false);
                    } else {
                        have = 0;
                        self.put(&FileReceiverMessage::Have(0))?;
                    }
                }
                FileSenderMessage::Data(len) if is_ignoring => skip(self.connection, len)?,
                FileSenderMessage::Data(len) => self.take(len, observe)?,
                FileSenderMessage::Working => {}
                FileSenderMessage::End(_) if is_ignoring => {}
                FileSenderMessage::End(digest) => return Ok((self.check(&digest)?, resumed_from)),
                _ => return Err(protocol("an unexpected message")),
            }
            self.report_if_due(observe)?;
        }
    }

    /// Reports progress at intervals, because the sender takes silence for a broken connection.
    pub(super) fn report_if_due(
        &mut self,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<(), TransferStopReason> {
        let unreported = self.position.saturating_sub(self.reported_position);
        if self.reported.elapsed() < REPORT_INTERVAL && unreported < MAX_UNREPORTED {
            return Ok(());
        }
        self.entered.note_activity();
        observe(FileTransferEvent::Position(self.position));
        self.put(&FileReceiverMessage::Progress(self.position))
    }

    pub(super) fn put(&mut self, message: &FileReceiverMessage) -> Result<(), TransferStopReason> {
        self.reported = Instant::now();
        if let FileReceiverMessage::Progress(position) = message {
            self.reported_position = *position;
        }
        put(self.connection, message).map_err(TransferStopReason::Broken)
    }

    /// Whether the beginning of the part has this digest.
    fn compare(
        &mut self,
        have: u64,
        stated: &[u8; DIGEST_LEN],
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<bool, TransferStopReason> {
        observe(FileTransferEvent::Comparing);
        let mut reader = self.part.beginning().map_err(PartialFileError::into_stop)?;
        let mut broken = None;
        let report = || {
            self.entered.note_activity();
            put(self.connection, &FileReceiverMessage::Progress(0)).inspect_err(|error| {
                broken = Some(io::Error::from(error.kind()));
            })
        };
        let state = digest::of_beginning(&mut reader, have, report);
        match (state, broken) {
            (_, Some(error)) => Err(TransferStopReason::Broken(error)),
            // Another program has truncated it.
            (Err(_), None) => Ok(false),
            (Ok(state), None) => {
                let is_same = digest::value(&state) == *stated;
                self.state = state;
                Ok(is_same)
            }
        }
    }

    pub(super) fn take(
        &mut self,
        len: usize,
        observe: &mut impl FnMut(FileTransferEvent<'_>),
    ) -> Result<(), TransferStopReason> {
        if len as u64 > self.length - self.position {
            return Err(protocol("more data arrives than was offered"));
        }
        let mut left = len;
        while left > 0 {
            // On a slow path, a message takes longer than the sender waits for a report.
            let count = self
                .connection
                .read(&mut self.buffer[..left])
                .map_err(TransferStopReason::Broken)?;
            if count == 0 {
                return Err(TransferStopReason::Broken(closed_early()));
            }
            let data = &self.buffer[..count];
            self.state.update(data);
            self.part.append(data).map_err(PartialFileError::into_stop)?;
            self.position += count as u64;
            left -= count;
            self.report_if_due(observe)?;
        }
        Ok(())
    }

    fn check(&mut self, stated: &[u8; DIGEST_LEN]) -> Result<String, TransferStopReason> {
        if self.position != self.length {
            return Err(protocol("less data has arrived than was offered"));
        }
        let digest = digest::value(&self.state);
        if digest == *stated {
            return Ok(encode_string(&digest));
        }
        // Unless the connection is insecure, it has authenticated each byte.
        self.part.clear().map_err(PartialFileError::into_stop)?;
        let text = "the SHA-256 digest of the received data is wrong; the data is removed";
        Err(failed(FileTransferFailureReason::Digest, text.into()))
    }
}
