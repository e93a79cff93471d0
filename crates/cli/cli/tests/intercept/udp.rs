//! Datagrams of unchanged programs are intercepted: DNS, QUIC, and what any socket sends. Those
//! that match and cannot be carried never leave in the clear.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::captures::{assert_hidden, datagrams, secret};
use crate::clear_protocols::{browse, has_program, offering_http3};
use crate::interruption::uninterrupted;
use crate::matrix::{CELLS, Cell, Matrix, PATIENCE, SETTINGS, TIMEOUT};
use crate::rules::kernel_rules;
use crate::topology::{CHANNELS, Program, SUNDER, Topology, until};

const DNS: u16 = 53;

const QUIC: u16 = 443;

/// All addresses of the server, at both ports.
const ALL: &str = "[\"0.0.0.0/0:53\", \"[::]/0:53\", \"0.0.0.0/0:443\", \"[::]/0:443\"]";

fn settings() -> String {
    format!("{SETTINGS}\nintercept_udp = \"udp dport {{ 53, 443 }}\"\nintercept_refuse = []")
}

/// Starts another server, which allows these services by UDP.
fn allow_udp(topology: &Topology, allowed: &str) -> Program {
    allow(topology, "[]", allowed)
}

/// The same, with services by TCP.
fn allow(topology: &Topology, by_tcp: &str, by_udp: &str) -> Program {
    let listen: Vec<String> =
        CHANNELS.iter().map(|link| format!("\"{}:7001\"", topology.v4("server", link))).collect();
    let listen = listen.join(", ");
    let text =
        format!("listen = [{listen}]\nallow = {by_tcp}\nallow_udp = {by_udp}\nmin_channels = 3\n");
    let config = topology.write("udp.toml", text);
    let server = topology.start("server", SUNDER, &["serve", "--config", config.to_str().unwrap()]);
    server.wait_for("listening on", 3);
    server
}

/// A proxy of that server.
fn proxy(topology: &Topology, settings: &str) -> Program {
    let config = proxy_toml(topology, settings);
    let proxy = topology.start("client", SUNDER, &["proxy", "--config", &config]);
    proxy.wait_for("intercepted, TCP and UDP", 2);
    proxy
}

fn proxy_toml(topology: &Topology, settings: &str) -> String {
    let config = topology.proxy_toml(settings);
    let text = std::fs::read_to_string(&config).unwrap().replace(":7000", ":7001");
    std::fs::write(&config, text).unwrap();
    config.to_str().unwrap().to_owned()
}

/// A service at each address of the server, which answers each datagram from the address that it
/// was sent to. Counts the datagrams.
fn echo(matrix: &Matrix, port: u16) -> Arc<AtomicUsize> {
    let count = Arc::new(AtomicUsize::new(0));
    for cell in CELLS {
        let address: SocketAddr = (matrix.address(cell), port).into();
        let bind = || UdpSocket::bind(address);
        let socket = matrix.topology.host("server").run(bind).unwrap().unwrap();
        let count = Arc::clone(&count);
        thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((len, from)) = socket.recv_from(&mut buffer) {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = socket.send_to(&buffer[..len], from);
            }
        });
    }
    count
}

