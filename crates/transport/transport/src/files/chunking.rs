//! Divides files into chunks.

use std::io::{self, BufReader, Read};

use fastcdc::v2020::StreamCDC;
use sha2::{Digest, Sha256};

use crate::protocol::file::{ChunkDigest, ChunkLengths, FileChunk};

/// The number of bytes that are read at a time.
const READ_LEN: usize = 256 << 10;

/// The chunks of a file from its beginning, with their data.
///
/// Each iteration fails as the reader does.
pub(super) fn chunks_of(
    file: impl Read,
    lengths: ChunkLengths,
) -> impl Iterator<Item = io::Result<(FileChunk, Vec<u8>)>> {
    let ChunkLengths { min, average, max } = lengths;
    let reader = BufReader::with_capacity(READ_LEN, file);
    StreamCDC::new(reader, min, average, max).map(|chunk| {
        let data = chunk?.data;
        let len = u32::try_from(data.len()).expect("a chunk is short");
        Ok((FileChunk { len, digest: chunk_digest(&data) }, data))
    })
}

/// The digest by which the ends recognise a chunk with this data.
pub(super) fn chunk_digest(data: &[u8]) -> ChunkDigest {
    let digest = Sha256::digest(data);
    *digest.first_chunk().expect("a chunk's digest is shorter")
}
