//! A channel's UDP socket: many datagrams a system call.
//!
//! One datagram a call costs the kernel as much as 40 that it cuts itself (`UDP_SEGMENT`, GSO), so a
//! batch goes out as runs of datagrams of one size, all runs in one `sendmmsg`; and what arrives comes
//! as runs again (`UDP_GRO`), many of them in one `recvmmsg`. A kernel or device that refuses to cut
//! is noticed, and the same datagrams are sent one by one.

// No safe interface knows `sendmmsg` and `recvmmsg` with control messages in buffers that are kept.
#![allow(unsafe_code)]

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::batch::Batch;

/// How much of a socket's memory is asked for either way, in bytes: 10 MB are 50 ms of 1.6 Gbit/s.
const BUFFER: usize = 10 << 20;

/// How many messages one receive takes, each of up to 64 KiB of datagrams.
const MESSAGES: usize = 16;

/// How many runs one send hands over.
const RUNS: usize = 64;

/// The most that a message has: the longest UDP payload.
const LONGEST: usize = 65_535;

/// The room for one control message with a number in it, in units that align it.
const CONTROL: usize = 4;

/// How long a full socket may hold up the others, in ms. It is full when the device below is.
const PATIENCE_MS: i64 = 100;

/// Where a channel's socket is bound.
#[derive(Clone, Debug)]
pub(crate) struct Place<'a> {
    /// The local address; port 0 is any.
    pub(crate) local: SocketAddr,
    /// The network device, if it matters.
    pub(crate) device: Option<&'a str>,
}

/// A channel's socket. A clone is the same socket, for another thread.
#[derive(Clone, Debug)]
pub(crate) struct Channel {
    socket: Arc<UdpSocket>,
    /// Whether the kernel cuts runs.
    cuts: bool,
}

/// What became of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    /// Datagrams that the kernel took.
    pub(crate) datagrams: usize,
    /// Those that it did not.
    pub(crate) refused: usize,
}

