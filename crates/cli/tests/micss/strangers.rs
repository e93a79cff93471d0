//! Strangers attack a server from one address and from many, while honest clients make requests.
//!
//! A small form of each attack is a test. All of it, with a table:
//!
//! ```text
//! SUNDER_STRANGERS=10 cargo test --release -p cli --test micss strangers -- --nocapture
//! ```
//!
//! where 10 is for how many seconds each is measured. With `SUNDER_SERVE=PATH` the server is another `sunder`,
//! as one of before.

mod attack;

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{fs, thread};

use micss::target::Target;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use self::attack::{Attack, Attackers, Victim};
use crate::processes::{Service, is_another_server, web_server};

/// How long a request of an honest client may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long an honest client waits between two requests.
const PAUSE: Duration = Duration::from_millis(20);

/// How long attackers may take until they are as many as they want to be.
const BUILD_UP: Duration = Duration::from_secs(20);

/// The answer of the service, in bytes.
const ANSWER: usize = 1000;

/// What is tried.
struct Trial {
    attack: Attack,
    /// How many attackers there are, and at how many addresses.
    attackers: usize,
    sources: usize,
    /// The server's settings.
    settings: &'static str,
    /// How many honest clients there are, each at an address of its own, and for how long they are watched.
    clients: u8,
    time: Duration,
}

/// What came of it.
#[derive(Debug)]
struct Outcome {
    /// How long each honest request took, or that it failed, with the reason.
    requests: Vec<Result<Duration, String>>,
    /// What the attackers have done, all in all.
    tried: usize,
    /// What the server's processor time was, per second, and for each attempt.
    processor: f64,
    processor_ms_each: f64,
    rss_mib: f64,
    /// The most that it was, and how much more than before the attack.
    peak_mib: f64,
    growth_mib: f64,
    limits: Value,
}

impl Outcome {
    fn failures(&self) -> Vec<&String> {
        self.requests.iter().filter_map(|request| request.as_ref().err()).collect()
    }

