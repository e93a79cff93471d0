//! The chunks of a file that has changed: which of them the receiver has in its older version, and
//! how it makes the new version from both.

use std::collections::HashMap;
use std::io::{self, Read};
use std::ops::Range;

use super::{array, invalid};

/// The shortest file whose chunks are compared. The data of a shorter one has mostly been sent when
/// the receiver's answer arrives.
const MIN_FILE_LEN: u64 = 1 << 20;

/// The longest file whose chunks are compared.
const MAX_FILE_LEN: u64 = (MAX_AVERAGE_LEN as u64) << AVERAGE_COUNT_BITS;

/// The average length of chunks grows with the file, so that a file has at most 2 to this power of
/// chunks of average length.
const AVERAGE_COUNT_BITS: u32 = 17;

/// The least and the largest average length of chunks, in bytes.
const MIN_AVERAGE_LEN: usize = 4 << 10;
const MAX_AVERAGE_LEN: usize = 2 << 20;

/// The length of a chunk's digest: the beginning of its SHA-256 digest. An error is found by the
/// digest of the file.
pub(crate) const CHUNK_DIGEST_LEN: usize = 16;

/// The largest number of chunks in one message.
pub(crate) const MAX_CHUNKS_IN_MESSAGE: usize = 1024;

/// The largest number of chunks of a file: all but the last one have the least length.
const MAX_CHUNKS: usize = (4 << AVERAGE_COUNT_BITS) + 1;

/// The largest number of runs of chunks that can be wanted: every second chunk.
const MAX_RUNS: usize = MAX_CHUNKS.div_ceil(2);

/// The lengths of the chunks of a file, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkLengths {
    pub(crate) min: usize,
    pub(crate) average: usize,
    pub(crate) max: usize,
}

impl ChunkLengths {
    /// Those of a file of this length, at both ends; `None` if its chunks are not compared.
    pub(crate) fn of_file(len: u64) -> Option<Self> {
        if !(MIN_FILE_LEN..=MAX_FILE_LEN).contains(&len) {
            return None;
        }
        let average = usize::try_from(len.div_ceil(1 << AVERAGE_COUNT_BITS)).ok()?;
        let average = average.next_power_of_two().max(MIN_AVERAGE_LEN);
        Some(Self { min: average / 4, average, max: average * 8 })
    }
}

/// The digest of a chunk.
pub(crate) type ChunkDigest = [u8; CHUNK_DIGEST_LEN];

/// A chunk: a part of a file whose ends are chosen by what the file has there, so that equal parts
/// of two files have equal chunks, wherever they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileChunk {
    pub(crate) len: u32,
    pub(crate) digest: ChunkDigest,
}

/// All chunks of a file, in their order, as far as they are known.
#[derive(Clone, Debug)]
pub(crate) struct FileChunkList {
    file_len: u64,
    lengths: ChunkLengths,
    listed: u64,
    chunks: Vec<FileChunk>,
}

impl FileChunkList {
    /// An empty list for a file of this length; `None` if its chunks are not compared.
    pub(crate) fn new(file_len: u64) -> Option<Self> {
        let lengths = ChunkLengths::of_file(file_len)?;
        Some(Self { file_len, lengths, listed: 0, chunks: Vec::new() })
    }

    /// The lengths that chunks may have.
    pub(crate) fn lengths(&self) -> ChunkLengths {
        self.lengths
    }

    /// The chunks.
    pub(crate) fn chunks(&self) -> &[FileChunk] {
        &self.chunks
    }

    /// Whether it has all of the file.
    pub(crate) fn is_complete(&self) -> bool {
        self.listed == self.file_len
    }

    /// Adds the next chunk.
    ///
    /// # Errors
    /// If it is too short or too long.
    pub(crate) fn add(&mut self, chunk: FileChunk) -> io::Result<()> {
        let (len, left) = (u64::from(chunk.len), self.file_len - self.listed);
        let min = (self.lengths.min as u64).min(left).max(1);
        if !(min..=left.min(self.lengths.max as u64)).contains(&len) {
            return Err(invalid("a chunk has an impossible length"));
        }
        self.listed += len;
        self.chunks.push(chunk);
        Ok(())
    }

    /// Where the chunks of these runs are in the file.
    ///
    /// # Errors
    /// If the runs are not in order, or a chunk is not in the list.
    pub(crate) fn ranges(&self, runs: &[FileChunkRun]) -> io::Result<Vec<Range<u64>>> {
        let wrong = || invalid("the receiver wants chunks that there are not");
        let (mut ranges, mut index, mut offset) = (Vec::new(), 0, 0);
        for run in runs {
            let (first, count) = (run.first as usize, run.count as usize);
            let skipped = self.chunks.get(index..first).ok_or_else(wrong)?;
            let end = first.checked_add(count).ok_or_else(wrong)?;
            let wanted = self.chunks.get(first..end).ok_or_else(wrong)?;
            if wanted.is_empty() {
                return Err(wrong());
            }
            let start = offset + total_len(skipped);
            offset = start + total_len(wanted);
            ranges.push(start..offset);
            index = end;
        }
        Ok(ranges)
    }
}

