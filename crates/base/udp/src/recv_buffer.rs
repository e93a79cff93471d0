//! Receives many datagrams in one system call.

// For `recvmmsg` with control messages in reused buffers, as no safe interface supports this.
#![allow(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use std::{io, mem, ptr};

use zeroize::Zeroizing;

use crate::socket::UdpBatchSocket;
use crate::sys::{CONTROL_LEN, address_of, socklen_of};

/// The maximum number of messages in one receive call, each of up to 64 KiB of datagrams.
const MAX_MESSAGES: usize = 16;

/// The maximum length of a message: the longest UDP payload.
const MAX_MESSAGE_LEN: usize = 65_535;

/// The sender of a datagram without an address.
const UNKNOWN_SENDER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// The buffers of a receive call.
#[derive(Debug)]
pub struct DatagramReceiveBuffer {
    bytes: Zeroizing<Box<[u8]>>,
    messages: Vec<CoalescedDatagrams>,
}

/// Datagrams of one length, the last of which may be shorter, from one sender.
#[derive(Clone, Copy, Debug)]
struct CoalescedDatagrams {
    length: usize,
    size: usize,
    from: SocketAddr,
    /// How long ago the kernel received it.
    age: Duration,
}

impl Default for DatagramReceiveBuffer {
    fn default() -> Self {
        let bytes = vec![0; MAX_MESSAGES * MAX_MESSAGE_LEN].into_boxed_slice();
        Self { bytes: Zeroizing::new(bytes), messages: Vec::with_capacity(MAX_MESSAGES) }
    }
}

impl DatagramReceiveBuffer {
    /// Empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Receives what has arrived on a socket, in place of the previous datagrams. Returns whether
    /// there may be more.
    ///
    /// # Errors
    /// If the socket fails. It is not an error if nothing has arrived.
    pub fn receive(&mut self, socket: &UdpBatchSocket) -> io::Result<bool> {
        self.messages.clear();
        // SAFETY: all-zero bytes are valid values of these C structures.
        let (mut headers, mut addresses): (
            [libc::mmsghdr; MAX_MESSAGES],
            [libc::sockaddr_storage; MAX_MESSAGES],
        ) = unsafe { (mem::zeroed(), mem::zeroed()) };
        let mut slices = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MAX_MESSAGES];
        let mut controls = [[0_u64; CONTROL_LEN]; MAX_MESSAGES];
        for (i, bytes) in self.bytes.chunks_exact_mut(MAX_MESSAGE_LEN).enumerate() {
            slices[i].iov_base = bytes.as_mut_ptr().cast();
            slices[i].iov_len = bytes.len();
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut addresses[i]).cast();
            header.msg_namelen = socklen_of::<libc::sockaddr_storage>();
            header.msg_iov = &raw mut slices[i];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut controls[i]).cast();
            header.msg_controllen = size_of_val(&controls[i]) as _;
        }
        #[expect(clippy::cast_possible_truncation, reason = "it is 16")]
        let count = MAX_MESSAGES as libc::c_uint;
        // SAFETY: every message points to buffers of the lengths given, which are exclusively
        // borrowed until the call is over; there is no timeout.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_fd().as_raw_fd(),
                headers.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT,
                ptr::null_mut(),
            )
        };
        let Ok(received) = usize::try_from(received) else {
            let error = io::Error::last_os_error();
            return match error.raw_os_error() {
                Some(libc::EAGAIN) => Ok(false),
                // An ICMP error for an earlier datagram is ignored.
                Some(libc::EINTR | libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH) => {
                    Ok(true)
                }
                _ => Err(error),
            };
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for (header, address) in headers[..received].iter().zip(&addresses) {
            let length = header.msg_len as usize;
            let from = address_of(address).unwrap_or(UNKNOWN_SENDER);
            let ReceivedControlMessages { gro_size, received_at } =
                ReceivedControlMessages::of(&header.msg_hdr);
            let size = gro_size.unwrap_or(length).max(1);
            let age = now.saturating_sub(received_at.unwrap_or(now));
            self.messages.push(CoalescedDatagrams { length, size, from, age });
        }
        Ok(received == MAX_MESSAGES)
    }

    /// The datagrams of the last receive in order, each with its sender. Datagrams from port 0 are
    /// skipped, because they cannot be answered.
    pub fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        self.arrivals().map(|(from, datagram, _)| (from, datagram))
    }

    /// Like [`datagrams`](Self::datagrams), each with the time since the kernel received it: zero
    /// without [`UdpBatchSocket::enable_timestamps`].
    pub fn arrivals(&self) -> impl Iterator<Item = (SocketAddr, &[u8], Duration)> {
        let messages = self.messages.iter().zip(self.bytes.chunks_exact(MAX_MESSAGE_LEN));
        let from_somewhere = messages.filter(|(message, _)| message.from.port() != 0);
        from_somewhere.flat_map(|(message, bytes)| {
            let CoalescedDatagrams { length, size, from, age } = *message;
            bytes[..length].chunks(size).map(move |datagram| (from, datagram, age))
        })
    }
}

