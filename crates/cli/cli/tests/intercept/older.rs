//! Connections that are older than the proxy: none of their payload is sent a second after its
//! start, and both of their ends are reset. Whether the kernel takes the application's end for the
//! originator depends on the packet that it sees first, unless it tracked the connection before.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, SystemTime};

use crate::captures::payload_after;
use crate::emulation::WAIT_TIMEOUT;
use crate::matrix::{CELLS, Cell, Kind, Matrix, PATIENCE, listen};
use crate::topology::until;

const SERVICE: u16 = 8081;

const SETTINGS: &str =
    "intercept = \"tcp dport 8081\"\nintercept_port = 6522\nintercept_from = [\"lan\"]";

/// From then on, nothing is sent.
const ALLOWED: Duration = Duration::from_secs(1);

/// A firewall on the client, which makes the kernel track connections.
const FIREWALL: &str = "table inet firewall {\n\
     chain in { type filter hook input priority 0; ct state established accept; }\n\
     chain through { type filter hook forward priority 0; ct state established accept; }\n\
     chain out { type filter hook output priority 0; ct state established accept; }\n\
     }\n";

/// The traffic of the connections when the proxy starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// The server sends a line from time to time.
    Push,
    /// The server sends as fast as it can.
    Download,
    /// The application sends as fast as it can.
    Upload,
    /// None, and later the application sends.
    SilentThenApplication,
    /// None, and later the server sends.
    SilentThenServer,
}

/// An end of a connection: the connection's index, and whether it is the server's end.
type End = (usize, bool);

pub(crate) fn older_pushes_are_reset() {
    reset_in_all_states(Traffic::Push);
}

pub(crate) fn older_downloads_are_reset() {
    reset_in_all_states(Traffic::Download);
}

pub(crate) fn older_uploads_are_reset() {
    reset_in_all_states(Traffic::Upload);
}

pub(crate) fn older_silent_applications_are_reset() {
    reset_in_all_states(Traffic::SilentThenApplication);
}

pub(crate) fn older_silent_servers_are_reset() {
    reset_in_all_states(Traffic::SilentThenServer);
}

/// The kernel tracked the connections before, or not, or does not take up connections under way.
fn reset_in_all_states(traffic: Traffic) {
    for state in ["untracked", "tracked", "untracked, nf_conntrack_tcp_loose = 0"] {
        let matrix = Matrix::new();
        let client = matrix.topology.host("client");
        if state == "tracked" {
            let rules = matrix.topology.write("firewall", FIREWALL);
            matrix.topology.ask("client", "nft", &["-f", rules.to_str().unwrap()]);
        }
        if state.ends_with("= 0") {
            client.set("net/netfilter/nf_conntrack_tcp_loose", "0").unwrap();
        }
        reset(matrix, traffic, state);
    }
}

