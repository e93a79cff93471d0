//! The memory of the two processes for each open stream. `SUNDER_STREAMS=10000` opens that many
//! streams.

use std::fs;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use micss::target::ServiceTarget;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::task::JoinSet;

use super::processes::Service;

/// The default number of streams, if the limit of open files allows it.
const DEFAULT_STREAMS: u64 = 1000;

/// A request and its answer, in bytes.
const SHORT_LEN: usize = 1 << 10;

/// Enough in both directions for a stream to use its largest buffers, in bytes.
const LONG_LEN: usize = 64 << 10;

/// The maximum memory of a stream in each process, in KiB.
const MAX_KIB: u64 = 256;

/// The maximum of shares that all streams of a process keep until they are acknowledged, in KiB.
const MAX_KEPT_KIB: u64 = 64 << 10;

/// What the allocator may keep of a stream's memory that was given back, in KiB.
const MAX_FREED_KIB: u64 = 128;

/// The time limit until streams have released unneeded memory.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// The buffers of this test's own sockets, in bytes. They are small, because they are not measured.
const BUFFER_LEN: u32 = 16 << 10;

/// A process's resident memory in KiB.
fn resident_kib(service: &Service) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// Raises this process's limit of open files as far as possible, and returns it.
pub(super) fn allow_files() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile).maximum;
    let raised = Rlimit { current: limit, maximum: limit };
    setrlimit(Resource::Nofile, raised).unwrap();
    limit
}

/// The number of streams that this process's limit of open files allows.
fn allow_streams() -> u64 {
    let limit = allow_files();
    let asked = std::env::var("SUNDER_STREAMS").ok().map(|text| text.parse().unwrap());
    let wanted = asked.unwrap_or(DEFAULT_STREAMS);
    // A proxy needs one for the application and three for the channels.
    let streams = limit.map_or(wanted, |limit| wanted.min((limit - 1024) / 4));
    assert!(asked.is_none_or(|asked| asked == streams), "{limit:?} open files are not enough");
    streams
}

/// A service that echoes its input twice and then stops reading.
async fn answer_twice(listener: TcpListener) {
    let mut open = JoinSet::new();
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        open.spawn(async move {
            for len in [SHORT_LEN, LONG_LEN] {
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
    socket.set_recv_buffer_size(BUFFER_LEN).unwrap();
    socket.set_send_buffer_size(BUFFER_LEN).unwrap();
    socket
}

/// Opens a stream.
pub(super) async fn open(socks: SocketAddr, service: SocketAddr) -> TcpStream {
    let mut stream = small_socket().connect(socks).await.unwrap();
    let request = [&[5, 1, 0, 5, 1, 0][..], &ServiceTarget::address(service).encode()].concat();
    stream.write_all(&request).await.unwrap();
    let mut replies = [0; 12];
    stream.read_exact(&mut replies).await.unwrap();
    assert_eq!(replies[..4], [5, 0, 5, 0], "connected");
    stream
}

/// Sends bytes and waits until they have been echoed.
async fn exchange(stream: &mut TcpStream, len: usize) {
    let (mut bytes, sent) = (vec![0; len], vec![0x5A; len]);
    let (mut read, mut write) = stream.split();
    let (sending, receiving) = tokio::join!(write.write_all(&sent), read.read_exact(&mut bytes));
    sending.unwrap();
    receiving.unwrap();
    assert!(bytes == sent);
}

/// Writes to every stream until no bytes are accepted any more. The streams stay open as long as
/// the set.
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

/// Two processes and their memory before the streams.
struct Measured<'a> {
    processes: [&'a Service; 2],
    before: [u64; 2],
    streams: u64,
}

impl Measured<'_> {
    /// Checks the growth of both processes for each stream.
    async fn check(&self, state: &str, max_kib: u64) {
        let started = Instant::now();
        loop {
            let growth =
                [0, 1].map(|i| resident_kib(self.processes[i]).saturating_sub(self.before[i]));
            let [serve, proxy] = growth.map(|growth| growth / self.streams);
            if serve < max_kib && proxy < max_kib {
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
async fn the_memory_of_a_stream_is_bounded() {
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
        exchange(&mut stream, SHORT_LEN).await;
        open_streams.push(stream);
    }
    measured.check("open", MAX_KIB).await;
    for stream in &mut open_streams {
        exchange(stream, LONG_LEN).await;
    }
    measured.check("open, after 64 KiB both ways", MAX_KIB).await;
    let bulk = fill(open_streams).await;
    let kept = MAX_KEPT_KIB / streams;
    measured.check("in mid-transfer, blocked", MAX_KIB + MAX_FREED_KIB + kept).await;
    drop(bulk);
}
