//! Requests to the kernel about the network, by rtnetlink (see `rtnetlink(7)`).
//!
//! A request is a header, a structure of fixed length and attributes, each with its type and
//! length; all in the processor's byte order.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use ipnet::IpNet;
use rustix::net::netdevice::{index_to_name, name_to_index};
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with,
};
use thiserror::Error;

/// The length of a message's header: length, type, flags, sequence number, port.
const HEADER_LEN: usize = 16;
/// Attributes begin at a multiple of this.
const ALIGNMENT: usize = 4;

/// Why the kernel did not perform or answer a request about the network.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NetlinkError {
    /// There is no interface with this name.
    #[error("no interface {0}")]
    NoInterface(String),
    /// There is no route to the address.
    #[error("no route")]
    NoRoute,
    /// The kernel refuses an address or a route.
    #[error("cannot set the {what} {network}: {source}")]
    Refused {
        /// `address` or `route`.
        what: &'static str,
        /// The address with the prefix of its network, or the route's destination.
        network: IpNet,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The kernel refuses another request, or cannot be asked.
    #[error(transparent)]
    Kernel(#[from] io::Error),
}

/// A socket to the kernel, in the network namespace of the thread that opened it.
pub(crate) struct NetlinkSocket(OwnedFd);

impl NetlinkSocket {
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None);
        Ok(Self(socket.map_err(io::Error::from)?))
    }

    /// The index of the interface with this name.
    pub(crate) fn index(&self, name: &str) -> Result<u32, NetlinkError> {
        name_to_index(&self.0, name).map_err(|_| NetlinkError::NoInterface(name.to_owned()))
    }

    /// The name of the interface with this index.
    pub(crate) fn name(&self, index: u32) -> Result<String, NetlinkError> {
        index_to_name(&self.0, index)
            .map_err(|_| NetlinkError::NoInterface(format!("with index {index}")))
    }

    /// Sends a request that changes something, and waits until the kernel has performed it.
    pub(crate) fn change(&self, request: NetlinkRequest) -> io::Result<()> {
        self.exchange(request, libc::NLM_F_ACK).map(drop)
    }

    /// Sends a request, and returns the kernel's answer without its header.
    pub(crate) fn ask(&self, request: NetlinkRequest) -> io::Result<Vec<u8>> {
        self.exchange(request, 0)
    }

    fn exchange(&self, request: NetlinkRequest, flags: i32) -> io::Result<Vec<u8>> {
        let request = request.finish(flags);
        sendto(&self.0, &request, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        let mut answer = vec![0; 1 << 15];
        let (_, received) = recv(&self.0, &mut answer[..], RecvFlags::empty())?;
        let truncated = || io::Error::new(io::ErrorKind::InvalidData, "a truncated answer");
        let (header, body) = answer
            .get(..received)
            .and_then(|it| it.split_at_checked(HEADER_LEN))
            .ok_or_else(truncated)?;
        if i32::from(u16_at(header, 4)) != libc::NLMSG_ERROR {
            return Ok(body.to_vec());
        }
        // An error of zero is the acknowledgement.
        let code = body.first_chunk().ok_or_else(truncated)?;
        match i32::from_ne_bytes(*code) {
            0 => Ok(Vec::new()),
            code => Err(io::Error::from_raw_os_error(-code)),
        }
    }
}

/// A request under construction.
pub(crate) struct NetlinkRequest {
    bytes: Vec<u8>,
    flags: i32,
}

impl NetlinkRequest {
    /// A request of a type (`RTM_...`), with flags beside `NLM_F_REQUEST` and the structure that
    /// belongs to the type.
    pub(crate) fn new(kind: u16, flags: i32, structure: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes.extend_from_slice(structure);
        Self { bytes, flags: flags | libc::NLM_F_REQUEST }
    }

    /// Adds an attribute.
    #[must_use]
    pub(crate) fn attribute(mut self, kind: u16, value: &[u8]) -> Self {
        push_attribute(&mut self.bytes, kind, value);
        self
    }

    /// Adds an attribute, if there is a value.
    #[must_use]
    pub(crate) fn optional(self, kind: u16, value: Option<&[u8]>) -> Self {
        match value {
            Some(value) => self.attribute(kind, value),
            None => self,
        }
    }

    fn finish(mut self, flags: i32) -> Vec<u8> {
        let len = u32::try_from(self.bytes.len()).expect("requests are short");
        let flags = u16::try_from(self.flags | flags).expect("flags have 16 bits");
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self.bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        self.bytes
    }
}

/// Appends an attribute: its length without the padding, its type, its value.
pub(crate) fn push_attribute(bytes: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let len = u16::try_from(4 + value.len()).expect("attributes are short");
    bytes.extend_from_slice(&len.to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
}

/// The types and values of attributes; ends at the first invalid one.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let head = bytes.get(..4)?;
        let (len, kind) = (usize::from(u16_at(head, 0)), u16_at(head, 2));
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(ALIGNMENT)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The bytes of an address, in network order, and its family.
pub(crate) fn address_bytes(address: IpAddr) -> (u8, Vec<u8>) {
    let (family, bytes) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    (u8::try_from(family).expect("families are small"), bytes)
}

/// The address in an attribute's value.
pub(crate) fn address_from(value: &[u8]) -> Option<IpAddr> {
    let v4 = || <[u8; 4]>::try_from(value).ok().map(IpAddr::from);
    v4().or_else(|| <[u8; 16]>::try_from(value).ok().map(IpAddr::from))
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_read_as_written() {
        let mut bytes = Vec::new();
        push_attribute(&mut bytes, 7, &[1, 2, 3, 4, 5]);
        push_attribute(&mut bytes, 8, &[]);
        assert_eq!(bytes.len(), 12 + 4);
        let read: Vec<_> = attributes(&bytes).collect();
        assert_eq!(read, [(7, &[1, 2, 3, 4, 5][..]), (8, &[][..])]);
    }

    #[test]
    fn invalid_attributes_end_the_list() {
        for len in [0_u16, 3, 9, u16::MAX] {
            let mut bytes = len.to_ne_bytes().to_vec();
            bytes.extend([0; 6]);
            assert_eq!(attributes(&bytes).count(), 0, "length {len}");
        }
    }
}
