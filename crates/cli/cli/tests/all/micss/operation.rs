//! What an operator does with running processes: query their status, and reload their
//! configuration.

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::processes::{Service, sunder, web_server};
use super::service::{configuration, curl, fetched};

/// Fetches a page through a proxy.
fn fetch(proxy: &Service, url: &str) -> Vec<u8> {
    let socks = proxy.address(0).to_string();
    fetched(&curl(["--socks5-hostname", &socks, url]).output().unwrap()).to_vec()
}

/// The only entry of the JSON status.
fn status(service: &Service) -> Value {
    let mut entries: Vec<Value> = serde_json::from_str(&service.status(&["--json"])).unwrap();
    assert_eq!(entries.len(), 1);
    entries.remove(0)
}

#[test]
fn status_shows_the_traffic() {
    let web = web_server(vec![b'x'; 100_000], 100_000);
    let server = Service::server(2, &web.to_string());
    let mut proxy = Service::proxy(&server);
    assert_eq!(fetch(&proxy, &format!("http://{web}/")).len(), 100_000);
    for (service, kind, direction) in
        [(&proxy, "proxy", "received_bytes"), (&server, "serve", "sent_bytes")]
    {
        service.wait_for("stream finished");
        let entry = status(service);
        assert_eq!(entry["kind"], kind);
        assert_eq!(entry["streams"]["finished"], 1, "{entry}");
        let channels = entry["channels"].as_array().unwrap();
        assert_eq!(channels.len(), 2);
        for channel in channels {
            assert!(channel[direction].as_u64().unwrap() > 100_000, "{channel}");
        }
        let page = service.status(&[]);
        assert!(page.starts_with(kind) && page.contains("1 finished"), "{page}");
        let metrics = service.status(&["--metrics"]);
        let sample = metrics.lines().find(|line| {
            line.starts_with("sunder_streams_total{") && line.contains("end=\"finished\"")
        });
        assert!(sample.is_some_and(|line| line.ends_with("} 1")), "{metrics}");
    }
    assert_eq!(proxy.sockets(), 1);
    proxy.signal(Signal::TERM);
    assert_eq!(proxy.wait(), Some(0));
    assert_eq!(proxy.sockets(), 0, "nothing is left behind");
}

#[test]
fn other_protocols_at_the_socks_port_are_logged() {
    let web = web_server(Vec::new(), 0);
    let server = Service::server(2, &web.to_string());
    let proxy = Service::proxy(&server);
    let refuse = |sent: &[u8], reason: &str| {
        let mut stream = TcpStream::connect(proxy.address(0)).unwrap();
        stream.write_all(sent).unwrap();
        assert!(matches!(stream.read_to_end(&mut Vec::new()), Ok(_) | Err(_)));
        proxy.wait_for(reason);
    };
    refuse(b"CONNECT localhost:80 HTTP/1.1\r\n\r\n", "HTTP: set the application to SOCKS5");
}

#[test]
fn a_scrape_is_answered() {
    let web = web_server(Vec::new(), 0);
    let server = Service::server(2, &web.to_string());
    let mut exporter = sunder(["status", "--metrics", "--listen", "127.0.0.1:0"]);
    exporter.env("RUNTIME_DIRECTORY", server.runtime());
    let mut exporter = exporter.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = [0; 200];
    let len = exporter.stdout.as_mut().unwrap().read(&mut line).unwrap();
    let line = String::from_utf8_lossy(&line[..len]).into_owned();
    let url = line.split_whitespace().last().unwrap();
    let answer = fetched(&curl(["--include", url]).output().unwrap()).to_vec();
    exporter.kill().unwrap();
    exporter.wait().unwrap();
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.to_lowercase().contains("content-type: text/plain"), "{answer}");
    assert!(answer.contains("\nsunder_uptime_seconds{service=\"serve\""), "{answer}");
}

/// A server of metrics, killed when dropped.
struct Exporter(Child, SocketAddr);

impl Exporter {
    fn start(runtime: &Path) -> Self {
        let mut command = sunder(["status", "--metrics", "--listen", "127.0.0.1:0"]);
        command.env("RUNTIME_DIRECTORY", runtime).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let address = line.strip_prefix("listening on ").unwrap().split(": ").next().unwrap();
        Self(child, address.parse().unwrap())
    }

