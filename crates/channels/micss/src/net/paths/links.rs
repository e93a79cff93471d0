//! Kernel notifications that links, addresses or routes of this host have changed, and a check
//! whether a channel still has a route.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket as StdUdpSocket};

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
use socket2::{Domain, Socket, Type};
use tokio::net::UdpSocket;

use crate::config::StreamChannelConfig;

/// The multicast groups of messages about links, and about the addresses and routes of IPv4 and
/// IPv6 (`RTMGRP_*`).
const GROUPS: u32 = 0x1 | 0x10 | 0x40 | 0x100 | 0x400;

/// The socket of the notifications. Their contents are not read: the caller checks the routes.
///
/// Tokio has no type for netlink sockets, but waiting and receiving are the same for all datagram
/// sockets.
pub(crate) struct LinkChangeSocket(UdpSocket);

impl LinkChangeSocket {
    /// Listens from now on.
    ///
    /// # Errors
    /// If the system has no such sockets, or denies one to this process.
    pub(crate) fn listen() -> io::Result<Self> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // NETLINK_ROUTE is protocol 0.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, GROUPS))?;
        Ok(Self(UdpSocket::from_std(StdUdpSocket::from(socket))?))
    }

    /// Waits for a change.
    ///
    /// # Errors
    /// If there will be no more notifications.
    pub(crate) async fn next(&self) -> io::Result<()> {
        let mut bytes = [0; 8192];
        let mut has_changed = false;
        while !has_changed {
            self.0.readable().await?;
            loop {
                match self.0.try_recv(&mut bytes) {
                    Ok(_) => has_changed = true,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                    // An overflow of the kernel's queue is a change as well.
                    Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => has_changed = true,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }
}

/// Checks that this host has a route for packets of a channel. Sends none.
///
/// # Errors
/// The error of the system if there is none.
pub(crate) fn find_route(channel: &StreamChannelConfig, mark: Option<u32>) -> io::Result<()> {
    let StreamChannelConfig { server, source, device, .. } = channel;
    // A name whose address is not known is looked up by the next connection.
    let Some(server) = server.known() else { return Ok(()) };
    let socket = Socket::new(Domain::for_address(server), Type::DGRAM, None)?;
    if let Some(mark) = mark {
        socket.set_mark(mark)?;
    }
    if let Some(device) = device {
        socket.bind_device(Some(device.as_bytes()))?;
    }
    let any: IpAddr = match server {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    socket.bind(&SocketAddr::new(source.unwrap_or(any), 0).into())?;
    socket.connect(&server.into())
}
