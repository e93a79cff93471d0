//! Whether this host is closed for a tunnel (`fail_closed`).

use remicss::fail_closed::{self, HostClosure};

use super::finding::{CheckFinding, FindingSeverity};

/// For a person: for which tunnel this host is closed, and how long it has been.
pub(crate) fn sentence(closed: &HostClosure) -> String {
    let HostClosure { device, .. } = closed;
    let seconds = closed.duration().as_secs();
    format!("only {device} may reach the networks of its tunnel (closed {seconds} s ago)")
}

/// The command that opens this host.
pub(crate) fn how_to_open(device: &str) -> String {
    format!("sunder tunnel open --device {device} opens this host again")
}

/// The tunnels for which this host is closed although they are not among these running ones, by
/// their devices.
pub(crate) fn closed_without_tunnel(running: &[&str]) -> Vec<CheckFinding> {
    let finding = |closed: HostClosure| {
        let what = format!("{}, and this tunnel does not run", sentence(&closed));
        let fix = format!("start the tunnel; {}", how_to_open(&closed.device));
        CheckFinding::new(FindingSeverity::Warning, "fail_closed", what, fix)
    };
    let closed = fail_closed::closed().into_iter();
    closed.filter(|closed| !running.contains(&closed.device.as_str())).map(finding).collect()
}
