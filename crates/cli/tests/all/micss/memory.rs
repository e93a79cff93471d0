//! How much memory each open stream costs the two processes. `SUNDER_STREAMS=10000` has so many of
//! them.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use micss::target::Target;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::processes::Service;

/// How many streams there are, if the environment says nothing and the system allows so many open
/// files.
const STREAMS: u64 = 1000;

/// A request and its answer, in bytes.
const LITTLE: usize = 1 << 10;

/// Enough in both directions for a stream to take its largest buffers, in bytes.
const MUCH: usize = 64 << 10;

/// The most that a stream may cost each process, in KiB.
const BOUND_KIB: u64 = 256;

/// How long streams may take to give back what they need no more.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);

/// The buffers of this test's own sockets, in bytes: what it does not measure need not be large.
const BUFFER: u32 = 16 << 10;

/// A process's resident memory in KiB.
fn resident_kib(service: &Service) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Raises this process's limit of open files; returns for how many streams it is enough.
fn allow_streams() -> u64 {
    let limit = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit { current: limit, maximum: limit };
    setrlimit(Resource::Nofile, raised).unwrap();
    let asked = std::env::var("SUNDER_STREAMS").ok().map(|text| text.parse().unwrap());
    let wanted = asked.unwrap_or(STREAMS);
    // A proxy needs one for the application and three for the channels.
    let streams = limit.map_or(wanted, |limit| wanted.min((limit - 1024) / 4));
    assert!(asked.is_none_or(|asked| asked == streams), "{limit:?} open files are not enough");
    streams
}

/// A service that answers twice with what it gets and then reads no more.
async fn answer_twice(listener: TcpListener) {
    let mut open = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        open.spawn(async move {
            for len in [LITTLE, MUCH] {
                let mut bytes = vec![0; len];
                stream.read_exact(&mut bytes).await.unwrap();
                stream.write_all(&bytes).await.unwrap();
            }
            std::future::pending::<()>().await;
            drop(stream);
        });
    }
}

fn small_socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(BUFFER).unwrap();
    socket.set_send_buffer_size(BUFFER).unwrap();
    socket
}

/// Opens a stream.
async fn open(socks: SocketAddr, service: SocketAddr) -> TcpStream {
    let mut stream = small_socket().connect(socks).await.unwrap();
    let request = [&[5, 1, 0, 5, 1, 0][..], &Target::address(service).encode()].concat();
    stream.write_all(&request).await.unwrap();
    let mut replies = [0; 12];
    stream.read_exact(&mut replies).await.unwrap();
    assert_eq!(replies[..4], [5, 0, 5, 0], "connected");
    stream
}

/// Sends so many bytes and waits until they have come back.
async fn exchange(stream: &mut TcpStream, len: usize) {
    let (mut bytes, sent) = (vec![0; len], vec![0x5A; len]);
    let (mut read, mut write) = stream.split();
    let (sending, receiving) = tokio::join!(write.write_all(&sent), read.read_exact(&mut bytes));
    sending.unwrap();
    receiving.unwrap();
    assert!(bytes == sent);
}

/// Writes on every stream until nothing moves any more. The streams stay open as long as the set.
async fn fill(streams: Vec<TcpStream>) -> JoinSet<()> {
    let written = Arc::new(AtomicU64::new(0));
    let mut writing = JoinSet::new();
    for mut stream in streams {
        let written = Arc::clone(&written);
        writing.spawn(async move {
            let bytes = vec![0x5A; 16 << 10];
            while let Ok(len) = stream.write(&bytes).await {
                written.fetch_add(len as u64, Ordering::Relaxed);
            }
        });
    }
    let mut before = 0;
    loop {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = written.load(Ordering::Relaxed);
        if now == before {
            return writing;
        }
        before = now;
    }
}

/// Two processes and what they had before there were streams.
struct Measured<'a> {
    processes: [&'a Service; 2],
    before: [u64; 2],
    streams: u64,
}

impl Measured<'_> {
    /// The growth of both processes for each stream must come within the bound.
    async fn check(&self, state: &str) {
        let started = Instant::now();
        loop {
            let growth =
                [0, 1].map(|i| resident_kib(self.processes[i]).saturating_sub(self.before[i]));
            let [serve, proxy] = growth.map(|growth| growth / self.streams);
            if serve < BOUND_KIB && proxy < BOUND_KIB {
                println!(
                    "{} streams, {state}: serve {serve} KiB each, proxy {proxy} KiB",
                    self.streams
                );
                return;
            }
            assert!(started.elapsed() < WAIT_TIMEOUT, "{state}: {serve} and {proxy} KiB a stream");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_costs_little_memory() {
    let streams = allow_streams();
    let listener = small_socket();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(1024).unwrap();
    let service = listener.local_addr().unwrap();
    let _service = tokio::spawn(answer_twice(listener));
    let most = format!("max_streams = {}\n", streams + 1);
    let places = "max_waiting = 256\n";
    let listen = "listen = [\"127.0.0.1:0\", \"127.0.0.2:0\", \"127.0.0.3:0\"]";
    let server =
        Service::start("serve", &format!("{most}{places}{listen}\nallow = [\"{service}\"]\n"), 3);
    let config = format!("{most}socks = \"127.0.0.1:0\"\n{}", server.channels());
    let proxy = Service::start("proxy", &config, 1);
    let socks = proxy.address(0);
    let processes = [&server, &proxy];
    let measured = Measured { processes, before: processes.map(resident_kib), streams };

    let mut open_streams = Vec::new();
    for _ in 0..streams {
        let mut stream = open(socks, service).await;
        exchange(&mut stream, LITTLE).await;
        open_streams.push(stream);
    }
    measured.check("open").await;
    for stream in &mut open_streams {
        exchange(stream, MUCH).await;
    }
    measured.check("open, after 64 KiB both ways").await;
    let bulk = fill(open_streams).await;
    measured.check("in mid-transfer, blocked").await;
    drop(bulk);
}
