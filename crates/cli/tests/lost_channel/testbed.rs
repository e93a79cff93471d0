//! A client and a server with three channels between them, a service behind the server, and
//! applications.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lab::{Conditions, Direction, Host, Network, Trial, TrialContext, sandbox};
use micss::status::{Channel, Status};
use tempfile::TempDir;

/// Three channels of 100 Mbit/s.
pub(crate) const TOPOLOGY: &str = r#"
measure = { driver = "accuracy", values = {} }
[hosts.client]
[hosts.server]
[links.a]
hosts = ["client", "server"]
both = { rate_mbit = 100, delay_ms = 2 }
[links.b]
hosts = ["client", "server"]
both = { rate_mbit = 100, delay_ms = 4 }
[links.c]
hosts = ["client", "server"]
both = { rate_mbit = 100, delay_ms = 6 }
"#;

/// The channels' links, in their order.
pub(crate) const LINKS: [&str; 3] = ["a", "b", "c"];

/// The link of the channel that faults are about: channel 2.
pub(crate) const FAULTY: &str = "b";

/// The settings of a client that makes no connections in advance.
pub(crate) const NO_POOL: &str = "[pool]\nsize = 0\nkeep = 0\n";

/// How long something may take that has no time of its own.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// How often it is looked whether something has happened.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until something has happened. Returns when it was seen.
pub(crate) fn until(what: &str, mut has_happened: impl FnMut() -> bool) -> Instant {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    while !has_happened() {
        assert!(Instant::now() < deadline, "not within {WAIT_TIMEOUT:?}: {what}");
        thread::sleep(POLL_INTERVAL);
    }
    Instant::now()
}

/// An end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Client,
    Server,
}

impl End {
    pub(crate) const BOTH: [Self; 2] = [Self::Client, Self::Server];

    pub(crate) fn host(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Server => "server",
        }
    }

    fn command(self) -> &'static str {
        match self {
            Self::Client => "proxy",
            Self::Server => "serve",
        }
    }
}

/// Hosts, links, and both ends of streams.
pub(crate) struct Testbed {
    // First: they are killed before their hosts go.
    ends: [Option<Process>; 2],
    network: Network,
    place: TempDir,
    socks: SocketAddr,
    service: SocketAddr,
}

struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // SIGKILL.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What the service does with a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Service {
    /// Says something every 20 ms.
    Speaks,
    /// Says as much as is taken.
    Pours,
    /// Does not read.
    Waits,
}