    /// The first line of the answer.
    fn ask(&self, method: &str, host: &str, path: &str) -> String {
        let mut stream = TcpStream::connect(self.1).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_scrape_names_an_address_and_the_metrics() {
    let directory = tempfile::tempdir().unwrap();
    let exporter = Exporter::start(directory.path());
    let own = exporter.1.to_string();
    assert_eq!(exporter.ask("GET", &own, "/metrics"), "HTTP/1.1 200 OK");
    assert_eq!(exporter.ask("HEAD", &own, "/metrics"), "HTTP/1.1 200 OK");
    assert_eq!(exporter.ask("GET", "localhost", "/metrics"), "HTTP/1.1 200 OK");
    // A web page that resolves its own name to this address.
    let rebound = exporter.ask("GET", "attacker.example", "/metrics");
    assert_eq!(rebound, "HTTP/1.1 421 Misdirected Request");
    assert_eq!(exporter.ask("GET", &own, "/"), "HTTP/1.1 404 Not Found");
    assert_eq!(exporter.ask("POST", &own, "/metrics"), "HTTP/1.1 405 Method Not Allowed");
}

#[test]
fn silent_connections_do_not_block_scrapes() {
    let directory = tempfile::tempdir().unwrap();
    let exporter = Exporter::start(directory.path());
    let silent: Vec<TcpStream> = (0..40).map(|_| TcpStream::connect(exporter.1).unwrap()).collect();
    assert_eq!(exporter.ask("GET", "127.0.0.1", "/metrics"), "HTTP/1.1 200 OK");
    // Silent connections are closed as well.
    for mut stream in silent {
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

/// A status that a proxy could have.
const FORGED: &str = "{\"kind\":\"proxy\",\"name\":\"forged\",\"uptime_s\":1.0,\"streams\":{\"under_way\":0,\
    \"finished\":0,\"refused\":0,\"broken\":0,\"tampered\":0,\"over_limit\":0},\"channels\":[]}";

/// Answers at a socket with a forged status, as another user if one is given.
#[allow(unsafe_code)]
fn forge(socket: PathBuf, user: Option<u32>) {
    let listener = UnixListener::bind(socket).unwrap();
    let (ready, is_ready) = mpsc::channel();
    thread::spawn(move || {
        if let Some(user) = user {
            // SAFETY: the system call, without the library, changes this thread alone, and no
            // memory.
            let failed = unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) };
            assert_eq!(failed, 0);
            // A client sees the credentials of the thread that called `listen` last.
            // SAFETY: the descriptor is the listener's.
            assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 8) }, 0);
        }
        ready.send(()).unwrap();
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(FORGED.as_bytes());
        }
    });
    is_ready.recv().unwrap();
}

#[test]
fn a_socket_in_an_untrusted_directory_is_refused() {
    let message = |directory: &Path| {
        let output = sunder(["status"]).env("RUNTIME_DIRECTORY", directory).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let directory = tempfile::tempdir().unwrap();
    forge(directory.path().join("proxy-x.sock"), None);
    assert_eq!(message(directory.path()).0, Some(0), "its own user's is believed");
    let everybodys = fs::Permissions::from_mode(0o777);
    fs::set_permissions(directory.path(), everybodys.clone()).unwrap();
    let (code, error) = message(directory.path());
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("others can write to") && error.contains("chmod go-w"), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");

    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can answer as another user");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    forge(directory.path().join("proxy-x.sock"), Some(1000));
    let (code, error) = message(directory.path());
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("user 1000 answers at"), "{error}");
    // Another user's folder in a directory that all users can write to.
    let directory = tempfile::tempdir().unwrap();
    forge(directory.path().join("proxy-x.sock"), None);
    chown(directory.path(), Some(1000), None).unwrap();
    let (code, error) = message(directory.path());
    assert!(code == Some(1) && error.contains("belongs to user 1000"), "{error}");
}

