//! The kernel's information about a connection: whether its peer still answers, and how soon. Also
//! makes the kernel probe the peer.

// Two system calls, `getsockopt` and `setsockopt`, for options that no library sets on a raw file
// descriptor.
#![allow(unsafe_code)]

use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use libc::{IPPROTO_TCP, TCP_INFO, TCP_KEEPCNT, TCP_KEEPIDLE, c_int, socklen_t, tcp_info};
use libc::{SO_BUF_LOCK, SO_RCVBUF, SOL_SOCKET, TCP_WINDOW_CLAMP};
use tokio::net::TcpStream;

use crate::protocol::receive_buffer::ReceiveBufferSize;

/// After how many seconds of silence on a connection the kernel sends keepalives by itself.
pub(crate) const KEEPALIVE_S: u16 = 60;

/// The number of unanswered keepalives after which the kernel closes a connection: its maximum.
/// With one every 15 s that is half an hour, longer than any stream waits.
const MAX_KEEPALIVES: c_int = 127;

/// The default of the largest buffer that a program may set, `net.core.rmem_max`.
const DEFAULT_RMEM_MAX: c_int = 212_992;

/// The number of unanswered probes if this host refuses to send anything: as many as one likes,
/// since no packet was lost by chance.
const REFUSED_HERE: u32 = u32::MAX;

/// The bit of `SO_BUF_LOCK` that keeps the kernel from changing a receive buffer.
const RECEIVE_BUFFER_LOCK: c_int = 2;

/// The kernel's information on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpInfoSample {
    /// The time since the last packet from the peer.
    pub(crate) since_received: Duration,
    /// Whether the peer may not hear this end, although its packets arrive here: it has buffer
    /// space, and has not acknowledged retransmitted data, or this host refuses to send any.
    pub(crate) may_be_unheard: bool,
    /// Whether the peer has not acknowledged something, except for data for which it has no buffer
    /// space.
    pub(crate) is_unanswered: bool,
    /// The number of consecutive retransmissions or keepalives without an answer, or
    /// [`REFUSED_HERE`].
    pub(crate) unanswered_probes: u32,
    /// An upper bound of the round-trip time, if one was measured.
    pub(crate) round_trip: Option<Duration>,
    /// The number of data packets that were sent, and how many of them were retransmitted.
    pub(crate) sent: u64,
    pub(crate) resent: u64,
}

/// The kernel's information on a connection. `None` if the descriptor is not a TCP socket.
pub(crate) fn sample(socket: RawFd) -> Option<TcpInfoSample> {
    let info = info(socket)?;
    let ms = |ms: u32| Duration::from_millis(ms.into());
    let micros = u64::from(info.tcpi_rtt) + 4 * u64::from(info.tcpi_rttvar);
    // A kernel before Linux 5.4 does not report the window, and leaves it zero.
    let has_space = info.tcpi_snd_wnd > 0;
    // A packet that a firewall of this host drops does not count as sent. The kernel then sends
    // window probes, as if the peer had no buffer space, and counts them from zero again whenever
    // a packet of the peer arrives.
    let is_refused_here = has_space && info.tcpi_unacked == 0 && info.tcpi_notsent_bytes > 0;
    let unanswered_probes = u32::from(info.tcpi_retransmits) + u32::from(info.tcpi_probes);
    Some(TcpInfoSample {
        since_received: ms(info.tcpi_last_ack_recv.min(info.tcpi_last_data_recv)),
        may_be_unheard: has_space && info.tcpi_retransmits > 0 || is_refused_here,
        is_unanswered: info.tcpi_unacked > 0 || is_refused_here,
        unanswered_probes: if is_refused_here { REFUSED_HERE } else { unanswered_probes },
        round_trip: (info.tcpi_rtt > 0).then(|| Duration::from_micros(micros)),
        sent: info.tcpi_data_segs_out.into(),
        resent: info.tcpi_total_retrans.into(),
    })
}

impl TcpInfoSample {
    /// The time since the last packet that shows that the peer hears this end, if the last packet
    /// does.
    pub(crate) fn since_answer(&self) -> Option<Duration> {
        (!self.may_be_unheard).then_some(self.since_received)
    }
}

