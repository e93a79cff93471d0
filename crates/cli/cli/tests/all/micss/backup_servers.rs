//! A proxy with several servers: new streams leave a server that is gone, and return to it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::processes::Service;

/// The time within which new streams use the next server: 5 s on an idle machine.
const SWITCH_LIMIT: Duration = Duration::from_secs(60);

/// A service that sends its name, and then what it receives.
fn named_echo(name: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                stream.write_all(name.as_bytes())?;
                std::io::copy(&mut stream.try_clone()?, &mut stream)
            });
        }
    });
    address
}

/// A server on loopback addresses that begin with 127.0.`net`. Both servers allow the service of a
/// name by another address, so that a stream shows which of them has carried it.
fn server_at(listen: &[String], allow: &str) -> Service {
    let text = format!("listen = [\"{}\"]\nallow = [\"{allow}\"]\n", listen.join("\", \""));
    Service::start("serve", &text, listen.len())
}

/// The status of a proxy's servers: whether each is used, and whether it is gone.
fn servers(proxy: &Service) -> Vec<(bool, bool)> {
    let status: Value = serde_json::from_str(&proxy.status(&["--json"])).unwrap();
    let servers = status[0]["servers"].as_array().unwrap();
    servers.iter().map(|it| (it["is_used"] == true, !it["gone"].is_null())).collect()
}

/// Waits until a condition holds.
fn wait_until(what: &str, limit: Duration, is: impl Fn() -> bool) {
    let deadline = Instant::now() + limit;
    while !is() {
        assert!(Instant::now() < deadline, "{what}: not within {limit:?}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A stream through a forward, after the first bytes have arrived.
fn stream(forward: SocketAddr) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(forward).ok()?;
    stream.set_read_timeout(Some(SWITCH_LIMIT)).ok()?;
    stream.read_exact(&mut [0; 4]).ok()?;
    Some(stream)
}

fn echoes(stream: &mut TcpStream) -> bool {
    let mut heard = [0; 5];
    stream.write_all(b"still").and_then(|()| stream.read_exact(&mut heard)).is_ok()
        && &heard == b"still"
}

#[test]
fn new_streams_use_the_next_server_and_return() {
    let service = named_echo("here");
    let target = service.to_string();
    let any = |net: u8| (1..=2).map(|host| format!("127.0.{net}.{host}:0")).collect::<Vec<_>>();
    let mut first = server_at(&any(1), &target);
    let second = server_at(&any(2), &target);
    let backup = second.channels().replace("[[channel]]", "[[backup_server.channel]]");
    let config = format!(
        "switch_back_after_s = 2\n[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n\
         {}[[backup_server]]\n{backup}",
        first.channels()
    );
    let proxy = Service::start("proxy", &config, 1);
    let forward = proxy.address(0);
    assert!(stream(forward).is_some());
    first.wait_for("stream opened");
    assert_eq!(servers(&proxy), [(true, false), (false, false)]);

    // The first server's program ends.
    let listen = first.listening.clone();
    first.signal(Signal::KILL);
    first.wait();
    wait_until("a stream at the backup", SWITCH_LIMIT, || stream(forward).is_some());
    second.wait_for("stream opened");
    let line = proxy.wait_for("new streams use server 2");
    assert!(line.contains("server 1 (127.0.1.1:") && line.contains("is gone: "), "{line}");
    assert_eq!(servers(&proxy), [(false, true), (true, false)]);
    let page = proxy.status(&[]);
    assert!(page.contains("USED by new streams for") && page.contains("GONE: "), "{page}");
    let metrics = proxy.status(&["--metrics"]);
    for (metric, value) in [("used", 0), ("works", 0)] {
        let name = format!("sunder_server_{metric}{{");
        let line = metrics.lines().find(|line| line.starts_with(&name)).unwrap();
        assert!(line.ends_with(&format!("server=\"1\"}} {value}")), "{line}");
    }
    let mut open = stream(forward).unwrap();

    // The first server is back. Open streams stay at the second one.
    let first = server_at(&listen, &target);
    let line = proxy.wait_for("new streams use it again");
    assert!(line.contains("server 1 (127.0.1.1:") && line.contains("worked for 2 s"), "{line}");
    assert_eq!(servers(&proxy), [(true, false), (false, false)]);
    assert!(stream(forward).is_some());
    first.wait_for("stream opened");
    assert!(echoes(&mut open));
}

/// Channels are spare if they belong to a backup server at the same host.
#[test]
fn a_spare_channel_is_a_backup_server_at_the_same_host() {
    let service = named_echo("here");
    let target = service.to_string();
    let listen: Vec<String> = (1..=3).map(|host| format!("127.0.3.{host}:0")).collect();
    let server = server_at(&listen, &target);
    let relay = Relay::to(server.address(1));
    let channel =
        |table: &str, address: SocketAddr| format!("[[{table}]]\nserver = \"{address}\"\n");
    let own = [server.address(0), relay.address].map(|address| channel("channel", address));
    let spare = [server.address(0), server.address(2)]
        .map(|address| channel("backup_server.channel", address));
    let config = format!(
        "[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{target}\"\n{}[[backup_server]]\n{}",
        own.concat(),
        spare.concat()
    );
    let proxy = Service::start("proxy", &config, 1);
    assert!(stream(proxy.address(0)).is_some());
    drop(relay);
    wait_until("a stream on the spare channel", SWITCH_LIMIT, || {
        stream(proxy.address(0)).is_some()
    });
    let line = proxy.wait_for("new streams use server 2");
    assert!(line.contains("channel 2"), "{line}");
}

/// Forwards connections until it is dropped.
struct Relay {
    address: SocketAddr,
    program: Child,
}

impl Relay {
    fn to(server: SocketAddr) -> Self {
        let script = format!(
            "import socket, threading\n\
             def move(a, b):\n\
             \x20try:\n\
             \x20 while data := a.recv(65536): b.sendall(data)\n\
             \x20except OSError: pass\n\
             \x20for s in (a, b): s.close()\n\
             listener = socket.create_server(('127.0.0.1', 0))\n\
             print('%s:%d' % listener.getsockname(), flush=True)\n\
             while True:\n\
             \x20a, _ = listener.accept(); b = socket.create_connection(('{}', {}))\n\
             \x20for pair in ((a, b), (b, a)): threading.Thread(target=move, args=pair).start()\n",
            server.ip(),
            server.port()
        );
        let mut command = Command::new("python3");
        let mut program = command.arg("-c").arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(program.stdout.take().unwrap()).read_line(&mut address).unwrap();
        Self { address: address.trim().parse().unwrap(), program }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[test]
fn a_backup_needs_a_first_server() {
    let file = super::service::configuration(
        "socks = \"127.0.0.1:0\"\n[[peer]]\naddresses = [\"192.0.2.1\"]\n\
         [[peer.channel]]\nserver = \"192.0.2.1:1\"\n\
         [[backup_server]]\n[[backup_server.channel]]\nserver = \"192.0.2.2:1\"\n",
    );
    let path = file.path().to_str().unwrap();
    let output = super::processes::sunder(["proxy", "--config", path]).output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("a backup_server without a first server: add the"), "{message}");
}