#[test]
fn a_service_opens_no_status_socket_in_an_untrusted_directory() {
    let place = tempfile::tempdir().unwrap();
    fs::set_permissions(place.path(), fs::Permissions::from_mode(0o1777)).unwrap();
    let config = configuration("socks = \"127.0.0.1:0\"\n[[channel]]\nserver = \"127.0.0.1:1\"\n");
    let mut proxy = sunder(["proxy".as_ref(), "--config".as_ref(), config.path().as_os_str()]);
    proxy.env("RUNTIME_DIRECTORY", place.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut proxy = proxy.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(proxy.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    // It stops regularly, and has logged whether it opened its status socket.
    kill_process(Pid::from_child(&proxy), Signal::TERM).unwrap();
    let mut log = String::new();
    proxy.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    proxy.wait().unwrap();
    let warning = log.lines().find(|line| line.contains("`sunder status` will not see this"));
    assert!(warning.is_some_and(|line| line.contains("others can write to")), "{log}");
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

/// With all limits raised, and with this system's crash handler.
#[test]
fn a_crash_writes_no_core_file() {
    let place = tempfile::tempdir().unwrap();
    let config = configuration("socks = \"127.0.0.1:0\"\n[[channel]]\nserver = \"127.0.0.1:1\"\n");
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -c unlimited; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_sunder")]);
    shell.args(["proxy".as_ref(), "--config".as_ref(), config.path().as_os_str()]);
    shell.current_dir(place.path()).env("RUNTIME_DIRECTORY", place.path());
    let mut proxy = shell.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(proxy.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on"), "{line}");
    kill_process(Pid::from_child(&proxy), Signal::ABORT).unwrap();
    let status = proxy.wait().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGABRT), "{status}");
    assert!(!status.core_dumped(), "{status}");
}

#[test]
fn status_shows_the_daemons_with_a_name() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["home", "office"] {
        forge(directory.path().join(format!("proxy-{name}.sock")), None);
    }
    let output = |name: &str| {
        let mut command = sunder(["status", name]);
        let output = command.env("RUNTIME_DIRECTORY", directory.path()).output().unwrap();
        let [page, error] =
            [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        (output.status.code().unwrap(), page, error)
    };
    assert!(output("proxy").1.contains("office") && output("proxy").1.contains("home"));
    for name in ["office", "proxy-office"] {
        let (code, page, _) = output(name);
        assert!(code == 0 && page.contains("office") && !page.contains("home"), "{page}");
    }
    let (code, page, error) = output("serve-office");
    assert!(code == 1 && page.is_empty(), "{page}");
    let all = "has the name serve-office: there are proxy-home, proxy-office";
    assert!(error.contains(all) && error.lines().count() == 1, "{error}");
}

#[test]
fn nothing_runs_here() {
    let directory = tempfile::tempdir().unwrap();
    let output = sunder(["status"]).env("RUNTIME_DIRECTORY", directory.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(message.contains("no daemon runs here: there is no status socket"), "{message}");
    assert_eq!(status_document(directory.path()), (1, Value::Array(Vec::new())));
}

/// The exit code and the document of `sunder status --json`.
fn status_document(directory: &Path) -> (i32, Value) {
    let mut command = sunder(["status", "--json"]);
    let output = command.env("RUNTIME_DIRECTORY", directory).output().unwrap();
    (output.status.code().unwrap(), serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn a_daemon_that_was_killed_or_hangs_is_an_entry_of_the_status() {
    let directory = tempfile::tempdir().unwrap();
    // One that was killed has left its socket, and one that hangs takes connections.
    drop(UnixListener::bind(directory.path().join("serve-killed.sock")).unwrap());
    let _hangs = UnixListener::bind(directory.path().join("mix-hangs.sock")).unwrap();
    let (code, document) = status_document(directory.path());
    let entry = |name: &str| {
        let found = document.as_array().unwrap().iter().find(|entry| entry["name"] == name);
        found.unwrap_or_else(|| panic!("{name} is not in {document}")).clone()
    };
    let [killed, hangs] = ["killed", "hangs"].map(entry);
    assert_eq!((code, &killed["kind"], &hangs["kind"]), (1, &json!("serve"), &json!("mix")));
    assert!(killed["error"].as_str().unwrap().contains("was killed"), "{killed}");
    assert!(hangs["error"].as_str().unwrap().contains("has not answered"), "{hangs}");
    // In words as well.
    let output = sunder(["status"]).env("RUNTIME_DIRECTORY", directory.path()).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert!(message.contains("serve killed: it was killed"), "{message}");
}

#[test]
fn sighup_reloads_the_configuration() {
    let web = web_server(b"hello".to_vec(), 5);
    let server = Service::server(2, &web.to_string());
    let mut proxy = Service::proxy(&server);
    // A stream that stays open during the reloads.
    let url = format!("http://{web}/");
    let mut held = TcpStream::connect(proxy.address(0)).unwrap();
    held.write_all(&[5, 1, 0]).unwrap();
    let mut method = [0; 2];
    held.read_exact(&mut method).unwrap();
    let mut request = vec![5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(web.port().to_be_bytes());
    held.write_all(&request).unwrap();
    held.read_exact(&mut [0; 10]).unwrap();

    let channels = server.channels();
    let first = proxy.address(0);
    proxy.rewrite(&format!("socks = \"{first}\"\n{channels}"));
    proxy.signal(Signal::HUP);
    // It was configured to listen on any port, which is not this port.
    proxy.wait_for("the configuration before stays in force: cannot listen on");
    let forward = format!("[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{web}\"\n");
    proxy.rewrite(&format!("socks = \"127.0.0.1:0\"\n{forward}{channels}"));
    proxy.signal(Signal::HUP);
    proxy.wait_for("the configuration was read again");
    proxy.read_listening(2);
    assert_eq!(proxy.address(0), first);
    let forward = proxy.address(1);
    assert_eq!(fetch(&proxy, &url), b"hello");
    let by_forward = format!("http://{forward}/");
    assert_eq!(fetched(&curl([by_forward.as_str()]).output().unwrap()), b"hello");

    proxy.rewrite("socks = 1\n");
    proxy.signal(Signal::HUP);
    let line = proxy.wait_for("the configuration before stays in force");
    assert!(line.contains("line 1: ") && line.contains("socks ="), "{line}");
    // The reloads did not affect the open stream.
    held.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    held.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("hello"), "{answer}");
}

/// A service manager may send it as soon as the process is there.
#[test]
fn a_sighup_while_the_configuration_is_read_first_does_not_end_a_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let config = directory.path().join("serve.toml");
    let made = Command::new("mkfifo").arg(&config).status().unwrap();
    assert!(made.success());
    let mut daemon = sunder(["serve", "--config", config.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It can be opened when the daemon reads it.
    let mut text = OpenOptions::new().write(true).open(&config).unwrap();
    kill_process(Pid::from_child(&daemon), Signal::HUP).unwrap();
    text.write_all(b"listen = [\"127.0.0.1:0\"]\nallow = []\n").unwrap();
    drop(text);
    let mut line = String::new();
    BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("listening on "), "{line:?}, {:?}", daemon.try_wait());
    daemon.kill().unwrap();
    daemon.wait().unwrap();
}