impl Channel {
    /// Binds a socket that does not block. Its datagrams are never fragmented.
    ///
    /// # Errors
    /// When the address or device cannot be used.
    pub(crate) fn bind(place: &Place<'_>) -> io::Result<Self> {
        let socket =
            Socket::new(Domain::for_address(place.local), Type::DGRAM, Some(Protocol::UDP))?;
        if let Some(device) = place.device {
            socket.bind_device(Some(device.as_bytes()))?;
        }
        socket.bind(&place.local.into())?;
        socket.set_nonblocking(true)?;
        enlarge_buffers(&socket);
        let (level, name, value) = match place.local {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
            SocketAddr::V6(_) => {
                (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
            }
        };
        set_option(&socket, level, name, value)?;
        // Older kernels give datagrams one by one, which is as right.
        let _ = set_option(&socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        Ok(Self { socket: Arc::new(socket.into()), cuts: true })
    }

    /// The MTU of the route to a peer, in bytes, as far as this host knows it; else 1500.
    pub(crate) fn mtu(&self, peer: SocketAddr) -> u16 {
        let known = || {
            // A socket that is connected is asked for its route's.
            let socket = UdpSocket::bind(SocketAddr::new(self.socket.local_addr()?.ip(), 0))?;
            let sock = SockRef::from(&socket);
            if let Some(device) = SockRef::from(&*self.socket).device()? {
                sock.bind_device(Some(&device))?;
            }
            socket.connect(peer)?;
            let mtu = match peer {
                SocketAddr::V4(_) => option(&socket, libc::IPPROTO_IP, libc::IP_MTU)?,
                SocketAddr::V6(_) => option(&socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
            };
            Ok::<u16, io::Error>(u16::try_from(mtu).unwrap_or(u16::MAX))
        };
        known().unwrap_or(1500)
    }

    /// Sends one datagram, if the kernel takes it.
    pub(crate) fn send_one(&self, datagram: &[u8], to: SocketAddr) -> bool {
        self.socket.send_to(datagram, to).is_ok()
    }

    /// Sends a batch. Waits a little where the socket is full.
    pub(crate) fn send(&mut self, batch: &Batch, to: SocketAddr) -> Sent {
        let mut sent = Sent::default();
        let (to, to_len) = raw_address(to);
        let mut runs = batch.runs();
        loop {
            let mut taken = [(&[][..], 0); RUNS];
            let mut count = 0;
            for (place, run) in taken.iter_mut().zip(runs.by_ref()) {
                *place = run;
                count += 1;
            }
            if count == 0 {
                return sent;
            }
            self.send_runs(&taken[..count], &to, to_len, &mut sent);
        }
    }

    fn send_runs(
        &mut self,
        mut runs: &[(&[u8], usize)],
        to: &libc::sockaddr_storage,
        to_len: libc::socklen_t,
        sent: &mut Sent,
    ) {
        while let Some(&(bytes, size)) = runs.first() {
            if !self.cuts {
                for datagram in bytes.chunks(size) {
                    let is_taken = self.hand_over(&[(datagram, size)], to, to_len) == Ok(1);
                    sent.add(is_taken, 1);
                }
                runs = &runs[1..];
                continue;
            }
            match self.hand_over(runs, to, to_len) {
                Ok(taken) => {
                    let (done, rest) = runs.split_at(taken);
                    for &(bytes, size) in done {
                        sent.add(true, bytes.len().div_ceil(size));
                    }
                    runs = rest;
                }
                // EIO is what a device says that cannot do checksums, and EINVAL an old kernel.
                Err(libc::EIO | libc::EINVAL) if bytes.len() > size => self.cuts = false,
                Err(_) => {
                    sent.add(false, bytes.len().div_ceil(size));
                    runs = &runs[1..];
                }
            }
        }
    }

    /// Hands runs to the kernel. Returns how many it took, or the error at the first of them.
    fn hand_over(
        &self,
        runs: &[(&[u8], usize)],
        to: &libc::sockaddr_storage,
        to_len: libc::socklen_t,
    ) -> Result<usize, libc::c_int> {
        // SAFETY: all-zero bytes are valid values of these C structures: no pointers, no lengths.
        let mut messages: [libc::mmsghdr; RUNS] = unsafe { mem::zeroed() };
        let mut slices = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; RUNS];
        let mut controls = [[0_u64; CONTROL]; RUNS];
        for (i, (bytes, size)) in runs.iter().enumerate() {
            slices[i].iov_base = bytes.as_ptr().cast_mut().cast();
            slices[i].iov_len = bytes.len();
            let header = &mut messages[i].msg_hdr;
            header.msg_name = ptr::from_ref(to).cast_mut().cast();
            header.msg_namelen = to_len;
            header.msg_iov = &raw mut slices[i];
            header.msg_iovlen = 1;
            if bytes.len() > *size {
                put_segment_size(header, &mut controls[i], *size);
            }
        }
        let count = libc::c_uint::try_from(runs.len()).expect("at most RUNS");
        loop {
            // SAFETY: the first `count` messages point to slices, an address and control messages that
            // outlive the call; the kernel only reads what they point to, and writes `msg_len`.
            let taken =
                unsafe { libc::sendmmsg(self.socket.as_raw_fd(), messages.as_mut_ptr(), count, 0) };
            if let Ok(taken) = usize::try_from(taken) {
                return Ok(taken);
            }
            match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN | libc::ENOBUFS) if self.wait_for_room() => {}
                error => return Err(error.unwrap_or(libc::EIO)),
            }
        }
    }

    /// Waits until the socket takes more. False if that takes too long.
    fn wait_for_room(&self) -> bool {
        let mut events = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::OUT)];
        let patience = Timespec { tv_sec: 0, tv_nsec: PATIENCE_MS * 1_000_000 };
        poll(&mut events, Some(&patience)).is_ok_and(|ready| ready > 0)
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Sent {
    fn add(&mut self, is_taken: bool, datagrams: usize) {
        *(if is_taken { &mut self.datagrams } else { &mut self.refused }) += datagrams;
    }
}

/// Room for what one receive brings.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Box<[u8]>,
    messages: Vec<Message>,
}

/// Datagrams of one size, the last of which may be shorter, from one sender.
#[derive(Clone, Copy, Debug)]
struct Message {
    length: usize,
    size: usize,
    from: SocketAddr,
}

impl Inbox {
    /// An empty one.
    pub(crate) fn new() -> Self {
        let bytes = vec![0; MESSAGES * LONGEST].into_boxed_slice();
        Self { bytes, messages: Vec::with_capacity(MESSAGES) }
    }

