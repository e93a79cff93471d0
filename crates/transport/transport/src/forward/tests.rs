//! The exposing end, with clients that do not follow the protocol; and the forwarding end, with
//! another program in place of an exposing end.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use tokio::runtime::Runtime;

use super::{MAX_CONNECTIONS, PortExposer, PortForwardStatusSource, PortForwarder};
use crate::net::{Connection, Listener, connect};
use crate::options::{ConnectionOptions, ConnectionSecurity, random_identity};
use crate::protocol::forward::{OPENING, TargetRefusal};

/// A service that is exposed.
struct ExposedService {
    service: TcpListener,
    address: String,
    client: ConnectionOptions,
    status: PortForwardStatusSource,
    runtime: Runtime,
}

impl ExposedService {
    fn new() -> Self {
        let service = TcpListener::bind("127.0.0.1:0").unwrap();
        service.set_nonblocking(true).unwrap();
        let (server, client) = options();
        let target = service.local_addr().unwrap().to_string();
        let exposer = PortExposer::bind("127.0.0.1:0", &target, &server).unwrap();
        let address = exposer.listener().local_addr().to_string();
        let (status, runtime) = (exposer.status_source(), Runtime::new().unwrap());
        runtime.spawn(exposer.run(std::future::pending()));
        Self { service, address, client, status, runtime }
    }

    fn connect(&self) -> Connection {
        connect(&self.address, &self.client).unwrap()
    }

    /// Waits until the status has a value.
    fn until(&self, holds: impl Fn(&super::PortForwardStatus) -> bool) {
        while !holds(&self.status.status()) {
            thread::yield_now();
        }
    }

    fn assert_not_contacted(&self) {
        let accepted = self.service.accept().map(drop);
        assert_eq!(accepted.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    fn stop(self) {
        self.runtime.shutdown_background();
    }
}

fn options() -> (ConnectionOptions, ConnectionOptions) {
    let open = ConnectionSecurity::open(random_identity().unwrap());
    let pinned =
        ConnectionSecurity::pinned(random_identity().unwrap(), vec![open.public_key().unwrap()]);
    (ConnectionOptions::new(open), ConnectionOptions::new(pinned))
}

#[test]
fn other_first_bytes_do_not_reach_the_service() {
    let exposed = ExposedService::new();
    for first in [&b"forward2"[..], b"measure1", b"GET / HTTP/1.1\r\n\r\n"] {
        let mut client = exposed.connect();
        client.write_all(first).unwrap();
        assert!(client.read(&mut [0]).is_err());
    }
    exposed.until(|status| status.failed.malformed == 3 && status.open == 0);
    exposed.assert_not_contacted();
    exposed.stop();
}

#[test]
fn a_connection_that_is_not_used_is_no_failure() {
    let exposed = ExposedService::new();
    drop(exposed.connect());
    // This one breaks off within its first bytes.
    let mut client = exposed.connect();
    client.write_all(&OPENING[..3]).unwrap();
    client.flush().unwrap();
    client.closer().close();
    exposed.until(|status| status.failed.broken == 1 && status.open == 0);
    exposed.assert_not_contacted();
    assert_eq!(exposed.status.status().forwarded, 0);
    exposed.stop();
}

#[test]
fn further_connections_are_told_that_there_are_too_many() {
    let exposed = ExposedService::new();
    let clients: Vec<Connection> = (0..MAX_CONNECTIONS).map(|_| exposed.connect()).collect();
    exposed.until(|status| status.open == MAX_CONNECTIONS as u64);
    let mut answer = Vec::new();
    exposed.connect().read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [1, TargetRefusal::Busy as u8]);
    assert_eq!(exposed.status.status().failed.too_many, 1);
    // There is room again.
    drop(clients);
    exposed.until(|status| status.open == 0);
    let mut client = exposed.connect();
    client.write_all(OPENING).unwrap();
    client.flush().unwrap();
    client.read_exact(&mut answer[..1]).unwrap();
    assert_eq!(answer[0], 0);
    client.closer().close();
    exposed.stop();
}

#[test]
fn a_program_is_reset_if_the_other_end_does_not_expose() {
    for answer in [&b"\x02"[..], b"HTTP/1.1 400", b""] {
        let (server, client) = options();
        let listener = Listener::bind("127.0.0.1:0", &server).unwrap();
        let to = listener.local_addr().to_string();
        let answering = thread::spawn(move || {
            let mut connection = listener.accept().unwrap();
            connection.write_all(answer).unwrap();
            // The other end may have closed the connection already.
            let _ = connection.finish();
            let _ = io::copy(&mut connection, &mut io::sink());
        });
        let runtime = Runtime::new().unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let forwarder = runtime.block_on(PortForwarder::bind(any, &to, client)).unwrap();
        let (local, status) = (forwarder.local_addr().unwrap(), forwarder.status_source().unwrap());
        runtime.spawn(forwarder.run(std::future::pending()));
        let mut program = TcpStream::connect(local).unwrap();
        let error = program.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
        answering.join().unwrap();
        // The failure is counted after the program's connection was reset.
        while status.status().problem.is_none() {
            thread::yield_now();
        }
        let status = status.status();
        assert_eq!((status.failed.malformed, status.forwarded), (1, 0), "{status:?}");
        assert!(status.problem.unwrap().text.contains("sunder transport expose"));
        runtime.shutdown_background();
    }
}
