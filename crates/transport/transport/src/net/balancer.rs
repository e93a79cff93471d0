//! Reads what a load balancer states of a connection that it passes on.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use super::timed::TimedStream;
use crate::protocol::balancer::BalancerHeader;
use crate::stream::ByteStream;

/// The most connections of load balancers whose header has not arrived. A balancer sends it at
/// once.
pub(super) const MAX_WITHOUT_HEADER: usize = 1024;

/// Reads the header within `limit`. Returns the client's address, or the balancer's own for its own
/// connections; `None` if the connection ends before its first byte.
pub(super) fn read_client(
    stream: &dyn ByteStream,
    limit: Duration,
) -> io::Result<Option<SocketAddr>> {
    let timed = TimedStream::new(stream, limit);
    let mut bytes = Vec::new();
    loop {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        match BalancerHeader::parse(&bytes).map_err(invalid)? {
            BalancerHeader::Complete(client) => {
                return Ok(Some(client.unwrap_or_else(|| stream.peer_addr())));
            }
            BalancerHeader::Incomplete(count) => {
                let mut next = vec![0; count];
                let len = match timed.read(&mut next) {
                    Err(error) if bytes.is_empty() && is_end(&error) => return Ok(None),
                    read => read?,
                };
                bytes.extend_from_slice(&next[..len]);
            }
        }
    }
}

/// Whether the other end has closed the connection. Load balancers that check whether a server
/// listens, and scans of ports, do so before they have sent anything.
pub(super) fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};
    use std::sync::Arc;

    use keys::IdentitySecretKey;
    use socket2::{Domain, Socket, Type};

    use super::super::handshaking::initiate;
    use super::super::{Connection, Listener, connect};
    use super::*;
    use crate::options::{ConnectionOptions, ConnectionSecurity, TransportChoice};
    use crate::transports::tcp::TcpByteStream;

    fn client_options() -> ConnectionOptions {
        let [server, client] = [1, 2].map(|byte| IdentitySecretKey::new(&[byte; 32]));
        ConnectionOptions::new(ConnectionSecurity::pinned(client, vec![server.public()]))
    }

    /// A connection from the load balancer 127.0.0.2.
    fn connected(address: &str) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from(([127, 0, 0, 2], 0)).into())?;
        socket.connect(&address.parse::<SocketAddr>().unwrap().into())?;
        Ok(socket.into())
    }

    /// Sends a header as the load balancer 127.0.0.2 does, and then connects.
    fn by_balancer(address: &str, header: &[u8]) -> io::Result<Connection> {
        let mut socket = connected(address)?;
        socket.write_all(header)?;
        let peer = socket.peer_addr()?;
        let stream = TcpByteStream::new(socket, peer)?;
        Ok(initiate(Arc::new(stream), address.to_owned(), &client_options())?)
    }

    #[test]
    fn a_load_balancer_states_the_address_of_its_client() {
        let balancers = vec!["127.0.0.2".parse().unwrap()];
        let server = IdentitySecretKey::new(&[1; 32]);
        let options = ConnectionOptions {
            balancers,
            ..ConnectionOptions::new(ConnectionSecurity::open(server))
        };
        let listener = Listener::bind("127.0.0.1:0", &options).unwrap();
        let address = listener.local_addr().to_string();
        let version_2 =
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x09\xc6\x33\x64\x01\x12\x67\x01\xbb";
        for header in [&b"PROXY TCP4 192.0.2.9 198.51.100.1 4711 443\r\n"[..], version_2] {
            let _client = by_balancer(&address, header).unwrap();
            assert_eq!(listener.accept().unwrap().peer_addr(), "192.0.2.9:4711".parse().unwrap());
        }
        // Its own connections, and those of others, have the address that they come from.
        let _own = by_balancer(&address, b"PROXY UNKNOWN\r\n").unwrap();
        assert_eq!(listener.accept().unwrap().peer_addr().ip(), Ipv4Addr::new(127, 0, 0, 2));
        let tcp = TransportChoice::Named("tcp");
        let direct = ConnectionOptions { transport: tcp, ..client_options() };
        let _direct = connect(&address, &direct).unwrap();
        assert_eq!(listener.accept().unwrap().peer_addr().ip(), Ipv4Addr::LOCALHOST);
        // Without a header, the balancer is refused. So is a header from elsewhere.
        assert!(by_balancer(&address, b"").is_err());
        let mut forger = TcpStream::connect(&address).unwrap();
        forger.write_all(b"PROXY TCP4 192.0.2.9 198.51.100.1 4711 443\r\n").unwrap();
        // The rest of the header is not read, so the end can be a reset.
        let _ = forger.read_to_end(&mut Vec::new());
        assert!(listener.accept_timeout(Duration::from_millis(10)).unwrap().is_none());
        // Checks whether it listens do not keep others out.
        for _ in 0..2 * MAX_WITHOUT_HEADER {
            connected(&address).unwrap();
        }
        let _last = by_balancer(&address, version_2).unwrap();
        assert_eq!(listener.accept().unwrap().peer_addr(), "192.0.2.9:4711".parse().unwrap());
    }
}
