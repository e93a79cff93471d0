//! A tap on a link: writes what an eavesdropper on the link sees to a pcapng file.
//!
//! Packets are written as on a wire: segments one by one with their checksums, lost ones included,
//! in the order of transmission in each direction. Their time is the end of transmission of the
//! piece that contained them, which takes at most 100 µs. The file has one interface, that of the
//! first host: packets of that host are outbound.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{SystemTime, UNIX_EPOCH};

use tun::TunFrame;

use crate::clock::now;

/// The maximum number of frames that wait to be written. Further frames are not recorded, and the
/// file states their number.
const MAX_WAITING: usize = 4096;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;

const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// Raw IP packets.
const LINK_TYPE: u16 = 101;
const NAME: u16 = 2;
const RESOLUTION: u16 = 9;
const DROPPED: u16 = 5;
const FLAGS: u16 = 2;
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Writes packets to a file in a thread of its own.
#[derive(Debug)]
pub(super) struct LinkTap {
    path: PathBuf,
    frames: SyncSender<(usize, u64, TunFrame)>,
    missed: AtomicU64,
    writer: JoinHandle<io::Result<PcapngWriter>>,
}

/// The file.
#[derive(Debug)]
struct PcapngWriter {
    file: BufWriter<File>,
    /// The offset from the monotonic clock to the time since the epoch, in nanoseconds.
    since_epoch: u64,
}

impl LinkTap {
    /// Starts recording a link to a new file, which replaces any file at `path`.
    ///
    /// # Errors
    /// If the file cannot be created; the error names it.
    pub(super) fn new(path: &Path, link: &str) -> io::Result<Self> {
        let day = SystemTime::now().duration_since(UNIX_EPOCH).map_err(io::Error::other)?;
        let since_epoch = u64::try_from(day.as_nanos()).map_err(io::Error::other)? - now();
        let file = new_file(path).map_err(|error| not_written(path, &error))?;
        let mut recording = PcapngWriter { file: BufWriter::new(file), since_epoch };
        recording.begin(link)?;
        let (frames, written) = sync_channel(MAX_WAITING);
        let writer =
            thread::Builder::new().name("tap".into()).spawn(|| recording.record(written))?;
        Ok(Self { path: path.to_owned(), frames, missed: AtomicU64::new(0), writer })
    }

    /// Records a frame that host `sender`, 0 or 1, transmitted at the time `sent`.
    pub(super) fn record(&self, sender: usize, sent: u64, frame: TunFrame) {
        let segments = frame.segments() as u64;
        // The link must not wait for the disk.
        if self.frames.try_send((sender, sent, frame)).is_err() {
            self.missed.fetch_add(segments, Relaxed);
        }
    }

    /// Completes the file.
    ///
    /// # Errors
    /// If the file could not be written; the error names it.
    pub(super) fn finish(self) -> io::Result<()> {
        drop(self.frames);
        let recorded = self.writer.join().map_err(|_| io::Error::other("the tap failed"))?;
        let complete = |mut recording: PcapngWriter| {
            recording.statistics(self.missed.into_inner())?;
            recording.file.flush()
        };
        recorded.and_then(complete).map_err(|error| not_written(&self.path, &error))
    }
}

impl PcapngWriter {
    fn record(mut self, frames: Receiver<(usize, u64, TunFrame)>) -> io::Result<Self> {
        for (sender, sent, frame) in frames {
            for i in 0..frame.segments() {
                self.packet(sender, sent, &frame.packet(i))?;
            }
        }
        Ok(self)
    }

    fn begin(&mut self, link: &str) -> io::Result<()> {
        let mut body = Vec::new();
        body.extend(BYTE_ORDER.to_ne_bytes());
        body.extend(1_u16.to_ne_bytes());
        body.extend(0_u16.to_ne_bytes());
        // The length of the section is unknown.
        body.extend(u64::MAX.to_ne_bytes());
        self.block(SECTION, &body)?;
        let mut body = Vec::new();
        body.extend(LINK_TYPE.to_ne_bytes());
        body.extend(0_u16.to_ne_bytes());
        body.extend(0_u32.to_ne_bytes());
        option(&mut body, NAME, link.as_bytes());
        option(&mut body, RESOLUTION, &[9]);
        option(&mut body, 0, &[]);
        self.block(INTERFACE, &body)
    }

    fn packet(&mut self, sender: usize, sent: u64, packet: &[u8]) -> io::Result<()> {
        let mut body = self.stamp(sent);
        let length = u32::try_from(packet.len()).map_err(io::Error::other)?;
        body.extend(length.to_ne_bytes());
        body.extend(length.to_ne_bytes());
        body.extend(packet);
        body.resize(body.len().next_multiple_of(4), 0);
        let flags = if sender == 0 { OUTBOUND } else { INBOUND };
        option(&mut body, FLAGS, &flags.to_ne_bytes());
        option(&mut body, 0, &[]);
        self.block(PACKET, &body)
    }

    fn statistics(&mut self, missed: u64) -> io::Result<()> {
        let mut body = self.stamp(now());
        option(&mut body, DROPPED, &missed.to_ne_bytes());
        option(&mut body, 0, &[]);
        self.block(STATISTICS, &body)
    }

    /// The start of a block about the interface: its number and a timestamp.
    fn stamp(&self, time: u64) -> Vec<u8> {
        let time = time + self.since_epoch;
        #[expect(clippy::cast_possible_truncation, reason = "it is split into halves")]
        let words = [0, (time >> 32) as u32, time as u32];
        words.into_iter().flat_map(u32::to_ne_bytes).collect()
    }

    /// Writes a block. The length of its body is a multiple of 4.
    fn block(&mut self, kind: u32, body: &[u8]) -> io::Result<()> {
        let length = u32::try_from(body.len() + 12).map_err(io::Error::other)?;
        self.file.write_all(&kind.to_ne_bytes())?;
        self.file.write_all(&length.to_ne_bytes())?;
        self.file.write_all(body)?;
        self.file.write_all(&length.to_ne_bytes())
    }
}

/// Creates a new file. A symbolic link of that name is removed, and its target stays unchanged.
fn new_file(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => File::create_new(path),
    }
}

/// The error for a file that cannot be written, with advice.
fn not_written(path: &Path, error: &io::Error) -> io::Error {
    let advice = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "; make room there, or choose another place with --out"
        }
        _ => "",
    };
    io::Error::other(format!("cannot write {}: {error}{advice}", path.display()))
}

/// Appends an option to a block's body, whose length is a multiple of 4.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    body.extend(code.to_ne_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "a name has 15 bytes")]
    body.extend((value.len() as u16).to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}
