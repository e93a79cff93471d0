//! The status of a proxy or a server of streams.

mod metrics;
mod page;

use std::net::SocketAddr;

use micss::status::MicssStatus;
use serde::{Deserialize, Serialize};
use service::metrics::PrometheusMetric;
use service::status::{ServiceProblem, ServiceStatus};

pub(super) use page::page;

/// What the help of `sunder status` says of the page of a proxy or a server.
pub(super) const LEGEND: &str = "\
For a proxy or a server, `behind` is the fraction of time during which streams
waited for a channel while another had delivered more, and `ready` counts
connections that wait for a stream.";

/// The status of a proxy or a server, with the name of its configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct StreamServiceStatus {
    /// The name of the configuration.
    pub(crate) name: String,
    /// The status.
    #[serde(flatten)]
    pub(crate) status: MicssStatus,
}

impl ServiceStatus for StreamServiceStatus {
    const METRICS: &'static [PrometheusMetric<Self>] = metrics::METRICS;

    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn uptime_s(&self) -> f64 {
        self.status.uptime_s
    }

    fn listen(&self) -> Vec<SocketAddr> {
        self.status.listen.clone()
    }

    fn problems(&self) -> Vec<ServiceProblem> {
        page::problems(&self.status)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use micss::status::{StreamChannelState, StreamChannelStatus};

    /// A channel that has made 10 connections and carried nothing.
    pub(crate) fn channel() -> StreamChannelStatus {
        StreamChannelStatus {
            server: String::new(),
            state: StreamChannelState::Unknown,
            state_s: None,
            why: None,
            peers: 0,
            peers_down: 0,
            lost: Vec::new(),
            ready: 4,
            connected: 10,
            unconnected: 1,
            sent_bytes: 0,
            received_bytes: 0,
            rtt_ms: None,
            waited_s: 0.0,
            broken: 0,
            rejoined: 0,
            tampered: 0,
        }
    }
}
