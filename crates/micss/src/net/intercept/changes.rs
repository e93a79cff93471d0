//! Notifications of the kernel when any program changes rules of nftables.

// One call of tokio, which accepts any type with a file descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::{NETFILTER, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, bind, recv, socket_with};
use tokio::io::unix::AsyncFd;

/// The multicast group of messages about changes of rules, `NFNLGRP_NFTABLES`, as a bit.
const CHANGES: u32 = 1 << (7 - 1);

/// The kernel's messages about changes.
pub(crate) struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    /// Receives notifications from now on.
    ///
    /// # Errors
    /// If the kernel refuses, as without `CAP_NET_ADMIN`.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER))?;
        bind(&socket, &SocketAddrNetlink::new(0, CHANGES))?;
        // SAFETY: an `OwnedFd` always is the same descriptor, which is open until it is dropped.
        let registered = unsafe { AsyncFd::register(socket) };
        Ok(Self(registered?))
    }

    /// Waits until something has changed, and discards all messages so far. It is
    /// cancellation-safe: no message is lost.
    pub(crate) async fn next(&self) {
        let heard = |socket: &OwnedFd| {
            // The contents are not needed. There was at least one message, or a queue overflow.
            let mut message = [0; 1 << 13];
            let mut any = false;
            loop {
                match recv(socket, &mut message, RecvFlags::empty()) {
                    Err(Errno::WOULDBLOCK) if any => return Ok(()),
                    Err(Errno::WOULDBLOCK) => return Err(io::ErrorKind::WouldBlock.into()),
                    Err(Errno::NOBUFS | Errno::INTR) | Ok(_) => any = true,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        // After any error of the socket, the rules are checked too.
        let _: io::Result<()> = self.0.async_io(tokio::io::Interest::READABLE, heard).await;
    }
}
