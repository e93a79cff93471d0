//! The states of the host in which the matrix is tested: what has failed, what is missing, and what
//! belongs to another program.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::thread;

use socket2::{Domain, Socket, Type};

use crate::captures::{CHANNEL_PORT, clear_packets};
use crate::matrix::Outcome::{self, Answered, Refused};
use crate::matrix::{
    ANSWER, CELLS, Cell, Kind, Matrix, PATIENCE, PORT, SERVICE, SETTINGS, TIMEOUT, answer, ask,
    ask_within, assert_nobody, listen, occupy, wildcards,
};
use crate::topology::{SUNDER, Topology, until};

/// Without a proxy, the captures show packets in the clear.
pub(crate) fn without_a_proxy() {
    let matrix = Matrix::new();
    for cell in CELLS {
        assert_eq!(matrix.connect_within(cell, PATIENCE).unwrap(), ANSWER);
    }
    let addresses = CELLS.map(|cell| matrix.address(cell));
    let clear = clear_packets(&matrix.topology.captures(), CHANNEL_PORT);
    assert!(addresses.iter().all(|address| clear[address] >= 4), "{clear:?}");
}

pub(crate) fn alive() {
    let matrix = Matrix::new();
    let _proxy = matrix.proxy();
    matrix.expect("alive", [Answered; 4]);
}

pub(crate) fn killed() {
    let matrix = Matrix::new();
    matrix.kill_a_proxy();
    matrix.expect("killed", [Refused; 4]);
}

pub(crate) fn restarted() {
    let matrix = Matrix::new();
    matrix.kill_a_proxy();
    let _proxy = matrix.proxy();
    matrix.expect("restarted", [Answered; 4]);
}

/// Another program listens on the proxy's port.
fn killed_and_its_port_taken(state: &str, addresses: &[SocketAddr], kind: Kind) {
    let matrix = Matrix::new();
    matrix.kill_a_proxy();
    let listeners = occupy(&matrix, addresses, kind);
    let log = matrix.failed_start();
    assert!(log.contains("cannot intercept at port 6522"), "{log}");
    assert!(log.contains("rules that are there"), "{log}");
    let found = CELLS.map(|cell| (cell, matrix.connect(cell)));
    assert_nobody(&listeners);
    matrix.found(state, [Refused; 4], found);
}

pub(crate) fn killed_and_its_port_taken_by_wildcard() {
    let state = "killed, port taken at 0.0.0.0 and [::]";
    killed_and_its_port_taken(state, &wildcards(PORT), Kind::Own);
}

pub(crate) fn killed_and_its_port_taken_by_one_listener() {
    let state = "killed, port taken at [::] by both families";
    killed_and_its_port_taken(state, &wildcards(PORT)[1..], Kind::Both);
}

pub(crate) fn killed_and_its_port_taken_on_loopback() {
    let state = "killed, port taken at 127.0.0.1 and [::1]";
    let loopback = ["127.0.0.1:6522", "[::1]:6522"].map(|address| address.parse().unwrap());
    killed_and_its_port_taken(state, &loopback, Kind::Own);
}

pub(crate) fn killed_and_its_port_taken_on_the_lan() {
    let state = "killed, port taken at the addresses that others come to";
    let topology = Topology::new();
    let lan = [topology.v4("client", "lan").into(), topology.v6("client", "lan").into()];
    drop(topology);
    killed_and_its_port_taken(state, &lan.map(|address: IpAddr| (address, PORT).into()), Kind::Own);
}

/// Another program listens on the destination port, at all addresses, including those of other
/// hosts.
pub(crate) fn killed_and_the_services_port_taken() {
    let matrix = Matrix::new();
    matrix.kill_a_proxy();
    let listeners = occupy(&matrix, &wildcards(SERVICE), Kind::Own);
    let found = CELLS.map(|cell| (cell, matrix.connect(cell)));
    assert_nobody(&listeners);
    matrix.found("killed, the service's port taken", [Refused; 4], found);
}

