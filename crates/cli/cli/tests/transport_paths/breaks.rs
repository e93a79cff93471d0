//! A sender or a receiver that is stopped, by every transport: the transfer goes on at once.

use std::fs;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::{Pair, in_time, pattern, sent_by, start, try_thrice};

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

fn stop(child: &mut Child, signal: Signal) -> ExitStatus {
    kill_process(Pid::from_child(child), signal).unwrap();
    child.wait().unwrap()
}

/// Starts to send a file by a transport, under its name. Returns the command when a part of the
/// file has arrived, and whether there is more to come.
fn send_a_part(pair: &Pair, data: &[u8], transport: &str) -> (Child, bool) {
    // Of an attempt before.
    let _ = fs::remove_file(pair.path("out").join(format!(".{transport}.part")));
    let mut sending = pair.send(transport, data, &["--transport", transport]);
    let is_under_way = pair.is_under_way(&mut sending, transport, 1_000_000);
    (sending, is_under_way)
}

/// Tries this with each transport and signal.
fn with_each(mut attempt: impl FnMut(&'static str, Signal) -> Result<(), String>) {
    for transport in transports() {
        for signal in STOPS {
            let name = format!("{transport}-{}", signal.as_raw());
            try_thrice(&name, || attempt(transport, signal));
        }
    }
}

/// The same command goes on where the one before was stopped.
pub(crate) fn stopped_sender() {
    let pair = Pair::new(PATH);
    let data = pattern(LEN);
    with_each(|transport, signal| stop_sender(&pair, &data, transport, signal));
}

fn stop_sender(pair: &Pair, data: &[u8], transport: &str, signal: Signal) -> Result<(), String> {
    let (mut sending, is_under_way) = send_a_part(pair, data, transport);
    if !is_under_way || stop(&mut sending, signal).success() {
        return pair.was_too_late(sending, transport, data);
    }
    let begin = Instant::now();
    let again = pair.send(transport, data, &["--transport", transport]);
    let output = again.wait_with_output().unwrap();
    let took = begin.elapsed();
    let sent = sent_by(transport, &output)?;
    println!("{transport}-{}: {took:.1?}, {sent}", signal.as_raw());
    pair.take(transport, data);
    assert!(sent["resumed_from"].as_u64().unwrap() > 0, "{transport}: {sent}");
    // On a busy machine, it may be silent for so long that the sender connects again.
    if sent["connections"] != 1 {
        return Err(sent.to_string());
    }
    in_time(took, TIME)
}

/// A sender goes on by itself when its receiver is started again.
pub(crate) fn stopped_receiver() {
    let mut pair = Pair::new(PATH);
    let data = pattern(LEN);
    with_each(|transport, signal| stop_receiver(&mut pair, &data, transport, signal));
}

fn stop_receiver(
    pair: &mut Pair,
    data: &[u8],
    transport: &str,
    signal: Signal,
) -> Result<(), String> {
    let (sending, is_under_way) = send_a_part(pair, data, transport);
    if !is_under_way {
        return pair.was_too_late(sending, transport, data);
    }
    stop(&mut pair.receiver.0, signal);
    (pair.receiver, _) = start(&pair.network, &pair.directory, &pair.address, &[]);
    let begin = Instant::now();
    let output = sending.wait_with_output().unwrap();
    let took = begin.elapsed();
    let sent = sent_by(transport, &output)?;
    println!("{transport}-{}: {took:.1?}, {sent}", signal.as_raw());
    pair.take(transport, data);
    // On a busy machine, all may have arrived before it was stopped.
    if sent["connections"] == 1 {
        return Err(sent.to_string());
    }
    in_time(took, TIME + MAX_DELAY)
}
