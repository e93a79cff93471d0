//! A client and a server with three channels between them, a service behind the server, and
//! applications.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lab::{EmulatedHost, EmulatedLinkConditions, EmulatedNetwork, LinkDirection, sandbox};
use micss::status::{MicssStatus, StreamChannelStatus};
use tempfile::TempDir;

pub(crate) use crate::emulation::until;
use crate::emulation::{Process, network};
use crate::interruption::uninterrupted;
use crate::slow::{Lines, write_lines};

/// Three channels of 100 Mbit/s.
pub(crate) const TOPOLOGY: &str = include_str!("../emulation/three_links.toml");

/// The links of the channels, in their order.
pub(crate) const LINKS: [&str; 3] = ["a", "b", "c"];

/// The link of the channel with faults: channel 2.
pub(crate) const FAULTY: &str = "b";

/// The settings of a client without ready connections.
pub(crate) const NO_POOL: &str = "[pool]\nsize = 0\nkeep = 0\n";

/// An end of the streams.
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

/// The hosts, the links, and both ends of the streams.
pub(crate) struct Testbed {
    // First, because they must be killed before their hosts vanish.
    ends: [Option<Process>; 2],
    network: EmulatedNetwork,
    place: TempDir,
    socks: SocketAddr,
    service: SocketAddr,
}

/// How the service treats a connection.
#[derive(Clone, Debug)]
pub(crate) enum Service {
    /// Sends some bytes every 20 ms.
    Speaks,
    /// Sends as much as the connection takes.
    Pours,
    /// Does not read.
    Waits,
    /// Sends a line at this interval.
    Writes(Duration),
    /// Reads lines, and notes how long they took.
    Notes(Arc<Lines>),
    /// Sends back what it reads.
    Echoes,
}

impl Testbed {
    /// Starts both ends with these additional top-level settings. The client's may be [`NO_POOL`],
    /// and `<a>` in it is the server's address on link a.
    pub(crate) fn start(topology: &str, [proxy, serve]: [&str; 2], service: Service) -> Self {
        // A TOML table must follow the channels.
        let (proxy, pool) = if proxy == NO_POOL { ("", NO_POOL) } else { (proxy, "") };
        let place = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        let network = network(topology, Path::new("/"));
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
        let replaced = |text: String, link: &&str| {
            text.replace(&format!("<{link}>"), &address(link).to_string())
        };
        let proxy = LINKS.iter().fold(proxy.to_owned(), replaced);
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command
            .arg(name)
            .arg("--config")
            .arg(self.place.path().join(format!("{name}.toml")))
            .env("RUNTIME_DIRECTORY", &directory);
        let process = Process::start(self.host(end), &mut command, &self.log_file(end));
        self.ends[end as usize] = Some(process);
        until("it listens", || self.log(end).contains("listening on"));
        until("it tells its status", || self.status(end).is_some());
    }

    /// Kills an end.
    pub(crate) fn kill(&mut self, end: End) {
        self.ends[end as usize] = None;
    }

    pub(crate) fn host(&self, end: End) -> &EmulatedHost {
        self.network.host(end.host()).unwrap()
    }

    /// Runs a program on an end's host.
    pub(crate) fn run(&self, end: End, program: &str, arguments: &str) {
        let mut command = Command::new(program);
        command.args(arguments.split(' ')).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
        let output = self.host(end).run(|| command.output()).unwrap().unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {arguments}: {message}");
    }

    /// Makes a link lose all packets in these directions, or restores it.
    pub(crate) fn cut(&self, link: &str, directions: &[LinkDirection], is_cut: bool) {
        for &direction in directions {
            let usual = self.network.conditions(link, direction).unwrap();
            let loss = if is_cut { 1.0 } else { usual.loss };
            let link = self.network.link(link).unwrap();
            link.set(direction, EmulatedLinkConditions { loss, ..usual }).unwrap();
        }
    }

    fn directory(&self, end: End) -> PathBuf {
        self.place.path().join(end.host())
    }

    fn log_file(&self, end: End) -> PathBuf {
        self.place.path().join(format!("{}.log", end.host()))
    }