/// Another program prevents the proxy's first start.
pub(crate) fn prevented_from_starting() {
    for squatted in ["127.0.0.1:6522", "[::1]:6522"] {
        let matrix = Matrix::new();
        let listeners = occupy(&matrix, &[squatted.parse().unwrap()], Kind::Own);
        let log = matrix.failed_start();
        assert!(log.contains("cannot intercept at port 6522"), "{log}");
        assert!(
            log.contains(
                "are refused until it starts; `nft delete table inet sunder_6522_refused`"
            ),
            "{log}"
        );
        let found = CELLS.map(|cell| (cell, matrix.connect(cell)));
        assert_nobody(&listeners);
        drop(listeners);
        let doctor = matrix.topology.run("client", SUNDER, &["doctor"]).stdout;
        let doctor = String::from_utf8(doctor).unwrap();
        assert!(doctor.contains("nft delete table inet sunder_6522_refused"), "{doctor}");
        matrix.found(&format!("kept from starting by {squatted}"), [Refused; 4], found);
    }
}

/// It cannot start for a reason unrelated to interception.
pub(crate) fn prevented_from_listening_elsewhere() {
    let matrix = Matrix::new();
    let taken = "127.0.0.1:1080";
    let _taken = occupy(&matrix, &[taken.parse().unwrap()], Kind::Own);
    let config = matrix.topology.proxy_toml(&format!("socks = \"{taken}\"\n{SETTINGS}"));
    let arguments = ["proxy", "--config", config.to_str().unwrap()];
    let mut proxy = matrix.topology.start("client", SUNDER, &arguments);
    assert!(!proxy.ended_well());
    proxy.wait_for("cannot listen on 127.0.0.1:1080", 1);
    proxy.wait_for("nft delete table inet sunder_6522_refused", 1);
    matrix.expect("kept from listening for SOCKS5", [Refused; 4]);
}

/// A new configuration applies; if it cannot be applied, the previous one remains.
pub(crate) fn reloaded() {
    let other_port = SETTINGS.replace("6522", "6523");
    for (state, port_is_taken) in
        [("reloaded", false), ("reloaded, but the new port is taken", true)]
    {
        let matrix = Matrix::new();
        let proxy = matrix.proxy();
        let listeners = if port_is_taken { wildcards(6523).to_vec() } else { Vec::new() };
        let listeners = occupy(&matrix, &listeners, Kind::Own);
        matrix.topology.proxy_toml(&other_port);
        proxy.signal("-HUP");
        let message =
            ["the configuration was read again", "the configuration before stays in force"];
        proxy.wait_for(message[usize::from(port_is_taken)], 1);
        let found = CELLS.map(|cell| (cell, matrix.connect_within(cell, PATIENCE)));
        assert_nobody(&listeners);
        matrix.found(state, [Answered; 4], found);
        drop(proxy);
    }
}

/// After the port is released, the proxy starts and removes the refusing rules.
pub(crate) fn prevented_from_starting_for_a_while() {
    let matrix = Matrix::new();
    let listeners = occupy(&matrix, &wildcards(PORT), Kind::Own);
    matrix.failed_start();
    drop(listeners);
    let proxy = matrix.proxy();
    assert!(!proxy.log().contains("nft delete"), "{}", proxy.log());
    let tables = matrix.topology.ask("client", "nft", &["list", "tables"]);
    assert_eq!(tables, "table inet sunder_6522\n");
    matrix.expect("started after all", [Answered; 4]);
}

/// A second start does not affect the first.
pub(crate) fn started_twice() {
    let matrix = Matrix::new();
    let _proxy = matrix.proxy();
    let before = matrix.topology.ask("client", "nft", &["-s", "list", "ruleset"]);
    let log = matrix.failed_start();
    assert!(log.contains("carried by the proxy that runs at this port"), "{log}");
    assert_eq!(matrix.topology.ask("client", "nft", &["-s", "list", "ruleset"]), before);
    matrix.expect("started twice", [Answered; 4]);
}

