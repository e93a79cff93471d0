//! Copies what a command prints.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// Copies from a pipe to a file until the pipe is closed, at most so many bytes. Sets `is_too_much`
/// if there are more, and drops them.
pub(super) fn copy(from: OwnedFd, mut to: impl Write, most: u64, is_too_much: &AtomicBool) {
    let mut from = File::from(from);
    let mut left = most;
    let mut piece = vec![0; 64 << 10];
    loop {
        let length = match from.read(&mut piece) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let kept = length.min(usize::try_from(left).unwrap_or(usize::MAX));
        // On a full disk the rest is lost, which is not the command's fault.
        if to.write_all(&piece[..kept]).is_err() {
            left = 0;
        }
        left -= left.min(kept as u64);
        if kept < length {
            is_too_much.store(true, Ordering::Relaxed);
        }
    }
}
