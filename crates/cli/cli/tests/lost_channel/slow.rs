//! Streams that need two of three channels, while one fails: how long a line takes at most. Neither
//! the pace of the lines nor their direction matters. And how long a download stalls.
//!
//! The table in `docs/protocols/micss.md` is printed by
//! `cargo test --package sunder-cli --test lost_channel table -- --ignored --nocapture`.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use lab::LinkDirection;

use crate::faults::Fault;
use crate::testbed::{End, Service, TOPOLOGY, Testbed, until};

/// The length of a line: the time at which it was sent, in nanoseconds, and its end.
const LINE: usize = 20;

/// The maximum time that a line may take if a channel fails.
const MAX_STALL: Duration = Duration::from_secs(3);

/// The same if the kernel of an end reports that.
const MAX_REPORTED_STALL: Duration = Duration::from_millis(500);

/// For how long after the fault lines are sent.
const OBSERVED: Duration = Duration::from_secs(5);

/// After how long a line that has not arrived fails the test. Longer than the stalls that the
/// protocol had before it took records without late shares.
const TIMEOUT: Duration = Duration::from_secs(400);

/// The faults of channel 2.
const FAULTS: [Fault; 3] =
    [Fault::Wire(&LinkDirection::BOTH), Fault::LinkDown(End::Client), Fault::LinkDown(End::Server)];

/// When this process first asked.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How long lines took that have arrived.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    longest_ns: AtomicU64,
    /// When the last one was sent.
    sent_ns: AtomicU64,
}

impl Lines {
    /// Reads one line.
    fn read(&self, stream: &mut TcpStream) -> io::Result<()> {
        let mut line = [0; LINE];
        stream.read_exact(&mut line)?;
        let sent: u64 = str::from_utf8(&line).unwrap().trim_end().parse().unwrap();
        self.longest_ns.fetch_max(now_ns() - sent, Ordering::Relaxed);
        self.sent_ns.store(sent, Ordering::Relaxed);
        Ok(())
    }

    /// Reads other bytes, of which each read counts as a line that was sent at the read before.
    fn read_bytes(&self, stream: &mut TcpStream) {
        let mut bytes = [0; 10_000];
        let mut before = now_ns();
        while stream.read(&mut bytes).is_ok_and(|len| len > 0) {
            let now = now_ns();
            self.longest_ns.fetch_max(now - before, Ordering::Relaxed);
            self.sent_ns.store(now, Ordering::Relaxed);
            before = now;
        }
    }

    /// Reads all lines.
    pub(crate) fn read_all(&self, stream: &mut TcpStream) {
        while self.read(stream).is_ok() {}
    }

    fn longest(&self) -> Duration {
        Duration::from_nanos(self.longest_ns.load(Ordering::Relaxed))
    }

    fn has_since(&self, time_ns: u64) -> bool {
        self.sent_ns.load(Ordering::Relaxed) > time_ns
    }
}

fn now_ns() -> u64 {
    u64::try_from(EPOCH.elapsed().as_nanos()).unwrap()
}

fn write_line(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(format!("{:0width$}\n", now_ns(), width = LINE - 1).as_bytes())
}

/// Sends a line at each of these intervals.
pub(crate) fn write_lines(stream: &mut TcpStream, interval: Duration) {
    while write_line(stream).is_ok() {
        thread::sleep(interval);
    }
}

/// The lines of a stream.
#[derive(Clone, Copy, Debug)]
enum Talk {
    ToServer(Duration),
    ToClient(Duration),
    /// Each is sent back, and then the next one is sent.
    PingPong,
    /// As many bytes as the stream takes, to the client.
    Download,
}

impl Talk {
    /// The maximum time of a line. A download also waits until its sender knows of the fault.
    fn limit(self, fault: Fault) -> Duration {
        match (self, fault) {
            (Self::Download, Fault::LinkDown(End::Client)) => MAX_STALL,
            (_, Fault::LinkDown(_)) => MAX_REPORTED_STALL,
            _ => MAX_STALL,
        }
    }
}

impl fmt::Display for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToServer(pace) => write!(f, "to the server, each {} s", pace.as_secs_f64()),
            Self::ToClient(pace) => write!(f, "to the client, each {} s", pace.as_secs_f64()),
            Self::PingPong => write!(f, "ping-pong"),
            Self::Download => write!(f, "a download"),
        }
    }
}

/// The longest time that a line takes while a channel fails.
fn longest(talk: Talk, fault: Fault) -> Duration {
    let lines = Arc::new(Lines::default());
    let service = match talk {
        Talk::ToServer(_) => Service::Notes(Arc::clone(&lines)),
        Talk::ToClient(pace) => Service::Writes(pace),
        Talk::PingPong => Service::Echoes,
        Talk::Download => Service::Pours,
    };
    let mut testbed = Testbed::start(TOPOLOGY, ["threshold = 2", ""], service);
    let (mut stream, code) = testbed.ask();
    assert_eq!(code, 0);
    let own = Arc::clone(&lines);
    let talking = thread::spawn(move || match talk {
        Talk::ToServer(pace) => write_lines(&mut stream, pace),
        Talk::ToClient(_) => own.read_all(&mut stream),
        Talk::Download => own.read_bytes(&mut stream),
        Talk::PingPong => {
            while write_line(&mut stream).and_then(|()| own.read(&mut stream)).is_ok() {
                thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let begin = now_ns();
    until("lines arrive", || lines.has_since(begin));
    fault.inject(&mut testbed);
    let end = Instant::now();
    let last = now_ns() + u64::try_from(OBSERVED.as_nanos()).unwrap();
    while !lines.has_since(last) {
        assert!(end.elapsed() < TIMEOUT, "{talk}, {fault:?}: a line does not arrive");
        thread::sleep(Duration::from_millis(5));
    }
    drop(testbed);
    talking.join().unwrap();
    lines.longest()
}

/// Tries up to three times, because a busy machine may delay some lines.
fn assert_short(talk: Talk, fault: Fault) -> Duration {
    let mut seen = Vec::new();
    for _ in 0..3 {
        let longest = longest(talk, fault);
        if longest <= talk.limit(fault) {
            return longest;
        }
        seen.push(longest);
    }
    panic!("{talk}, {}: {seen:?}, three times", fault.name());
}

pub(crate) fn a_failing_channel_does_not_stall_slow_streams() {
    let pace = Duration::from_secs(1);
    run(&[Talk::ToServer(pace), Talk::ToClient(pace), Talk::PingPong, Talk::Download]);
}

pub(crate) fn table_of_slow_streams() {
    let paces = [50, 500, 1000, 2000, 5000].map(Duration::from_millis);
    let talks: Vec<Talk> = paces
        .map(Talk::ToServer)
        .into_iter()
        .chain(paces.map(Talk::ToClient))
        .chain([Talk::PingPong, Talk::Download])
        .collect();
    run(&talks);
}

fn run(talks: &[Talk]) {
    println!("| a line of 20 bytes | {} |", FAULTS.map(Fault::name).join(" | "));
    println!("|---|---|---|---|");
    for &talk in talks {
        let seen = FAULTS.map(|fault| thread::spawn(move || assert_short(talk, fault)));
        let seen = seen.map(|seen| format!("{:.2} s", seen.join().unwrap().as_secs_f64()));
        println!("| {talk} | {} |", seen.join(" | "));
    }
}
