//! A UDP socket to which the kernel redirects datagrams of applications. It tells at which address
//! of this host a datagram arrived, and sends from that address: only then the kernel translates an
//! answer back, so that it comes from where the application has sent its datagram.

// Two system calls, `recvmsg` and `setsockopt`, with options that no library has.
#![allow(unsafe_code)]

use std::io::{self, IoSlice};
use std::mem::{self, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use libc::{
    IP_PKTINFO, IPPROTO_IP, IPPROTO_IPV6, IPV6_PKTINFO, IPV6_RECVPKTINFO, c_int, socklen_t,
};
use socket2::{Domain, MsgHdr, Protocol, SockAddr, SockRef, Socket, Type};
use tokio::io::Interest;
use tokio::net::UdpSocket;

/// The receive buffer that is requested, in bytes. The kernel may give less.
const RECEIVE_BUFFER: usize = 1 << 20;

/// The length of a buffer for control messages: one with an address of IPv6 has 40 bytes.
const CONTROL_LEN: usize = 64;

/// The length of the header of a control message: its length, its level and its type.
const CONTROL_HEADER: usize = size_of::<usize>() + 2 * size_of::<c_int>();

/// How an application's datagram has arrived, and so the way back to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UdpReturnPath {
    /// The sender, as this host sees it: the kernel changes its port if the application has sent to
    /// several destinations from one socket.
    pub(crate) application: SocketAddr,
    /// The address of this host to which the kernel has redirected the datagram.
    pub(crate) local: IpAddr,
    /// The index of the interface at which it has arrived.
    interface: u32,
}

/// The socket.
pub(crate) struct InterceptedUdpSocket(UdpSocket);

impl InterceptedUdpSocket {
    /// A transparent socket at this address, to which the rules pass redirected datagrams.
    ///
    /// # Errors
    /// If the address is in use, or this process has no right to open such a socket.
    pub(crate) fn bind(address: SocketAddr) -> io::Result<Self> {
        let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
        if address.is_ipv4() {
            socket.set_ip_transparent_v4(true)?;
            set_option(&socket, IPPROTO_IP, IP_PKTINFO)?;
        } else {
            socket.set_ip_transparent_v6(true)?;
            socket.set_only_v6(true)?;
            set_option(&socket, IPPROTO_IPV6, IPV6_RECVPKTINFO)?;
        }
        // A smaller buffer only loses datagrams of a burst.
        let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        UdpSocket::from_std(socket.into()).map(Self)
    }

    /// Waits for a datagram. Returns its length and the way back. It is cancellation-safe.
    ///
    /// # Errors
    /// If the socket fails.
    pub(crate) async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, UdpReturnPath)> {
        self.0.async_io(Interest::READABLE, || receive(&self.0, buffer)).await
    }

    /// Sends an answer to an application.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) async fn send(&self, payload: &[u8], path: &UdpReturnPath) -> io::Result<()> {
        let (to, control) = (SockAddr::from(path.application), source(path));
        let sent = || {
            let buffers = [IoSlice::new(payload)];
            let message =
                MsgHdr::new().with_addr(&to).with_buffers(&buffers).with_control(&control);
            SockRef::from(&self.0).sendmsg(&message, 0)
        };
        self.0.async_io(Interest::WRITABLE, sent).await.map(drop)
    }
}

fn set_option(socket: &Socket, level: c_int, name: c_int) -> io::Result<()> {
    let value: c_int = 1;
    let len = socklen_t::try_from(size_of::<c_int>()).expect("a small structure");
    // SAFETY: the option's value is one `int`, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> io::Result<(usize, UdpReturnPath)> {
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let mut control = [0_u8; CONTROL_LEN];
    // SAFETY: all-zero bytes are a valid `msghdr`: no pointers, no lengths.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_LEN as _;
    let call = |storage: *mut socket2::SockAddrStorage, storage_len: *mut socklen_t| {
        header.msg_name = storage.cast();
        // SAFETY: the pointers of the caller are valid.
        header.msg_namelen = unsafe { *storage_len };
        // SAFETY: the message points to buffers of the lengths given, which are exclusively
        // borrowed until the call is over.
        let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
        let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: as above.
        unsafe { *storage_len = header.msg_namelen };
        Ok(len)
    };
    // SAFETY: the kernel has written an address of the length that it reports.
    let (len, from) = unsafe { SockAddr::try_init(call) }?;
    #[allow(clippy::unnecessary_cast, reason = "its type depends on the C library")]
    let control = control.get(..header.msg_controllen as usize).unwrap_or_default();
    let arrived = from.as_socket().zip(arrival(control));
    let (application, (local, interface)) = arrived.ok_or(io::ErrorKind::InvalidData)?;
    Ok((len, UdpReturnPath { application, local, interface }))
}

