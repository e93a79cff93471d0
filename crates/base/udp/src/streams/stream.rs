//! A connection as programs use it.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::connection::{UdpStreamPhase, UdpStreamRead as Outcome, UdpStreamStatistics};
use super::now;
use super::slot::{StreamUnusableReason, StreamWaitCondition, UdpStreamSlot, UdpStreamSlotState};
use super::wake::UdpDriverWaker;

/// How many bytes are copied at a time. Meanwhile the driver waits.
const MAX_COPY_LEN: usize = 1 << 18;

/// How often an attempt to connect is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// How long a stream waits for the driver when it is closed or dropped.
const MAX_CLOSE_WAIT: Duration = Duration::from_millis(200);

/// A connection, which can be read and written even through a shared reference. Clones are the same
/// connection, for other threads. Dropping the last one closes the connection after everything
/// written has arrived.
#[derive(Debug)]
pub struct UdpStream {
    slot: Arc<UdpStreamSlot>,
    wake: Arc<UdpDriverWaker>,
    /// Whether closing or dropping it waits for the driver. The driver itself must not wait.
    waits_for_driver: bool,
}

impl UdpStream {
    pub(super) fn new(slot: Arc<UdpStreamSlot>, wake: Arc<UdpDriverWaker>) -> Self {
        slot.lock_for_program().users += 1;
        Self { slot, wake, waits_for_driver: true }
    }

    /// The peer's address.
    pub fn peer_addr(&self) -> SocketAddr {
        self.slot.lock_for_program().connection.peer_addr()
    }

    /// The public key that the peer has proved, if the protocol supports that.
    pub fn peer_key(&self) -> Option<[u8; 32]> {
        self.slot.lock_for_program().connection.peer_key()
    }

    /// The statistics of the connection.
    pub fn statistics(&self) -> UdpStreamStatistics {
        let shared = self.slot.lock_for_program();
        UdpStreamStatistics {
            bytes_written: shared.bytes_written,
            bytes_read: shared.bytes_read,
            ..shared.connection.statistics()
        }
    }

    /// Sets the time limit of each operation: one that waits longer fails with
    /// [`TimedOut`](io::ErrorKind::TimedOut).
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.slot.lock_for_program().timeout = timeout;
    }

    /// Finishes the stream to the peer, and waits until everything written has arrived. If the
    /// protocol has no half-closed connections, the connection ends.
    ///
    /// # Errors
    /// If the connection fails before that.
    pub fn finish(&self) -> io::Result<()> {
        let mut shared = self.slot.lock_for_program();
        shared.check()?;
        shared.connection.finish(now());
        self.wake(&mut shared);
        drop(shared);
        self.wait_until_acknowledged()
    }

    /// Waits until everything written has arrived.
    ///
    /// # Errors
    /// If the connection fails before that.
    pub fn wait_until_acknowledged(&self) -> io::Result<()> {
        let began_at = now();
        let mut shared = self.slot.lock_for_program();
        while !shared.connection.is_flushed() {
            if let Some(error) = shared.connection.error() {
                return Err(error);
            }
            if shared.connection.state().phase == UdpStreamPhase::Over {
                let what = "the peer closed the connection before all had arrived that was written";
                return Err(io::Error::new(io::ErrorKind::BrokenPipe, what));
            }
            shared = self.slot.wait(shared, StreamWaitCondition::Change, began_at)?;
        }
        Ok(())
    }

    /// Closes the connection at once, for all clones: reads and writes return an error. Waits
    /// shortly until the peer was notified.
    pub fn close(&self) {
        self.slot.make_unusable(StreamUnusableReason::Closed);
        let mut shared = self.slot.lock_for_program();
        shared.connection.abort(now());
        self.wake(&mut shared);
        self.wait_for_driver(shared);
    }

    /// Waits shortly until pending datagrams were sent, because the process may end next, and the
    /// driver with it.
    fn wait_for_driver<'a>(&'a self, mut shared: MutexGuard<'a, UdpStreamSlotState>) {
        let is_due = shared.driver_wakes_at.is_none() && !shared.is_removed_from_driver;
        shared.is_final_send_awaited = self.waits_for_driver && is_due;
        let end = now() + MAX_CLOSE_WAIT;
        while shared.is_final_send_awaited
            && shared.unusable != Some(StreamUnusableReason::Abandoned)
            && now() < end
        {
            shared = self.slot.wait_for_change(shared, end.saturating_sub(now()));
        }
    }

    /// Drops it without waiting for the driver.
    pub(super) fn drop_without_waiting(mut self) {
        self.waits_for_driver = false;
    }

    /// Waits until the handshake is complete.
    ///
    /// # Errors
    /// If the connection fails, or if `check` does, which is called at intervals.
    pub(super) fn wait_until_open(
        &self,
        mut check: impl FnMut() -> io::Result<()>,
    ) -> io::Result<()> {
        let mut shared = self.slot.lock_for_program();
        while shared.connection.state().phase == UdpStreamPhase::Connecting {
            shared.check()?;
            check()?;
            shared =
                self.slot.wait_at_most(shared, StreamWaitCondition::Change, Some(CHECK_INTERVAL));
        }
        shared.connection.error().map_or(Ok(()), Err)
    }

    /// Wakes the driver if it would sleep too long.
    fn wake(&self, shared: &mut MutexGuard<'_, UdpStreamSlotState>) {
        let next = shared.connection.poll_timeout();
        if shared.driver_wakes_at.is_some_and(|until| next.is_none_or(|next| next < until)) {
            shared.driver_wakes_at = None;
            self.wake.wake_for(self.slot.key);
        }
    }
}

impl Clone for UdpStream {
    fn clone(&self) -> Self {
        Self::new(self.slot.clone(), self.wake.clone())
    }
}

impl Drop for UdpStream {
    /// Waits until acknowledgements and the close were sent.
    fn drop(&mut self) {
        let mut shared = self.slot.lock_for_program();
        shared.users -= 1;
        if shared.users > 0 {
            return;
        }
        shared.connection.close(now());
        self.wake(&mut shared);
        self.wait_for_driver(shared);
    }
}

impl Read for &UdpStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if to.is_empty() {
            return Ok(0);
        }
        let began_at = now();
        let len = to.len().min(MAX_COPY_LEN);
        let mut shared = self.slot.lock_for_program();
        loop {
            shared.check()?;
            match shared.connection.read(&mut to[..len], now())? {
                Outcome::Bytes(count) => {
                    shared.bytes_read += count as u64;
                    self.wake(&mut shared);
                    return Ok(count);
                }
                Outcome::End => return Ok(0),
                Outcome::Nothing => {
                    shared = self.slot.wait(shared, StreamWaitCondition::Bytes, began_at)?;
                }
            }
        }
    }
}

impl Write for &UdpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let began_at = now();
        let bytes = &bytes[..bytes.len().min(MAX_COPY_LEN)];
        let mut shared = self.slot.lock_for_program();
        loop {
            shared.check()?;
            let count = shared.connection.write(bytes, now())?;
            if count > 0 || bytes.is_empty() {
                shared.bytes_written += count as u64;
                self.wake(&mut shared);
                return Ok(count);
            }
            shared = self.slot.wait(shared, StreamWaitCondition::Change, began_at)?;
        }
    }

    /// Bytes are sent as soon as possible, so there is nothing to flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for UdpStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&*self).read(to)
    }
}

impl Write for UdpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}
