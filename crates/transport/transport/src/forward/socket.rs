//! A connection as a socket, for programs that wait for several sockets at once.

use std::io::{self, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use tracing::debug;

use super::carry::{CarriedConnection, CarryCounts};
use super::thread::spawn;
use crate::net::Connection;

/// Carries a connection over a TCP socket of this host, which has a descriptor, so that `poll` and
/// event loops can wait for it. What is written to the socket is sent at once. Shutting down its
/// writing half ends the stream to the peer. If the connection fails, the socket is reset. The
/// connection's time limit does not apply any more. Two threads move the bytes, until both
/// directions have ended.
///
/// # Errors
/// If what was written before cannot be sent, or the system provides no socket or thread.
pub fn into_socket(mut connection: Connection) -> io::Result<TcpStream> {
    connection.flush()?;
    // An event loop has time limits of its own.
    connection.set_timeout(None)?;
    let (ours, theirs) = socket_pair()?;
    let carried = CarriedConnection::new(Arc::new(ours), &connection)?;
    spawn(move || {
        let count = Arc::<AtomicU64>::default;
        let counts = CarryCounts { sent: count(), received: count() };
        if let Err(failure) = carried.run(connection, counts, |_| Ok(())) {
            debug!("a connection with a socket has ended: {failure}");
        }
    })?;
    Ok(theirs)
}

/// Two sockets of this host that are connected to each other. TCP, because its reset differs from
/// its end.
fn socket_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let theirs = TcpStream::connect(listener.local_addr()?)?;
    theirs.set_nodelay(true)?;
    loop {
        let (ours, from) = listener.accept()?;
        // Another program of this host may have connected first.
        if from == theirs.local_addr()? {
            return Ok((ours, theirs));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::Shutdown;

    use super::*;
    use crate::net::{Listener, connect};
    use crate::options::{ConnectionOptions, ConnectionSecurity, random_identity};

    fn pair() -> (Connection, Connection) {
        let open = ConnectionSecurity::open(random_identity().unwrap());
        let key = open.public_key().unwrap();
        let listener = Listener::bind("127.0.0.1:0", &ConnectionOptions::new(open)).unwrap();
        let address = listener.local_addr().to_string();
        let pinned = ConnectionSecurity::pinned(random_identity().unwrap(), vec![key]);
        let client = connect(&address, &ConnectionOptions::new(pinned)).unwrap();
        (client, listener.accept().unwrap())
    }

    #[test]
    fn a_socket_carries_both_directions_and_their_ends() {
        let (client, mut server) = pair();
        let mut socket = into_socket(client).unwrap();
        socket.write_all(b"hello").unwrap();
        socket.shutdown(Shutdown::Write).unwrap();
        let mut received = String::new();
        server.read_to_string(&mut received).unwrap();
        assert_eq!(received, "hello");
        server.write_all(b"answer").unwrap();
        server.finish().unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        assert_eq!(answer, "answer");
    }

    #[test]
    fn a_socket_of_a_connection_that_fails_is_reset() {
        let (client, server) = pair();
        let mut socket = into_socket(client).unwrap();
        server.closer().close();
        let error = socket.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ConnectionReset);
    }
}
