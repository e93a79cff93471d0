//! Waits of a test that was stopped and goes on.

use std::io;

/// Calls again while the call is interrupted: a wait with a time limit is interrupted when its
/// process was stopped and goes on, even without a handler of a signal (`signal(7)`).
pub(crate) fn uninterrupted<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
