//! What the kernel knows of a connection: whether its other end still answers, and how soon.

// One system call, `getsockopt`, for an option that no library knows.
#![allow(unsafe_code)]

use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsRawFd;
use std::time::Duration;

use libc::{IPPROTO_TCP, TCP_INFO, socklen_t, tcp_info};
use tokio::net::TcpStream;

/// Whether the peer has something that it has not acknowledged, and has not said anything for so long. A
/// peer that only does not read has acknowledged all that it had room for.
pub(crate) fn is_silent(stream: &TcpStream, time: Duration) -> bool {
    let is_longer = |ms: u32| Duration::from_millis(ms.into()) >= time;
    info(stream).is_some_and(|info| info.tcpi_unacked > 0 && is_longer(info.tcpi_last_ack_recv))
}

/// How long the last round trips took, in microseconds. Nothing if there was none.
pub(crate) fn round_trip(stream: &TcpStream) -> Option<u32> {
    info(stream).map(|info| info.tcpi_rtt).filter(|rtt| *rtt > 0)
}

/// What the kernel knows of a connection. An older kernel knows less, and leaves the rest zero.
fn info(stream: &TcpStream) -> Option<tcp_info> {
    let mut info = MaybeUninit::<tcp_info>::zeroed();
    let mut len = socklen_t::try_from(size_of::<tcp_info>()).ok()?;
    let socket = stream.as_raw_fd();
    // SAFETY: the descriptor is open as long as the stream is borrowed, and the kernel writes at most
    // `len` bytes, which is the value's size.
    let result = unsafe {
        libc::getsockopt(socket, IPPROTO_TCP, TCP_INFO, info.as_mut_ptr().cast(), &raw mut len)
    };
    // SAFETY: all of it are integers, of which zeros are a value, and so is whatever the kernel wrote.
    (result == 0).then(|| unsafe { info.assume_init() })
}
