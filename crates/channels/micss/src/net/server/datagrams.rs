//! A stream of datagrams at the server: a UDP socket of its own, which reaches only services that
//! the configuration allows.

use std::collections::VecDeque;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;
use tokio::time::{Instant, timeout};
use tracing::warn;

use crate::config::MicssServerConfig;
use crate::net::metrics::{LimitedLogEvent, StreamMetrics};
use crate::net::stream::datagrams::{
    DatagramArrival, DatagramSide, IDLE_TIMEOUT, receive_from, relay_datagrams,
};
use crate::net::stream::program::MicssStream;
use crate::protocol::datagram::parse_datagram;
use crate::protocol::target::{ServiceTarget, TargetHost};

/// The number of services whose datagrams a stream receives: those to which it has sent last.
const MAX_CONTACTS: usize = 64;

/// The number of names that a stream remembers, and for how long.
const MAX_NAMES: usize = 64;
const NAME_TIMEOUT: Duration = Duration::from_secs(60);

/// The time limit for looking up a name. Meanwhile the stream's other datagrams wait.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(5);

/// A UDP socket for one stream: of both families, if this host has IPv6.
pub(super) fn bind() -> io::Result<UdpSocket> {
    let v6 = || {
        let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
        socket.set_only_v6(false)?;
        socket.bind(&SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)).into())?;
        Ok::<Socket, io::Error>(socket)
    };
    let v4 = || {
        let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
        Ok::<Socket, io::Error>(socket)
    };
    let socket = v6().or_else(|_| v4())?;
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket.into())
}

/// Carries the datagrams of a stream until it ends.
pub(super) async fn carry(
    config: Arc<MicssServerConfig>,
    stream_metrics: Arc<StreamMetrics>,
    stream: MicssStream,
    socket: UdpSocket,
) {
    let is_v6 = socket.local_addr().is_ok_and(|address| address.is_ipv6());
    let side = ServerDatagrams {
        config: &config,
        stream_metrics: &stream_metrics,
        socket: &socket,
        is_v6,
        contacts: Mutex::default(),
        names: Mutex::default(),
    };
    relay_datagrams(stream, &side, &stream_metrics.datagrams, IDLE_TIMEOUT, pending()).await;
}

struct ServerDatagrams<'a> {
    config: &'a MicssServerConfig,
    stream_metrics: &'a StreamMetrics,
    socket: &'a UdpSocket,
    /// Whether the socket has addresses of IPv6, to which those of IPv4 are mapped.
    is_v6: bool,
    /// The services to which the stream has sent, the last one at the end.
    contacts: Mutex<VecDeque<SocketAddr>>,
    /// The addresses of names, the newest at the end.
    names: Mutex<VecDeque<(String, IpAddr, Instant)>>,
}

impl DatagramSide for ServerDatagrams<'_> {
    async fn receive(&self, buffer: &mut [u8]) -> DatagramArrival {
        let (len, from) = receive_from(self.socket, buffer).await;
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        // Nobody else may send to the client.
        let contacts = self.contacts.lock().unwrap_or_else(PoisonError::into_inner);
        if !contacts.contains(&from) {
            return DatagramArrival::Dropped;
        }
        let header = ServiceTarget::address(from).encode();
        DatagramArrival::Carried([&header, &buffer[..len]].concat())
    }

    async fn deliver(&self, bytes: &[u8]) -> bool {
        match self.destination(bytes).await {
            Some((payload, to)) => self.socket.send_to(payload, to).await.is_ok(),
            None => false,
        }
    }
}

impl ServerDatagrams<'_> {
    /// The payload of a datagram, and where to send it. `None` if it is not allowed, or if there is
    /// no such place.
    async fn destination<'b>(&self, bytes: &'b [u8]) -> Option<(&'b [u8], SocketAddr)> {
        let (target, payload) = parse_datagram(bytes).ok()?;
        if !self.config.allow_udp.iter().any(|allowed| allowed.includes(&target)) {
            if let Some(occurrences) = self.stream_metrics.log_permit(LimitedLogEvent::NotAllowed) {
                warn!(%target, occurrences, "UDP service not on the list allow_udp");
            }
            return None;
        }
        let address = match target.host() {
            TargetHost::Address(address) => *address,
            TargetHost::Name(name) => self.look_up(name).await?,
        };
        // One datagram must not reach many hosts. TCP reaches no such address either.
        if address.is_multicast() || address == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return None;
        }
        let to = SocketAddr::new(address, target.port());
        self.remember(to);
        let mapped = match address {
            IpAddr::V4(address) if self.is_v6 => address.to_ipv6_mapped().into(),
            other => other,
        };
        Some((payload, SocketAddr::new(mapped, target.port())))
    }

    /// Receives from this service, in place of the one to which the stream has not sent for the
    /// longest time.
    fn remember(&self, contact: SocketAddr) {
        let mut contacts = self.contacts.lock().unwrap_or_else(PoisonError::into_inner);
        contacts.retain(|known| *known != contact);
        if contacts.len() >= MAX_CONTACTS {
            contacts.pop_front();
        }
        contacts.push_back(contact);
    }

    /// The address of a name.
    async fn look_up(&self, name: &str) -> Option<IpAddr> {
        if let Some(known) = self.known(name) {
            return Some(known);
        }
        let found = timeout(LOOKUP_TIMEOUT, tokio::net::lookup_host((name, 0))).await.ok()?.ok()?;
        let mut usable = found.map(|found| found.ip().to_canonical());
        let address = usable.find(|address| self.is_v6 || address.is_ipv4())?;
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= MAX_NAMES {
            names.pop_front();
        }
        names.push_back((name.to_owned(), address, Instant::now()));
        Some(address)
    }

    fn known(&self, name: &str) -> Option<IpAddr> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.retain(|(.., since)| since.elapsed() < NAME_TIMEOUT);
        names.iter().find(|(known, ..)| known == name).map(|(_, address, _)| *address)
    }
}
