//! Experiments of `sunder lab` with mix-in-place: each driver, with small groups.

use std::fs;
use std::time::Duration;

use mix::wire::MixTerms;
use mix::{MailboxShape, MemberCost, MixExchangeKind};
use serde_json::Value;

use crate::common::performed;

/// Both ends, and a link.
const LINK: &str = r#"
[hosts.members]
[hosts.proxy]
[links.a]
hosts = ["members", "proxy"]
both = { rate_mbit = 1000, delay_ms = 1 }
"#;

/// The trials of an experiment; `None`, after a message, if users may not create networks.
fn trials_of(text: &str) -> Option<Vec<Value>> {
    let place = tempfile::tempdir().unwrap();
    fs::write(place.path().join("small.toml"), text).unwrap();
    let document = performed(place.path(), &["run", "small.toml", "--json"])?;
    let document: Value = serde_json::from_str(&document).unwrap();
    Some(document["trials"].as_array().unwrap().clone())
}

#[test]
fn the_millionaires_problem_is_solved_with_each_kind_of_transfers() {
    let text = r#"
about = "The Millionaires' problem"
[sweep]
transfers = [
    "NP-OT", "NP-OT-2048", "NP-OT-1024", "NP-OT-1024-160", "RSA-OT", "RSA-OT-1024", "Ristretto",
    "Extended",
]
bits = [4, 12]
[hosts.machine]
[measure]
driver = "mix-millionaires"
options = { host = "machine", bits = "{bits}", transfers = "{transfers}" }
[measure.values]
time = { unit = "ms" }
sent = { unit = "B" }
received = { unit = "B" }
"#;
    let Some(trials) = trials_of(text) else { return };
    assert_eq!(trials.len(), 8 * 2);
    for trial in &trials {
        let value = |name: &str| trial["values"][name].as_f64().unwrap();
        assert!((0.01..10_000.0).contains(&value("time")), "{trial}");
        // Besides the transfers: the public value, the garbler's labels, the evaluator's twice as
        // many, encrypted, an AND for each bit, and what decodes the output.
        let bits = trial["point"]["bits"].as_f64().unwrap();
        let sent = value("sent") - (16.0 + 16.0 * bits * 3.0 + 32.0 * bits + 1.0);
        let received = value("received") - 1.0;
        let expected = match trial["point"]["transfers"].as_str().unwrap() {
            "NP-OT" => (64.0, 32.0 * bits),
            "NP-OT-2048" => (2.0 * 256.0, 256.0 * bits),
            "NP-OT-1024" | "NP-OT-1024-160" => (2.0 * 128.0, 128.0 * bits),
            "RSA-OT" => (256.0 + 3.0 * 256.0 * bits, 256.0 * bits),
            "RSA-OT-1024" => (128.0 + 3.0 * 128.0 * bits, 128.0 * bits),
            "Ristretto" => (32.0, 16.0 + 32.0 * bits),
            _ => continue,
        };
        assert_eq!((sent, received), expected, "{trial}");
    }
}

#[test]
fn sizes_are_those_of_the_engines() {
    let text = r#"
about = "Table 1, three members and one bit"
[hosts]
[measure]
driver = "mix-sizes"
options = { members = 3, slots_per_member = 2, bits = 1 }
[measure.values]
ot = {}
circuit = {}
bdd = {}
"#;
    let Some(trials) = trials_of(text) else { return };
    // Seven slots, of which four are read. A diagram has 4, 2 and 1 nodes for the bits of a choice,
    // and one for each slot.
    let expected = serde_json::json!({ "ot": 35.0, "circuit": 28.0, "bdd": 56.0 });
    assert_eq!(trials[0]["values"], expected);
}

#[test]
fn exchanges_over_a_link_are_measured_with_each_engine() {
    let text = format!(
        r#"
about = "An exchange"
[sweep]
engine = ["ot", "circuit", "bdd"]
{LINK}
[measure]
driver = "mix-exchange"
[measure.options]
member = "members"
proxy = "proxy"
address = "{{proxy.a}}:6700"
engine = "{{engine}}"
members = 10
slots_per_member = 2
messages = 3
exchanges = 5
round_ms = 1
[measure.values]
time = {{ unit = "ms" }}
time_95 = {{ unit = "ms" }}
member = {{ unit = "ms" }}
proxy = {{ unit = "ms" }}
up = {{ unit = "B" }}
down = {{ unit = "B" }}
up_day = {{ unit = "B" }}
down_day = {{ unit = "B" }}
"#
    );
    let Some(trials) = trials_of(&text) else { return };
    assert_eq!(trials.len(), 3);
    for trial in &trials {
        let value = |name: &str| trial["values"][name].as_f64().unwrap();
        // From the proxy to the member, back, and to the member again.
        assert!(value("time") > 3.0 && value("time_95") < 5000.0, "{trial}");
        assert!(value("member") > 0.0 && value("proxy") > 0.0, "{trial}");
        // 21 slots of 256 bytes; the keys of each of five reads, or a garbled circuit.
        let (up, down) = if trial["point"]["engine"] == "circuit" {
            (21.0 * 256.0 * 6.0, 21.0 * 32.0 * 16.0 * 16.0)
        } else {
            (21.0 * 256.0, 21.0 * (256.0 + 16.0 * 5.0))
        };
        assert!((up..1.4 * up + 2000.0).contains(&value("up")), "{trial}");
        assert!((down..1.4 * down + 2000.0).contains(&value("down")), "{trial}");
        let rounds_a_day = value("up_day") / value("up");
        assert!((rounds_a_day - 86_400e3).abs() < 1.0, "{trial}");
    }
}

