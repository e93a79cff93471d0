//! Matching connections never leave in the clear: neither this host's nor forwarded ones, neither
//! over IPv4 nor over IPv6, whatever fails, is missing, or belongs to another program. Each state
//! of the host is tested with four connections, each to another address of the server, so that the
//! captures of the uplinks distinguish them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::captures::{CHANNEL_PORT, clear_packets};
use crate::topology::{Program, SUNDER, Topology};

/// The service's port, which any user may use.
pub(crate) const SERVICE: u16 = 8080;

/// The proxy's port, which any user may use, unlike the default port.
pub(crate) const PORT: u16 = 6522;

pub(crate) const SETTINGS: &str =
    "intercept = \"tcp dport 8080\"\nintercept_port = 6522\nintercept_from = [\"lan\"]";

/// The service's answer.
pub(crate) const ANSWER: &[u8; 7] = b"service";

/// The time limit for a connection that is dropped rather than refused.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(3);

/// The time limit for an answer that is expected, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// One of the connections: whether this host makes it, the server's link, and whether it is over
/// IPv6.
#[derive(Clone, Copy)]
pub(crate) struct Cell(pub(crate) &'static str, pub(crate) &'static str, pub(crate) bool);

pub(crate) const CELLS: [Cell; 4] = [
    Cell("client", "a", false),
    Cell("client", "b", true),
    Cell("user", "c", false),
    Cell("user", "a", true),
];

/// The outcome of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The service has answered.
    Answered,
    /// It was reset or not answered.
    Refused,
}

use Outcome::{Answered, Refused};

/// The hosts, a service, and a `sunder serve` that allows it.
pub(crate) struct Matrix {
    pub(crate) topology: Topology,
    /// The number of connections to the service.
    pub(crate) reached: Arc<AtomicUsize>,
    _server: Program,
}

impl Matrix {
    pub(crate) fn new() -> Self {
        let topology = Topology::new();
        let by_v4 = topology.v4("client", "lan").to_string();
        let by_v6 = topology.v6("client", "lan").to_string();
        topology.ask("user", "ip", &["route", "add", "default", "via", &by_v4]);
        topology.ask("user", "ip", &["-6", "route", "add", "default", "via", &by_v6]);
        // The server has a route back, so that packets in the clear would be answered.
        let back = topology.v4("client", "a").to_string();
        topology.ask("server", "ip", &["route", "add", "default", "via", &back]);
        let back = topology.v6("client", "a").to_string();
        topology.ask("server", "ip", &["-6", "route", "add", "default", "via", &back]);
        let server = topology.serve("[\"0.0.0.0/0:8080\", \"[::]/0:8080\"]");
        let reached = Arc::new(AtomicUsize::new(0));
        let any: SocketAddr = (Ipv6Addr::UNSPECIFIED, SERVICE).into();
        let service = topology.host("server").run(|| listen(any, Kind::Both)).unwrap().unwrap();
        let count = Arc::clone(&reached);
        thread::spawn(move || {
            for stream in service.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || answer(stream));
            }
        });
        Self { topology, reached, _server: server }
    }

    pub(crate) fn proxy(&self) -> Program {
        self.topology.proxy(SETTINGS)
    }

    /// Starts a proxy and kills it without giving it a chance to clean up.
    pub(crate) fn kill_a_proxy(&self) {
        drop(self.proxy());
    }

    /// The message of a proxy that cannot start.
    pub(crate) fn failed_start(&self) -> String {
        let config = self.topology.proxy_toml(SETTINGS);
        let arguments = ["proxy", "--config", config.to_str().unwrap()];
        let mut proxy = self.topology.start("client", SUNDER, &arguments);
        assert!(!proxy.ended_well());
        proxy.log()
    }

    pub(crate) fn address(&self, Cell(_, link, is_v6): Cell) -> IpAddr {
        let (v4, v6) = (self.topology.v4("server", link), self.topology.v6("server", link));
        if is_v6 { v6.into() } else { v4.into() }
    }

    /// Connects to the service and sends a request, of which no answer is expected.
    pub(crate) fn connect(&self, cell: Cell) -> io::Result<Vec<u8>> {
        self.connect_within(cell, TIMEOUT)
    }

    /// Connects to the service and sends a request. Each step may take this long.
    pub(crate) fn connect_within(&self, cell: Cell, limit: Duration) -> io::Result<Vec<u8>> {
        let address = (self.address(cell), SERVICE).into();
        let mut stream = self
            .topology
            .host(cell.0)
            .run(|| TcpStream::connect_timeout(&address, limit))
            .unwrap()?;
        ask_within(&mut stream, limit)
    }

    /// Makes all connections, compares their outcomes, and then checks the captures of the uplinks.
    pub(crate) fn expect(self, state: &str, expected: [Outcome; 4]) {
        let mut limits = expected.iter().map(|outcome| match outcome {
            Answered => PATIENCE,
            Refused => TIMEOUT,
        });
        let found =
            CELLS.map(|cell| (cell, self.connect_within(cell, limits.next().unwrap_or(TIMEOUT))));
        self.found(state, expected, found);
    }

    /// Compares the outcomes, and checks that the captures contain nothing of the connections.
    pub(crate) fn found(
        self,
        state: &str,
        expected: [Outcome; 4],
        found: [(Cell, io::Result<Vec<u8>>); 4],
    ) {
        let addresses = CELLS.map(|cell| self.address(cell));
        let captures = self.topology.captures();
        let clear = clear_packets(&captures, CHANNEL_PORT);
        let mut wrong = Vec::new();
        for (((cell, result), address), expected) in found.into_iter().zip(addresses).zip(expected)
        {
            let Cell(whose, _, is_v6) = cell;
            let whose = if whose == "client" { "local" } else { "forwarded" };
            let family = if is_v6 { "IPv6" } else { "IPv4" };
            let outcome = match &result {
                Ok(answer) if answer == ANSWER => Answered,
                Ok(_) => panic!("{state}, {whose} {family}: somebody else has answered"),
                Err(_) => Refused,
            };
            let description = match &result {
                Ok(_) => "intercepted".to_owned(),
                Err(error) => format!("refused ({})", error.kind()),
            };
            let packets = clear.get(&address).copied().unwrap_or(0);
            println!(
                "matrix: {state}: {whose} {family}: {description}, {packets} packets in the clear"
            );
            if packets > 0 || outcome != expected {
                wrong.push(format!("{whose} {family}"));
            }
        }
        assert!(wrong.is_empty(), "{state}: wrong or in the clear: {wrong:?}");
        assert!(clear.is_empty(), "{state}: in the clear: {clear:?}");
    }
}

