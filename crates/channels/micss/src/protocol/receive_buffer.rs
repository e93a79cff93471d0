//! How many bytes of a connection the kernel may buffer before they are read.
//!
//! The kernel enlarges a connection's receive buffer to several times the bytes that are read in a
//! round trip. While the stream's own buffers fill, that can be megabytes, which then stay in the
//! kernel if the application reads nothing. If so many streams are open that this could use up the
//! kernel's memory for TCP, buffers are not enlarged until more was read than the stream's own
//! buffers hold. With few streams the kernel decides from the start, which is faster on long paths.

/// The number of read bytes from which the buffer is limited. A short exchange needs no system
/// calls.
const UNLIMITED: u32 = 16 << 10;

/// The limit, in bytes: Linux's initial size.
const LIMIT: u32 = 128 << 10;

/// The number of bytes after which the buffer is not limited any more.
const LIMITED: u32 = 256 << 10;

/// The size of a receive buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiveBufferSize {
    /// At most this many bytes.
    Limited(u32),
    /// The kernel decides.
    Automatic,
}

/// The receive buffer of a connection.
#[derive(Debug, Default)]
pub(crate) struct ReceiveBufferLimiter {
    /// The number of bytes that were read, up to the point where the size no longer changes.
    read: u32,
    is_limited: bool,
}

impl ReceiveBufferLimiter {
    /// Records that bytes were read, and whether many streams are open. Returns the size of the
    /// buffer from now on, if it changes.
    pub(crate) fn handle_read(
        &mut self,
        len: usize,
        are_many_open: bool,
    ) -> Option<ReceiveBufferSize> {
        if self.read >= LIMITED {
            return None;
        }
        self.read = self.read.saturating_add(u32::try_from(len).unwrap_or(u32::MAX));
        let is_limited = match self.read {
            ..UNLIMITED => false,
            LIMITED.. => return self.is_limited.then_some(ReceiveBufferSize::Automatic),
            _ => are_many_open,
        };
        if !is_limited || self.is_limited {
            return None;
        }
        self.is_limited = true;
        Some(ReceiveBufferSize::Limited(LIMIT))
    }
}

#[cfg(test)]
mod tests {
    use super::ReceiveBufferSize::{Automatic, Limited};
    use super::*;

    fn sizes(are_many_open: bool, lens: &[usize]) -> Vec<Option<ReceiveBufferSize>> {
        let mut buffer = ReceiveBufferLimiter::default();
        lens.iter().map(|len| buffer.handle_read(*len, are_many_open)).collect()
    }

    #[test]
    fn the_buffer_is_limited_until_enough_was_read() {
        assert_eq!(
            sizes(true, &[100, 20_000, 100_000, 500_000, 1]),
            [None, Some(Limited(131_072)), None, Some(Automatic), None]
        );
    }

    #[test]
    fn few_streams_short_exchanges_and_long_reads_change_nothing() {
        assert_eq!(sizes(false, &[20_000, 100_000, 500_000]), [None, None, None]);
        assert_eq!(sizes(true, &[16_000, 300]), [None, None]);
        assert_eq!(sizes(true, &[usize::MAX, 1]), [None, None]);
    }
}
