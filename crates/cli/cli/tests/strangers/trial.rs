//! One attack on a server, with the effects on its honest clients and on the server.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fs, thread};

use micss::target::ServiceTarget;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::attack::{Attack, Attackers, Sources, TargetServer};
use crate::processes::{SERVE, Service, web_server};

/// The time limit for a request of an honest client.
const WAIT_TIMEOUT: Duration = Duration::from_secs(5);

/// The pause of an honest client between requests.
const REQUEST_PAUSE: Duration = Duration::from_millis(20);

/// The time limit until all attackers are active.
const BUILD_UP_TIMEOUT: Duration = Duration::from_secs(60);

/// The length of the service's answer, in bytes.
const ANSWER_LEN: usize = 1000;

/// The parameters of a trial.
pub(crate) struct Trial {
    pub(crate) attack: Attack,
    /// The number of attackers and of their addresses.
    pub(crate) attackers: usize,
    pub(crate) sources: Sources,
    /// The server's settings.
    pub(crate) settings: &'static str,
    /// The number of honest clients, each with its own address, and the duration of the
    /// measurement.
    pub(crate) clients: u8,
    pub(crate) time: Duration,
}

/// The results of a trial.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The duration of each honest request, or the error.
    pub(crate) requests: Vec<Result<Duration, String>>,
    /// The number of attempts of all attackers.
    pub(crate) tried: usize,
    /// The processor time of the server, per second and for each attempt.
    pub(crate) processor: f64,
    pub(crate) processor_ms_each: f64,
    pub(crate) rss_mib: f64,
    /// The peak memory of the server, and its growth during the attack.
    pub(crate) peak_mib: f64,
    pub(crate) growth_mib: f64,
    pub(crate) limits: Value,
}

impl Outcome {
    /// The errors of failed requests.
    pub(crate) fn failures(&self) -> Vec<&String> {
        self.requests.iter().filter_map(|request| request.as_ref().err()).collect()
    }

    /// The 95th percentile of the duration of requests, in ms.
    pub(crate) fn p95_ms(&self) -> f64 {
        let mut took: Vec<Duration> =
            self.requests.iter().filter_map(|request| request.as_ref().ok().copied()).collect();
        took.sort();
        let place = took.len() * 95 / 100;
        took.get(place).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
    }
}

/// A field of `/proc/PID/status` in MiB.
fn memory_mib(server: &Service, field: &str) -> f64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    let kib: f64 = line.trim_matches(&[':', ' ', '\t', 'k', 'B'][..]).parse().unwrap();
    kib / 1024.0
}

/// The processor time of a process so far, in seconds.
fn processor_s(server: &Service) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{}/stat", server.id())).unwrap();
    // After the name, which may contain any characters: the 14th and 15th field, in hundredths of a
    // second.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: Vec<f64> =
        fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse().unwrap()).collect();
    (ticks[0] + ticks[1]) / 100.0
}

/// One request of an honest client, over SOCKS5.
async fn request(proxy: SocketAddr, service: SocketAddr) -> Result<(), String> {
    let exchange = async {
        let mut stream = TcpStream::connect(proxy).await?;
        let wanted = [&[5, 1, 0, 5, 1, 0][..], &ServiceTarget::address(service).encode()].concat();
        stream.write_all(&wanted).await?;
        let mut replies = [0; 12];
        stream.read_exact(&mut replies).await?;
        if replies[3] != 0 {
            return Ok(Err(format!("refused with {}", replies[3])));
        }
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(if answer.len() > ANSWER_LEN {
            Ok(())
        } else {
            Err("short".into())
        })
    };
    match timeout(WAIT_TIMEOUT, exchange).await {
        Ok(result) => result.map_err(|error| error.to_string())?,
        Err(_) => Err("no answer in time".into()),
    }
}

