//! The buffer sizes of TCP sockets.

// For the system call `setsockopt`, as no library sets these options.
#![allow(unsafe_code)]

use std::io;
use std::mem::size_of;
use std::os::fd::AsRawFd;

use libc::{SO_RCVBUFFORCE, SO_SNDBUFFORCE, SOL_SOCKET, c_int, socklen_t};
use socket2::Socket;

use crate::options::{ConnectionOptions, PathEstimate};
use crate::window::receive_buffer;

/// The smallest size, so that a wrong measurement of the path has little effect.
const MIN_BUFFER: usize = 1 << 20;

/// The largest size: twice 300 ms at 10 Gbit/s.
const MAX_BUFFER: usize = 768 << 20;

/// Sets the buffer sizes of a socket before it is connected, because the announced window depends
/// on them. A size in the options is set unchanged. A size computed from the path is set only if it
/// is larger than what the system would choose, because the system no longer adjusts a size that
/// was set.
pub(super) fn set(socket: &Socket, options: &ConnectionOptions) -> io::Result<()> {
    if let Some(bytes) = options.buffer {
        force(socket, SO_SNDBUFFORCE, bytes).or_else(|_| socket.set_send_buffer_size(bytes))?;
        return force(socket, SO_RCVBUFFORCE, bytes)
            .or_else(|_| socket.set_recv_buffer_size(bytes));
    }
    let Some(path) = &options.path else { return Ok(()) };
    let needed = for_path(path).min(options.max_buffer.unwrap_or(MAX_BUFFER));
    let limit = |name: &str| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/{name}")).ok()?;
        text.split_whitespace().next_back()?.parse::<usize>().ok()
    };
    // Whether the kernel allows more than it would choose itself. It uses twice the set size, half
    // of it for its own data. The limits are those of the host.
    let helps = |allowed: &str, automatic: &str| {
        let given = limit(allowed).map_or(0, |allowed| needed.min(allowed));
        limit(automatic).is_some_and(|automatic| 2 * given > automatic)
    };
    // With CAP_NET_ADMIN, there is no limit.
    if force(socket, SO_SNDBUFFORCE, needed).is_err() && helps("core/wmem_max", "ipv4/tcp_wmem") {
        socket.set_send_buffer_size(needed)?;
    }
    if force(socket, SO_RCVBUFFORCE, needed).is_err() && helps("core/rmem_max", "ipv4/tcp_rmem") {
        socket.set_recv_buffer_size(needed)?;
    }
    Ok(())
}

/// The size that a path needs, in bytes: what is in flight, and as much again until that is
/// acknowledged. The program's reading rate is not known.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
fn for_path(path: &PathEstimate) -> usize {
    let window = 2.0 * path.rate * path.round_trip.as_secs_f64();
    let needed = receive_buffer(window, path.rate, None);
    (needed as usize).clamp(MIN_BUFFER, MAX_BUFFER)
}

fn force(socket: &Socket, name: c_int, bytes: usize) -> io::Result<()> {
    let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
    let len = socklen_t::try_from(size_of::<c_int>()).map_err(io::Error::other)?;
    // SAFETY: the kernel reads `len` bytes, which is the value's size.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), SOL_SOCKET, name, (&raw const value).cast(), len)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use socket2::{Domain, Type};

    use super::*;
    use crate::options::ConnectionSecurity;

    #[test]
    fn the_buffer_is_what_the_path_needs() {
        let path = PathEstimate { round_trip: Duration::from_millis(300), rate: 25e6, loss: 0.0 };
        assert_eq!(for_path(&path), 15_000_000);
        let short = PathEstimate { round_trip: Duration::from_micros(10), ..path };
        assert_eq!(for_path(&short), MIN_BUFFER);
        let wrong = PathEstimate { rate: f64::INFINITY, ..path };
        assert_eq!(for_path(&wrong), MAX_BUFFER);
    }

    #[test]
    fn a_size_of_the_options_is_set() {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        let options = ConnectionOptions {
            buffer: Some(100_000),
            ..ConnectionOptions::new(ConnectionSecurity::Insecure)
        };
        set(&socket, &options).unwrap();
        // The kernel doubles it.
        assert_eq!(socket.send_buffer_size().unwrap(), 200_000);
        assert_eq!(socket.recv_buffer_size().unwrap(), 200_000);
    }
}
