//! Computes digests of files, with progress reports.

use std::io::{self, Read};
use std::time::Instant;

use sha2::{Digest, Sha256};

use super::REPORT_INTERVAL;
use crate::protocol::file::DIGEST_LEN;

const BUFFER_LEN: usize = 256 << 10;

/// The state of a digest after the first `len` bytes of a file. `report` is called at intervals.
///
/// # Errors
/// As for the reader or the report, and if the file is shorter.
pub(super) fn of_beginning(
    file: &mut impl Read,
    len: u64,
    mut report: impl FnMut() -> io::Result<()>,
) -> io::Result<Sha256> {
    let (mut state, mut buffer) = (Sha256::new(), vec![0; BUFFER_LEN]);
    let (mut left, mut reported) = (len, Instant::now());
    while left > 0 {
        let count = usize::try_from(left).unwrap_or(BUFFER_LEN).min(BUFFER_LEN);
        file.read_exact(&mut buffer[..count])?;
        state.update(&buffer[..count]);
        left -= count as u64;
        if reported.elapsed() >= REPORT_INTERVAL {
            report()?;
            reported = Instant::now();
        }
    }
    Ok(state)
}

/// The digest in this state.
pub(super) fn value(state: &Sha256) -> [u8; DIGEST_LEN] {
    state.clone().finalize().into()
}
