//! With `fail_closed`, no packet for the tunnel's networks leaves by an uplink, whatever happens to
//! the tunnel. The wire of each uplink is captured, and programs send without a pause.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lab::{EmulatedHost, sandbox};
use socket2::{Domain, Protocol, Socket, Type};
use tempfile::TempDir;

use crate::emulation::{self, WAIT_TIMEOUT};
use crate::pair::{Channel, PORT, Pair, SERVER, over, until};
use crate::sniffer::destinations;
use crate::stream::{Stream, StreamRate};

/// A client with three uplinks and a network behind it, whose packets it passes on.
const TOPOLOGY: &str = r#"
measure = { driver = "accuracy", values = {} }
[hosts.client]
ipv6 = true
sysctl = { "net/ipv4/ip_forward" = "1", "net/ipv6/conf/all/forwarding" = "1", "net/ipv4/conf/all/rp_filter" = "2" }
[hosts.server]
ipv6 = true
[hosts.user]
ipv6 = true
[links.a]
hosts = ["client", "server"]
both = { delay_ms = 1 }
tap = "a"
[links.b]
hosts = ["client", "server"]
both = { delay_ms = 2 }
tap = "b"
[links.c]
hosts = ["client", "server"]
both = { delay_ms = 3 }
tap = "c"
[links.lan]
hosts = ["user", "client"]
both = {}
tap = "lan"
"#;

/// The uplinks.
const UPLINKS: [&str; 3] = ["a", "b", "c"];

/// Hosts that only the tunnel may reach, and hosts to which packets are sent while this host is
/// open, to see that the captures show them.
const CLOSED: [&str; 3] = ["198.51.100.9", "2001:db8::9", SERVER];
const OPEN: [&str; 2] = ["198.51.100.10", "2001:db8::10"];

/// A host that the tunnel reaches.
const REACHED: &str = "198.51.100.7";

/// How many packets each way of sending tries in a state.
const ATTEMPTS: usize = 20;

/// The interval between two attempts.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(2);

/// A pair whose client has default routes by its first uplink.
struct ClosedPair {
    pair: Pair,
    results: TempDir,
}

/// Sends to these hosts in every way, until it is dropped.
struct Senders {
    stops: Arc<AtomicBool>,
    rounds: Arc<AtomicUsize>,
    /// The errors of each way, by name.
    errors: Arc<Mutex<BTreeMap<String, String>>>,
    thread: Option<JoinHandle<()>>,
}

impl ClosedPair {
    /// Nothing is started.
    fn new(routes: &str) -> Self {
        let results = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        let network = emulation::network(TOPOLOGY, results.path());
        let channels: Vec<Channel> = over(&network, &UPLINKS)
            .into_iter()
            .zip(UPLINKS)
            .map(|(channel, link)| Channel { device: Some(link), rate_mbit: None, ..channel })
            .collect();
        let lan = network.address("client", "lan").unwrap().octets();
        let direct = format!("{}.{}.{}.0/24", lan[0], lan[1], lan[2]);
        let settings = "kappa = 2\nmu = 3";
        let client =
            format!("{settings}\nfail_closed = true\nroutes = {routes}\ndirect = [\"{direct}\"]");
        let pair = Pair::prepare(network, [&client, settings], &channels);
        let own = Self { pair, results };
        for arguments in [
            "route add default dev a metric 100",
            "-6 route add default dev a metric 100",
            // A network that announces such a route draws these packets to itself.
            "route add 198.51.100.8/31 dev c",
        ] {
            run(own.pair.host("client"), "ip", arguments);
        }
        for arguments in ["route add default dev lan", "-6 route add default dev lan"] {
            run(own.pair.host("user"), "ip", arguments);
        }
        run(own.pair.host("server"), "ip", &format!("addr add {REACHED}/32 dev lo"));
        own
    }

    /// Runs a subcommand of `sunder tunnel` on the client. Returns what it prints.
    fn tunnel(&self, arguments: &[&str]) -> String {
        self.pair.ask_with_errors("client", &[&["tunnel"], arguments].concat())
    }

    fn doctor(&self) -> String {
        self.pair.ask("client", &["doctor", "--config", "tunnel.toml"])
    }

