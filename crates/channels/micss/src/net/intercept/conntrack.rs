//! Asks the kernel's connection tracking where an application has sent a datagram that was
//! redirected to the client's port.
//!
//! For a TCP connection a socket option answers this (`SO_ORIGINAL_DST`), for UDP only the netlink
//! interface of connection tracking (ctnetlink). The kernel answers before the call that asks
//! returns, so nothing here waits. It needs `CAP_NET_ADMIN`, as the rules do.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::netlink::NETFILTER;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with,
};

/// The message that asks for a connection, `IPCTNL_MSG_CT_GET` of `NFNL_SUBSYS_CTNETLINK`.
const GET_CONNECTION: u16 = 1 << 8 | 1;

/// The answer, `IPCTNL_MSG_CT_NEW`.
const CONNECTION: u16 = 1 << 8;

/// The type of a message with an error number, `NLMSG_ERROR`, and the flag `NLM_F_REQUEST`.
const ERROR: u16 = 2;
const REQUEST: u16 = 1;

/// The flag of an attribute that contains attributes, and the mask of an attribute's type.
const NESTED: u16 = 0x8000;
const ATTRIBUTE_TYPE: u16 = 0x3FFF;

/// The packets of a connection in each direction: `CTA_TUPLE_ORIG` and `CTA_TUPLE_REPLY`.
const ORIGINAL: u16 = 1;
const REPLY: u16 = 2;

/// Within these: `CTA_TUPLE_IP` and `CTA_TUPLE_PROTO`.
const ADDRESSES: u16 = 1;
const PORTS: u16 = 2;

/// Within `CTA_TUPLE_IP`, source and destination.
const V4: [u16; 2] = [1, 2];
const V6: [u16; 2] = [3, 4];

/// Within `CTA_TUPLE_PROTO`: the protocol, and the ports of source and destination.
const PROTOCOL: u16 = 1;
const PORT: [u16; 2] = [2, 3];

const UDP: u8 = 17;

/// The length of the header of a message, and of the one that follows in netfilter's messages.
const HEADER_LEN: usize = 16;
const NETFILTER_HEADER_LEN: usize = 4;

/// The length of a buffer for an answer. The kernel's are below 1 KiB.
const MAX_ANSWER: usize = 8192;

/// The two ends of an application's datagrams, before any redirection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct UdpEndpoints {
    pub(crate) application: SocketAddr,
    pub(crate) destination: SocketAddr,
}

/// A socket for questions to the connection tracking.
#[derive(Debug)]
pub(crate) struct ConntrackSocket {
    socket: OwnedFd,
    /// The number of the last question.
    sequence: u32,
}