    /// The log of an end since its last start.
    pub(crate) fn log(&self, end: End) -> String {
        fs::read_to_string(self.log_file(end)).unwrap()
    }

    /// The status of an end, if it answers.
    pub(crate) fn status(&self, end: End) -> Option<MicssStatus> {
        let name = end.command();
        let socket = self.directory(end).join(format!("{name}-{name}.sock"));
        let mut text = String::new();
        UnixStream::connect(socket).ok()?.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// The status of one of its channels.
    pub(crate) fn channel(&self, end: End, place: usize) -> Option<StreamChannelStatus> {
        self.status(end).map(|mut status| status.channels.swap_remove(place))
    }

    /// The output of `sunder status` for an end.
    pub(crate) fn page(&self, end: End, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("status").args(arguments).env("RUNTIME_DIRECTORY", self.directory(end));
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    }

    /// Requests a stream to the service from the proxy. Returns the SOCKS5 reply code: 0 if it is
    /// open.
    pub(crate) fn ask(&self) -> (TcpStream, u8) {
        let (socks, service) = (self.socks, self.service);
        self.host(End::Client).run(move || ask(socks, service)).unwrap().unwrap()
    }

    /// Begins a download, and waits for its first bytes.
    pub(crate) fn download(&self) -> Download {
        let download = Download::of(self.ask());
        until("the download begins", || download.bytes() > 0);
        download
    }

    /// Begins a download during which the application writes as well, until the second result is
    /// dropped. So both ends have sent data that is not acknowledged when a fault begins.
    pub(crate) fn conversation(&self) -> (Download, AppWriter) {
        let (stream, code) = self.ask();
        let writer = AppWriter::start(stream.try_clone().unwrap());
        let download = Download::of((stream, code));
        until("the download begins", || download.bytes() > 0);
        (download, writer)
    }
}

/// An application's thread that writes a byte every millisecond. It must be dropped before the
/// stream ends: a write would take the error for which a reader waits.
pub(crate) struct AppWriter {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl AppWriter {
    fn start(mut stream: TcpStream) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !is_stopped.load(Ordering::Relaxed) && stream.write_all(b".").is_ok() {
                thread::sleep(Duration::from_millis(1));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for AppWriter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().map(thread::JoinHandle::join);
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

/// Bytes of the service's output, which depend on their position.
fn piece(at: u64, len: usize) -> Vec<u8> {
    (at..at + len as u64).map(|i| u8::try_from(i % 251).unwrap()).collect()
}

fn start_service(host: &EmulatedHost, service: Service) -> SocketAddr {
    let listener = host.run(|| TcpListener::bind("127.0.0.1:0")).unwrap().unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let service = service.clone();
            thread::spawn(move || serve(stream, service));
        }
    });
    address
}

/// Ends when the client disconnects.
fn serve(mut stream: TcpStream, service: Service) {
    let (pause, len) = match service {
        Service::Speaks => (Duration::from_millis(20), 10_000),
        Service::Pours => (Duration::ZERO, 100_000),
        Service::Waits => loop {
            thread::sleep(Duration::from_secs(600));
        },
        Service::Writes(interval) => return write_lines(&mut stream, interval),
        Service::Notes(lines) => return lines.read_all(&mut stream),
        Service::Echoes => {
            let mut back = stream.try_clone().unwrap();
            let _ = io::copy(&mut stream, &mut back);
            return;
        }
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
    /// Reads from a stream, which must be open.
    pub(crate) fn of((mut stream, code): (TcpStream, u8)) -> Self {
        assert_eq!(code, 0, "the stream is opened");
        let state = Arc::new(Mutex::new(State { bytes: 0, last: Instant::now(), end: None }));
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            let mut bytes = [0; 10_000];
            loop {
                let read = uninterrupted(|| stream.read(&mut bytes));
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

    /// The number of bytes received.
    pub(crate) fn bytes(&self) -> u64 {
        self.state.lock().unwrap().bytes
    }

    /// The time of the last received byte.
    pub(crate) fn last(&self) -> Instant {
        self.state.lock().unwrap().last
    }

    /// The time and the reason of the end, if it has ended.
    pub(crate) fn end(&self) -> Option<(Instant, String)> {
        self.state.lock().unwrap().end.clone()
    }
}
