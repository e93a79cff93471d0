//! Common programs, through SOCKS5 and through forwards. `make setup` installs them; a test whose
//! program is missing prints so.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::processes::Service;
use super::service::pattern;

/// The time limit until a service listens.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// A service on loopback, and a proxy to it with SOCKS5 and a forward.
struct ProxiedService {
    /// The address of the service.
    service: SocketAddr,
    /// The address of the SOCKS5 listener.
    socks: SocketAddr,
    /// The address of the forward to the service.
    forward: SocketAddr,
    /// The files of the service and of its client.
    place: TempDir,
    _processes: (RunningProgram, Service, Service),
}

/// A program that runs until this is dropped.
struct RunningProgram(Child);

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether all of these programs are installed. Prints a message otherwise.
fn there_are(programs: &[&str]) -> bool {
    let is_there = |program: &&str| {
        let found = Command::new("which").arg(program).stdout(Stdio::null()).status();
        found.is_ok_and(|found| found.success())
    };
    let missing = programs.iter().find(|program| !is_there(program));
    if let Some(program) = missing {
        eprintln!("SKIPPED: there is no {program}; make setup installs it");
    }
    missing.is_none()
}

/// Starts a service at a free port on loopback. `start` returns its command, for a directory for
/// files.
fn start_service(start: impl FnOnce(SocketAddr, &Path) -> Command) -> ProxiedService {
    let place = tempfile::tempdir().unwrap();
    let service = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = start(service, place.path());
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = RunningProgram(command.spawn().unwrap());
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while TcpStream::connect(service).is_err() {
        assert!(Instant::now() < deadline, "{command:?} does not listen");
        thread::sleep(Duration::from_millis(5));
    }
    let server = Service::server(3, &service.to_string());
    let config = format!(
        "socks = \"127.0.0.1:0\"\n[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{service}\"\n{}",
        server.channels()
    );
    let proxy = Service::start("proxy", &config, 2);
    let (socks, forward) = (proxy.address(0), proxy.address(1));
    ProxiedService { service, socks, forward, place, _processes: (started, server, proxy) }
}

impl ProxiedService {
    fn path(&self, name: &str) -> String {
        self.place.path().join(name).to_str().unwrap().to_owned()
    }

    /// A proxy command that speaks SOCKS5.
    fn netcat(&self) -> String {
        let Self { socks, service, .. } = self;
        format!("nc.openbsd -X 5 -x {socks} {} {}", service.ip(), service.port())
    }
}

/// Runs a program, which must succeed, without the user's own settings.
fn run(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).envs(variables.iter().copied());
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {stderr}");
    output
}

/// Browsers send an address as a name, and some programs send IPv6 in brackets.
#[test]
fn a_name_that_is_an_address_is_that_address() {
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).unwrap();
    let allow = [&v4, &v6].map(|listener| listener.local_addr().unwrap().to_string());
    let server = Service::server(3, &allow.join("\", \""));
    let proxy = Service::proxy(&server);
    for (listener, names) in
        [(&v4, &["127.0.0.1"][..]), (&v6, &["::1", "[::1]", "0:0:0:0:0:0:0:1"])]
    {
        for name in names {
            let mut application = TcpStream::connect(proxy.address(0)).unwrap();
            let len = u8::try_from(name.len()).unwrap();
            let port = listener.local_addr().unwrap().port().to_be_bytes();
            let request = [&[5, 1, 0, 5, 1, 0, 3, len][..], name.as_bytes(), &port].concat();
            application.write_all(&request).unwrap();
            let mut reply = [0; 12];
            application.read_exact(&mut reply).unwrap();
            assert_eq!(reply[..4], [5, 0, 5, 0], "{name}: connected");
            let mut service = listener.accept().unwrap().0;
            service.write_all(b"hello").unwrap();
            let mut heard = [0; 5];
            application.read_exact(&mut heard).unwrap();
            assert_eq!(&heard, b"hello", "{name}");
        }
    }
}

#[test]
fn git_clones() {
    if !there_are(&["git", "python3", "nc.openbsd"]) {
        return;
    }
    let own = [("GIT_CONFIG_GLOBAL", "/dev/null"), ("GIT_CONFIG_SYSTEM", "/dev/null")];
    let reached = start_service(|service, place| {
        let git = |arguments: &[&str]| {
            let place =
                ["-C", place.to_str().unwrap(), "-c", "user.name=a", "-c", "user.email=a@b"];
            run("git", &[&place, arguments].concat(), &own);
        };
        git(&["init", "--quiet", "work"]);
        fs::write(place.join("work/file"), pattern(2_000_000)).unwrap();
        git(&["-C", "work", "add", "file"]);
        git(&["-C", "work", "commit", "--quiet", "--message", "file"]);
        git(&["clone", "--quiet", "--bare", "work", "bare"]);
        git(&["-C", "bare", "update-server-info"]);
        let mut web = Command::new("python3");
        web.args(["-m", "http.server", "--directory"]).arg(place);
        web.args(["--bind", &service.ip().to_string(), &service.port().to_string()]);
        web
    });
    let ProxiedService { service, socks, forward, .. } = reached;
    let proxy = format!("http.proxy=socks5h://{socks}");
    let by_socks = ["-c", &proxy, "clone", "--quiet", &format!("http://{service}/bare")];
    let by_forward = ["clone", "--quiet", &format!("http://{forward}/bare")];
    for (name, arguments) in [("socks", &by_socks[..]), ("forward", &by_forward)] {
        let to = reached.path(name);
        run("git", &[arguments, &[&to]].concat(), &own);
        assert!(fs::read(Path::new(&to).join("file")).unwrap() == pattern(2_000_000), "{name}");
    }
}

