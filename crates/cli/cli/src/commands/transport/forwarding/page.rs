//! The page that `sunder status` shows for either end of a forward.

use transport::forward::{PortForwardFailureCounts, PortForwardStatus};

use super::PortForwardServiceStatus;
use crate::commands::status::{format_number, rate};

/// The page of a daemon of this kind, with the rates since `before`.
pub(in crate::commands::transport) fn page(
    kind: &str,
    now: &PortForwardServiceStatus,
    before: Option<&PortForwardServiceStatus>,
) -> String {
    let PortForwardServiceStatus { name, status } = now;
    let before = before.map(|before| &before.status);
    let passed = |bytes: fn(&PortForwardStatus) -> u64| {
        let of = |status: &PortForwardStatus| (status.uptime_s, bytes(status));
        let rate = format_number(rate(of(status), before.map(of)), 1, " Mbit/s");
        format!("{:.1} MB, {rate}", bytes_as_mb(bytes(status)))
    };
    let transports = status.transports.iter();
    let transports: Vec<String> =
        transports.map(|(transport, count)| format!("{count} by {transport}")).collect();
    let transports =
        if transports.is_empty() { String::new() } else { format!(" ({})", transports.join(", ")) };
    format!(
        "{kind} {name}  {} to {}, running for {:.0} s\n\n  connections: {} of {}{transports}, {} \
         since the start\n  from clients: {}; to clients: {}\n  failed: {}",
        status.listen,
        status.to,
        status.uptime_s,
        status.open,
        status.max_open,
        status.forwarded,
        passed(|status| status.from_clients_bytes),
        passed(|status| status.to_clients_bytes),
        failed(&status.failed),
    )
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn bytes_as_mb(bytes: u64) -> f64 {
    bytes as f64 * 1e-6
}

/// The reasons that have occurred, with their counts.
fn failed(failed: &PortForwardFailureCounts) -> String {
    let named: Vec<String> = [
        (failed.unreachable, "did not reach the other end"),
        (failed.target, "did not reach the service"),
        (failed.too_many, "were too many"),
        (failed.broken, "were cut"),
        (failed.reset, "were reset by a program"),
        (failed.malformed, "were to or from another program than Sunder's"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, why)| format!("{count} {why}"))
    .collect();
    if named.is_empty() { "none".to_owned() } else { named.join(", ") }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_page_has_the_counts_and_the_rates() {
        let failed = PortForwardFailureCounts { target: 2, ..PortForwardFailureCounts::default() };
        let status = PortForwardStatus {
            listen: "127.0.0.1:5432".into(),
            to: "192.0.2.1:7000".into(),
            uptime_s: 12.0,
            open: 3,
            max_open: 256,
            transports: BTreeMap::from([("burst".into(), 2), ("tcp".into(), 1)]),
            forwarded: 9,
            from_clients_bytes: 3_000_000,
            to_clients_bytes: 100,
            failed,
            problem: None,
        };
        let before =
            PortForwardStatus { uptime_s: 10.0, from_clients_bytes: 500_000, ..status.clone() };
        let named = |status| PortForwardServiceStatus::new("5432".into(), status);
        let page = page("forward", &named(status), Some(&named(before)));
        let expected = "forward 5432  127.0.0.1:5432 to 192.0.2.1:7000, running for 12 s\n\n  \
                        connections: 3 of 256 (2 by burst, 1 by tcp), 9 since the start\n  \
                        from clients: 3.0 MB, 10.0 Mbit/s; to clients: 0.0 MB, 0.0 Mbit/s\n  \
                        failed: 2 did not reach the service";
        assert_eq!(page, expected);
    }
}