/// The rules exist, with a listener for one family only.
fn one_listener(state: &str, address: SocketAddr, expected: [Outcome; 4]) {
    let matrix = Matrix::new();
    let config = matrix.topology.proxy_toml(SETTINGS);
    let arguments = ["proxy", "--print-rules", "--config", config.to_str().unwrap()];
    let printed = matrix.topology.ask("client", SUNDER, &arguments);
    let rules = matrix.topology.write("rules", printed);
    matrix.topology.ask("client", "nft", &["-f", rules.to_str().unwrap()]);
    let host = matrix.topology.host("client");
    let listener = host.run(|| listen(address, Kind::Transparent)).unwrap().unwrap();
    thread::spawn(move || listener.incoming().flatten().for_each(answer));
    matrix.expect(state, expected);
}

pub(crate) fn without_a_listener_by_ipv6() {
    let [v4, _] = wildcards(PORT);
    one_listener("no IPv6 listener", v4, [Answered, Refused, Answered, Refused]);
}

pub(crate) fn without_a_listener_by_ipv4() {
    let [_, v6] = wildcards(PORT);
    one_listener("no IPv4 listener", v6, [Refused, Answered, Refused, Answered]);
}

pub(crate) fn without_ipv6_on_loopback() {
    for state in ["lo without IPv6", "lo without IPv6, killed"] {
        let matrix = Matrix::new();
        lose_ipv6_on_loopback(&matrix);
        let config = matrix.topology.proxy_toml(SETTINGS);
        let arguments = ["proxy", "--config", config.to_str().unwrap()];
        let proxy = matrix.topology.start("client", SUNDER, &arguments);
        proxy.wait_for("intercepted", 1);
        proxy.wait_for("lo has no IPv6", 1);
        if state.ends_with("killed") {
            drop(proxy);
            matrix.expect(state, [Refused; 4]);
        } else {
            matrix.expect(state, [Answered, Refused, Answered, Answered]);
            drop(proxy);
        }
    }
}

/// The proxy runs, and `lo` loses IPv6.
pub(crate) fn ipv6_lost_on_loopback() {
    let matrix = Matrix::new();
    let _proxy = matrix.proxy();
    lose_ipv6_on_loopback(&matrix);
    matrix.expect("lo loses IPv6", [Answered, Refused, Answered, Answered]);
}

/// Then even `::1` is not the host's own, and a default route would lead it out.
fn lose_ipv6_on_loopback(matrix: &Matrix) {
    let host = matrix.topology.host("client");
    host.set("net/ipv6/conf/lo/disable_ipv6", "1").unwrap();
    let router = matrix.topology.v6("server", "a").to_string();
    matrix.topology.ask("client", "ip", &["-6", "route", "add", "default", "via", &router]);
}

/// Applications that bind to an interface, which must not send in the clear.
pub(crate) fn bound_to_an_interface() {
    for state in ["bound to an interface", "bound to an interface, killed"] {
        let matrix = Matrix::new();
        let proxy = matrix.proxy();
        let proxy = (!state.ends_with("killed")).then_some(proxy);
        let routers = (matrix.topology.v4("server", "a"), matrix.topology.v6("server", "a"));
        let (v4, v6) = (routers.0.to_string(), routers.1.to_string());
        matrix.topology.ask("client", "ip", &["route", "add", "default", "via", &v4]);
        matrix.topology.ask("client", "ip", &["-6", "route", "add", "default", "via", &v6]);
        let connect = |cell: Cell| {
            let address: SocketAddr = (matrix.address(cell), SERVICE).into();
            let Cell(host, link, _) = cell;
            let device = if host == "client" { link } else { "lan" };
            let limit = if device == "lan" && proxy.is_some() { PATIENCE } else { TIMEOUT };
            let connected = matrix.topology.host(host).run(|| {
                let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
                socket.bind_device(Some(device.as_bytes()))?;
                socket.connect_timeout(&address.into(), limit)?;
                Ok(TcpStream::from(socket))
            });
            (cell, connected.unwrap().and_then(|mut stream| ask_within(&mut stream, limit)))
        };
        let found = CELLS.map(connect);
        let forwarded = if proxy.is_some() { Answered } else { Refused };
        matrix.found(state, [Refused, Refused, forwarded, forwarded], found);
    }
}