fn reset(matrix: Matrix, traffic: Traffic, state: &str) {
    let any: SocketAddr = (Ipv6Addr::UNSPECIFIED, SERVICE).into();
    let service = matrix.topology.host("server").run(|| listen(any, Kind::Both)).unwrap().unwrap();
    let connections = CELLS.map(|cell| {
        let address: SocketAddr = (matrix.address(cell), SERVICE).into();
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        let application = matrix.topology.host(cell.0).run(connect).unwrap().unwrap();
        let (server, _) = service.accept().unwrap();
        [application, server]
    });
    let (ended, ends) = channel();
    let received: [Arc<AtomicUsize>; 4] = Default::default();
    for (index, connection) in connections.iter().enumerate() {
        for (end, stream) in connection.iter().enumerate() {
            let (stream, ended) = (stream.try_clone().unwrap(), ended.clone());
            let received = Arc::clone(&received[index]);
            thread::spawn(move || read(stream, (index, end == 1), &received, &ended));
        }
    }
    let send = |end: usize, len: usize, pause: Duration| {
        for (index, connection) in connections.iter().enumerate() {
            let (stream, ended) = (connection[end].try_clone().unwrap(), ended.clone());
            thread::spawn(move || write(stream, (index, end == 1), (len, pause), &ended));
        }
    };
    match traffic {
        Traffic::Push => send(1, 100, Duration::from_millis(20)),
        Traffic::Download => send(1, 1 << 14, Duration::ZERO),
        Traffic::Upload => send(0, 1 << 14, Duration::ZERO),
        Traffic::SilentThenApplication | Traffic::SilentThenServer => {}
    }
    let is_silent = matches!(traffic, Traffic::SilentThenApplication | Traffic::SilentThenServer);
    if !is_silent {
        let flows = |count: &Arc<AtomicUsize>| count.load(Ordering::Relaxed) >= 200;
        until("all four move data", || received.iter().all(flows));
    }
    let _proxy = matrix.topology.proxy(SETTINGS);
    let start = SystemTime::now();
    if is_silent {
        // They are silent for longer than the rules may take.
        thread::sleep(ALLOWED + Duration::from_millis(200));
        send(usize::from(traffic == Traffic::SilentThenServer), 5, Duration::from_millis(50));
    }
    let mut missing: BTreeSet<End> = CELLS
        .iter()
        .enumerate()
        .flat_map(|(index, cell)| [(index, false), (index, true)].map(|end| (end, *cell)))
        .filter(|((_, is_server), cell)| !is_server || is_certainly_reset(traffic, *cell))
        .map(|(end, _)| end)
        .collect();
    while !missing.is_empty() {
        let reset = ends.recv_timeout(WAIT_TIMEOUT);
        let reset =
            reset.unwrap_or_else(|_| panic!("{traffic:?}, {state}: not reset: {missing:?}"));
        missing.remove(&reset);
    }
    let addresses = CELLS.map(|cell| matrix.address(cell));
    let captures = matrix.topology.captures();
    let late = payload_after(&captures, SERVICE, start + ALLOWED);
    for (cell, address) in CELLS.into_iter().zip(addresses) {
        let [up, down] = late.get(&address).copied().unwrap_or_default();
        println!("older: {traffic:?}, {state}: {} {address}: {up} B up, {down} B down", cell.0);
        assert_eq!(up, 0, "{traffic:?}, {state}, {address}: sent in the clear");
        // Unless the kernel tracked it, nobody knows a forwarded connection before it moves data:
        // the server's first packet is on the wire then, and is sent again until a reset answers.
        // If it was tracked, that can happen on a busy machine.
        let is_known = cell.0 == "client" || traffic != Traffic::SilentThenServer;
        assert!(down == 0 || (!is_known && down < 100), "{traffic:?}, {state}, {address}: {down}");
    }
}

/// Whether the server's end is certain to be reset: not that of a forwarded connection on which the
/// server sends nothing that a reset could answer.
fn is_certainly_reset(traffic: Traffic, Cell(host, ..): Cell) -> bool {
    host == "client" || !matches!(traffic, Traffic::Upload | Traffic::SilentThenApplication)
}

/// Reads until the connection is reset, and reports that.
fn read(mut stream: TcpStream, end: End, received: &AtomicUsize, ended: &Sender<End>) {
    let mut buffer = [0; 1 << 14];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(len) => _ = received.fetch_add(len, Ordering::Relaxed),
            Err(error) => return report_reset(error.kind(), end, ended),
        }
    }
}

/// Sends so many bytes each time until the connection is reset, and reports that.
fn write(mut stream: TcpStream, end: End, (len, pause): (usize, Duration), ended: &Sender<End>) {
    let bytes = vec![b'x'; len];
    loop {
        if let Err(error) = stream.write_all(&bytes) {
            return report_reset(error.kind(), end, ended);
        }
        thread::sleep(pause);
    }
}

/// A connection that was reset reports it once, and to one thread.
fn report_reset(error: ErrorKind, end: End, ended: &Sender<End>) {
    if error == ErrorKind::ConnectionReset {
        let _ = ended.send(end);
    }
}