    /// Takes what has arrived on a channel, and forgets what was here. Returns whether there may be
    /// more.
    ///
    /// # Errors
    /// When the socket fails. That nothing has arrived is no error.
    pub(crate) fn receive(&mut self, channel: &Channel) -> io::Result<bool> {
        self.messages.clear();
        // SAFETY: all-zero bytes are valid values of these C structures.
        let (mut headers, mut addresses): (
            [libc::mmsghdr; MESSAGES],
            [libc::sockaddr_storage; MESSAGES],
        ) = unsafe { (mem::zeroed(), mem::zeroed()) };
        let mut slices = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; MESSAGES];
        let mut controls = [[0_u64; CONTROL]; MESSAGES];
        for (i, bytes) in self.bytes.chunks_exact_mut(LONGEST).enumerate() {
            slices[i].iov_base = bytes.as_mut_ptr().cast();
            slices[i].iov_len = bytes.len();
            let header = &mut headers[i].msg_hdr;
            header.msg_name = (&raw mut addresses[i]).cast();
            header.msg_namelen = length_of::<libc::sockaddr_storage>();
            header.msg_iov = &raw mut slices[i];
            header.msg_iovlen = 1;
            header.msg_control = (&raw mut controls[i]).cast();
            header.msg_controllen = size_of_val(&controls[i]) as _;
        }
        let count = libc::c_uint::try_from(MESSAGES).expect("few");
        // SAFETY: every message points to buffers of the lengths given, which are exclusively
        // borrowed until the call is over; there is no timeout.
        let received = unsafe {
            libc::recvmmsg(
                channel.socket.as_raw_fd(),
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
                // What a router says about a datagram that was sent earlier ends nothing.
                Some(libc::EINTR | libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH) => {
                    Ok(true)
                }
                _ => Err(error),
            };
        };
        for (header, address) in headers[..received].iter().zip(&addresses) {
            let length = header.msg_len as usize;
            let from = address_of(address).unwrap_or(NOBODY);
            let size = segment_size(&header.msg_hdr).unwrap_or(length).max(1);
            self.messages.push(Message { length, size, from });
        }
        Ok(received == MESSAGES)
    }

    /// The datagrams that the last receive brought, in order, each with its sender.
    pub(crate) fn datagrams(&self) -> impl Iterator<Item = (SocketAddr, &[u8])> {
        let messages = self.messages.iter().zip(self.bytes.chunks_exact(LONGEST));
        messages.flat_map(|(message, bytes)| {
            bytes[..message.length].chunks(message.size).map(|datagram| (message.from, datagram))
        })
    }
}

/// Who a datagram without an address is from.
const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Asks for large buffers: past the system's limit where that is allowed, else up to it.
fn enlarge_buffers(socket: &Socket) {
    let size = libc::c_int::try_from(BUFFER).expect("some MB");
    if set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size).is_err() {
        let _ = SockRef::from(socket).set_recv_buffer_size(BUFFER);
    }
    if set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size).is_err() {
        let _ = SockRef::from(socket).set_send_buffer_size(BUFFER);
    }
}

fn set_option(
    socket: &Socket,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    // SAFETY: the option's value is one `int`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length_of::<libc::c_int>(),
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn option(socket: &UdpSocket, level: libc::c_int, name: libc::c_int) -> io::Result<libc::c_int> {
    let (mut value, mut length): (libc::c_int, _) = (0, length_of::<libc::c_int>());
    // SAFETY: the option's value is one `int`, for which there is room, and its length outlives the
    // call.
    let result = unsafe {
        let place = (&raw mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, name, place, &raw mut length)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a small structure")
}

/// Tells the kernel to cut a message into datagrams of `size` bytes.
fn put_segment_size(header: &mut libc::msghdr, control: &mut [u64; CONTROL], size: usize) {
    let size = u16::try_from(size).expect("a datagram's length");
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(control) as _;
    // SAFETY: the control buffer is aligned, zeroed, and has room for one message with a `u16`, so
    // that CMSG_FIRSTHDR gives a header in it and CMSG_DATA a place for two bytes.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = libc::SOL_UDP;
        (*first).cmsg_type = libc::UDP_SEGMENT;
        (*first).cmsg_len = libc::CMSG_LEN(2) as _;
        ptr::write_unaligned(libc::CMSG_DATA(first).cast::<u16>(), size);
        header.msg_controllen = libc::CMSG_SPACE(2) as _;
    }
}

/// The length of the datagrams that the kernel put together, if it did.
fn segment_size(header: &libc::msghdr) -> Option<usize> {
    // SAFETY: the kernel filled the control buffer and its length, and the buffer is still there; the
    // macros stay within that length. An `int` is read only where the message says it has one.
    unsafe {
        let mut next = libc::CMSG_FIRSTHDR(header);
        while let Some(message) = next.as_ref() {
            let has_number = message.cmsg_len >= libc::CMSG_LEN(4) as _;
            if (message.cmsg_level, message.cmsg_type) == (libc::SOL_UDP, libc::UDP_GRO)
                && has_number
            {
                let size = ptr::read_unaligned(libc::CMSG_DATA(message).cast::<libc::c_int>());
                return usize::try_from(size).ok();
            }
            next = libc::CMSG_NXTHDR(header, message);
        }
    }
    None
}

/// An address as the kernel wants it, and its length.
fn raw_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    let address = socket2::SockAddr::from(address);
    // SAFETY: all-zero bytes are a valid `sockaddr_storage`.
    let mut storage: libc::sockaddr_storage = unsafe { mem::zeroed() };
    let length = address.len();
    // SAFETY: the address has `length` bytes, and no address is longer than the storage.
    unsafe {
        let bytes = address.as_ptr().cast::<MaybeUninit<u8>>();
        let to = (&raw mut storage).cast::<MaybeUninit<u8>>();
        ptr::copy_nonoverlapping(bytes, to, usize::try_from(length).expect("a short length"));
    }
    (storage, length)
}