impl Testbed {
    /// Starts both ends, with these settings of the top level of either; the client's may be
    /// [`NO_POOL`].
    pub(crate) fn start(topology: &str, [proxy, serve]: [&str; 2], service: Service) -> Self {
        // A table stands behind the channels.
        let (proxy, pool) = if proxy == NO_POOL { ("", NO_POOL) } else { (proxy, "") };
        let place = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        let trial: Trial = toml::from_str(topology).unwrap();
        let (files, results) = (Path::new("/"), Path::new("/"));
        let network =
            Network::new(&trial, TrialContext { seed: 1, files, results, number: 1 }).unwrap();
        let address =
            |link: &str| SocketAddr::new(network.address("server", link).unwrap().into(), 7000);
        let service = start_service(network.host("server").unwrap(), service);
        let listen: Vec<String> = LINKS.iter().map(|l| format!("\"{}\"", address(l))).collect();
        let text = format!("listen = [{}]\nallow = [\"{service}\"]\n{serve}\n", listen.join(", "));
        fs::write(place.path().join("serve.toml"), text).unwrap();
        let channel = |link: &&'static str| {
            format!("[[channel]]\nserver = \"{}\"\ndevice = \"{link}\"\n", address(link))
        };
        let channels: String = LINKS.iter().map(channel).collect();
        let text = format!("socks = \"127.0.0.1:1080\"\n{proxy}\n{channels}{pool}");
        fs::write(place.path().join("proxy.toml"), text).unwrap();
        let socks = SocketAddr::from(([127, 0, 0, 1], 1080));
        let mut testbed = Self { ends: [None, None], network, place, socks, service };
        testbed.start_end(End::Server);
        testbed.start_end(End::Client);
        testbed
    }

    /// Starts an end, and waits until it listens.
    pub(crate) fn start_end(&mut self, end: End) {
        let (name, directory) = (end.command(), self.directory(end));
        fs::create_dir_all(&directory).unwrap();
        let log = File::create(self.log_file(end)).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command
            .arg(name)
            .arg("--config")
            .arg(self.place.path().join(format!("{name}.toml")))
            .env("RUNTIME_DIRECTORY", &directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        let child = self.host(end).run(|| command.spawn()).unwrap().unwrap();
        self.ends[end as usize] = Some(Process(child));
        until("it listens", || self.log(end).contains("listening on"));
        until("it tells its status", || self.status(end).is_some());
    }

    /// Kills an end.
    pub(crate) fn kill(&mut self, end: End) {
        self.ends[end as usize] = None;
    }

    pub(crate) fn host(&self, end: End) -> &Host {
        self.network.host(end.host()).unwrap()
    }

    /// Runs a program at an end.
    pub(crate) fn run(&self, end: End, program: &str, arguments: &str) {
        let mut command = Command::new(program);
        command.args(arguments.split(' ')).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = self.host(end).run(|| command.output()).unwrap().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments}: {said}");
    }

    /// Has a link lose everything in these directions, or nothing any more.
    pub(crate) fn cut(&self, link: &str, directions: &[Direction], is_cut: bool) {
        for &direction in directions {
            let usual = self.network.conditions(link, direction).unwrap();
            let loss = if is_cut { 1.0 } else { usual.loss };
            let link = self.network.link(link).unwrap();
            link.set(direction, Conditions { loss, ..usual }).unwrap();
        }
    }

    fn directory(&self, end: End) -> PathBuf {
        self.place.path().join(end.host())
    }

    fn log_file(&self, end: End) -> PathBuf {
        self.place.path().join(format!("{}.log", end.host()))
    }

    /// What an end has said since it was started.
    pub(crate) fn log(&self, end: End) -> String {
        fs::read_to_string(self.log_file(end)).unwrap()
    }

    /// What an end tells of itself, if it does.
    pub(crate) fn status(&self, end: End) -> Option<Status> {
        let name = end.command();
        let socket = self.directory(end).join(format!("{name}-{name}.sock"));
        let mut text = String::new();
        UnixStream::connect(socket).ok()?.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The same of a channel.
    pub(crate) fn channel(&self, end: End, place: usize) -> Option<Channel> {
        self.status(end).map(|mut status| status.channels.swap_remove(place))
    }

    /// What `sunder status` prints of an end.
    pub(crate) fn page(&self, end: End, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("status").args(arguments).env("RUNTIME_DIRECTORY", self.directory(end));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    /// Asks the proxy for a stream to the service. Returns its answer: 0 if the stream is there.
    pub(crate) fn ask(&self) -> (TcpStream, u8) {
        let (socks, service) = (self.socks, self.service);
        self.host(End::Client).run(move || ask(socks, service)).unwrap().unwrap()
    }

    /// Begins a download, which is there when its first bytes are.
    pub(crate) fn download(&self) -> Download {
        let download = Download::of(self.ask());
        until("the download begins", || download.bytes() > 0);
        download
    }
}

fn ask(socks: SocketAddr, service: SocketAddr) -> io::Result<(TcpStream, u8)> {
    let mut stream = TcpStream::connect(socks)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let SocketAddr::V4(service) = service else { unreachable!("it is at 127.0.0.1") };
    let mut request = vec![5, 1, 0, 5, 1, 0, 1];
    request.extend(service.ip().octets());
    request.extend(service.port().to_be_bytes());
    stream.write_all(&request)?;
    let mut answers = [0; 12];
    stream.read_exact(&mut answers)?;
    stream.set_read_timeout(None)?;
    Ok((stream, answers[3]))
}

/// What a service has said so far, of bytes that tell where they are.
fn piece(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

fn start_service(host: &Host, service: Service) -> SocketAddr {
    let listener = host.run(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || serve(stream, service));
        }
    });
    address
}

/// Who does not want it any more breaks off.
fn serve(mut stream: TcpStream, service: Service) {
    let (pause, len) = match service {
        Service::Speaks => (Duration::from_millis(20), 10_000),
        Service::Pours => (Duration::ZERO, 100_000),
        Service::Waits => loop {
            thread::sleep(Duration::from_secs(600));
        },
    };
    let mut at = 0;
    while stream.write_all(&piece(at, len)).is_ok() {
        at += len as u64;
        thread::sleep(pause);
    }
}

/// An application that reads.
pub(crate) struct Download {
    state: Arc<Mutex<State>>,
}

struct State {
    bytes: u64,
    last: Instant,
    end: Option<(Instant, String)>,
}

impl Download {
    /// Reads what a stream brings, which must have been opened.
    pub(crate) fn of((mut stream, code): (TcpStream, u8)) -> Self {
        assert_eq!(code, 0, "the stream is opened");
        let state = Arc::new(Mutex::new(State { bytes: 0, last: Instant::now(), end: None }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let mut bytes = [0; 10_000];
            loop {
                let read = stream.read(&mut bytes);
                let mut state = shared.lock().unwrap();
                match read {
                    Ok(len @ 1..) => {
                        assert!(bytes[..len] == piece(state.bytes, len)[..], "another byte");
                        state.bytes += len as u64;
                        state.last = Instant::now();
                    }
                    Ok(_) => return state.end = Some((Instant::now(), "an end".into())),
                    Err(error) => {
                        return state.end = Some((Instant::now(), error.kind().to_string()));
                    }
                }
            }
        });
        Self { state }
    }

    /// How much has come.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().unwrap().bytes
    }

    /// When the last byte has come.
    pub(crate) fn last(&self) -> Instant {
        self.state.lock().unwrap().last
    }

    /// When and how it ended, if it did.
    pub(crate) fn end(&self) -> Option<(Instant, String)> {
        self.state.lock().unwrap().end.clone()
    }
}
