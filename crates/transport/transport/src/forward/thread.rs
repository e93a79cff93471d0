//! The threads of a forward: two for each connection.

use std::io;
use std::thread::Builder;

/// Their stack size. Buffers are on the heap.
const STACK_LEN: usize = 512 << 10;

/// Runs the work on one connection in its own thread.
///
/// # Errors
/// If the system provides no thread.
pub(super) fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    Builder::new().name("forward".into()).stack_size(STACK_LEN).spawn(work).map(drop)
}
