//! The status of a proxy or a server of streams.

mod metrics;
mod page;

use micss::status::Status;
use serde::{Deserialize, Serialize};
use service::metrics::Metric;
use service::status::ServiceStatus;

pub(super) use page::page;

/// The status of a proxy or a server, with the name of its configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The name of the configuration.
    pub(crate) name: String,
    /// The status.
    #[serde(flatten)]
    pub(crate) status: Status,
}

impl ServiceStatus for Named {
    const METRICS: &'static [Metric<Self>] = metrics::METRICS;

    fn name(&self) -> &str {
        &self.name
    }

    fn set_name(&mut self, name: String) {
        self.name = name;
    }

    fn uptime_s(&self) -> f64 {
        self.status.uptime_s
    }
}
