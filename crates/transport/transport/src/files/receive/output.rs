//! Writes received bytes to an output that may make its writer wait, such as a pipe. Meanwhile the
//! receiving thread can report that it is alive.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;

use crate::files::REPORT_INTERVAL;

/// The number of buffers, of which each has one block.
const BUFFERS: usize = 8;

/// The length of a block.
const BLOCK_LEN: usize = 256 << 10;

/// Why a block was not written.
pub(super) enum OutputError {
    /// The output has failed.
    Output(io::Error),
    /// The report that was made meanwhile has failed.
    Report(io::Error),
}

/// A thread that writes blocks, and the buffers of the blocks.
pub(super) struct OutputThread {
    blocks: SyncSender<Vec<u8>>,
    /// Buffers that were written, or the error of the output.
    written: Receiver<io::Result<Vec<u8>>>,
    /// The number of buffers that are written or wait.
    waiting: usize,
    /// The buffers that were not used yet.
    unused: usize,
}

impl OutputThread {
    pub(super) fn start(mut output: Box<dyn Write + Send>) -> io::Result<Self> {
        let (blocks, taken) = sync_channel::<Vec<u8>>(BUFFERS);
        let (done, written) = sync_channel(BUFFERS);
        let writing = move || {
            while let Ok(block) = taken.recv() {
                let result = output.write_all(&block).and_then(|()| output.flush());
                let has_failed = result.is_err();
                if done.send(result.map(|()| block)).is_err() || has_failed {
                    return;
                }
            }
        };
        thread::Builder::new().name("stream-output".into()).spawn(writing)?;
        Ok(Self { blocks, written, waiting: 0, unused: BUFFERS })
    }

    /// A buffer of the length of a block, as soon as there is one. Calls `report` at intervals.
    pub(super) fn buffer(
        &mut self,
        report: &mut impl FnMut() -> io::Result<()>,
    ) -> Result<Vec<u8>, OutputError> {
        let mut buffer = if self.unused > 0 {
            self.unused -= 1;
            Vec::new()
        } else {
            self.wait(report)?
        };
        buffer.resize(BLOCK_LEN, 0);
        Ok(buffer)
    }

    /// Writes a block in a buffer of [`Self::buffer`].
    pub(super) fn write(&mut self, block: Vec<u8>) -> Result<(), OutputError> {
        self.waiting += 1;
        if self.blocks.send(block).is_err() {
            // The thread has ended with the output's error.
            return Err(self.failure());
        }
        Ok(())
    }

    /// Waits until everything is written.
    pub(super) fn finish(
        mut self,
        report: &mut impl FnMut() -> io::Result<()>,
    ) -> Result<(), OutputError> {
        while self.waiting > 0 {
            self.wait(report)?;
        }
        Ok(())
    }

    fn wait(
        &mut self,
        report: &mut impl FnMut() -> io::Result<()>,
    ) -> Result<Vec<u8>, OutputError> {
        loop {
            match self.written.recv_timeout(REPORT_INTERVAL) {
                Ok(result) => {
                    self.waiting -= 1;
                    return result.map_err(OutputError::Output);
                }
                Err(RecvTimeoutError::Timeout) => report().map_err(OutputError::Report)?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(OutputError::Output(io::ErrorKind::Other.into()));
                }
            }
        }
    }

    fn failure(&self) -> OutputError {
        let error = self.written.try_iter().find_map(Result::err);
        OutputError::Output(error.unwrap_or_else(|| io::ErrorKind::Other.into()))
    }
}