#[test]
fn messages_are_delivered_by_a_proxy_that_is_started_again() {
    let text = format!(
        r#"
about = "A group of eight"
[sweep]
groups = [1, 2]
{LINK}
[measure]
driver = "mix-delivery"
[measure.options]
sunder = "{{sunder}}"
proxy = "proxy"
members_on = "members"
address = "{{proxy.a}}:6700"
engine = "ot"
groups = "{{groups}}"
members = 6
slots_per_member = 2
messages = 3
interval_ms = 1000
min_interval_ms = 20
pairs = 2
deliveries = 4
restart = true
[measure.values]
round = {{ unit = "ms" }}
participants = {{}}
first = {{ unit = "ms" }}
delivery = {{ unit = "ms" }}
delivery_95 = {{ unit = "ms" }}
delivery_longest = {{ unit = "ms" }}
all_again = {{ unit = "ms" }}
up = {{ unit = "B" }}
down = {{ unit = "B" }}
proxy_processor = {{ unit = "ms" }}
member_processor = {{ unit = "ms" }}
"#
    );
    let Some(trials) = trials_of(&text) else { return };
    assert_eq!(trials.len(), 2);
    for trial in &trials {
        let value = |name: &str| trial["values"][name].as_f64().unwrap();
        assert!(value("round") >= 20.0, "{trial}");
        assert!((1.0..=6.0).contains(&value("participants")), "{trial}");
        // A message is read in the round after the one that it is written in.
        assert!(value("first") > 20.0 && value("delivery") > 20.0, "{trial}");
        assert!(value("delivery_95") <= value("delivery_longest"), "{trial}");
        assert!(value("all_again") > 20.0, "{trial}");
        // 13 slots of 256 bytes, and the keys of five reads.
        assert!(value("up") > 13.0 * 256.0 && value("down") > 13.0 * (256.0 + 80.0), "{trial}");
        assert!(value("member_processor") > 0.0, "{trial}");
    }
}

/// The bytes on a link are those that `sunder doctor` computes, whether or not all members open
/// slots.
#[test]
fn a_broadcast_takes_the_bytes_that_the_calculator_says() {
    let text = format!(
        r#"
about = "Two groups of six by broadcast"
[sweep]
readers = [6, 4]
{LINK}
[measure]
driver = "mix-delivery"
[measure.options]
sunder = "{{sunder}}"
proxy = "proxy"
members_on = "members"
address = "{{proxy.a}}:6700"
engine = "broadcast"
groups = 2
members = 6
readers = "{{readers}}"
slots_per_member = 1
slot_len = 512
interval_ms = 2000
min_interval_ms = 400
joining_ms = 50
pairs = 2
deliveries = 4
[measure.values]
round = {{ unit = "ms" }}
participants = {{}}
delivery_95 = {{ unit = "ms" }}
up = {{ unit = "B" }}
down = {{ unit = "B" }}
proxy_share = {{}}
proxy_memory = {{ unit = "B" }}
opening = {{ unit = "ms" }}
"#
    );
    let shape = MailboxShape::new(6, 1, 1, 3, 512).unwrap();
    let [interval, least] = [2_000, 400].map(Duration::from_millis);
    let terms = MixTerms::new(MixExchangeKind::Broadcast, shape, interval, least).unwrap();
    let cost = MemberCost::new(&terms, 6);
    let rounds_of_day = 86_400.0 / 0.4;
    let mut seen = Vec::new();
    // On a busy machine members are late, and then some of their rounds have other bytes.
    for _ in 0..3 {
        let Some(trials) = trials_of(&text) else { return };
        assert_eq!(trials.len(), 2);
        let ratios = trials.iter().flat_map(|trial| {
            let value = |name: &str| trial["values"][name].as_f64().unwrap();
            assert!(value("participants") > 4.0, "{trial}");
            assert!(value("round") >= 400.0 && value("delivery_95") > 400.0, "{trial}");
            assert!(value("proxy_share") > 0.0 && value("proxy_memory") > 1e6, "{trial}");
            assert!(value("opening") > 0.0, "{trial}");
            [("up", cost.up_per_day), ("down", cost.down_per_day)].map(|(measured, per_day)| {
                let bytes = Duration::from_micros(per_day).as_secs_f64() * 1e6;
                value(measured) / (bytes / rounds_of_day)
            })
        });
        let ratios: Vec<f64> = ratios.collect();
        // Acknowledgements of the kernel can have packets of their own, or go with others.
        if ratios.iter().all(|ratio| (0.85..1.25).contains(ratio)) {
            return;
        }
        seen.push((ratios, trials));
    }
    panic!("three times not the bytes up and down: {seen:?}");
}