/// An application's socket, which is not connected.
fn application(topology: &Topology, host: &str, is_v6: bool) -> UdpSocket {
    let any: SocketAddr =
        if is_v6 { (Ipv6Addr::UNSPECIFIED, 0).into() } else { ([0, 0, 0, 0], 0).into() };
    let socket = topology.host(host).run(|| UdpSocket::bind(any)).unwrap().unwrap();
    // A refusal arrives at once.
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Sends a datagram, and waits for the answer from there.
fn ask(socket: &UdpSocket, to: SocketAddr, bytes: &[u8]) -> io::Result<()> {
    socket.send_to(bytes, to)?;
    let mut buffer = [0; 2048];
    let (len, from) = uninterrupted(|| socket.recv_from(&mut buffer))?;
    assert_eq!((from, &buffer[..len]), (to, bytes), "the answer of the service");
    Ok(())
}

/// Asks from a connected socket, which learns of a refusal.
fn ask_connected(matrix: &Matrix, cell: Cell, port: u16) -> io::Result<()> {
    let to: SocketAddr = (matrix.address(cell), port).into();
    let socket = application(&matrix.topology, cell.0, cell.2);
    matrix.topology.host(cell.0).run(|| socket.connect(to)).unwrap()?;
    socket.send(b"asked")?;
    uninterrupted(|| socket.recv(&mut [0; 8])).map(drop)
}

pub(crate) fn datagrams_of_both_hosts_are_carried_and_answered_from_where_they_went() {
    let matrix = Matrix::new();
    let counts = [DNS, QUIC].map(|port| echo(&matrix, port));
    let _server = allow_udp(&matrix.topology, ALL);
    let proxy = proxy(&matrix.topology, &settings());
    assert!(!proxy.log().contains("UDP leaves in the clear"), "{}", proxy.log());
    let payload = secret(1200);
    for (host, is_v6) in [("client", false), ("client", true), ("user", false), ("user", true)] {
        // One socket asks several services, again and again: each answers for itself.
        let socket = application(&matrix.topology, host, is_v6);
        for _ in 0..3 {
            for (link, port) in [("a", DNS), ("c", DNS), ("a", QUIC)] {
                let known = CELLS.into_iter().find(|Cell(_, l, v6)| (*l, *v6) == (link, is_v6));
                let Some(cell) = known else { continue };
                ask(&socket, (matrix.address(cell), port).into(), &payload).unwrap();
            }
        }
    }
    // What is not intercepted is not changed, and TCP still is.
    matrix.connect(CELLS[0]).unwrap_err();
    let status = status(&matrix.topology);
    assert!(status.contains("interception: at port 6522, TCP and UDP"), "{status}");
    assert!(status.contains("of these intercepted"), "{status}");
    assert!(counts.iter().all(|count| count.load(Ordering::Relaxed) > 0));
    proxy.stop();
    let captures = matrix.topology.captures();
    assert_eq!([DNS, QUIC].map(|port| datagrams(&captures, port)), [0, 0]);
    assert_hidden(&captures, &payload);
}

fn status(topology: &Topology) -> String {
    let directory = topology.path("");
    let variable = format!("RUNTIME_DIRECTORY={}", directory.display());
    topology.ask("client", "env", &[&variable, SUNDER, "status"])
}

/// glibc's resolver, with a name server that only the server's host reaches.
pub(crate) fn a_name_is_looked_up_over_the_channels() {
    let topology = Topology::new();
    let server = topology.v4("server", "b");
    let (_name_server, asked) = NameServer::start(&topology, server.into());
    let _server = allow_udp(&topology, &format!("[\"{server}:53\"]"));
    let proxy = proxy(&topology, &settings());
    let resolv = topology.write("resolv.conf", format!("nameserver {server}\n"));
    let hosts = topology.write("hosts", "");
    let script = "mount --bind $0 /etc/resolv.conf && mount --bind $1 /etc/hosts && \
                  printf 'hosts: dns\\n' > $2 && mount --bind $2 /etc/nsswitch.conf && \
                  getent ahostsv4 www.example.org";
    let (resolv, hosts) = (resolv.to_str().unwrap(), hosts.to_str().unwrap());
    let switch = topology.write("nsswitch.conf", "");
    let switch = switch.to_str().unwrap();
    let arguments = ["--mount", "sh", "-c", script, resolv, hosts, switch];
    let found = topology.ask("client", "unshare", &arguments);
    assert!(found.starts_with("192.0.2.80 "), "{found}");
    let asked = asked.lock().unwrap().clone();
    assert!(asked.iter().all(IpAddr::is_ipv4) && !asked.is_empty(), "{asked:?}");
    proxy.wait_for("flow of UDP intercepted", 1);
    let captures = topology.captures();
    assert_eq!(datagrams(&captures, DNS), 0);
    let name = b"\x03www\x07example\x03org";
    let shown = captures.iter().any(|it| it.windows(name.len()).any(|window| window == name));
    assert!(!shown, "a channel shows the name");
}

/// Answers every query with one address. Records from where they came.
struct NameServer;

impl NameServer {
    fn start(topology: &Topology, address: IpAddr) -> (Self, Arc<Mutex<Vec<IpAddr>>>) {
        let socket =
            topology.host("server").run(|| UdpSocket::bind((address, DNS))).unwrap().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&asked);
        thread::spawn(move || {
            let mut query = [0; 512];
            while let Ok((len, from)) = socket.recv_from(&mut query) {
                record.lock().unwrap().push(from.ip());
                let _ = socket.send_to(&answer(&query[..len]), from);
            }
        });
        (Self, asked)
    }
}

