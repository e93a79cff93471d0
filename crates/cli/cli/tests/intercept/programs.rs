//! Programs that do not know of the interception.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::thread;

use crate::captures::{assert_hidden, secret};
use crate::rules::kernel_rules;
use crate::topology::{Program, Topology, until};

const WEB: &str = "intercept = \"tcp dport { 22, 80 }\"\nintercept_from = [\"lan\"]";

/// All addresses of the server.
const ALL: &str = "[\"0.0.0.0/0:22\", \"0.0.0.0/0:80\", \"[::]/0:80\"]";

/// A web server on the server with this document, for both families.
fn nginx(topology: &Topology, document: &[u8]) -> Program {
    topology.write("document", document);
    start_nginx(topology, 80, "listen 80; listen [::]:80;")
}

/// A web server on the server that offers the topology's files, with these settings, at a port.
pub(crate) fn start_nginx(topology: &Topology, port: u16, settings: &str) -> Program {
    let files = topology.path("");
    let files = files.display();
    let config = format!(
        "user root; daemon off; master_process off; error_log {files}/nginx.log; pid {files}/nginx.pid;\n\
         events {{ }}\n\
         http {{\n\
         access_log off; client_body_temp_path {files}/1; proxy_temp_path {files}/2;\n\
         fastcgi_temp_path {files}/3; uwsgi_temp_path {files}/4; scgi_temp_path {files}/5;\n\
         types {{ text/html html; }}\n\
         server {{ root {files}; {settings} }}\n\
         }}\n"
    );
    let config = topology.write("nginx.conf", config);
    let nginx = topology.start("server", "/usr/sbin/nginx", &["-c", config.to_str().unwrap()]);
    let server = topology.host("server");
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    until("nginx listens", || server.run(move || TcpStream::connect(address).is_ok()).unwrap());
    nginx
}

fn curl_and_nginx(address: impl Fn(&Topology) -> IpAddr) {
    let topology = Topology::new();
    let document = secret(300_000);
    let nginx = nginx(&topology, &document);
    let (server, proxy) = (topology.serve(ALL), topology.proxy(WEB));
    for _ in 0..2 {
        assert!(topology.fetch("client", address(&topology), "document").unwrap() == document);
    }
    proxy.wait_for("stream finished", 2);
    drop((nginx, proxy, server));
    assert_hidden(&topology.captures(), &document);
}

pub(crate) fn curl_and_nginx_by_ipv4() {
    curl_and_nginx(|topology| topology.v4("server", "a").into());
}

pub(crate) fn curl_and_nginx_by_ipv6() {
    curl_and_nginx(|topology| topology.v6("server", "b").into());
}

pub(crate) fn connections_that_this_host_forwards() {
    let topology = Topology::new();
    let document = secret(300_000);
    let nginx = nginx(&topology, &document);
    let (by_v4, by_v6) = (topology.v4("client", "lan"), topology.v6("client", "lan"));
    topology.ask("user", "ip", &["route", "add", "default", "via", &by_v4.to_string()]);
    topology.ask("user", "ip", &["-6", "route", "add", "default", "via", &by_v6.to_string()]);
    let (server, proxy) = (topology.serve(ALL), topology.proxy(WEB));
    let addresses: [IpAddr; 2] =
        [topology.v4("server", "a").into(), topology.v6("server", "a").into()];
    for address in addresses {
        assert!(topology.fetch("user", address, "document").unwrap() == document, "{address}");
    }
    proxy.wait_for("stream finished", 2);
    drop((nginx, proxy, server));
    assert_hidden(&topology.captures(), &document);
}

/// After other rules, no rules, and a stop, the packets of intercepted connections do not leave in
/// the clear, neither this host's own nor forwarded ones.
pub(crate) fn open_streams_outlast_their_rules() {
    let topology = Topology::new();
    let document = secret(300_000);
    let nginx = nginx(&topology, &document);
    let by_v4 = topology.v4("client", "lan").to_string();
    topology.ask("user", "ip", &["route", "add", "default", "via", &by_v4]);
    let server = topology.serve(ALL);
    let before = kernel_rules(&topology, "client");
    let address = SocketAddr::from((topology.v4("server", "a"), 80));
    let others = [
        "intercept = \"tcp dport 22\"",
        "intercept = \"tcp dport 22\"\nintercept_port = 6523",
        "socks = \"127.0.0.1:1080\"",
    ];
    for other in others {
        let proxy = topology.proxy(WEB);
        let streams = ["client", "user"].map(|host| {
            let connect = || TcpStream::connect(address);
            let mut stream = topology.host(host).run(connect).unwrap().unwrap();
            stream.write_all(b"GET /document HTTP/1.1\r\nHost: example\r\n").unwrap();
            stream
        });
        proxy.wait_for("stream requested", 2);
        topology.proxy_toml(other);
        proxy.signal("-HUP");
        proxy.wait_for("the configuration was read again", 1);
        // The rest of the request, and all of the answer.
        for (mut stream, whose) in streams.into_iter().zip(["this host's", "forwarded"]) {
            stream.write_all(b"Connection: close\r\n\r\n").unwrap();
            let mut answer = Vec::new();
            let read = stream.read_to_end(&mut answer);
            assert!(read.is_ok() && answer.ends_with(&document), "{whose}, {other}: {read:?}");
        }
        proxy.stop();
        assert_eq!(kernel_rules(&topology, "client"), before, "{other}");
    }
    drop((nginx, server));
    for capture in topology.captures() {
        assert!(!capture.windows(7).any(|bytes| bytes == b"example"), "in the clear");
        assert!(!capture.windows(10).any(|bytes| bytes == b"Connection"), "in the clear");
    }
}