impl ConntrackSocket {
    /// A socket whose questions the kernel answers.
    ///
    /// # Errors
    /// If the kernel has no netlink interface of connection tracking, or this process has no right
    /// to use it ([`io::ErrorKind::PermissionDenied`]).
    pub(crate) fn open() -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(NETFILTER));
        let named = |error: io::Error| {
            let fix = match error.kind() {
                io::ErrorKind::PermissionDenied => "; interception of UDP needs CAP_NET_ADMIN",
                _ => "; interception of UDP needs the kernel's module nf_conntrack_netlink",
            };
            let what = format!("cannot ask the kernel for connections: {error}{fix}");
            io::Error::new(error.kind(), what)
        };
        let mut conntrack =
            Self { socket: socket.map_err(io::Error::from).map_err(named)?, sequence: 0 };
        // There is no such connection, but the kernel must have looked for it.
        let none = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        conntrack.endpoints(none, none).map_err(named)?;
        Ok(conntrack)
    }

    /// Where the application's datagrams went that arrive from `application` at the client's
    /// address `local`. `None` if the kernel tracks no such connection.
    ///
    /// # Errors
    /// If the kernel refuses to answer.
    pub(crate) fn endpoints(
        &mut self,
        application: SocketAddr,
        local: SocketAddr,
    ) -> io::Result<Option<UdpEndpoints>> {
        self.sequence = self.sequence.wrapping_add(1);
        send(&self.socket, &question(self.sequence, application, local), SendFlags::empty())?;
        let mut buffer = [0; MAX_ANSWER];
        loop {
            let (_, len) = recv(&self.socket, &mut buffer, RecvFlags::empty())?;
            match answer(buffer.get(..len).unwrap_or_default(), self.sequence) {
                // It answers an earlier question, after which the buffer was full.
                ConntrackAnswer::Other => {}
                ConntrackAnswer::Endpoints(endpoints) => return Ok(Some(endpoints)),
                ConntrackAnswer::Error(Errno::NOENT) => return Ok(None),
                ConntrackAnswer::Error(error) => return Err(error.into()),
                ConntrackAnswer::Malformed => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}

/// What a message of the kernel says.
#[derive(Debug, PartialEq, Eq)]
enum ConntrackAnswer {
    Endpoints(UdpEndpoints),
    Error(Errno),
    /// It answers another question.
    Other,
    Malformed,
}

/// Asks for the connection whose answers go from `local` to `application`.
fn question(sequence: u32, application: SocketAddr, local: SocketAddr) -> Vec<u8> {
    let (addresses, family) = match (local.ip(), application.ip()) {
        (IpAddr::V4(local), IpAddr::V4(application)) => {
            let [source, destination] = V4;
            let octets = [(source, local.octets()), (destination, application.octets())];
            (octets.map(|(kind, octets)| attribute(kind, &octets)).concat(), libc::AF_INET)
        }
        (local, application) => {
            let [source, destination] = V6;
            let octets = [(source, v6_octets(local)), (destination, v6_octets(application))];
            (octets.map(|(kind, octets)| attribute(kind, &octets)).concat(), libc::AF_INET6)
        }
    };
    let [source, destination] = PORT;
    let ports = [
        attribute(PROTOCOL, &[UDP]),
        attribute(source, &local.port().to_be_bytes()),
        attribute(destination, &application.port().to_be_bytes()),
    ];
    let tuple =
        [attribute(ADDRESSES | NESTED, &addresses), attribute(PORTS | NESTED, &ports.concat())];
    let tuple = attribute(REPLY | NESTED, &tuple.concat());
    let len = u32::try_from(HEADER_LEN + NETFILTER_HEADER_LEN + tuple.len());
    [
        &len.expect("a short message").to_ne_bytes()[..],
        &GET_CONNECTION.to_ne_bytes(),
        &REQUEST.to_ne_bytes(),
        &sequence.to_ne_bytes(),
        &[0; 4],
        // The family, the version and the resource.
        &[u8::try_from(family).expect("a small number"), 0, 0, 0],
        &tuple,
    ]
    .concat()
}

fn v6_octets(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len() + 4).expect("a short attribute");
    let mut bytes = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Parses a message that may answer the question with this number.
fn answer(message: &[u8], sequence: u32) -> ConntrackAnswer {
    let Some((header, body)) = message.split_first_chunk::<HEADER_LEN>() else {
        return ConntrackAnswer::Malformed;
    };
    let number = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    if u32::from_ne_bytes(number(8)) != sequence {
        return ConntrackAnswer::Other;
    }
    match u16::from_ne_bytes([header[4], header[5]]) {
        ERROR => match body.first_chunk() {
            Some(error) => ConntrackAnswer::Error(Errno::from_raw_os_error(
                i32::from_ne_bytes(*error).wrapping_neg(),
            )),
            None => ConntrackAnswer::Malformed,
        },
        CONNECTION => {
            let tuple = body
                .get(NETFILTER_HEADER_LEN..)
                .and_then(|attributes| value(attributes, ORIGINAL))
                .and_then(endpoints_of);
            tuple.map_or(ConntrackAnswer::Malformed, ConntrackAnswer::Endpoints)
        }
        _ => ConntrackAnswer::Other,
    }
}

/// The ends of a tuple of UDP.
fn endpoints_of(tuple: &[u8]) -> Option<UdpEndpoints> {
    let (addresses, ports) = (value(tuple, ADDRESSES)?, value(tuple, PORTS)?);
    if value(ports, PROTOCOL)? != [UDP] {
        return None;
    }
    let end = |which: usize| {
        let ip = match (value(addresses, V4[which]), value(addresses, V6[which])) {
            (Some(v4), _) => Ipv4Addr::from(<[u8; 4]>::try_from(v4).ok()?).into(),
            (None, v6) => Ipv6Addr::from(<[u8; 16]>::try_from(v6?).ok()?).into(),
        };
        let port = u16::from_be_bytes(value(ports, PORT[which])?.try_into().ok()?);
        Some(SocketAddr::new(ip, port))
    };
    Some(UdpEndpoints { application: end(0)?, destination: end(1)? })
}

/// The value of the first attribute of this type.
fn value(mut attributes: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let (header, _) = attributes.split_first_chunk::<4>()?;
        let len = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let value = attributes.get(4..len)?;
        if u16::from_ne_bytes([header[2], header[3]]) & ATTRIBUTE_TYPE == kind {
            return Some(value);
        }
        attributes = attributes.get(len.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    /// An answer of Linux 6.18 to the question 7, without its later attributes.
    const ANSWER: &str = "a40000000001020007000000f14d000002000000\
        3400018014000180080001000a08080108000200c63364011c0002800500010011000000060002000fa0000006\
        000300003500003400028014000180080001007f000001080002000a0808011c00028005000100110000000600\
        0200020a0000060003000fa0000008000300000001a8";

    fn bytes(text: &str) -> Vec<u8> {
        let digit = |byte: u8| char::from(byte).to_digit(16).map(|it| u8::try_from(it).unwrap());
        let digits: Vec<u8> = text.bytes().filter_map(digit).collect();
        digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    #[test]
    fn the_kernels_answer_names_the_original_destination() {
        let application = "10.8.8.1:4000".parse().unwrap();
        let expected =
            UdpEndpoints { application, destination: "198.51.100.1:53".parse().unwrap() };
        let message = bytes(ANSWER);
        assert_eq!(answer(&message, 7), ConntrackAnswer::Endpoints(expected));
        assert_eq!(answer(&message, 8), ConntrackAnswer::Other);
        // The question has the other direction, as this answer has it.
        let asked = question(7, application, "127.0.0.1:522".parse().unwrap());
        assert_eq!(asked[20..], message[72..124]);
        assert_eq!(asked[..4], 72_u32.to_ne_bytes());
    }

    #[test]
    fn an_error_is_one_of_its_question_only() {
        let none = bytes("5c0000000200000009000000f14d0000feffffff48000000");
        assert_eq!(answer(&none, 9), ConntrackAnswer::Error(Errno::NOENT));
        assert_eq!(answer(&none, 1), ConntrackAnswer::Other);
        assert_eq!(answer(&none[..18], 9), ConntrackAnswer::Malformed);
    }

    #[test]
    fn ipv6_addresses_are_asked_for_and_found() {
        let (application, local) =
            ("[2001:db8::7]:4000".parse().unwrap(), "[::1]:522".parse().unwrap());
        let asked = question(1, application, local);
        assert_eq!(asked[16], 10, "AF_INET6");
        // An answer with the same tuple, as that of the first direction.
        let mut message = asked;
        message[4..6].copy_from_slice(&CONNECTION.to_ne_bytes());
        message[22..24].copy_from_slice(&(ORIGINAL | NESTED).to_ne_bytes());
        let expected = UdpEndpoints { application: local, destination: application };
        assert_eq!(answer(&message, 1), ConntrackAnswer::Endpoints(expected));
    }

    #[test]
    fn no_message_makes_it_panic() {
        let whole = bytes(ANSWER);
        for byte in 0..whole.len() {
            for value in [0, 1, 4, 0x7F, 0xFF] {
                let mut message = whole.clone();
                message[byte] = value;
                let _ = answer(&message, 7);
                let _ = answer(&message[..byte], 7);
            }
        }
    }
}