    /// Starts to send to these hosts.
    fn senders(&self, hosts: &[&str]) -> Senders {
        Senders::start(self.pair.host("client"), self.pair.host("user"), hosts)
    }

    /// Removes the network. Returns what each uplink has carried.
    fn carried(self) -> BTreeMap<&'static str, BTreeMap<IpAddr, usize>> {
        let Self { pair, results } = self;
        pair.remove();
        let read = |link| (link, destinations(&results.path().join(format!("1-{link}"))));
        UPLINKS.into_iter().map(read).collect()
    }
}

impl Senders {
    fn start(client: &EmulatedHost, user: &EmulatedHost, hosts: &[&str]) -> Self {
        let sockets = hosts.iter().flat_map(|host| {
            let to = SocketAddr::new(host.parse().unwrap(), 9);
            let bound = UPLINKS.map(Some).into_iter().chain([None]);
            let own = bound.map(move |device| (format!("UDP to {host} by {device:?}"), device));
            let own = own.map(move |(name, device)| (name, udp(client, to, device), to));
            own.chain([(format!("forwarded UDP to {host}"), udp(user, to, None), to)])
        });
        let sockets: Vec<(String, Socket, SocketAddr)> = sockets.collect();
        let (stops, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let errors = Arc::<Mutex<BTreeMap<String, String>>>::default();
        let work = {
            let (stops, rounds, errors) =
                (Arc::clone(&stops), Arc::clone(&rounds), Arc::clone(&errors));
            move || {
                while !stops.load(Ordering::Relaxed) {
                    for (name, socket, to) in &sockets {
                        let result = socket.send_to(b"in the clear", &(*to).into());
                        let shown =
                            result.map_or_else(|error| error.to_string(), |_| "sent".into());
                        errors.lock().unwrap().insert(name.clone(), shown);
                    }
                    rounds.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(ATTEMPT_INTERVAL);
                }
            }
        };
        let thread = Some(client.run(|| thread::spawn(work)).unwrap());
        Self { stops, rounds, errors, thread }
    }

    /// Waits until each way has sent some more packets.
    fn try_more(&self) {
        let before = self.rounds.load(Ordering::Relaxed);
        until("more is sent", || self.rounds.load(Ordering::Relaxed) >= before + ATTEMPTS);
    }

    /// What the last attempt of a way was answered.
    fn last(&self, way: &str) -> String {
        self.errors.lock().unwrap()[way].clone()
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        self.stops.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A UDP socket on a host, bound to a device, for which a process needs no privilege.
fn udp(host: &EmulatedHost, to: SocketAddr, device: Option<&str>) -> Socket {
    let make = || {
        let socket = Socket::new(Domain::for_address(to), Type::DGRAM, Some(Protocol::UDP))?;
        socket.bind_device(device.map(str::as_bytes))?;
        socket.set_nonblocking(true)?;
        Ok::<_, io::Error>(socket)
    };
    host.run(make).unwrap().unwrap()
}

fn run(host: &EmulatedHost, program: &str, arguments: &str) {
    let mut command = Command::new(program);
    command.args(arguments.split(' '));
    let output = host.run(|| command.output()).unwrap().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {message}");
}

/// Sends datagrams to this host itself that another table redirects to `to`, after the tunnel's
/// first chain has seen them.
fn send_redirected(host: &EmulatedHost, to: &str) {
    let own = "192.0.2.77";
    run(host, "ip", &format!("address add {own}/32 dev lo"));
    let rules = "add chain ip redirecting out { type nat hook output priority -100; };";
    let rule = format!("add rule ip redirecting out ip daddr {own} udp dport 9999 dnat to {to}");
    run(host, "nft", &format!("add table ip redirecting; {rules} {rule}"));
    let own = SocketAddr::new(own.parse().unwrap(), 9999);
    let socket = udp(host, own, None);
    for _ in 0..ATTEMPTS {
        // Whether this is an error is the kernel's choice. The uplinks are captured.
        let _ = socket.send_to(&[7; 100], &own.into());
    }
    run(host, "nft", "delete table ip redirecting");
}

/// Connects by TCP. Returns the error, and after what time.
fn connect(host: &EmulatedHost, to: &str, device: Option<&str>) -> (io::Error, Duration) {
    let to = SocketAddr::new(to.parse().unwrap(), 80);
    let begin = Instant::now();
    let attempt = || {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        socket.bind_device(device.map(str::as_bytes))?;
        socket.connect_timeout(&to.into(), Duration::from_secs(30))
    };
    let error = host.run(attempt).unwrap().expect_err("nothing listens there");
    (error, begin.elapsed())
}

/// A TCP connection from the client to the server, through the tunnel.
struct Connection([TcpStream; 2]);

impl Connection {
    fn open(client: &EmulatedHost, server: &EmulatedHost) -> Self {
        let address = SocketAddr::new(REACHED.parse().unwrap(), 7000);
        let listener = server.run(|| TcpListener::bind(address)).unwrap().unwrap();
        let own = client.run(|| TcpStream::connect(address)).unwrap().unwrap();
        let connection = Self([own, listener.accept().unwrap().0]);
        connection.exchange();
        connection
    }

    /// Sends some bytes there and back.
    fn exchange(&self) {
        let mut bytes = [7; 1000];
        for [from, to] in [[0, 1], [1, 0]].map(|ends| ends.map(|end| &self.0[end])) {
            let (mut from, mut to) = (from, to);
            to.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
            from.write_all(&bytes).unwrap();
            to.read_exact(&mut bytes).unwrap();
        }
    }
}

/// Before the tunnel is up, while it is up, killed, started again and stopped, only its channels'
/// datagrams leave. Everything leaves again once this host is opened.
pub(crate) fn nothing_leaves_another_way_whatever_happens_to_the_tunnel() {
    let mut own = ClosedPair::new("[\"0.0.0.0/0\", \"::/0\"]");
    let open = own.senders(&OPEN);
    open.try_more();
    drop(open);

    own.tunnel(&["close", "--config", "tunnel.toml"]);
    let senders = own.senders(&CLOSED);
    senders.try_more();
    let refused = senders.last("UDP to 198.51.100.9 by None");
    assert_ne!(refused, "sent", "an application notices at once");
    for (to, device) in [(CLOSED[0], None), (CLOSED[0], Some("b")), (CLOSED[1], None)] {
        let (error, time) = connect(own.pair.host("client"), to, device);
        assert!(time < Duration::from_secs(5), "{to} by {device:?}: {error} after {time:?}");
    }
    assert!(own.doctor().contains("only sunder0 may reach the networks of its tunnel"));
    send_redirected(own.pair.host("client"), CLOSED[0]);

    // Without a peer, and then up.
    own.pair.start_end("client");
    senders.try_more();
    own.pair.start_end("server");
    let (client, server) = (own.pair.host("client"), own.pair.host("server"));
    let stream = Stream::start(client, server, REACHED, StreamRate::LIGHT);
    stream.wait_for(100);
    senders.try_more();
    let connection = Connection::open(client, server);
    let closed = own.pair.status("client").closed.expect("it is closed");
    assert!(closed.in_force && closed.closed_s > 0.0, "{closed:?}");

    own.pair.kill_end("client");
    senders.try_more();
    let shown = own.pair.ask_with_errors("client", &["status"]);
    assert!(shown.contains("sunder tunnel open --device sunder0"), "{shown}");
    own.pair.start_end("client");
    senders.try_more();
    stream.wait_for(100);
    connection.exchange();
    let again = own.pair.status("client").closed.expect("it is closed");
    assert!(again.closed_s > closed.closed_s, "it was never open: {closed:?}, {again:?}");

    own.pair.stop_end("client");
    senders.try_more();
    drop((stream, senders));
    own.tunnel(&["open", "--config", "tunnel.toml"]);
    let open = own.senders(&OPEN);
    open.try_more();
    drop(open);

    let carried = own.carried();
    for (link, destinations) in &carried {
        for host in CLOSED.into_iter().chain([REACHED]) {
            let host: IpAddr = host.parse().unwrap();
            assert_eq!(destinations.get(&host), None, "to {host} on {link}: {destinations:?}");
        }
    }
    // The captures show what leaves. An IPv4 socket that is bound to a device needs no route there.
    let [v4, v6] = OPEN.map(|host| host.parse::<IpAddr>().unwrap());
    for (link, host) in [("a", v4), ("a", v6), ("b", v4), ("c", v4)] {
        let seen = carried[link].get(&host).copied();
        assert!(seen >= Some(2 * ATTEMPTS), "to {host} on {link}: {carried:?}");
    }
}

/// A firewall that is loaded removes all rules. The running tunnel restores its own.
pub(crate) fn rules_that_another_program_removes_are_restored() {
    let mut own = ClosedPair::new("[\"0.0.0.0/0\", \"::/0\"]");
    own.pair.start_end("client");
    let client = own.pair.host("client");
    let rules = || {
        let list = || Command::new("nft").args(["-s", "list", "ruleset"]).output();
        client.run(list).unwrap().unwrap().stdout
    };
    let before = rules();
    assert!(String::from_utf8_lossy(&before).contains("table inet sunder_closed_sunder0"));
    for _ in 0..3 {
        run(client, "nft", "flush ruleset");
        until("the rules are restored", || rules() == before);
    }
    assert!(own.pair.log("client").contains("which are restored"), "{}", own.pair.log("client"));
    let senders = own.senders(&CLOSED);
    senders.try_more();
    drop(senders);
    for (link, destinations) in &own.carried() {
        for host in CLOSED {
            let host: IpAddr = host.parse().unwrap();
            assert_eq!(destinations.get(&host), None, "to {host} on {link}: {destinations:?}");
        }
    }
}

/// Networks in `direct` are reached without the tunnel. A configuration that closes nothing any
/// more leaves this host closed, and says how to open it.
pub(crate) fn direct_networks_stay_reachable_and_nothing_else_opens() {
    let own = ClosedPair::new("[\"0.0.0.0/0\"]");
    let shown = own.tunnel(&["close", "--config", "tunnel.toml"]);
    assert!(shown.contains("only sunder0 may reach the networks of its tunnel"), "{shown}");
    let (client, user) = (own.pair.host("client"), own.pair.host("user"));
    let address = own.pair.network().address("user", "lan").unwrap();
    let lan = Stream::start(client, user, &address.to_string(), StreamRate::LIGHT);
    lan.wait_for(50);
    let rules = own.tunnel(&["close", "--config", "tunnel.toml", "--print-rules"]);
    assert!(rules.contains("meta nfproto ipv4 counter reject"), "{rules}");
    let shown = own.pair.ask_with_errors("client", &["doctor"]);
    assert!(shown.contains("and this tunnel does not run"), "{shown}");
    for (arguments, expected) in [
        (&["open", "--device", "a; flush ruleset"][..], "is not a tunnel's device"),
        (&["open", "--device", "sunder0"], "this host is open now"),
        (&["open", "--config", "tunnel.toml"], "this host was open already"),
    ] {
        let shown = own.tunnel(arguments);
        assert!(shown.contains(expected), "{shown}");
    }
}

/// The kernel accepts the rules of any kind of end, address and network.
pub(crate) fn the_kernel_accepts_the_rules_of_every_kind_of_end() {
    let own = ClosedPair::new("[\"10.8.0.0/16\"]");
    let ends = [
        "[[channel]]\nserver = \"[2001:db8::1]:6521\"\nsource = \"2001:db8::7\"\n\
         [[channel]]\nserver = \"192.0.2.1:6521\"\ndevice = \"a\"\n",
        "[[channel]]\nlisten = \"[::]:6521\"\n[[channel]]\nlisten = \"192.0.2.1:6522\"\n",
        "[[channel]]\nlisten = \"[2001:db8::1]:6521\"\nclient = \"2001:db8::2\"\n\
         [[channel]]\nlisten = \"0.0.0.0:6522\"\nclient = \"192.0.2.2\"\ndevice = \"b\"\n",
    ];
    let networks = [
        "routes = [\"0.0.0.0/1\", \"128.0.0.0/1\", \"::/1\", \"8000::/1\"]\n\
         direct = [\"10.0.0.0/9\", \"172.16.0.0/12\", \"fd01::/16\", \"192.0.2.77/32\"]",
        "routes = [\"10.8.0.0/16\", \"10.8.128.0/17\", \"10.9.0.0/16\", \"2001:db8::/32\"]",
        "routes = []",
    ];
    let settings = "kappa = 2\nmu = 2\nkey = \"key\"\nfail_closed = true\n\
                    addresses = [\"10.200.0.1/24\", \"fd09::1/64\"]\ndevice = \"tun-a.b_1\"\n";
    for (end, networks) in ends.iter().flat_map(|end| networks.map(|networks| (end, networks))) {
        let text = format!("{settings}{networks}\n{end}");
        fs::write(own.results.path().join("other.toml"), &text).unwrap();
        let path = own.results.path().join("other.toml");
        let shown = own.tunnel(&["close", "--config", path.to_str().unwrap()]);
        assert!(shown.contains("only tun-a.b_1 may reach the networks"), "{text}\n{shown}");
    }
    let shown = own.tunnel(&["open", "--device", "tun-a.b_1"]);
    assert!(shown.contains("this host is open now"), "{shown}");
}

/// A server that fails closed answers a client of which it knows only the key, and sends nothing
/// else to the client's networks.
pub(crate) fn a_closed_server_answers_its_client_only() {
    let results = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
    let network = emulation::network(TOPOLOGY, results.path());
    let channels: Vec<Channel> = over(&network, &UPLINKS)
        .into_iter()
        .zip(UPLINKS)
        .map(|(channel, link)| Channel { server_device: Some(link), rate_mbit: None, ..channel })
        .collect();
    let settings = "kappa = 2\nmu = 3";
    let server = format!("{settings}\nfail_closed = true\nroutes = [\"0.0.0.0/0\"]");
    let mut pair = Pair::prepare(network, [settings, &server], &channels);
    run(pair.host("server"), "ip", "route add default dev a metric 100");
    pair.start_end("server");
    pair.start_end("client");
    let (client, server) = (pair.host("client"), pair.host("server"));
    let stream = Stream::start(client, server, SERVER, StreamRate::LIGHT);
    stream.wait_for(100);
    let to = SocketAddr::new(pair.network().address("client", "b").unwrap().into(), 9);
    for device in [None, Some("a"), Some("b")] {
        let sent = udp(server, to, device).send_to(b"in the clear", &to.into());
        assert!(sent.is_err(), "by {device:?}");
    }
    stream.wait_for(100);
}

/// A client whose channels are of IPv6 reaches its server although all of IPv6 is closed: it finds
/// its neighbours, and sends nothing but the channels' datagrams.
pub(crate) fn a_closed_client_over_ipv6_reaches_its_server() {
    let results = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
    let network = emulation::network(TOPOLOGY, results.path());
    let channels = UPLINKS.map(|link| {
        let server = format!("[fd00::{}]:{PORT}", network.address("server", link).unwrap());
        let server = server.parse().unwrap();
        Channel { device: Some(link), rate_mbit: None, ..Channel::new(server, server) }
    });
    let settings = "kappa = 2\nmu = 3";
    let closed = format!("{settings}\nfail_closed = true\nroutes = [\"::/0\"]");
    let mut pair = Pair::prepare(network, [closed.as_str(), settings], &channels);
    pair.start_end("server");
    pair.start_end("client");
    for channel in 0..UPLINKS.len() {
        pair.wait_for_states("client", channel, ["up", "up"]);
    }
    let (client, server) = (pair.host("client"), pair.host("server"));
    let stream = Stream::start(client, server, "fd09::1", StreamRate::LIGHT);
    stream.wait_for(100);
    for (channel, link) in channels.iter().zip(UPLINKS) {
        let send = |port| {
            let to = SocketAddr::new(channel.server.ip(), port);
            udp(client, to, Some(link)).send_to(b"in the clear", &to.into())
        };
        assert!(send(PORT).is_ok(), "the server's port is open");
        assert!(send(9).is_err(), "by {link}");
    }
    stream.wait_for(100);
}
