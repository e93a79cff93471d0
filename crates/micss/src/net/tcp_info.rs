//! What the kernel knows of a connection: whether its other end still answers, and how soon; and
//! having it ask.

// Two system calls, `getsockopt` and `setsockopt`, for options that no library reaches by a
// descriptor's number.
#![allow(unsafe_code)]

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use libc::{IPPROTO_TCP, TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, c_int, socklen_t, tcp_info};
use tokio::net::TcpStream;

/// How long nothing is heard on a connection before the kernel asks by itself, in seconds.
pub(crate) const KEEPALIVE_S: u16 = 60;

/// How often the kernel asks without an answer before it gives a connection up: as often as it can.
/// With one question every 15 s that is half an hour, longer than any stream waits.
const MAX_KEEPALIVES: u16 = 127;

/// What the kernel knows of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// How long ago something of the peer's arrived.
    pub(crate) heard: Duration,
    /// Whether the peer has something that it has not acknowledged. What it has no room for does
    /// not count.
    pub(crate) is_unanswered: bool,
    /// How many times in a row something was sent again, or asked, without an answer.
    pub(crate) tries: u32,
    /// How long a round trip takes at most, if there was one.
    pub(crate) round_trip: Option<Duration>,
}

/// What the kernel knows of a connection. Nothing if the descriptor is none of TCP's.
pub(crate) fn sample(socket: RawFd) -> Option<Sample> {
    let info = info(socket)?;
    let ms = |ms: u32| Duration::from_millis(ms.into());
    let micros = u64::from(info.tcpi_rtt) + 4 * u64::from(info.tcpi_rttvar);
    Some(Sample {
        heard: ms(info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv)),
        is_unanswered: info.tcpi_unacked > 0,
        tries: u32::from(info.tcpi_retransmits) + u32::from(info.tcpi_probes),
        round_trip: (info.tcpi_rtt > 0).then(|| Duration::from_micros(micros)),
    })
}

/// For how long the peer has left something unacknowledged that was sent again: zero if it has not.
/// A peer that only does not read has acknowledged all that it had room for.
pub(crate) fn unacknowledged_for(stream: &TcpStream) -> Duration {
    let sample = sample(stream.as_raw_fd());
    let silent = sample.filter(|seen| seen.is_unanswered && seen.tries > 0);
    silent.map_or(Duration::ZERO, |seen| seen.heard)
}

/// How long the last round trips took, in microseconds. Nothing if there was none.
pub(crate) fn round_trip(stream: &TcpStream) -> Option<u32> {
    info(stream.as_raw_fd()).map(|info| info.tcpi_rtt).filter(|rtt| *rtt > 0)
}

/// Has the kernel ask a peer that has not been heard for a second, at once: setting the option anew
/// also sets its timer anew. Where something is on its way to the peer already, that is question
/// enough.
pub(crate) fn send_keepalive(socket: RawFd) {
    set(socket, TCP_KEEPIDLE, 1);
}

/// Has the kernel ask as it does usually.
pub(crate) fn restore_keepalive(socket: RawFd) {
    set(socket, TCP_KEEPIDLE, KEEPALIVE_S);
}

/// Leaves it to others to give the connection up.
pub(crate) fn extend_keepalive(socket: RawFd) {
    set(socket, TCP_KEEPCNT, MAX_KEEPALIVES);
}

fn set(socket: RawFd, option: c_int, value: u16) {
    let value = c_int::from(value);
    let Ok(len) = socklen_t::try_from(size_of::<c_int>()) else { return };
    // A connection that takes no options is broken, which the next read or write tells. SAFETY: the
    // kernel reads `len` bytes, which is the value's size. Were the descriptor another's by now,
    // that would be no error of memory.
    let _ =
        unsafe { libc::setsockopt(socket, IPPROTO_TCP, option, (&raw const value).cast(), len) };
}

/// What the kernel knows of a connection. An older kernel knows less, and leaves the rest zero.
fn info(socket: RawFd) -> Option<tcp_info> {
    let mut info = MaybeUninit::<tcp_info>::zeroed();
    let mut len = socklen_t::try_from(size_of::<tcp_info>()).ok()?;
    // SAFETY: the kernel writes at most `len` bytes, which is the value's size, whatever the
    // descriptor is.
    let result = unsafe {
        libc::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    };
    // SAFETY: all of it are integers, of which zeros are a value, and so is whatever the kernel
    // wrote.
    (result == 0).then(|| unsafe { info.assume_init() })
}
