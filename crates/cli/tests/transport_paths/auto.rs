//! `auto` where UDP is blocked, policed or lossy: never much worse than TCP.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::emulation::until;
use crate::{Pair, pattern, succeeded};

/// What happens to UDP that the sender sends.
const BLOCKED: &str = "meta l4proto udp drop";

/// More than 1,000 packets a second are dropped.
const POLICED: &str = "meta l4proto udp limit rate over 1000/second burst 100 packets drop";

/// Drops packets that arrive at the receiver.
fn filter(pair: &Pair, rule: Option<&str>) {
    let mut rules = "flush ruleset\n".to_owned();
    if let Some(rule) = rule {
        rules += "add table inet path\n";
        rules += "add chain inet path arriving { type filter hook input priority 0; }\n";
        rules += &format!("add rule inet path arriving {rule}\n");
    }
    let mut nft = Command::new("nft");
    nft.arg(rules);
    let status = pair.network.host("receiver").unwrap().run(|| nft.status()).unwrap().unwrap();
    assert!(status.success());
}

/// Forgets what is known of the path.
fn forget(pair: &Pair) {
    let _ = fs::remove_dir_all(pair.path("sunder"));
}

/// How long a file takes, and by what it was carried.
fn timed(pair: &Pair, data: &[u8], more: &[&str]) -> (Duration, String) {
    let begin = Instant::now();
    let output = pair.send("a", data, more).wait_with_output().unwrap();
    let took = begin.elapsed();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let sent = succeeded(&output);
    fs::remove_file(pair.path("out/a")).unwrap();
    (took, format!("{} over {} connections {said}", sent["transport"], sent["connections"]))
}

pub(crate) fn lossy() {
    for loss in ["0.01", "0.03", "0.05"] {
        let pair = Pair::new(&format!("rate_mbit = 200, delay_ms = 40, loss = {loss}"));
        let data = pattern(60_000_000);
        for transport in ["quic", "burst", "auto", "auto", "auto"] {
            forget(&pair);
            let more = ["--transport", transport, "--explain"];
            println!("{loss} {transport}: {:?}", timed(&pair, &data, &more));
        }
    }
}

pub(crate) fn explored() {
    for (conditions, bytes) in [
        ("rate_mbit = 100, delay_ms = 20", 20_000_000),
        ("rate_mbit = 200, delay_ms = 40", 60_000_000),
    ] {
        let pair = Pair::new(conditions);
        let data = pattern(bytes);
        for rule in [None, Some(POLICED)] {
            filter(&pair, rule);
            println!("{conditions} {rule:?}");
            forget(&pair);
            println!("tcp: {:?}", timed(&pair, &data, &["--transport", "tcp"]));
            for _ in 0..3 {
                println!("auto: {:?}", timed(&pair, &data, &["--explain"]));
            }
        }
        filter(&pair, None);
        forget(&pair);
        println!("blocked after it was learnt: {:?}", timed(&pair, &data, &["--explain"]));
        filter(&pair, Some(BLOCKED));
        println!("blocked after it was learnt: {:?}", timed(&pair, &data, &["--explain"]));
        filter(&pair, None);
        forget(&pair);
        let sending = pair.send("a", &data, &["--explain"]);
        until("a part has arrived", || pair.received(".a.part") > 3_000_000);
        filter(&pair, Some(BLOCKED));
        let begin = Instant::now();
        let output = sending.wait_with_output().unwrap();
        println!("blocked in the middle: {:?} {output:?}", begin.elapsed());
        fs::remove_file(pair.path("out/a")).unwrap();
    }
}