/// Routing rules and routes of the proxy are deleted, if it has any.
fn without(state: &str, killed: bool, delete: impl Fn(&Matrix, &str)) {
    let matrix = Matrix::new();
    let proxy = matrix.proxy();
    delete(&matrix, "-4");
    delete(&matrix, "-6");
    if killed {
        drop(proxy);
        matrix.expect(state, [Refused; 4]);
    } else {
        matrix.expect(state, [Answered; 4]);
        drop(proxy);
    }
}

fn delete_rules(matrix: &Matrix, family: &str) {
    while matrix.topology.ask("client", "ip", &[family, "rule"]).contains("fwmark") {
        let rules = matrix.topology.ask("client", "ip", &[family, "rule"]);
        let rule = rules.lines().find(|line| line.contains("fwmark")).unwrap();
        let priority = rule.split(':').next().unwrap();
        matrix.topology.ask("client", "ip", &[family, "rule", "del", "priority", priority]);
    }
}

fn delete_routes(matrix: &Matrix, family: &str) {
    let table = (0x534E_0000 + u32::from(PORT)).to_string();
    matrix.topology.run("client", "ip", &[family, "route", "flush", "table", &table]);
}

pub(crate) fn without_routing_rules() {
    without("routing rules deleted", false, delete_rules);
    without("routing rules deleted, killed", true, delete_rules);
}

pub(crate) fn without_routes() {
    without("routes deleted", false, delete_routes);
    without("routes deleted, killed", true, delete_routes);
}

/// A firewall disables connection tracking, so the kernel redirects nothing.
pub(crate) fn without_connection_tracking() {
    let matrix = Matrix::new();
    let _proxy = matrix.proxy();
    let rules = "table inet other {\n\
                 chain out { type filter hook output priority -300; tcp dport 8080 notrack; }\n\
                 chain pre { type filter hook prerouting priority -300; tcp dport 8080 notrack; }\n\
                 }\n";
    let rules = matrix.topology.write("rules", rules);
    matrix.topology.ask("client", "nft", &["-f", rules.to_str().unwrap()]);
    matrix.expect("without_connection_tracking", [Refused; 4]);
}

/// Another program removes or changes the rules, and the proxy restores them.
pub(crate) fn restored() {
    for change in [
        "delete table inet sunder_6522",
        "flush ruleset",
        "insert rule inet sunder_6522 local accept",
        "flush chain inet sunder_6522 leaving",
    ] {
        let matrix = Matrix::new();
        let proxy = matrix.proxy();
        let rules = || matrix.topology.run("client", "nft", &["-s", "list", "ruleset"]).stdout;
        let before = rules();
        let words: Vec<&str> = change.split(' ').collect();
        for times in 1..3 {
            matrix.topology.ask("client", "nft", &words);
            proxy.wait_for("which are restored", times);
            assert_eq!(rules(), before, "{change}");
        }
        let variable = format!("RUNTIME_DIRECTORY={}", matrix.topology.path("").display());
        let status = matrix.topology.ask("client", "env", &[&variable, SUNDER, "status"]);
        let expected =
            "interception: at port 6522, rules removed by another program and restored: 2";
        assert!(status.contains(expected), "{status}");
        matrix.expect(&format!("{change}, and restored"), [Answered; 4]);
    }
}

/// Open connections to the service, before their requests.
fn connections(matrix: &Matrix) -> [(Cell, TcpStream); 4] {
    CELLS.map(|cell| {
        let address: SocketAddr = (matrix.address(cell), SERVICE).into();
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        (cell, matrix.topology.host(cell.0).run(connect).unwrap().unwrap())
    })
}