/// The address that the kernel gave.
fn address_of(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is this, and the storage is as large and aligned.
            let v4 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
            let port = u16::from_be(v6.sin6_port);
            Some(SocketAddrV6::new(ip, port, v6.sin6_flowinfo, v6.sin6_scope_id).into())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Channel, Channel, SocketAddr) {
        let place = Place { local: "127.0.0.1:0".parse().unwrap(), device: None };
        let (from, to) = (Channel::bind(&place).unwrap(), Channel::bind(&place).unwrap());
        let address = to.socket.local_addr().unwrap();
        (from, to, address)
    }

    fn batch(lengths: &[usize]) -> Batch {
        let mut batch = Batch::default();
        for (i, &length) in lengths.iter().enumerate() {
            batch.reserve(length).fill(u8::try_from(i % 251).unwrap());
        }
        batch
    }

    fn receive_all(channel: &Channel, count: usize) -> Vec<Vec<u8>> {
        let mut inbox = Inbox::new();
        let mut all = Vec::new();
        while all.len() < count {
            let mut events = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
            let ten_seconds = Timespec { tv_sec: 10, tv_nsec: 0 };
            assert!(poll(&mut events, Some(&ten_seconds)).unwrap() > 0, "{} came", all.len());
            inbox.receive(channel).unwrap();
            all.extend(inbox.datagrams().map(|(_, datagram)| datagram.to_vec()));
        }
        all
    }

    #[test]
    fn batches_arrive_as_they_were_cut_or_not() {
        let lengths: Vec<usize> =
            [vec![1400; 150], vec![100, 1400, 1400, 900, 1, 1, 1], vec![60; 130]].concat();
        let batch = batch(&lengths);
        for cuts in [true, false] {
            let (mut from, to, address) = pair();
            from.cuts = cuts;
            let sent = from.send(&batch, address);
            assert_eq!(sent, Sent { datagrams: lengths.len(), refused: 0 });
            assert_eq!(from.cuts, cuts, "loopback cuts");
            let received = receive_all(&to, lengths.len());
            for (i, (datagram, &length)) in received.iter().zip(&lengths).enumerate() {
                assert_eq!(datagram.len(), length, "datagram {i}");
                assert!(datagram.iter().all(|&byte| usize::from(byte) == i % 251), "datagram {i}");
            }
        }
    }

    #[test]
    fn what_nobody_takes_is_counted_and_ends_nothing() {
        let (mut from, _to, _) = pair();
        let too_long = batch(&[1400, 65_508, 1400]);
        let (to, address) = {
            let (_, to, address) = pair();
            (to, address)
        };
        let sent = from.send(&too_long, address);
        assert_eq!(sent, Sent { datagrams: 2, refused: 1 });
        assert_eq!(receive_all(&to, 2).len(), 2);
    }

    #[test]
    fn addresses_are_found_again() {
        for address in ["192.0.2.1:7000", "[2001:db8::1]:7000", "[fe80::1%3]:9"] {
            let address: SocketAddr = address.parse().unwrap();
            assert_eq!(address_of(&raw_address(address).0), Some(address));
        }
    }
}
