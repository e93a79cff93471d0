//! Protects connections from use after a fork. A forked process has copies of its parent's
//! connections, but not of their threads, and both processes would encrypt with the same nonces. So
//! only the process that opened a connection or a listener may use it.

use std::io;

/// The process that opened a connection or a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwningProcess(u32);

impl OwningProcess {
    /// This process.
    pub(crate) fn current() -> Self {
        Self(std::process::id())
    }

    /// Whether the current process is another one, such as a forked child.
    pub(crate) fn is_other(self) -> bool {
        self != Self::current()
    }

    /// # Errors
    /// If the current process is another one.
    pub(crate) fn check(self) -> io::Result<()> {
        if self.is_other() {
            let what = "the connection belongs to the parent of this forked process";
            return Err(io::Error::new(io::ErrorKind::NotConnected, what));
        }
        Ok(())
    }
}