/// Connections that are open when the proxy is killed, and whose state the kernel then loses.
pub(crate) fn killed_with_connections_under_way() {
    for state in ["under way", "under way and forgotten", "under way and of no connection"] {
        let matrix = Matrix::new();
        let proxy = matrix.proxy();
        let streams = connections(&matrix);
        until("all four are carried", || matrix.reached.load(Ordering::Relaxed) == 4);
        if state.ends_with("no connection") {
            let host = matrix.topology.host("client");
            host.set("net/netfilter/nf_conntrack_tcp_loose", "0").unwrap();
        }
        drop(proxy);
        if state != "under way" {
            forget_connections(&matrix);
        }
        let found = streams.map(|(cell, mut stream)| (cell, ask(&mut stream)));
        matrix.found(&format!("killed, {state}"), [Refused; 4], found);
    }
}

/// Makes the kernel lose its connection states by disabling tracking for a moment.
fn forget_connections(matrix: &Matrix) {
    let host = matrix.topology.host("client");
    let path = "net/netfilter/nf_conntrack_tcp_timeout_";
    for state in ["established", "close_wait", "fin_wait", "close", "last_ack", "time_wait"] {
        host.set(&format!("{path}{state}"), "0").unwrap();
    }
}

/// Connections that are older than the proxy are cut.
pub(crate) fn older_than_the_proxy() {
    let matrix = Matrix::new();
    let streams = connections(&matrix);
    let _proxy = matrix.proxy();
    let mut refused = 0;
    for (_, mut stream) in streams {
        refused += usize::from(ask(&mut stream).is_err());
    }
    assert_eq!(refused, 4);
    let captures = matrix.topology.captures();
    for capture in captures {
        assert!(!capture.windows(5).any(|bytes| bytes == b"hello"), "in the clear");
    }
}

/// Services on this host, and on hosts behind it, answer clients at the addresses that are
/// intercepted.
pub(crate) fn answers_are_not_intercepted() {
    let matrix = Matrix::new();
    let settings = "intercept = \"ip daddr 10.0.0.0/8\"\nintercept_from = [\"lan\"]";
    let _proxy = matrix.topology.proxy(settings);
    for host in ["client", "user"] {
        let any = "0.0.0.0:9000".parse().unwrap();
        let service = matrix.topology.host(host).run(|| listen(any, Kind::Own)).unwrap().unwrap();
        thread::spawn(move || service.incoming().flatten().for_each(answer));
        let link = if host == "client" { "a" } else { "lan" };
        let address: SocketAddr = (matrix.topology.v4(host, link), 9000).into();
        let connect = || TcpStream::connect_timeout(&address, PATIENCE);
        let mut stream = matrix.topology.host("server").run(connect).unwrap().unwrap();
        assert_eq!(ask_within(&mut stream, PATIENCE).unwrap(), ANSWER, "{host}");
    }
}

/// Other hosts are served only on configured interfaces: neither connections that this host
/// forwards for them, nor connections to the proxy's port.
pub(crate) fn other_hosts_are_served_only_if_configured() {
    let matrix = Matrix::new();
    let host = matrix.topology.host("client");
    host.set("net/ipv4/ip_forward", "0").unwrap();
    host.set("net/ipv6/conf/all/forwarding", "0").unwrap();
    let rules = "table inet other {\n\
         chain forward { type filter hook forward priority 0; policy drop; }\n\
         }\n";
    let rules = matrix.topology.write("rules", rules);
    matrix.topology.ask("client", "nft", &["-f", rules.to_str().unwrap()]);
    let proxy = matrix.topology.proxy("intercept = \"tcp dport 8080\"\nintercept_port = 6522");
    for cell in &CELLS[2..] {
        matrix.connect(*cell).unwrap_err();
    }
    let port = |address: IpAddr| SocketAddr::from((address, PORT));
    for address in
        [matrix.topology.v4("client", "lan").into(), matrix.topology.v6("client", "lan").into()]
    {
        let connect = || TcpStream::connect_timeout(&port(address), PATIENCE);
        let error = matrix.topology.host("user").run(connect).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
    assert!(!proxy.log().contains("stream"), "{}", proxy.log());
    assert_eq!(matrix.reached.load(Ordering::Relaxed), 0);
    let found: BTreeMap<_, _> = clear_packets(&matrix.topology.captures(), CHANNEL_PORT);
    assert!(found.is_empty(), "{found:?}");
}