/// Honest clients that make requests one after another, on their own thread.
fn honest(
    proxies: Vec<SocketAddr>,
    service: SocketAddr,
    time: Duration,
) -> Vec<Result<Duration, String>> {
    let client = async move |proxy| {
        let (begin, mut requests) = (Instant::now(), Vec::new());
        while begin.elapsed() < time || requests.is_empty() {
            let start = Instant::now();
            requests.push(request(proxy, service).await.map(|()| start.elapsed()));
            sleep(REQUEST_PAUSE).await;
        }
        requests
    };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut running = JoinSet::new();
        for proxy in proxies {
            running.spawn(async move { client(proxy).await });
        }
        running.join_all().await.concat()
    })
}

impl Trial {
    /// Runs the attack and measures its effects.
    pub(crate) fn run(&self) -> Outcome {
        allow_files();
        let service = web_server(vec![b'x'; ANSWER_LEN], ANSWER_LEN);
        let listen = match self.sources {
            Sources::Ipv4(_) => r#"listen = ["127.0.0.1:0", "127.0.0.2:0", "127.0.0.3:0"]"#,
            Sources::Ipv6(_) => r#"listen = ["[::1]:0", "[::1]:0", "[::1]:0"]"#,
        };
        let known = |line: &&str| {
            let is_new = ["max_channels", "max_memory_mib"].iter().any(|key| line.starts_with(key));
            !is_new || std::env::var_os(SERVE).is_none()
        };
        let settings: Vec<&str> = self.settings.lines().map(str::trim).filter(known).collect();
        let config = format!("{listen}\nallow = [\"{service}\"]\n{}\n", settings.join("\n"));
        let server = Service::start_logging("serve", &config, 3, "error");
        let channel = |i| {
            let address = server.address(i);
            format!("[[channel]]\nserver = \"{address}\"\nsource = \"SOURCE\"\n")
        };
        let channels = [0, 1, 2].map(channel).concat();
        let proxies: Vec<Service> = (1..=self.clients)
            .map(|client| {
                let channels = channels.replace("SOURCE", &self.sources.client(client).to_string());
                let config = format!("socks = \"127.0.0.1:0\"\n{channels}");
                Service::start_logging("proxy", &config, 1, "error")
            })
            .collect();
        let addresses: Vec<SocketAddr> = proxies.iter().map(|proxy| proxy.address(0)).collect();
        let warm = honest(addresses.clone(), service, Duration::ZERO);
        assert!(warm.iter().all(Result::is_ok), "without an attack: {warm:?}");
        let before = memory_mib(&server, "VmHWM");

        let target =
            TargetServer { addresses: (0..3).map(|i| server.address(i)).collect(), service };
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let attackers = runtime.block_on(async {
            Attackers::start(self.attack, self.attackers, self.sources, &target)
        });
        let begin = Instant::now();
        while !attackers.are_all_active() && begin.elapsed() < BUILD_UP_TIMEOUT {
            thread::sleep(Duration::from_millis(10));
        }
        let (start, used, tried) = (Instant::now(), processor_s(&server), attackers.tried());
        let requests = honest(addresses, service, self.time);
        let used = processor_s(&server) - used;
        let during = (attackers.tried() - tried).max(1);
        let status = server.try_status(&["--json"]).unwrap_or_default();
        let status: Value = serde_json::from_str(&status).unwrap_or_default();
        let peak_mib = memory_mib(&server, "VmHWM");
        #[expect(clippy::cast_precision_loss, reason = "attempts are few")]
        let outcome = Outcome {
            requests,
            tried: attackers.tried(),
            processor: used / start.elapsed().as_secs_f64(),
            processor_ms_each: used * 1e3 / during as f64,
            rss_mib: memory_mib(&server, "VmRSS"),
            peak_mib,
            growth_mib: peak_mib - before,
            limits: status[0]["limits"].clone(),
        };
        runtime.shutdown_background();
        outcome
    }
}

/// Raises this process's limit of open files.
fn allow_files() {
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).unwrap();
}
