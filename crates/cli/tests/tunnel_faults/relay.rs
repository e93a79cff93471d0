//! A host on a channel's way that passes datagrams on, and may change them, or the address that they
//! seem to come from.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use lab::Host;

/// A relay, as an address translator is one. It ends when this is dropped.
pub(crate) struct Relay {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    stops: AtomicBool,
    tampers_there: AtomicBool,
    tampers_back: AtomicBool,
    /// Where the client is.
    client: Mutex<Option<SocketAddr>>,
    /// What faces the client.
    inner: UdpSocket,
    /// What faces the server, and where that is.
    outer: Mutex<Arc<UdpSocket>>,
    server: SocketAddr,
}

/// How often it is looked whether to stop, or whether another socket faces the server.
const LOOK: Duration = Duration::from_millis(10);

impl Relay {
    /// Passes on what comes to `at` to the server, and what comes back from there to the last sender.
    pub(crate) fn start(host: &Host, at: SocketAddr, server: SocketAddr) -> Self {
        let inner = host.run(|| UdpSocket::bind(at)).unwrap().unwrap();
        inner.set_read_timeout(Some(LOOK)).unwrap();
        let shared = Arc::new(Shared {
            stops: AtomicBool::new(false),
            tampers_there: AtomicBool::new(false),
            tampers_back: AtomicBool::new(false),
            client: Mutex::new(None),
            inner,
            outer: Mutex::new(Arc::new(outer(host))),
            server,
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
        let threads = vec![start(Shared::pass_there), start(Shared::pass_back)];
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

    /// From now on, sends to the server from another port; what comes to the old one is lost.
    pub(crate) fn change_port(&self, host: &Host) {
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

/// A socket that faces the server.
fn outer(host: &Host) -> UdpSocket {
    let socket = host.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))).unwrap().unwrap();
    socket.set_read_timeout(Some(LOOK)).unwrap();
    socket
}

/// Room for one.
struct Datagram {
    bytes: Vec<u8>,
    dice: fastrand::Rng,
}

impl Shared {
    fn pass_there(&self, datagram: &mut Datagram) {
        let Ok((length, from)) = self.inner.recv_from(&mut datagram.bytes) else { return };
        *self.client.lock().unwrap() = Some(from);
        let outer = Arc::clone(&self.outer.lock().unwrap());
        let _ = outer.send_to(datagram.changed(length, &self.tampers_there), self.server);
    }

    fn pass_back(&self, datagram: &mut Datagram) {
        let outer = Arc::clone(&self.outer.lock().unwrap());
        let Ok(length) = outer.recv(&mut datagram.bytes) else { return };
        let Some(client) = *self.client.lock().unwrap() else { return };
        let _ = self.inner.send_to(datagram.changed(length, &self.tampers_back), client);
    }
}

impl Datagram {
    /// The bytes, one bit of them changed if they are to be tampered with.
    fn changed(&mut self, length: usize, tampers: &AtomicBool) -> &[u8] {
        let bytes = &mut self.bytes[..length];
        if tampers.load(Ordering::Relaxed) && length > 0 {
            bytes[self.dice.usize(..length)] ^= 1 << self.dice.u32(..8);
        }
        bytes
    }
}
