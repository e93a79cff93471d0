//! A host on the path of a channel that forwards datagrams, and may change them or their source
//! address.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lab::EmulatedHost;

/// A relay, such as an address translator. It ends when this is dropped.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    stops: AtomicBool,
    tampers_there: AtomicBool,
    tampers_back: AtomicBool,
    /// The client's address.
    client: Mutex<Option<SocketAddr>>,
    /// The socket towards the client.
    inner: UdpSocket,
    /// The socket towards the server, and the server's address.
    outer: Mutex<Arc<UdpSocket>>,
    server: Mutex<SocketAddr>,
    /// Another socket, from which everything is sent first, and the destination.
    copier: Mutex<Option<(Arc<UdpSocket>, SocketAddr)>>,
    /// The first bytes of the datagrams that arrived at that socket.
    received_copies: Mutex<Vec<u8>>,
}

/// The interval at which changes of the relay are checked.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

impl Relay {
    /// Forwards datagrams that arrive at `at` to the server, and the server's datagrams to the last
    /// sender.
    pub(crate) fn start(host: &EmulatedHost, at: SocketAddr, server: SocketAddr) -> Self {
        let inner = host.run(|| UdpSocket::bind(at)).unwrap().unwrap();
        inner.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        let shared = Arc::new(Shared {
            stops: AtomicBool::new(false),
            tampers_there: AtomicBool::new(false),
            tampers_back: AtomicBool::new(false),
            client: Mutex::new(None),
            inner,
            outer: Mutex::new(Arc::new(outer(host))),
            server: Mutex::new(server),
            copier: Mutex::default(),
            received_copies: Mutex::default(),
        });
        let start = |pass: fn(&Shared, &mut Datagram)| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let mut datagram =
                    Datagram { bytes: vec![0; 1 << 16], dice: fastrand::Rng::with_seed(1) };
                while !shared.stops.load(Ordering::Relaxed) {
                    pass(&shared, &mut datagram);
                }
            })
        };
        let passes = [Shared::pass_there, Shared::pass_back, Shared::receive_copy];
        let threads = passes.map(start).into();
        Self { shared, threads }
    }

    /// From now on, changes a bit in every datagram to the server.
    pub(crate) fn tamper_there(&self) {
        self.shared.tampers_there.store(true, Ordering::Relaxed);
    }

    /// From now on, changes a bit in every datagram to the client.
    pub(crate) fn tamper_back(&self) {
        self.shared.tampers_back.store(true, Ordering::Relaxed);
    }

    /// From now on, sends every forwarded datagram first from another address: to the server at
    /// this address, and to the client. Datagrams that arrive at that address are forwarded as
    /// well.
    pub(crate) fn copy_from(&self, host: &EmulatedHost, own: SocketAddr, server: SocketAddr) {
        let socket = host.run(|| UdpSocket::bind(own)).unwrap().unwrap();
        socket.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
        *self.shared.copier.lock().unwrap() = Some((Arc::new(socket), server));
    }

    /// The first bytes of the datagrams that arrived at the address of the copies.
    pub(crate) fn received_copies(&self) -> Vec<u8> {
        self.shared.received_copies.lock().unwrap().clone()
    }

    /// From now on, sends to the server at another address, from another address.
    pub(crate) fn change_address(&self, host: &EmulatedHost, server: SocketAddr) {
        *self.shared.server.lock().unwrap() = server;
        self.change_port(host);
    }

    /// From now on, sends to the server from another port. Datagrams to the old port are lost.
    pub(crate) fn change_port(&self, host: &EmulatedHost) {
        *self.shared.outer.lock().unwrap() = Arc::new(outer(host));
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A socket towards the server.
fn outer(host: &EmulatedHost) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(POLL_INTERVAL)).unwrap();
    socket
}

/// A buffer for one datagram.
struct Datagram {
    bytes: Vec<u8>,
    dice: fastrand::Rng,
}

impl Shared {
    fn pass_there(&self, datagram: &mut Datagram) {
        let Ok((length, from)) = self.inner.recv_from(&mut datagram.bytes) else { return };
        *self.client.lock().unwrap() = Some(from);
        self.copy(&datagram.bytes[..length], None);
        let outer = Arc::clone(&self.outer.lock().unwrap());
        let server = *self.server.lock().unwrap();
        let _ = outer.send_to(datagram.changed(length, &self.tampers_there), server);
    }

    fn pass_back(&self, datagram: &mut Datagram) {
        let outer = Arc::clone(&self.outer.lock().unwrap());
        let Ok(length) = outer.recv(&mut datagram.bytes) else { return };
        let Some(client) = *self.client.lock().unwrap() else { return };
        self.copy(&datagram.bytes[..length], Some(client));
        let _ = self.inner.send_to(datagram.changed(length, &self.tampers_back), client);
    }
}

impl Shared {
    /// Sends a copy from the other address, to the server unless there is another destination.
    fn copy(&self, bytes: &[u8], to: Option<SocketAddr>) {
        if let Some((copier, server)) = &*self.copier.lock().unwrap() {
            let _ = copier.send_to(bytes, to.unwrap_or(*server));
        }
    }

    /// Records a datagram that arrived at the other address, and forwards it to the client as the
    /// server's.
    fn receive_copy(&self, datagram: &mut Datagram) {
        let copier = self.copier.lock().unwrap().as_ref().map(|(socket, _)| Arc::clone(socket));
        let Some(copier) = copier else { return thread::sleep(POLL_INTERVAL) };
        let Ok(length) = copier.recv(&mut datagram.bytes) else { return };
        self.received_copies.lock().unwrap().extend(datagram.bytes.first());
        let client = *self.client.lock().unwrap();
        let _ = client.map(|client| self.inner.send_to(&datagram.bytes[..length], client));
    }
}

impl Datagram {
    /// The bytes, with one bit changed if `tampers` is set.
    fn changed(&mut self, length: usize, tampers: &AtomicBool) -> &[u8] {
        let bytes = &mut self.bytes[..length];
        if tampers.load(Ordering::Relaxed) && length > 0 {
            bytes[self.dice.usize(..length)] ^= 1 << self.dice.u32(..8);
        }
        bytes
    }
}