/// The connections that a listener accepts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// IPv6 only.
    Own,
    /// Both families.
    Both,
    /// Transparent, like the proxy's, which needs a capability.
    Transparent,
}

pub(crate) fn listen(address: SocketAddr, kind: Kind) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(kind != Kind::Both)?;
    }
    if kind == Kind::Transparent {
        match address {
            SocketAddr::V4(_) => socket.set_ip_transparent_v4(true)?,
            SocketAddr::V6(_) => socket.set_ip_transparent_v6(true)?,
        }
    }
    socket.bind(&address.into())?;
    socket.listen(16)?;
    Ok(socket.into())
}

pub(crate) fn answer(mut stream: TcpStream) {
    let mut asked = [0; 5];
    if stream.read_exact(&mut asked).is_ok() {
        let _ = stream.write_all(ANSWER);
    }
}

/// Sends a request, of which no answer is expected.
pub(crate) fn ask(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    ask_within(stream, TIMEOUT)
}

/// Sends a request. The answer may take this long.
pub(crate) fn ask_within(stream: &mut TcpStream, limit: Duration) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(b"hello")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if answer.is_empty() { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(answer) }
}

/// Listeners of a process without capabilities on the client, at these addresses.
pub(crate) fn occupy(matrix: &Matrix, addresses: &[SocketAddr], kind: Kind) -> Vec<TcpListener> {
    let bind = |address: &SocketAddr| {
        let listener =
            matrix.topology.host("client").run(|| listen(*address, kind)).unwrap().unwrap();
        listener.set_nonblocking(true).unwrap();
        listener
    };
    addresses.iter().map(bind).collect()
}

/// Checks that nothing connected to them.
pub(crate) fn assert_nobody(listeners: &[TcpListener]) {
    for squatter in listeners {
        let error = squatter.accept().expect_err("nobody comes");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
    }
}

pub(crate) fn wildcards(port: u16) -> [SocketAddr; 2] {
    [format!("0.0.0.0:{port}"), format!("[::]:{port}")].map(|address| address.parse().unwrap())
}
