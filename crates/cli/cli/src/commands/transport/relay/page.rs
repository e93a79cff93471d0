//! The page that `sunder status` shows for a relay.

use transport::relay::{RelayRefusalCounts, RelayStatus};

use super::RelayServiceStatus;
use crate::commands::status::{format_number, rate};

/// The page, with the rates since `before`.
pub(super) fn page(now: &RelayServiceStatus, before: Option<&RelayServiceStatus>) -> String {
    let RelayServiceStatus { name, status } = now;
    let before = before.map(|before| &before.status);
    let passed = |bytes: fn(&RelayStatus) -> u64| {
        let of = |status: &RelayStatus| (status.uptime_s, bytes(status));
        let rate = format_number(rate(of(status), before.map(of)), 1, " Mbit/s");
        format!("{:.1} MB, {rate}", bytes_as_mb(bytes(status)))
    };
    format!(
        "relay {name}  {}, running for {:.0} s\n\n  waiting: {} of {}, {} since the start\n  \
         pairs: {} of {}, {} since the start\n  sent to waiting ends: {}; received from them: \
         {}\n  in datagrams: {}, {} dropped\n  refused: {}",
        status.listen,
        status.uptime_s,
        status.waiting,
        status.max_waiting,
        status.waited,
        status.pairs,
        status.max_pairs,
        status.joined,
        passed(|status| status.to_waiting_bytes),
        passed(|status| status.from_waiting_bytes),
        passed(|status| status.datagram_bytes),
        status.dropped_datagrams,
        refused(&status.refused),
    )
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn bytes_as_mb(bytes: u64) -> f64 {
    bytes as f64 * 1e-6
}

/// The reasons that have occurred, with their counts.
fn refused(refused: &RelayRefusalCounts) -> String {
    let named: Vec<String> = [
        (refused.silent, "sent no request in time"),
        (refused.malformed, "sent an invalid request"),
        (refused.unknown_token, "asked for a token under which nobody waits"),
        (refused.too_many_pairs, "exceeded the number of pairs"),
        (refused.evicted_arriving, "were closed before a pair, to make room"),
        (refused.evicted_waiting, "were closed while they waited, to make room"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, why)| format!("{count} {why}"))
    .collect();
    if named.is_empty() { "nobody".to_owned() } else { named.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_the_counts_and_the_reasons_that_occurred() {
        let refused = RelayRefusalCounts {
            malformed: 2,
            evicted_waiting: 1,
            ..RelayRefusalCounts::default()
        };
        let status = RelayStatus {
            listen: "192.0.2.1:7100".into(),
            uptime_s: 12.0,
            waiting: 3,
            max_waiting: 1024,
            pairs: 1,
            max_pairs: 512,
            waited: 9,
            joined: 4,
            to_waiting_bytes: 3_000_000,
            from_waiting_bytes: 100,
            datagram_bytes: 7_000_000,
            dropped_datagrams: 2,
            refused,
            problem: None,
        };
        let before = RelayStatus { uptime_s: 10.0, to_waiting_bytes: 500_000, ..status.clone() };
        let named = |status| RelayServiceStatus { name: "7100".into(), status };
        let page = page(&named(status), Some(&named(before)));
        let expected = "relay 7100  192.0.2.1:7100, running for 12 s\n\n  waiting: 3 of 1024, 9 \
                        since the start\n  pairs: 1 of 512, 4 since the start\n  sent to waiting \
                        ends: 3.0 MB, 10.0 Mbit/s; received from them: 0.0 MB, 0.0 Mbit/s\n  \
                        in datagrams: 7.0 MB, 0.0 Mbit/s, 2 dropped\n  refused: 2 sent an \
                        invalid request, 1 were closed while they waited, to make room";
        assert_eq!(page, expected);
    }
}