pub(crate) fn a_session_of_ssh() {
    let sshd = "/usr/sbin/sshd";
    if !Path::new(sshd).exists() || !can_change_user() {
        eprintln!("SKIPPED: needs root, and {sshd}, which changes to a user of its own");
        return;
    }
    let topology = Topology::new();
    for key in ["host_key", "user_key"] {
        let path = topology.path(key);
        topology.ask(
            "client",
            "ssh-keygen",
            &["-q", "-t", "ed25519", "-N", "", "-f", path.to_str().unwrap()],
        );
    }
    let files = topology.path("");
    let files = files.display();
    let config = format!(
        "HostKey {files}/host_key\nAuthorizedKeysFile {files}/user_key.pub\nPidFile none\nUsePAM no\n\
         StrictModes no\nPermitRootLogin yes\n"
    );
    let config = topology.write("sshd_config", config);
    fs::create_dir_all("/run/sshd").unwrap();
    fs::set_permissions("/run/sshd", fs::Permissions::from_mode(0o755)).unwrap();
    let sshd = topology.start("server", sshd, &["-D", "-e", "-f", config.to_str().unwrap()]);
    sshd.wait_for("Server listening on", 1);
    let (server, proxy) = (topology.serve(ALL), topology.proxy(WEB));
    let (key, known) = (topology.path("user_key"), topology.path("known"));
    let login = format!("root@{}", topology.v4("server", "a"));
    let known = format!("UserKnownHostsFile={}", known.display());
    let options = ["-F", "none", "-o", "StrictHostKeyChecking=no", "-o", &known];
    let session =
        ["-i", key.to_str().unwrap(), &login, "echo $((6 * 7)); exec head -c 200000 /dev/zero"];
    let printed = topology.ask("client", "ssh", &[&options[..], &session].concat());
    assert_eq!((&printed[..3], printed.len()), ("42\n", 200_003), "{}", sshd.log());
    proxy.wait_for("stream finished", 1);
    drop((server, sshd));
    // OpenSSH's own greeting in the clear over one network is not captured here.
    drop(proxy);
    for capture in topology.captures() {
        assert!(capture.len() > 200_000);
        assert!(!capture.windows(8).any(|bytes| bytes == b"OpenSSH_"));
    }
}

/// Whether all of these programs are installed. Prints a message otherwise.
fn there_are(programs: &[&str]) -> bool {
    let missing = programs.iter().find(|program| !Path::new("/usr/bin").join(program).exists());
    if let Some(program) = missing {
        eprintln!("SKIPPED: there is no {program}; make setup installs it");
    }
    missing.is_none()
}

/// Whether a service can change to its own user here, which needs root outside of the sandbox.
fn can_change_user() -> bool {
    let ids = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    ids.split_whitespace().nth(2) != Some("1")
}

/// Waits until a program listens on a port of the server.
fn until_listens(topology: &Topology, port: u16) {
    let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    until("a service listens", || topology.host("server").run(listens).unwrap());
}

pub(crate) fn git_clones() {
    if !there_are(&["git"]) {
        return;
    }
    let topology = Topology::new();
    let document = secret(500_000);
    let nginx = nginx(&topology, &document);
    let path = |name: &str| topology.path(name).display().to_string();
    let git = |arguments: &[&str]| {
        let place = ["-C", &path(""), "-c", "user.name=a", "-c", "user.email=a@b"];
        topology.ask("server", "git", &[&place, arguments].concat());
    };
    git(&["init", "--quiet", "work"]);
    topology.write("work/file", &document);
    git(&["-C", "work", "add", "file"]);
    git(&["-C", "work", "commit", "--quiet", "--message", "file"]);
    git(&["clone", "--quiet", "--bare", "work", "bare"]);
    git(&["-C", "bare", "update-server-info"]);
    let (server, proxy) = (topology.serve(ALL), topology.proxy(WEB));
    let from = format!("http://{}/bare", topology.v4("server", "a"));
    let to = path("clone");
    topology.ask("client", "git", &["-c", "http.proxy=", "clone", "--quiet", &from, &to]);
    assert!(fs::read(topology.path("clone/file")).unwrap() == document);
    proxy.wait_for("stream finished", 1);
    drop((nginx, proxy, server));
    assert_hidden(&topology.captures(), &document);
}

