//! A transport of another crate, which a program adds. The registry belongs to the process, so
//! these tests are a program of their own.

mod unix_transport;

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Once;
use std::thread;
use std::time::Duration;

use sunder_transport::choice::{DecisionBasis, decide, expected};
use sunder_transport::forward::{PortExposer, PortForwarder};
use sunder_transport::{
    ByteStream, Connection, ConnectionOptions, ConnectionSecurity, ExchangeProfile, Listener,
    NetworkPath, Transport, TransportRegistrationError, connect, names, random_identity, register,
};
use tokio::runtime::Runtime;
use unix_transport::UnixTransport;

/// Adds the transport once.
fn add() {
    static ADDED: Once = Once::new();
    ADDED.call_once(|| register(Box::new(UnixTransport)).unwrap());
}

/// The options of a listener, and of a client that connects to it by the transport.
fn options() -> (ConnectionOptions, ConnectionOptions) {
    let security = ConnectionSecurity::open(random_identity().unwrap());
    let key = security.public_key().unwrap();
    let pinned = ConnectionSecurity::pinned(random_identity().unwrap(), vec![key]);
    let transport = "unix".parse().unwrap();
    let client = ConnectionOptions { transport, ..ConnectionOptions::new(pinned) };
    (ConnectionOptions::new(security), client)
}

/// Sends something in each direction, with an end in each direction.
fn exchange(mut client: Connection, mut server: Connection) {
    let sent = vec![7; 3_000_000];
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            let mut received = Vec::new();
            server.read_to_end(&mut received)?;
            server.write_all(&received)?;
            server.finish()
        });
        client.write_all(&sent).unwrap();
        client.finish().unwrap();
        let mut received = Vec::new();
        client.read_to_end(&mut received).unwrap();
        assert!(received == sent);
        answering.join().unwrap().unwrap();
    });
}

#[test]
fn connections_use_an_added_transport_by_its_name() {
    add();
    assert!(names().any(|(name, about)| name == "unix" && about.contains("one host")));
    let (server, client) = options();
    let listener = Listener::bind("127.0.0.1:0", &server).unwrap();
    let address = listener.local_addr().to_string();
    let connected = connect(&address, &client).unwrap();
    assert_eq!(connected.transport(), "unix");
    let accepted = listener.accept().unwrap();
    assert_eq!(accepted.transport(), "unix");
    // The library's handshake has proven the keys.
    assert_eq!(connected.peer(), server.security.public_key());
    assert_eq!(accepted.peer(), client.security.public_key());
    exchange(connected, accepted);
    // The same listener accepts the transports of the library.
    let tcp = ConnectionOptions { transport: "tcp".parse().unwrap(), ..client.clone() };
    let connected = connect(&address, &tcp).unwrap();
    exchange(connected, listener.accept().unwrap());
    // Without encryption.
    let insecure =
        |options| ConnectionOptions { security: ConnectionSecurity::Insecure, ..options };
    let listener = Listener::bind("127.0.0.1:0", &insecure(server)).unwrap();
    let address = listener.local_addr().to_string();
    let connected = connect(&address, &insecure(client.clone())).unwrap();
    exchange(connected, listener.accept().unwrap());
    // A wrong key is refused as over every other transport.
    let (other, _) = options();
    let listener = Listener::bind("127.0.0.1:0", &other).unwrap();
    let refused = connect(&listener.local_addr().to_string(), &client).unwrap_err();
    assert!(refused.is_security(), "{refused}");
}

#[test]
fn a_closed_listener_stops_an_added_transport() {
    add();
    let (server, client) = options();
    let listener = Listener::bind("127.0.0.1:0", &server).unwrap();
    let address = listener.local_addr().to_string();
    drop(listener);
    // Until its thread has dropped the socket.
    let error = loop {
        match connect(&address, &client) {
            Ok(_) => thread::yield_now(),
            Err(error) => break error.to_string(),
        }
    };
    assert!(error.starts_with(&address), "{error}");
}

#[test]
fn time_limits_hold_over_an_added_transport() {
    add();
    let (server, client) = options();
    let listener = Listener::bind("127.0.0.1:0", &server).unwrap();
    let address = listener.local_addr().to_string();
    let mut connected = connect(&address, &client).unwrap();
    let _accepted = listener.accept().unwrap();
    connected.set_timeout(Some(Duration::from_millis(20))).unwrap();
    let error = connected.read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::TimedOut, "{error}");
}

#[test]
fn auto_chooses_by_the_latency_function() {
    add();
    let exchange = ExchangeProfile { sent: 100_000_000, received: 0, rounds: 1 };
    let path = |micros| NetworkPath::assumed(Duration::from_micros(micros), 1.25e8);
    let chosen = |micros| {
        let all = names().map(|(name, _)| name);
        decide(all, &path(micros), &DecisionBasis::default(), exchange, true, |_| 1.0).transport
    };
    assert_eq!(chosen(50), "unix");
    assert_ne!(chosen(50_000), "unix");
    assert_ne!(expected(&path(50_000), exchange, true).decision.transport, "unix");
}

/// A transport with another name.
struct Named(&'static str);

impl Transport for Named {
    fn name(&self) -> &'static str {
        self.0
    }

    fn about(&self) -> &'static str {
        "nothing"
    }

    fn connect(
        &self,
        _: SocketAddr,
        _: &ConnectionOptions,
    ) -> io::Result<std::sync::Arc<dyn ByteStream>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[test]
fn names_are_unique_and_plain() {
    add();
    for taken in ["tcp", "micss", "auto", "unix"] {
        let refused = register(Box::new(Named(taken))).unwrap_err();
        assert_eq!(refused, TransportRegistrationError::NameTaken(taken.into()));
    }
    for invalid in ["", "Tcp", "a b", "a,b", "an-extraordinarily-long-name-for-it"] {
        let refused = register(Box::new(Named(invalid))).unwrap_err();
        assert_eq!(refused, TransportRegistrationError::InvalidName(invalid.into()));
    }
    // Without a latency function, `auto` does not choose it.
    register(Box::new(Named("other"))).unwrap();
    let path = NetworkPath::assumed(Duration::from_millis(10), 1.25e8);
    let exchange = ExchangeProfile { sent: 1000, received: 0, rounds: 1 };
    let basis = DecisionBasis::default();
    let all = names().map(|(name, _)| name);
    let decision = decide(all, &path, &basis, exchange, true, |_| 1.0);
    let candidate = decision.candidates.iter().find(|it| it.transport == "other").unwrap();
    assert!(candidate.predicted.is_err());
    assert_ne!(decision.transport, "other");
}

#[test]
fn a_port_is_forwarded_over_an_added_transport() {
    add();
    let (server, client) = options();
    let service = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = service.local_addr().unwrap().to_string();
    let runtime = Runtime::new().unwrap();
    let exposer = PortExposer::bind("127.0.0.1:0", &target, &server).unwrap();
    let to = exposer.listener().local_addr().to_string();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let forwarder = runtime.block_on(PortForwarder::bind(any, &to, client)).unwrap();
    let local = forwarder.local_addr().unwrap();
    let status = exposer.status_source();
    runtime.spawn(exposer.run(std::future::pending()));
    runtime.spawn(forwarder.run(std::future::pending()));
    let serving = thread::spawn(move || {
        let (mut stream, _) = service.accept().unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        stream.write_all(&received).unwrap();
    });
    let mut program = TcpStream::connect(local).unwrap();
    program.write_all(b"hello").unwrap();
    program.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = String::new();
    program.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "hello");
    serving.join().unwrap();
    assert_eq!(status.status().forwarded, 1);
    runtime.shutdown_background();
}
