//! A sender or a receiver that is stopped, by every transport: the transfer goes on at once.

use std::fs;
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::emulation::until;
use crate::{Pair, pattern, start, succeeded};

/// The queue is long: on a busy machine many datagrams arrive at it at a time, and `udp` goes over
/// no path that loses some.
const PATH: &str = "rate_mbit = 30, delay_ms = 10, queue_ms = 500";

/// What a break may cost: noticing it, and connecting again.
const MAX_DELAY: Duration = Duration::from_secs(5);

const LEN: usize = 5_000_000;

/// How long that takes without a break, at the most.
const TIME: Duration = Duration::from_secs(4);

/// By a person, and without a chance to say so.
const STOPS: [Signal; 2] = [Signal::INT, Signal::KILL];

/// With one path; `mptcp` is a TCP then.
fn transports() -> impl Iterator<Item = &'static str> {
    transport::names().map(|(name, _)| name).filter(|name| !["micss", "mptcp"].contains(name))
}

fn stop(child: &mut Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
    child.wait().unwrap();
}

fn in_the_middle(pair: &Pair, name: &str) {
    let part = format!(".{name}.part");
    until("a part has arrived", || pair.received(&part) > 1_000_000);
}

/// Sends the same again. Returns what the command says, and how long it took. Where the emulator
/// has lost packets because the machine is busy, `udp` does not connect, and is tried once more.
fn sent_again(pair: &Pair, name: &str, data: &[u8], transport: &str) -> (Value, Duration) {
    let send = || {
        let begin = Instant::now();
        let sending = pair.send(name, data, &["--transport", transport]);
        (sending.wait_with_output().unwrap(), begin.elapsed())
    };
    let (mut output, mut took) = send();
    if transport == "udp" && String::from_utf8_lossy(&output.stderr).contains("the path loses") {
        (output, took) = send();
    }
    (succeeded(&output), took)
}

/// The same command goes on where the one before was stopped.
pub(crate) fn stopped_sender() {
    let pair = Pair::new(PATH);
    let data = pattern(LEN);
    for transport in transports() {
        for signal in STOPS {
            let name = format!("{transport}-{}", signal.as_raw());
            let mut sending = pair.send(&name, &data, &["--transport", transport]);
            in_the_middle(&pair, &name);
            stop(&mut sending, signal);
            let (sent, took) = sent_again(&pair, &name, &data, transport);
            println!("{name}: {took:.1?}, {sent}");
            assert!(sent["resumed_from"].as_u64().unwrap() > 0, "{name}: {sent}");
            assert_eq!(sent["connections"], 1, "{name}");
            assert!(took < TIME, "{name}: {took:?}");
            assert!(fs::read(pair.path("out").join(&name)).unwrap() == data, "{name}");
        }
    }
}

/// A sender goes on by itself when its receiver is started again.
pub(crate) fn stopped_receiver() {
    let mut pair = Pair::new(PATH);
    let data = pattern(LEN);
    for transport in transports() {
        for signal in STOPS {
            let name = format!("{transport}-{}", signal.as_raw());
            let sending = pair.send(&name, &data, &["--transport", transport]);
            in_the_middle(&pair, &name);
            stop(&mut pair.receiver.0, signal);
            (pair.receiver, _) = start(&pair.network, &pair.directory, &pair.address, &[]);
            let begin = Instant::now();
            let sent = succeeded(&sending.wait_with_output().unwrap());
            let took = begin.elapsed();
            println!("{name}: {took:.1?}, {sent}");
            assert!(sent["connections"].as_u64().unwrap() >= 2, "{name}: {sent}");
            assert!(took < TIME + MAX_DELAY, "{name}: {took:?}");
            assert!(fs::read(pair.path("out").join(&name)).unwrap() == data, "{name}");
        }
    }
}