#[test]
fn rsync_copies() {
    if !there_are(&["rsync", "nc.openbsd"]) {
        return;
    }
    let reached = start_service(|service, place| {
        fs::create_dir(place.join("from")).unwrap();
        for number in 0..100_usize {
            let path = place.join(format!("from/{number}"));
            fs::write(path, pattern(number * 1_000)).unwrap();
        }
        let config = place.join("rsyncd.conf");
        // As root, the program would change to another user, who may not read there.
        let owner = rustix::process::geteuid().as_raw();
        let owner = if owner == 0 { "uid = root\ngid = root\n" } else { "" };
        let path = place.join("from");
        let text = format!("use chroot = no\n{owner}[files]\npath = {}\n", path.display());
        fs::write(&config, text).unwrap();
        let mut rsync = Command::new("rsync");
        rsync.args(["--daemon", "--no-detach", "--address", &service.ip().to_string()]);
        rsync.args(["--port", &service.port().to_string(), "--config"]).arg(config);
        rsync
    });
    let netcat = reached.netcat();
    let by_socks = format!("rsync://{}/files/", reached.service);
    let by_forward = format!("rsync://{}/files/", reached.forward);
    for (name, from, variables) in
        [("socks", by_socks, &[("RSYNC_CONNECT_PROG", &*netcat)][..]), ("forward", by_forward, &[])]
    {
        let to = reached.path(name);
        run("rsync", &["--recursive", &from, &to], variables);
        for number in 0..100_usize {
            let copy = fs::read(Path::new(&to).join(number.to_string())).unwrap();
            assert!(copy == pattern(number * 1_000), "{name}: {number}");
        }
    }
}

#[test]
fn a_session_of_ssh() {
    if !there_are(&["ssh", "/usr/sbin/sshd", "nc.openbsd"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: sshd needs root, to change to a user of its own");
        return;
    }
    let reached = start_service(|service, place| {
        for name in ["host", "user"] {
            let key = place.join(name);
            let arguments = ["-q", "-t", "ed25519", "-N", "", "-f", key.to_str().unwrap()];
            run("ssh-keygen", &arguments, &[]);
        }
        let files = place.display();
        let text = format!(
            "HostKey {files}/host\nAuthorizedKeysFile {files}/user.pub\nPidFile none\nUsePAM no\n\
             StrictModes no\nPermitRootLogin yes\nListenAddress {service}\n"
        );
        let config = place.join("sshd_config");
        fs::write(&config, text).unwrap();
        fs::create_dir_all("/run/sshd").unwrap();
        fs::set_permissions("/run/sshd", fs::Permissions::from_mode(0o755)).unwrap();
        let mut sshd = Command::new("/usr/sbin/sshd");
        sshd.args(["-D", "-e", "-f"]).arg(config);
        sshd
    });
    let ProxiedService { service, forward, .. } = reached;
    let (key, known) = (reached.path("user"), reached.path("known"));
    let (known, proxy) =
        (format!("UserKnownHostsFile={known}"), format!("ProxyCommand={}", reached.netcat()));
    let options = ["-F", "none", "-i", &key, "-o", "StrictHostKeyChecking=no", "-o", &known];
    let by =
        |place: SocketAddr| ["-p".into(), place.port().to_string(), format!("root@{}", place.ip())];
    for (by, further) in [(by(service), &["-o", &proxy][..]), (by(forward), &[])] {
        let by = by.each_ref().map(String::as_str);
        let output =
            run("ssh", &[&options, further, &by, &["exec head -c 500000 /dev/zero"]].concat(), &[]);
        assert!(output.stdout == vec![0; 500_000], "{by:?}");
    }
}

/// A database whose client does not support proxies: through a forward.
#[test]
fn redis_stores() {
    if !there_are(&["redis-server", "redis-cli"]) {
        return;
    }
    let reached = start_service(|service, place| {
        let mut redis = Command::new("redis-server");
        redis.args(["--bind", &service.ip().to_string(), "--port", &service.port().to_string()]);
        redis.args(["--save", "", "--appendonly", "no", "--dir"]).arg(place);
        redis
    });
    let ProxiedService { forward, .. } = reached;
    let (host, port) = (forward.ip().to_string(), forward.port().to_string());
    let ask = |words: &[&str]| {
        run("redis-cli", &[&["-h", &host, "-p", &port], words].concat(), &[]).stdout
    };
    let value = "value ".repeat(20_000);
    assert_eq!(ask(&["set", "key", &value]), b"OK\n");
    assert_eq!(ask(&["get", "key"]), format!("{value}\n").into_bytes());
    // Many concurrent clients, each of which waits for its answers.
    let benchmark = ["-n", "2000", "-c", "50", "-t", "set,get", "--csv"];
    let output =
        run("redis-benchmark", &[&["-h", &*host, "-p", &*port], &benchmark[..]].concat(), &[]);
    let stdout = String::from_utf8(output.stdout).unwrap();
    assert!(stdout.contains("\"SET\"") && stdout.contains("\"GET\""), "{stdout}");
}