/// The answer to a query for an address (RFC 1035, section 4): its question, and one record.
fn answer(query: &[u8]) -> Vec<u8> {
    let labels = query[12..].iter().position(|byte| *byte == 0).unwrap();
    let question = &query[12..12 + labels + 5];
    let header = [query[0], query[1], 0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0];
    let record = [0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 80];
    [&header[..], question, &record].concat()
}

pub(crate) fn only_allowed_services_are_reached_and_bypassed_ones_directly() {
    let matrix = Matrix::new();
    let counts = [DNS, QUIC].map(|port| echo(&matrix, port));
    let [allowed, direct] = [CELLS[2], CELLS[0]].map(|cell| matrix.address(cell));
    let server = allow_udp(&matrix.topology, &format!("[\"{allowed}:53\"]"));
    let settings = format!("{}\nbypass = [\"{direct}:53\", \"*.example.org\"]", settings());
    let proxy = proxy(&matrix.topology, &settings);
    let socket = application(&matrix.topology, "client", false);
    ask(&socket, (allowed, DNS).into(), b"allowed").unwrap();
    ask(&socket, (direct, DNS).into(), b"direct").unwrap();
    for (address, port) in [(allowed, QUIC), (direct, QUIC)] {
        socket.send_to(b"not allowed", (address, port)).unwrap();
    }
    server.wait_for("UDP service not on the list allow_udp", 1);
    ask(&socket, (allowed, DNS).into(), b"last").unwrap();
    drop(proxy);
    assert_eq!(counts.map(|count| count.load(Ordering::Relaxed)), [3, 0]);
    let captures = matrix.topology.captures();
    assert_eq!([DNS, QUIC].map(|port| datagrams(&captures, port)), [1, 0]);
}

/// Nothing leaves in the clear: neither after the proxy was killed, nor where it cannot start.
pub(crate) fn datagrams_are_refused_without_a_proxy() {
    let matrix = Matrix::new();
    let count = echo(&matrix, DNS);
    let _server = allow_udp(&matrix.topology, ALL);
    let before = kernel_rules(&matrix.topology, "client");
    drop(proxy(&matrix.topology, &settings()));
    let all_refused = |state: &str| {
        for cell in CELLS {
            let error = ask_connected(&matrix, cell, DNS).expect_err(state);
            assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{state}");
        }
    };
    all_refused("killed");
    // Another program at the port gets nothing, and prevents the start.
    let squatter = application_at(&matrix.topology, "0.0.0.0:6522");
    let config = proxy_toml(&matrix.topology, &settings());
    let mut failed = matrix.topology.start("client", SUNDER, &["proxy", "--config", &config]);
    assert!(!failed.ended_well());
    assert!(failed.log().contains("cannot intercept UDP at port 6522"), "{}", failed.log());
    assert!(failed.log().contains("rules that are there"), "{}", failed.log());
    all_refused("killed, and the port taken");
    squatter.set_nonblocking(true).unwrap();
    let error = squatter.recv(&mut [0; 8]).expect_err("nothing comes");
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    drop(squatter);
    assert_eq!(count.load(Ordering::Relaxed), 0);
    // The next start takes over.
    let proxy = proxy(&matrix.topology, &settings());
    for cell in CELLS {
        ask_connected(&matrix, cell, DNS).unwrap();
    }
    proxy.stop();
    assert_eq!(kernel_rules(&matrix.topology, "client"), before);
    assert_eq!(datagrams(&matrix.topology.captures(), DNS), 0);
}

