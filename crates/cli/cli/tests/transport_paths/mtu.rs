//! Paths that lose long packets without an ICMP message, from the beginning or from a time on.

use std::time::{Duration, Instant};

use lab::{EmulatedLinkConditions, LinkDirection};

use crate::emulation::until;
use crate::{Pair, in_time, pattern, sent_by, try_thrice};

const RATE: &str = "rate_mbit = 50, delay_ms = 10";

/// What a file of [`LEN`] may take by a transport that finds the path's MTU itself.
const TIME: Duration = Duration::from_secs(5);

/// What it may take more where that is found out by silence.
const SILENCE: Duration = Duration::from_secs(4);

const LEN: usize = 2_000_000;

/// The MTU of the hosts' devices, and that of the path.
pub(crate) const MTUS: [(u32, usize); 5] =
    [(1500, 1280), (1500, 1420), (1500, 1492), (9000, 1500), (9000, 9000)];

/// With one path.
const TRANSPORTS: [&str; 7] = ["auto", "tcp", "mptcp", "burst", "sabul", "udp", "quic"];

/// By each transport, over the smallest MTU of IPv6 and with the longest packets of all.
pub(crate) fn some_mtus() {
    for (mtus, is_ipv6) in [(MTUS[0], true), (MTUS[4], false)] {
        carry(mtus, is_ipv6);
    }
}

/// By each transport, over all MTUs.
pub(crate) fn all_mtus() {
    for is_ipv6 in [false, true] {
        for mtus in MTUS {
            carry(mtus, is_ipv6);
        }
    }
}

/// Sends a file by each transport.
fn carry((mtu, max_len): (u32, usize), is_ipv6: bool) {
    let pair = Pair::over(&format!("{RATE}, max_len = {max_len}"), mtu, is_ipv6);
    let data = pattern(LEN);
    for transport in TRANSPORTS {
        let path = format!("{mtu} {max_len} {is_ipv6} {transport}");
        try_thrice(&path, || {
            pair.forget();
            let start = Instant::now();
            let sending = pair.send(transport, &data, &["--transport", transport]);
            let output = sending.wait_with_output().unwrap();
            let took = start.elapsed();
            let sent = sent_by(transport, &output)?;
            println!("{path}: {sent}");
            pair.take(transport, &data);
            // The kernel does not find it out by itself (`net.ipv4.tcp_mtu_probing`).
            let is_tcp = sent["transport"] == "tcp";
            in_time(took, if is_tcp { TIME + SILENCE } else { TIME })
        });
    }
}

/// The path carries only packets of 1,280 bytes from a time on.
pub(crate) fn hole() {
    let pair = Pair::over("rate_mbit = 30, delay_ms = 10", 1500, false);
    let before = pair.network.conditions("a", LinkDirection::Forward).unwrap();
    let data = pattern(3 * LEN);
    for transport in TRANSPORTS {
        try_thrice(transport, || {
            pair.forget();
            pass_hole(&pair, before, transport, &data)
        });
    }
}

/// Opens the hole while a file is sent by a transport.
fn pass_hole(
    pair: &Pair,
    before: EmulatedLinkConditions,
    transport: &str,
    data: &[u8],
) -> Result<(), String> {
    let set = |conditions| {
        for direction in LinkDirection::BOTH {
            pair.network.link("a").unwrap().set(direction, conditions).unwrap();
        }
    };
    set(before);
    let mut sending = pair.send(transport, data, &["--transport", transport]);
    if !pair.is_under_way(&mut sending, transport, 1_000_000) {
        return pair.was_too_late(sending, transport, data);
    }
    set(EmulatedLinkConditions { max_len: Some(1280), ..before });
    let opened = Instant::now();
    let part = format!(".{transport}.part");
    let (mut arrived, mut changed, mut standstill) = (0, opened, Duration::ZERO);
    until(&format!("{transport} is over"), || {
        let now_there = pair.received(&part);
        if now_there != arrived {
            standstill = standstill.max(changed.elapsed());
            (arrived, changed) = (now_there, Instant::now());
        }
        sending.try_wait().unwrap().is_some()
    });
    let sent = sent_by(transport, &sending.wait_with_output().unwrap())?;
    println!("{transport}: {standstill:.1?} of {:.1?}, {sent}", opened.elapsed());
    pair.take(transport, data);
    in_time(standstill, SILENCE)
}
