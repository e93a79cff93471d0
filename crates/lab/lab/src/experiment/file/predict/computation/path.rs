//! The link between two hosts, as the model of the transports sees it.

use std::fs;
use std::time::Duration;

use transport::model::{NetworkPath, PathDirection, TcpCongestionControl};

use crate::link::EmulatedLinkConditions;
use crate::trial::{HostPlan, Trial};

/// The rate of a link without a limit, in bytes/s: more than any transport sends.
const UNLIMITED: f64 = 1e11;

/// The path between two hosts that are joined by one link. Nothing else is assumed to use it.
pub(super) fn between(
    trial: &Trial,
    client: &str,
    server: &str,
    congestion: Option<&str>,
) -> Option<NetworkPath> {
    let is_end = |host: &String| host == client || host == server;
    let mut links = trial.links.values().filter(|link| link.hosts.iter().all(is_end));
    let link = links.next().filter(|_| client != server)?;
    if links.next().is_some() {
        return None;
    }
    let [mut up, mut down] = link.conditions();
    if link.hosts[0] != client {
        std::mem::swap(&mut up, &mut down);
    }
    let [client, server] = [trial.hosts.get(client)?, trial.hosts.get(server)?];
    let congestion = congestion.or(link.congestion.as_deref());
    let congestion = congestion.map_or_else(default_congestion, TcpCongestionControl::named);
    Some(NetworkPath {
        round_trip: milliseconds(up.delay_ms + down.delay_ms),
        variation: milliseconds(up.jitter_ms.max(down.jitter_ms)),
        loss: up.loss.max(down.loss),
        up: direction(&up, client, server, congestion),
        down: direction(&down, server, client, congestion),
        udp_passes: true,
        has_mptcp: true,
    })
}

fn direction(
    conditions: &EmulatedLinkConditions,
    from: &HostPlan,
    to: &HostPlan,
    congestion: TcpCongestionControl,
) -> PathDirection {
    let rate = conditions.rate_mbit.map_or(UNLIMITED, |rate| rate * 125e3);
    let assumed = PathDirection::assumed(rate);
    let buffers = [buffer(from, "tcp_wmem"), buffer(to, "tcp_rmem")];
    let window = buffers.into_iter().flatten().reduce(f64::min);
    PathDirection {
        queue: milliseconds(conditions.queue_ms),
        tcp_window: window.unwrap_or(assumed.tcp_window),
        congestion,
        ..assumed
    }
}

/// The bytes of a stream that fit into the largest buffer of a host's TCP: half of it. Hosts have
/// the limits of this system unless they set their own.
fn buffer(host: &HostPlan, limits: &str) -> Option<f64> {
    let path = format!("net/ipv4/{limits}");
    let set = host.sysctl.get(&path).cloned();
    let text = set.or_else(|| fs::read_to_string(format!("/proc/sys/{path}")).ok())?;
    let most: f64 = text.split_whitespace().nth(2)?.parse().ok()?;
    Some(most / 2.0)
}

/// The congestion control of this system.
fn default_congestion() -> TcpCongestionControl {
    let name = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").unwrap_or_default();
    TcpCongestionControl::named(name.trim())
}

/// At most an hour each: conditions were checked.
fn milliseconds(time: f64) -> Duration {
    Duration::try_from_secs_f64(time / 1000.0).unwrap_or_default()
}