fn total_len(chunks: &[FileChunk]) -> u64 {
    chunks.iter().map(|chunk| u64::from(chunk.len)).sum()
}

/// Chunks that the receiver wants: their number, from the index of the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileChunkRun {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// Where the chunks of the receiver's older version are.
#[derive(Debug, Default)]
pub(crate) struct OlderChunks(HashMap<ChunkDigest, (u64, u32)>);

impl OlderChunks {
    /// Adds a chunk at this offset. Returns false if there are as many as a file can have.
    pub(crate) fn add(&mut self, offset: u64, chunk: FileChunk) -> bool {
        self.0.entry(chunk.digest).or_insert((offset, chunk.len));
        self.0.len() < MAX_CHUNKS
    }

    fn offset(&self, chunk: &FileChunk) -> Option<u64> {
        let (offset, len) = *self.0.get(&chunk.digest)?;
        (len == chunk.len).then_some(offset)
    }
}

/// A step by which the receiver makes the file: its next `len` bytes, from `source`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RebuildStep {
    pub(crate) len: u64,
    pub(crate) source: RebuildSource,
}

/// Where bytes of the file come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RebuildSource {
    /// The older version, at this offset.
    Older(u64),
    /// The sender.
    Sender,
}

/// How the receiver makes the file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct RebuildPlan {
    pub(crate) steps: Vec<RebuildStep>,
    /// The chunks that it wants from the sender.
    pub(crate) wanted: Vec<FileChunkRun>,
}

impl RebuildPlan {
    /// The plan for the chunks from this index on.
    pub(crate) fn new(list: &FileChunkList, from: usize, older: &OlderChunks) -> Self {
        let mut plan = Self::default();
        for (index, chunk) in (0..).zip(&list.chunks).skip(from) {
            let source = older.offset(chunk).map_or(RebuildSource::Sender, RebuildSource::Older);
            if source == RebuildSource::Sender {
                plan.want(index);
            }
            plan.add(u64::from(chunk.len), source);
        }
        plan
    }

    /// How many bytes the sender sends.
    pub(crate) fn bytes_from_sender(&self) -> u64 {
        let is_sent = |step: &&RebuildStep| step.source == RebuildSource::Sender;
        self.steps.iter().filter(is_sent).map(|step| step.len).sum()
    }

    fn want(&mut self, index: u32) {
        match self.wanted.last_mut() {
            Some(run) if run.first + run.count == index => run.count += 1,
            _ => self.wanted.push(FileChunkRun { first: index, count: 1 }),
        }
    }

    /// Adds a step, or makes the last one longer.
    fn add(&mut self, len: u64, source: RebuildSource) {
        if let Some(last) = self.steps.last_mut() {
            let continued = match last.source {
                RebuildSource::Older(offset) => RebuildSource::Older(offset + last.len),
                RebuildSource::Sender => RebuildSource::Sender,
            };
            if continued == source {
                last.len += len;
                return;
            }
        }
        self.steps.push(RebuildStep { len, source });
    }
}

/// Encodes the sender's list, or a part of it, after the kind of the message.
pub(super) fn encode_chunks(chunks: &[FileChunk], bytes: &mut Vec<u8>) {
    bytes.extend(u32::try_from(chunks.len()).expect("there are few").to_be_bytes());
    for FileChunk { len, digest } in chunks {
        bytes.extend(len.to_be_bytes());
        bytes.extend(digest);
    }
}

/// Reads a part of the sender's list, after the kind of the message.
///
/// # Errors
/// As for the reader, and if there are none or too many.
pub(super) fn read_chunks(from: &mut impl Read) -> io::Result<Vec<FileChunk>> {
    let count = u32::from_be_bytes(array(from)?) as usize;
    if count == 0 || count > MAX_CHUNKS_IN_MESSAGE {
        return Err(invalid("a message has an impossible number of chunks"));
    }
    let chunk = |_| {
        let len = u32::from_be_bytes(array(from)?);
        Ok(FileChunk { len, digest: array(from)? })
    };
    (0..count).map(chunk).collect()
}

/// Encodes the receiver's answer, after the kind of the message.
pub(super) fn encode_runs(runs: &[FileChunkRun], bytes: &mut Vec<u8>) {
    bytes.extend(u32::try_from(runs.len()).expect("there are few").to_be_bytes());
    for FileChunkRun { first, count } in runs {
        bytes.extend(first.to_be_bytes());
        bytes.extend(count.to_be_bytes());
    }
}

/// Reads the receiver's answer, after the kind of the message.
///
/// # Errors
/// As for the reader, and if there are too many runs.
pub(super) fn read_runs(from: &mut impl Read) -> io::Result<Vec<FileChunkRun>> {
    let count = u32::from_be_bytes(array(from)?) as usize;
    if count > MAX_RUNS {
        return Err(invalid("a message has an impossible number of chunks"));
    }
    let run = |_| {
        let first = u32::from_be_bytes(array(from)?);
        Ok(FileChunkRun { first, count: u32::from_be_bytes(array(from)?) })
    };
    (0..count).map(run).collect()
}
