//! UDP ASSOCIATE of SOCKS5 through both commands: DNS, and what the ends drop.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::interruption::uninterrupted;

use super::processes::{Service, WAIT_TIMEOUT};

/// A name server on loopback that answers every query for an address with 192.0.2.80. Reports the
/// addresses from which queries come.
struct NameServer {
    address: SocketAddr,
    senders: Receiver<SocketAddr>,
}

impl NameServer {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let (sender, senders) = channel();
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut query) {
                let _ = sender.send(from);
                let _ = socket.send_to(&answer(&query[..len]), from);
            }
        });
        Self { address, senders }
    }
}

/// A query for the address of a name (RFC 1035, section 4).
fn query(id: u16, name: &str) -> Vec<u8> {
    let mut bytes = [&id.to_be_bytes()[..], &[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for label in name.split('.') {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.extend([0, 0, 1, 0, 1]);
    bytes
}

/// The answer: the query with one record.
fn answer(query: &[u8]) -> Vec<u8> {
    let record = [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 80];
    let mut bytes = [query, &record].concat();
    bytes[2] |= 0x80;
    bytes[7] = 1;
    bytes
}

/// An application's association.
struct Association {
    control: TcpStream,
    socket: UdpSocket,
    proxy: SocketAddr,
}

impl Association {
    /// Requests one. The reply code, if it is refused.
    fn request(socks: SocketAddr) -> Result<Self, u8> {
        let mut control = TcpStream::connect(socks).unwrap();
        control.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        control.write_all(&[5, 1, 0]).unwrap();
        control.read_exact(&mut [0; 2]).unwrap();
        control.write_all(&[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        let mut reply = [0; 10];
        control.read_exact(&mut reply).unwrap();
        if reply[1] != 0 {
            return Err(reply[1]);
        }
        assert_eq!(reply[..8], [5, 0, 0, 1, 127, 0, 0, 1]);
        let proxy = SocketAddr::from(([127, 0, 0, 1], u16::from_be_bytes([reply[8], reply[9]])));
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
        Ok(Self { control, socket, proxy })
    }

    /// Sends a datagram to a target in the encoding of SOCKS5.
    fn send(&self, target: &[u8], payload: &[u8]) {
        let bytes = [&[0, 0, 0], target, payload].concat();
        self.socket.send_to(&bytes, self.proxy).unwrap();
    }

    /// The next datagram: from which address, and its payload.
    fn receive(&self) -> (Vec<u8>, Vec<u8>) {
        let mut bytes = [0; 2048];
        let (len, from) = uninterrupted(|| self.socket.recv_from(&mut bytes)).unwrap();
        assert_eq!(from, self.proxy);
        assert_eq!(bytes[..4], [0, 0, 0, 1], "an address of IPv4");
        (bytes[3..10].to_vec(), bytes[10..len].to_vec())
    }
}

/// An address of IPv4 in the encoding of SOCKS5.
fn encoded(address: SocketAddr) -> Vec<u8> {
    let SocketAddr::V4(address) = address else { panic!("{address}") };
    [&[1][..], &address.ip().octets(), &address.port().to_be_bytes()].concat()
}

fn start(allow_udp: &[String]) -> (Service, Service) {
    let serve = format!(
        "listen = [\"127.0.0.1:0\", \"127.0.0.2:0\"]\nallow = []\nallow_udp = {allow_udp:?}\n"
    );
    let server = Service::start("serve", &serve, 2);
    let proxy = format!("socks = \"127.0.0.1:0\"\nsocks_udp = true\n{}", server.channels());
    let proxy = Service::start("proxy", &proxy, 1);
    (server, proxy)
}

/// The counts of datagrams in a status: sent to the channels, received from them, dropped.
fn counts(service: &Service) -> [u64; 3] {
    let status: Value = serde_json::from_str(&service.status(&["--json"])).unwrap();
    ["to_channels", "from_channels", "dropped"]
        .map(|count| status[0]["udp"][count].as_u64().unwrap())
}

#[test]
fn dns_works_and_nothing_else_gets_through() {
    let dns = NameServer::start();
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = dns.address.port();
    let (server, proxy) = start(&[dns.address.to_string(), format!("localhost:{port}")]);
    let own = Association::request(proxy.address(0)).unwrap();

    // Two sequential look-ups from one socket of the server; the second one names the server.
    own.send(&encoded(dns.address), &query(7, "example.org"));
    assert_eq!(own.receive(), (encoded(dns.address), answer(&query(7, "example.org"))));
    let name = [&[3, 9][..], b"localhost", &port.to_be_bytes()].concat();
    own.send(&name, &query(8, "example.net"));
    let senders: Vec<SocketAddr> =
        (0..2).map(|_| dns.senders.recv_timeout(WAIT_TIMEOUT).unwrap()).collect();
    assert_eq!(senders[0].port(), senders[1].port());
    assert_eq!(own.receive().1, answer(&query(8, "example.net")));

    // A datagram that nobody asked for, at the server's socket.
    let unasked = SocketAddr::from(([127, 0, 0, 1], senders[0].port()));
    other.send_to(&query(9, "forged.example"), unasked).unwrap();
    // One of another program, a fragment, garbage, and a service that is not allowed.
    other.send_to(&[&[0, 0, 0], &encoded(dns.address)[..], b"x"].concat(), own.proxy).unwrap();
    own.socket.send_to(&[&[0, 0, 1], &encoded(dns.address)[..], b"x"].concat(), own.proxy).unwrap();
    own.socket.send_to(b"garbage", own.proxy).unwrap();
    own.send(&encoded(other.local_addr().unwrap()), b"not allowed");
    server.wait_for("UDP service not on the list allow_udp");
    own.send(&encoded(dns.address), &query(10, "last.example"));
    assert_eq!(own.receive().1, answer(&query(10, "last.example")), "nothing in between");
    other.set_nonblocking(true).unwrap();
    assert_eq!(other.recv(&mut [0; 9]).unwrap_err().kind(), ErrorKind::WouldBlock);
    assert_eq!(counts(&proxy), [4, 3, 3]);
    assert_eq!(counts(&server), [3, 3, 2]);
    assert!(proxy.status(&[]).contains("UDP: 1 association open of 1"), "{}", proxy.status(&[]));
    let metrics = server.status(&["--metrics"]);
    assert!(metrics.contains("\nsunder_datagrams_dropped_total{"), "{metrics}");

    // It ends with the application's connection, and its channels are used again.
    drop(own.control);
    for service in [&proxy, &server] {
        let line = service.wait_for("stream finished");
        assert!(line.contains("target=UDP"), "{line}");
    }
    assert!(proxy.status(&[]).contains("UDP: no association open of 1"));
}

#[test]
fn a_server_without_udp_services_refuses() {
    let (server, proxy) = start(&[]);
    assert_eq!(Association::request(proxy.address(0)).err(), Some(2));
    server.wait_for("no service is on the list allow_udp");
    // Without socks_udp, the command is not supported.
    let plain = Service::proxy(&server);
    assert_eq!(Association::request(plain.address(0)).err(), Some(7));
    plain.wait_for("set socks_udp = true for applications that need UDP");
}

/// The application must learn that nobody carries its datagrams any more.
#[test]
fn an_association_ends_with_its_server() {
    let dns = NameServer::start();
    let (mut server, proxy) = start(&[dns.address.to_string()]);
    let mut own = Association::request(proxy.address(0)).unwrap();
    own.send(&encoded(dns.address), &query(7, "example.org"));
    own.receive();
    server.child.kill().unwrap();
    server.wait();
    let read = uninterrupted(|| own.control.read(&mut [0]));
    assert!(matches!(read, Ok(0)), "the connection ends");
    proxy.wait_for("stream aborted");
    assert!(proxy.status(&[]).contains("UDP: no association open of 1"));
}

/// A datagram of the longest length, and many at once, do not end the association.
#[test]
fn long_and_many_datagrams_are_carried_or_dropped() {
    let echo = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = echo.local_addr().unwrap();
    thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok((len, from)) = echo.recv_from(&mut bytes) {
            let _ = echo.send_to(&bytes[..len], from);
        }
    });
    let (_server, proxy) = start(&[address.to_string()]);
    let own = Association::request(proxy.address(0)).unwrap();
    let mut bytes = vec![0; 65_536];
    let long = vec![7; 65_507 - 10];
    own.send(&encoded(address), &long);
    let (len, _) = uninterrupted(|| own.socket.recv_from(&mut bytes)).unwrap();
    assert!(bytes[10..len] == long);
    for _ in 0..20_000 {
        own.send(&encoded(address), b"flood");
    }
    // What was dropped is dropped; the association goes on.
    own.socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let is_last = |bytes: &[u8]| bytes.ends_with(b"last");
    // One more after each time in which nothing has come back.
    let (mut sent, mut has_arrived) = (0, false);
    while sent < 4000 && !has_arrived {
        if let Ok((len, _)) = own.socket.recv_from(&mut bytes) {
            has_arrived = is_last(&bytes[..len]);
        } else {
            own.send(&encoded(address), b"last");
            sent += 1;
        }
    }
    assert!(has_arrived);
}
