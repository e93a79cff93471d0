//! `auto` where UDP is blocked, policed or lossy, and over all MTUs: never much worse than TCP.

use std::process::Command;
use std::time::{Duration, Instant};

use lab::LinkDirection;
use serde_json::Value;

use crate::emulation::until;
use crate::mtu::MTUS;
use crate::{Pair, in_time, pattern, succeeded, try_often};

/// How often something is tried that a busy machine disturbs: UDP seems to be slow there.
const ATTEMPTS: usize = 5;

const PATH: &str = "rate_mbit = 100, delay_ms = 20";

/// What happens to UDP that the sender sends.
const BLOCKED: &str = "meta l4proto udp drop";

/// More than 1,000 packets a second are dropped.
const POLICED: &str = "meta l4proto udp limit rate over 1000/second burst 100 packets drop";

/// The same with 500 packets, after as many as even a busy machine needs to measure the path.
const THROTTLED: &str = "meta l4proto udp limit rate over 500/second burst 300 packets drop";

/// Drops packets that arrive at the receiver.
fn filter(pair: &Pair, rule: Option<&str>) {
    let rule = rule.map_or(String::new(), |rule| {
        format!(
            "add table inet path\n\
             add chain inet path arriving {{ type filter hook input priority 0; }}\n\
             add rule inet path arriving {rule}\n"
        )
    });
    let rules = format!("flush ruleset\n{rule}");
    let mut nft = Command::new("nft");
    nft.arg(rules);
    let status = pair.network.host("receiver").unwrap().run(|| nft.status()).unwrap().unwrap();
    assert!(status.success());
}

/// Sends a file. Returns how long that took, and what is printed.
fn timed(pair: &Pair, data: &[u8], more: &[&str]) -> (Duration, Value) {
    let begin = Instant::now();
    let output = pair.send("a", data, more).wait_with_output().unwrap();
    let took = begin.elapsed();
    let sent = succeeded(&output);
    pair.take("a", data);
    (took, sent)
}

fn transport(sent: &Value) -> (&str, u64) {
    (sent["transport"].as_str().unwrap(), sent["connections"].as_u64().unwrap())
}

/// An error, unless a file was sent by TCP, by this number of connections.
fn is_by_tcp(sent: &Value, connections: u64) -> Result<(), String> {
    let is_by_tcp = transport(sent) == ("tcp", connections);
    is_by_tcp.then_some(()).ok_or_else(|| format!("not by {connections} connections: {sent}"))
}

/// An error if a file was sent by TCP.
fn is_by_udp(sent: &Value) -> Result<(), String> {
    let is_by_udp = transport(sent).0 != "tcp";
    is_by_udp.then_some(()).ok_or_else(|| format!("TCP seems to be as fast: {sent}"))
}

/// Where UDP does not arrive, `auto` sends by TCP, and does not try UDP again for some time.
pub(crate) fn blocked() {
    let pair = Pair::new(PATH);
    let data = pattern(6_000_000);
    try_often(ATTEMPTS, "UDP is blocked", || {
        filter(&pair, None);
        pair.forget();
        is_by_udp(&timed(&pair, &data, &[]).1)?;
        filter(&pair, Some(BLOCKED));
        // It was learnt that UDP passes.
        let (_, sent) = timed(&pair, &data, &[]);
        assert_eq!(transport(&sent).0, "tcp", "{sent}");
        is_by_tcp(&sent, 1)?;
        filter(&pair, None);
        // It is remembered.
        is_by_tcp(&timed(&pair, &data, &[]).1, 1)
    });
    // Long enough for a busy machine to see a part of it, and to run `nft`.
    let data = pattern(24_000_000);
    try_often(ATTEMPTS, "UDP is blocked in the middle", || {
        filter(&pair, None);
        pair.forget();
        let mut sending = pair.send("a", &data, &[]);
        if !pair.is_under_way(&mut sending, "a", 500_000) {
            return pair.was_too_late(sending, "a", &data);
        }
        filter(&pair, Some(BLOCKED));
        let output = sending.wait_with_output().unwrap();
        let sent = succeeded(&output);
        pair.take("a", &data);
        is_by_tcp(&sent, 2)?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        // On a busy machine it may have been slow before.
        let reasons = ["nothing has arrived from the receiver over ", ": continuing by tcp"];
        assert!(reasons.iter().any(|reason| stderr.contains(reason)), "{stderr}");
        Ok(())
    });
}