    /// The time in ms that all but 5 % take less than.
    fn p95_ms(&self) -> f64 {
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
    // Behind the name, which may have anything in it: the 14th and 15th field, in hundredths of a second.
    let (_, fields) = stat.rsplit_once(") ").unwrap();
    let ticks: Vec<f64> =
        fields.split(' ').skip(11).take(2).map(|ticks| ticks.parse().unwrap()).collect();
    (ticks[0] + ticks[1]) / 100.0
}

/// One request of an honest client, over SOCKS5.
async fn request(proxy: SocketAddr, service: SocketAddr) -> Result<(), String> {
    let exchange = async {
        let mut stream = TcpStream::connect(proxy).await?;
        let wanted = [&[5, 1, 0, 5, 1, 0][..], &Target::address(service).encode()].concat();
        stream.write_all(&wanted).await?;
        let mut replies = [0; 12];
        stream.read_exact(&mut replies).await?;
        if replies[3] != 0 {
            return Ok(Err(format!("refused with {}", replies[3])));
        }
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok::<_, std::io::Error>(if answer.len() > ANSWER { Ok(()) } else { Err("short".into()) })
    };
    match timeout(PATIENCE, exchange).await {
        Ok(result) => result.map_err(|error| error.to_string())?,
        Err(_) => Err("no answer in time".into()),
    }
}

/// Honest clients that make requests one after another, on a thread of their own.
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
            sleep(PAUSE).await;
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
    fn run(&self) -> Outcome {
        allow_files();
        let service = web_server(vec![b'x'; ANSWER], ANSWER);
        let listen = "listen = [\"127.0.0.1:0\", \"127.0.0.2:0\", \"127.0.0.3:0\"]";
        let known = |line: &&str| {
            let is_new = ["max_channels", "max_memory_mib"].iter().any(|key| line.starts_with(key));
            !is_new || !is_another_server()
        };
        let settings: Vec<&str> = self.settings.lines().map(str::trim).filter(known).collect();
        let config = format!("{listen}\nallow = [\"{service}\"]\n{}\n", settings.join("\n"));
        let server = Service::start_logging("serve", &config, 3, "error");
        let proxies: Vec<Service> = (1..=self.clients)
            .map(|client| {
                let source = format!("source = \"127.2.0.{client}\"\n[[channel]]\n");
                let channels = server.channels().replace("[[channel]]\n", &source);
                let (_, channels) = channels.split_once("[[channel]]\n").unwrap();
                let last = format!("source = \"127.2.0.{client}\"\n");
                let config = format!("socks = \"127.0.0.1:0\"\n[[channel]]\n{channels}{last}");
                Service::start_logging("proxy", &config, 1, "error")
            })
            .collect();
        let addresses: Vec<SocketAddr> = proxies.iter().map(|proxy| proxy.address(0)).collect();
        let warm = honest(addresses.clone(), service, Duration::ZERO);
        assert!(warm.iter().all(Result::is_ok), "without an attack: {warm:?}");
        let before = memory_mib(&server, "VmHWM");

        let victim = Victim { addresses: (0..3).map(|i| server.address(i)).collect(), service };
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let attackers = runtime.block_on(async {
            Attackers::start(self.attack, self.attackers, self.sources, &victim)
        });
        let begin = Instant::now();
        while !attackers.are_at_full_strength() && begin.elapsed() < BUILD_UP {
            thread::sleep(Duration::from_millis(10));
        }
        let (start, used, tried) = (Instant::now(), processor_s(&server), attackers.tried());
        let requests = honest(addresses, service, self.time);
        let used = processor_s(&server) - used;
        let during = (attackers.tried() - tried).max(1);
        let status = server.status(&["--json"]);
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

/// A server with few places for streams, and more attackers than that.
fn small(attack: Attack, attackers: usize, sources: usize) -> Trial {
    let settings = "max_streams = 64\nmax_waiting = 4096\nmax_channels = 16\nmax_memory_mib = 16";
    let time = Duration::from_millis(1500);
    Trial { attack, attackers, sources, settings, clients: 1, time }
}

fn assert_all_served(outcome: &Outcome) {
    let failures = outcome.failures();
    let all = outcome.requests.len();
    assert!(failures.is_empty(), "{} of {all} failed: {failures:?}", failures.len());
}

/// That the status says that something has happened.
fn assert_counted(outcome: &Outcome, what: &str) {
    assert!(outcome.limits[what].as_u64() > Some(0), "{what}: {:?}", outcome.limits);
}

#[test]
fn connections_that_wait_take_nobodys_place() {
    for sources in [5, 1] {
        let settings = "max_waiting = 128";
        let outcome = Trial { settings, ..small(Attack::Wait, 200, sources) }.run();
        assert_all_served(&outcome);
        assert_counted(&outcome, "waiting_evicted");
    }
}

#[test]
fn associations_without_a_request_take_no_place_of_a_stream() {
    for sources in [1, 5] {
        let outcome = small(Attack::Associate { channels: 3 }, 100, sources).run();
        assert_all_served(&outcome);
    }
    let settings = "max_waiting = 128";
    let outcome = Trial { settings, ..small(Attack::Associate { channels: 3 }, 100, 1) }.run();
    assert_all_served(&outcome);
    assert_counted(&outcome, "unopened_evicted");
}

#[test]
fn withheld_shares_take_no_more_memory_than_there_may_be() {
    for sources in [1, 5] {
        let outcome = small(Attack::Withhold { channels: 16 }, 60, sources).run();
        assert_all_served(&outcome);
        assert!(outcome.growth_mib < 32.0, "{outcome:?}");
        assert_counted(&outcome, "out_of_memory");
    }
}

#[test]
fn open_streams_of_one_source_leave_places_for_others() {
    for sources in [1, 5] {
        let outcome = small(Attack::Withhold { channels: 3 }, 100, sources).run();
        assert_all_served(&outcome);
        assert_counted(&outcome, "streams_evicted");
    }
}

#[test]
fn more_channels_than_are_allowed_cost_nothing() {
    let trial = Trial { settings: "", ..small(Attack::Withhold { channels: 16 }, 60, 1) };
    let outcome = trial.run();
    assert_all_served(&outcome);
    assert!(outcome.growth_mib < 16.0, "{outcome:?}");
    assert_counted(&outcome, "turned_away");
}

/// The search through 4,000 sets took 25 ms for each.
#[test]
fn a_first_record_that_no_channels_make_costs_little() {
    let outcome = small(Attack::Search, 20, 1).run();
    assert_all_served(&outcome);
    assert!(outcome.processor_ms_each < 12.0, "{outcome:?}");
}

/// The table: see above.
#[test]
fn table_of_all_attacks() {
    let Some(seconds) = std::env::var("SUNDER_STRANGERS").ok() else { return };
    let time = Duration::from_secs(seconds.parse().unwrap());
    // Half of what is the default, as this process has to hold the other ends of all of it.
    let places = "max_streams = 2048\nmax_waiting = 4096";
    let sixteen = "max_streams = 2048\nmax_waiting = 4096\nmax_channels = 16\nmax_memory_mib = 128";
    let attacks = [
        ("nothing", Attack::None, 0, places),
        ("connect, say nothing", Attack::Wait, 5000, places),
        ("3 channels, no request", Attack::Associate { channels: 3 }, 2500, places),
        ("3 channels, a share withheld", Attack::Withhold { channels: 3 }, 2500, places),
        ("16 channels, a share withheld", Attack::Withhold { channels: 16 }, 250, places),
        ("the same, 16 allowed, 128 MiB", Attack::Withhold { channels: 16 }, 250, sixteen),
        ("16 channels, k = 8, costly", Attack::Search, 250, sixteen),
    ];
    println!(
        "attack                         sources  honest  p95 ms  attempts  cores  RSS MiB  peak"
    );
    for (name, attack, attackers, settings) in attacks {
        for sources in if attackers == 0 { &[0][..] } else { &[1, 5, 50][..] } {
            let sources = *sources;
            let trial = Trial { attack, attackers, sources, settings, clients: 4, time };
            let outcome = trial.run();
            let (all, failed) = (outcome.requests.len(), outcome.failures().len());
            println!(
                "{name:30} {sources:7} {:4}/{all} {:7.1} {:9} {:6.2} {:8.0} {:5.0}",
                all - failed,
                outcome.p95_ms(),
                outcome.tried,
                outcome.processor,
                outcome.rss_mib,
                outcome.peak_mib
            );
        }
    }
}