fn application_at(topology: &Topology, address: &str) -> UdpSocket {
    topology.host("client").run(|| UdpSocket::bind(address)).unwrap().unwrap()
}

/// A flow whose packets the kernel tracked before the rules would bypass the redirection.
pub(crate) fn flows_that_are_older_than_the_proxy_are_refused() {
    let matrix = Matrix::new();
    let _count = echo(&matrix, DNS);
    let _server = allow_udp(&matrix.topology, ALL);
    // The kernel tracks connections as soon as a rule needs that.
    matrix.topology.ask("client", "nft", &["add table inet other"]);
    let chain = "add chain inet other out { type filter hook output priority 0; }";
    let rule = "add rule inet other out ct state new accept";
    matrix.topology.ask("client", "nft", &[chain]);
    matrix.topology.ask("client", "nft", &[rule]);
    let to: SocketAddr = (matrix.address(CELLS[0]), DNS).into();
    let socket = application(&matrix.topology, "client", false);
    socket.connect(to).unwrap();
    let exchange = || -> io::Result<usize> {
        socket.send(b"asked")?;
        uninterrupted(|| socket.recv(&mut [0; 8]))
    };
    exchange().unwrap();
    let proxy = proxy(&matrix.topology, &settings());
    // The kernel reports it to the call that sends.
    assert_eq!(exchange().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    // Another socket is carried.
    ask_connected(&matrix, CELLS[0], DNS).unwrap();
    drop(proxy);
    assert_eq!(datagrams(&matrix.topology.captures(), DNS), 1, "the one before");
}

/// After a reload without interception of UDP, open flows are still carried, and new ones leave.
pub(crate) fn a_reload_changes_what_is_intercepted() {
    let matrix = Matrix::new();
    let _count = echo(&matrix, DNS);
    let _server = allow_udp(&matrix.topology, ALL);
    let proxy = proxy(&matrix.topology, &settings());
    let to: SocketAddr = (matrix.address(CELLS[0]), DNS).into();
    let open = application(&matrix.topology, "client", false);
    ask(&open, to, b"before").unwrap();
    for (round, setting) in
        [format!("{SETTINGS}\nintercept_refuse = []"), settings()].iter().enumerate()
    {
        proxy_toml(&matrix.topology, setting);
        proxy.signal("-HUP");
        proxy.wait_for("the configuration was read again", round + 1);
        ask(&open, to, b"after").unwrap();
        ask_connected(&matrix, CELLS[0], DNS).unwrap();
    }
    // The port changes, and then the interception ends.
    proxy_toml(&matrix.topology, &settings().replace("6522", "6523"));
    proxy.signal("-HUP");
    proxy.wait_for("the configuration was read again", 3);
    ask(&open, to, b"after").unwrap();
    ask_connected(&matrix, CELLS[0], DNS).unwrap();
    proxy_toml(&matrix.topology, "socks = \"127.0.0.1:1080\"");
    proxy.signal("-HUP");
    proxy.wait_for("the configuration was read again", 4);
    ask_connected(&matrix, CELLS[0], DNS).unwrap();
    proxy.stop();
    assert_eq!(datagrams(&matrix.topology.captures(), DNS), 2, "those of new sockets");
}

/// QUIC, as `sunder transport` speaks it, at its usual port.
pub(crate) fn a_file_crosses_by_quic() {
    let topology = Topology::new();
    let server = topology.v4("server", "c");
    let _server = allow_udp(&topology, &format!("[\"{server}:443\"]"));
    let proxy = proxy(&topology, &settings());
    let document = secret(2_000_000);
    let file = topology.write("document", &document);
    let inbox = topology.path("inbox");
    std::fs::create_dir(&inbox).unwrap();
    let listen = format!("{server}:443");
    let receive = ["transport", "receive", "--listen", &listen, "--out", inbox.to_str().unwrap()];
    let receiver = topology.start("server", SUNDER, &receive);
    receiver.wait_for("--key", 1);
    let log = receiver.log();
    let key = log.split_whitespace().skip_while(|word| *word != "--key").nth(1).unwrap();
    let state = format!("XDG_STATE_HOME={}", topology.path("state").display());
    let send = ["transport", "send", file.to_str().unwrap(), &listen, "--key", key];
    let arguments = [&[state.as_str(), SUNDER], &send[..], &["--transport", "quic"]].concat();
    topology.ask("client", "env", &arguments);
    assert!(std::fs::read(inbox.join("document")).unwrap() == document);
    proxy.wait_for("flow of UDP intercepted", 1);
    drop((receiver, proxy));
    let captures = topology.captures();
    assert_eq!(datagrams(&captures, QUIC), 0);
    assert!(captures.iter().all(|capture| capture.len() > document.len()));
}

/// Chromium, which is offered HTTP/3, tries it over the channels. The server has none, so that it
/// shows the page over TCP in the end.
pub(crate) fn chromium_tries_quic_over_the_channels() {
    if !has_program("chromium") || !has_program("openssl") {
        println!("skipped: chromium or openssl is not installed");
        return;
    }
    let topology = Topology::new();
    let _nginx = offering_http3(&topology);
    let server = topology.v4("server", "a");
    let bind = || UdpSocket::bind((server, QUIC));
    let socket = topology.host("server").run(bind).unwrap().unwrap();
    let allowed = format!("[\"{server}:443\"]");
    let _server = allow(&topology, &allowed, &allowed);
    let settings = "intercept = \"tcp dport 443\"\nintercept_udp = \"udp dport 443\"";
    let proxy = proxy(&topology, settings);
    let page = browse(&topology);
    assert!(page.contains("answered: part"), "{page}");
    socket.set_nonblocking(true).unwrap();
    let mut initial = [0; 2048];
    let (len, from) = socket.recv_from(&mut initial).expect("the browser tries HTTP/3");
    assert_eq!(from.ip(), server, "the server's own socket");
    // A long header of version 1, in a datagram that is padded (RFC 9000, sections 14.1 and 17.2).
    assert!(len >= 1200 && initial[0] & 0xC0 == 0xC0 && initial[1..5] == [0, 0, 0, 1]);
    drop(proxy);
    assert_eq!(datagrams(&topology.captures(), QUIC), 0);
}

/// A host that opens flows without end displaces its own, not those of another host, and not other
/// streams.
pub(crate) fn a_host_with_many_flows_displaces_only_its_own() {
    let matrix = Matrix::new();
    let _count = echo(&matrix, QUIC);
    let _server = allow_udp(&matrix.topology, ALL);
    let settings = format!("{}\nmax_streams = 16", settings());
    let proxy = proxy(&matrix.topology, &settings);
    let to: SocketAddr = (matrix.address(CELLS[2]), QUIC).into();
    let kept = application(&matrix.topology, "client", false);
    ask(&kept, to, b"first").unwrap();
    let others: Vec<UdpSocket> =
        (0..40).map(|_| application(&matrix.topology, "user", false)).collect();
    for socket in &others {
        socket.send_to(b"flood", to).unwrap();
    }
    until("flows have made room", || status(&matrix.topology).contains("ended to make room"));
    ask(&kept, to, b"again").unwrap();
    // It may have to ask again.
    others[39].set_read_timeout(Some(TIMEOUT)).unwrap();
    until("the last socket is served too", || ask(&others[39], to, b"last").is_ok());
    assert!(!proxy.log().contains("aborted"), "{}", proxy.log());
}