/// An outage of the whole path says nothing of UDP. On a busy machine, UDP can be slow before or
/// after it, which does: then once more.
pub(crate) fn outage() {
    let pair = Pair::new("rate_mbit = 20, delay_ms = 20, queue_ms = 200");
    let data = pattern(4_000_000);
    try_often(ATTEMPTS, "UDP is used again soon", || {
        pair.forget();
        outlast_outage(&pair, &data)?;
        is_by_udp(&timed(&pair, &data, &[]).1)
    });
}

/// Sends a file over a path that is cut for five seconds, in less than 15.
fn outlast_outage(pair: &Pair, data: &[u8]) -> Result<(), String> {
    let conditions = pair.network.conditions("a", LinkDirection::Forward).unwrap();
    let mut sending = pair.send("a", data, &[]);
    if !pair.is_under_way(&mut sending, "a", 500_000) {
        return pair.was_too_late(sending, "a", data);
    }
    pair.cut(true, &conditions);
    let cut = Instant::now();
    until("the outage is over", || cut.elapsed() >= Duration::from_secs(5));
    pair.cut(false, &conditions);
    let sent = succeeded(&sending.wait_with_output().unwrap());
    let took = cut.elapsed();
    println!("{took:?}: {sent}");
    pair.take("a", data);
    in_time(took, Duration::from_secs(15))
}

/// Where UDP is throttled, too.
pub(crate) fn policed() {
    let pair = Pair::new(PATH);
    filter(&pair, Some(THROTTLED));
    let data = pattern(12_000_000);
    try_often(ATTEMPTS, "UDP is throttled", || {
        pair.forget();
        is_by_tcp(&timed(&pair, &data, &[]).1, 2)?;
        // It is remembered.
        is_by_tcp(&timed(&pair, &data, &[]).1, 1)
    });
}

/// A path over which `auto` is compared with TCP.
struct Compared {
    conditions: String,
    mtu: u32,
    is_ipv6: bool,
    /// What happens to UDP, as a rule of nftables.
    rule: Option<&'static str>,
}

impl Compared {
    /// An ordinary path that treats UDP in its own way, or that loses packets.
    fn ordinary(conditions: String, rule: Option<&'static str>) -> Self {
        Self { conditions, mtu: 1500, is_ipv6: false, rule }
    }

    /// A path that drops longer packets without a word.
    fn of_mtu((mtu, max_len): (u32, usize), is_ipv6: bool) -> Self {
        Self { conditions: format!("{PATH}, max_len = {max_len}"), mtu, is_ipv6, rule: None }
    }

    /// Of TCP, of `auto` at the first contact, and of `auto` later: medians of nine, in s.
    fn times(&self) -> [f64; 3] {
        let pair = Pair::over(&self.conditions, self.mtu, self.is_ipv6);
        filter(&pair, self.rule);
        let data = pattern(20_000_000);
        let mut times: [Vec<f64>; 3] = Default::default();
        for _ in 0..9 {
            pair.forget();
            let runs: [&[&str]; 3] =
                [&["--transport", "tcp", "--congestion", "bbr"], &["--congestion", "bbr"], &[]];
            for (run, times) in runs.into_iter().zip(&mut times) {
                times.push(timed(&pair, &data, run).0.as_secs_f64());
            }
        }
        times.map(|mut times| {
            times.sort_unstable_by(f64::total_cmp);
            times[4]
        })
    }
}

/// Compares `auto` with TCP over paths of all kinds.
pub(crate) fn compared() {
    let lossy = |loss| Compared::ordinary(format!("{PATH}, loss = {loss}"), None);
    let treated = |rule| Compared::ordinary(PATH.to_owned(), rule);
    let mut paths = vec![treated(None), treated(Some(BLOCKED)), treated(Some(POLICED))];
    paths.extend([0.01, 0.03, 0.05].map(lossy));
    for is_ipv6 in [false, true] {
        paths.extend(MTUS.map(|mtus| Compared::of_mtu(mtus, is_ipv6)));
    }
    println!("| path | MTU | IPv6 | UDP | tcp, s | auto at first contact | later |");
    let mut worse = Vec::new();
    for path in paths {
        let [tcp, first, later] = path.times();
        let Compared { conditions, mtu, is_ipv6, rule } = path;
        println!(
            "| {conditions} | {mtu} | {is_ipv6} | {} | {tcp:.2} | {first:.2} | {later:.2} |",
            rule.unwrap_or("")
        );
        // Two round trips, and 0.3 s.
        let more = 2.0 * 0.04 + 0.3;
        if first > 1.3 * tcp + more || later > 1.1 * tcp + more {
            worse.push((conditions, mtu, is_ipv6, rule));
        }
    }
    assert!(worse.is_empty(), "{worse:?}");
}