/// The time since the peer was last heard, if it has not acknowledged retransmitted data; otherwise
/// zero. A live peer whose application is not reading has acknowledged everything that fits into
/// its buffer.
pub(crate) fn unacknowledged_for(stream: &TcpStream) -> Duration {
    let sample = sample(stream.as_raw_fd());
    let silent = sample.filter(|seen| seen.is_unanswered && seen.unanswered_probes > 0);
    silent.map_or(Duration::ZERO, |seen| seen.since_received)
}

/// The smoothed round-trip time, in microseconds. `None` if none was measured.
pub(crate) fn round_trip(stream: &TcpStream) -> Option<u32> {
    info(stream.as_raw_fd()).map(|info| info.tcpi_rtt).filter(|rtt| *rtt > 0)
}

/// Makes the kernel send a keepalive at once to a peer that was silent for a second: setting the
/// option also restarts its timer. If unacknowledged data is in flight, that is a probe already.
pub(crate) fn send_keepalive(socket: RawFd) {
    set(socket, TCP_KEEPIDLE, 1);
}

/// Restores the usual keepalives.
pub(crate) fn restore_keepalive(socket: RawFd) {
    set(socket, TCP_KEEPIDLE, KEEPALIVE_S.into());
}

/// Keeps the kernel from closing the connection, so that the caller decides this.
pub(crate) fn extend_keepalive(socket: RawFd) {
    set(socket, TCP_KEEPCNT, MAX_KEEPALIVES);
}

/// Limits how many bytes of a connection the kernel buffers before they are read. On a kernel that
/// cannot lift the limit again (before Linux 5.14), nothing is set.
pub(crate) fn set_receive_buffer(socket: &TcpStream, size: ReceiveBufferSize) {
    let socket = socket.as_raw_fd();
    match size {
        ReceiveBufferSize::Limited(bytes) => {
            if set_at(SOL_SOCKET, socket, SO_BUF_LOCK, RECEIVE_BUFFER_LOCK) {
                // Otherwise the window would stay at the size of the first buffer.
                set(socket, TCP_WINDOW_CLAMP, c_int::MAX / 2);
                // The kernel doubles the value.
                let half = c_int::try_from(bytes / 2).unwrap_or(c_int::MAX);
                set_at(SOL_SOCKET, socket, SO_RCVBUF, half);
            }
        }
        ReceiveBufferSize::Automatic => {
            // The kernel enlarges a buffer when more is read in a round trip than before, and this
            // needs free space.
            set_at(SOL_SOCKET, socket, SO_RCVBUF, DEFAULT_RMEM_MAX);
            set_at(SOL_SOCKET, socket, SO_BUF_LOCK, 0);
        }
    }
}

fn set(socket: RawFd, option: c_int, value: c_int) {
    set_at(IPPROTO_TCP, socket, option, value);
}

/// Sets an option. Returns whether the kernel accepts it.
fn set_at(level: c_int, socket: RawFd, option: c_int, value: c_int) -> bool {
    let Ok(len) = socklen_t::try_from(size_of::<c_int>()) else { return false };
    // A connection that rejects options is broken, which the next read or write reports. SAFETY:
    // the kernel reads `len` bytes, which is the value's size. If the descriptor belonged to
    // another file by now, memory safety would not be affected.
    unsafe { libc::setsockopt(socket, level, option, (&raw const value).cast(), len) == 0 }
}

/// The kernel's information on a connection. An older kernel fills fewer fields, and leaves the
/// rest zero.
fn info(socket: RawFd) -> Option<tcp_info> {
    let mut info = MaybeUninit::<tcp_info>::zeroed();
    let mut len = socklen_t::try_from(size_of::<tcp_info>()).ok()?;
    // SAFETY: the kernel writes at most `len` bytes, which is the value's size, whatever the
    // descriptor is.
    let result = unsafe {
        libc::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    };
    // SAFETY: all fields are integers, for which zeros and all that the kernel writes are valid
    // values.
    (result == 0).then(|| unsafe { info.assume_init() })
}