/// The kernel's control messages for a message.
#[derive(Default)]
struct ReceivedControlMessages {
    /// The length of the datagrams that the kernel coalesced, if it did.
    gro_size: Option<usize>,
    /// When it received the first of them, since 1970.
    received_at: Option<Duration>,
}

impl ReceivedControlMessages {
    fn of(header: &libc::msghdr) -> Self {
        let mut control = Self::default();
        // SAFETY: the kernel filled the control buffer and its length, and the buffer is still
        // there; the macros stay within that length. An `int` or a `timespec` is read only where
        // the message says that it has one.
        unsafe {
            let mut next = libc::CMSG_FIRSTHDR(header);
            while let Some(message) = next.as_ref() {
                let holds = |size: usize| {
                    let size = libc::c_uint::try_from(size).expect("a small structure");
                    message.cmsg_len >= libc::CMSG_LEN(size) as _
                };
                let data = libc::CMSG_DATA(message);
                match (message.cmsg_level, message.cmsg_type) {
                    (libc::SOL_UDP, libc::UDP_GRO) if holds(size_of::<libc::c_int>()) => {
                        let size = ptr::read_unaligned(data.cast::<libc::c_int>());
                        control.gro_size = usize::try_from(size).ok();
                    }
                    (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
                        if holds(size_of::<libc::timespec>()) =>
                    {
                        let time = ptr::read_unaligned(data.cast::<libc::timespec>());
                        let (seconds, nanos) =
                            (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
                        control.received_at =
                            seconds.ok().zip(nanos.ok()).map(|(s, ns)| Duration::new(s, ns));
                    }
                    _ => {}
                }
                next = libc::CMSG_NXTHDR(header, message);
            }
        }
        control
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::socket::SocketBinding;

    #[test]
    fn the_kernel_says_when_it_received_a_datagram() {
        let to = UdpBatchSocket::bind(&SocketBinding {
            local: (Ipv4Addr::LOCALHOST, 0).into(),
            device: None,
        });
        let to = to.unwrap();
        to.enable_timestamps().unwrap();
        let from = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let before = Instant::now();
        from.send_to(b"x", to.local_addr().unwrap()).unwrap();
        let mut buffer = DatagramReceiveBuffer::new();
        while buffer.datagrams().count() == 0 {
            buffer.receive(&to).unwrap();
        }
        let (_, _, age) = buffer.arrivals().next().unwrap();
        assert!(age > Duration::ZERO && age < before.elapsed(), "{age:?}");
    }

    #[test]
    fn datagrams_from_port_0_are_skipped() {
        let mut buffer = DatagramReceiveBuffer::new();
        for (port, count) in [(0, 0), (1, 2)] {
            let from = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
            buffer.messages =
                vec![CoalescedDatagrams { length: 20, size: 10, from, age: Duration::ZERO }];
            assert_eq!(buffer.datagrams().count(), count, "port {port}");
        }
    }
}