pub(crate) fn rsync_copies() {
    if !there_are(&["rsync"]) {
        return;
    }
    if !can_change_user() {
        eprintln!("SKIPPED: needs root: rsync changes to a user of its own");
        return;
    }
    let topology = Topology::new();
    let document = secret(500_000);
    let from = topology.write("document", &document);
    let from = from.parent().unwrap().display();
    let config = format!("use chroot = no\nuid = root\ngid = root\n[files]\npath = {from}\n");
    let config = topology.write("rsyncd.conf", config);
    let arguments = ["--daemon", "--no-detach", "--config", config.to_str().unwrap()];
    let rsync = topology.start("server", "rsync", &arguments);
    until_listens(&topology, 873);
    let server = topology.serve("[\"[::]/0:873\"]");
    let proxy = topology.proxy("intercept = \"tcp dport 873\"");
    let from = format!("rsync://[{}]/files/document", topology.v6("server", "b"));
    let to = topology.path("copy");
    topology.ask("client", "rsync", &[&from, to.to_str().unwrap()]);
    assert!(fs::read(to).unwrap() == document);
    proxy.wait_for("stream finished", 1);
    drop((rsync, proxy, server));
    assert_hidden(&topology.captures(), &document);
}

/// A database.
pub(crate) fn redis_stores() {
    if !there_are(&["redis-server", "redis-cli"]) {
        return;
    }
    let topology = Topology::new();
    let files = topology.path("").display().to_string();
    let arguments = ["--protected-mode", "no", "--save", "", "--dir", &files];
    let redis = topology.start("server", "redis-server", &arguments);
    until_listens(&topology, 6379);
    let server = topology.serve("[\"0.0.0.0/0:6379\"]");
    let proxy = topology.proxy("intercept = \"tcp dport 6379\"");
    let address = topology.v4("server", "a").to_string();
    let ask =
        |words: &[&str]| topology.ask("client", "redis-cli", &[&["-h", &address], words].concat());
    // Text, because it is an argument.
    let value: String = std::iter::repeat_with(fastrand::alphanumeric).take(80_000).collect();
    assert_eq!(ask(&["set", "key", &value]), "OK\n");
    assert_eq!(ask(&["get", "key"]), format!("{value}\n"));
    proxy.wait_for("stream finished", 2);
    drop((redis, proxy, server));
    assert_hidden(&topology.captures(), value.as_bytes());
}

pub(crate) fn connections_to_this_host_are_not_intercepted() {
    let topology = Topology::new();
    let (_server, proxy) = (topology.serve(ALL), topology.proxy(WEB));
    let own = topology.v4("client", "a");
    let listener = topology.host("client").run(|| TcpListener::bind((own, 80))).unwrap().unwrap();
    let mut stream =
        topology.host("client").run(|| TcpStream::connect((own, 80))).unwrap().unwrap();
    let mut accepted = listener.accept().unwrap().0;
    stream.write_all(b"hello").unwrap();
    let mut heard = [0; 5];
    accepted.read_exact(&mut heard).unwrap();
    // Nor is a connection of another host to a service of this host.
    let server = topology.host("server");
    let mut stream = server.run(|| TcpStream::connect((own, 80))).unwrap().unwrap();
    let mut accepted = listener.accept().unwrap().0;
    stream.write_all(b"hello").unwrap();
    accepted.read_exact(&mut heard).unwrap();
    assert!(!proxy.log().contains("stream"), "{}", proxy.log());
}

pub(crate) fn a_connection_to_the_proxy_itself_is_refused() {
    let topology = Topology::new();
    let (_server, _proxy) = (topology.serve(ALL), topology.proxy(WEB));
    let addresses: [IpAddr; 2] =
        [topology.v4("client", "a").into(), topology.v6("client", "a").into()];
    for (host, address) in ["client", "server"].into_iter().zip(addresses) {
        let error =
            topology.host(host).run(|| TcpStream::connect((address, 522))).unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}

pub(crate) fn connections_to_other_services_are_reset() {
    let topology = Topology::new();
    let nginx = nginx(&topology, b"not for all");
    let (_server, proxy) = (topology.serve("[\"127.0.0.1:80\"]"), topology.proxy(WEB));
    let address = topology.v4("server", "a");
    let error = topology.fetch("client", address.into(), "document").unwrap_err();
    assert!(error.to_string().contains("reset"), "{error}");
    proxy.wait_for("the server does not allow this service", 1);
    drop(nginx);
    // The service does not run, and the application gets an error.
    thread::scope(|scope| {
        let refused = scope.spawn(|| topology.fetch("client", address.into(), "document"));
        assert!(refused.join().unwrap().is_err());
    });
}