/// The address and the interface at which a datagram arrived, from its control messages.
fn arrival(mut control: &[u8]) -> Option<(IpAddr, u32)> {
    loop {
        let (header, _) = control.split_first_chunk::<CONTROL_HEADER>()?;
        let (len, kind) = header.split_first_chunk::<{ size_of::<usize>() }>()?;
        let (len, kind) = (usize::from_ne_bytes(*len), kind.as_chunks::<4>().0);
        let [level, kind] = [0, 1].map(|at: usize| c_int::from_ne_bytes(kind[at]));
        let value = control.get(CONTROL_HEADER..len)?;
        let number = |bytes: &[u8]| bytes.try_into().map(u32::from_ne_bytes).ok();
        match (level, kind) {
            // The interface, the local address of the route, and that of the packet.
            (IPPROTO_IP, IP_PKTINFO) => {
                let address: [u8; 4] = value.get(8..12)?.try_into().ok()?;
                return Some((Ipv4Addr::from(address).into(), number(&value[..4])?));
            }
            (IPPROTO_IPV6, IPV6_PKTINFO) => {
                let address: [u8; 16] = value.get(..16)?.try_into().ok()?;
                return Some((Ipv6Addr::from(address).into(), number(value.get(16..20)?)?));
            }
            _ => control = control.get(len.next_multiple_of(size_of::<usize>())..)?,
        }
    }
}

/// The control message that selects the source of an answer.
fn source(path: &UdpReturnPath) -> Vec<u8> {
    let (level, kind, value) = match path.local {
        // Any interface, this address, and nothing for the third field.
        IpAddr::V4(local) => {
            (IPPROTO_IP, IP_PKTINFO, [&[0; 4][..], &local.octets(), &[0; 4]].concat())
        }
        IpAddr::V6(local) => {
            // A link-local address is one of an interface.
            let interface = if local.is_unicast_link_local() { path.interface } else { 0 };
            let value = [&local.octets()[..], &interface.to_ne_bytes()].concat();
            (IPPROTO_IPV6, IPV6_PKTINFO, value)
        }
    };
    let len = CONTROL_HEADER + value.len();
    let mut bytes =
        [&len.to_ne_bytes()[..], &level.to_ne_bytes(), &kind.to_ne_bytes(), &value].concat();
    bytes.resize(len.next_multiple_of(size_of::<usize>()), 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(local: &str) -> UdpReturnPath {
        let application = "192.0.2.1:4000".parse().unwrap();
        UdpReturnPath { application, local: local.parse().unwrap(), interface: 3 }
    }

    #[test]
    fn the_address_of_arrival_is_found_among_control_messages() {
        for local in ["2001:db8::1", "fe80::1"] {
            let message = source(&path(local));
            let interface = if local == "fe80::1" { 3 } else { 0 };
            assert_eq!(arrival(&message), Some((local.parse().unwrap(), interface)));
            // Another message before it.
            let mut other = message.clone();
            other[size_of::<usize>()..][..4].copy_from_slice(&1_i32.to_ne_bytes());
            assert_eq!(arrival(&[other, message].concat()).unwrap().0.to_string(), local);
        }
        // What is sent selects by the second field, what has arrived says the third.
        let mut message = source(&path("127.0.0.1"));
        let value = CONTROL_HEADER;
        assert_eq!(message[value + 4..value + 8], [127, 0, 0, 1]);
        message[value + 8..value + 12].copy_from_slice(&[192, 0, 2, 7]);
        assert_eq!(arrival(&message).unwrap().0.to_string(), "192.0.2.7");
    }

    #[test]
    fn no_control_message_makes_it_panic() {
        let whole = source(&path("2001:db8::1"));
        for byte in 0..whole.len() {
            for value in [0, 1, 8, 0x7F, 0xFF] {
                let mut message = whole.clone();
                message[byte] = value;
                let _ = arrival(&message);
                let _ = arrival(&message[..byte]);
            }
        }
    }
}
