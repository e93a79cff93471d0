//! A process that was forked has copies of its parent's connections, but not of their threads, and
//! both would encrypt with the same numbers. So only the process that has opened a connection or a
//! listener uses it.

use std::io;

/// The process that has opened something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwningProcess(u32);

impl OwningProcess {
    /// This process.
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether this is another process now: one that was forked.
    pub(crate) fn is_other(self) -> bool {
        self != Self::current()
    }

    /// # Errors
    /// If this is another process now.
    pub(crate) fn check(self) -> io::Result<()> {
        if self.is_other() {
            let what = "the connection is of the process that has forked this one";
            return Err(io::Error::new(io::ErrorKind::NotConnected, what));
        }
        Ok(())
    }
}
