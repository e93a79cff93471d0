//! What a proxy and a server of streams say about themselves.

mod metrics;
mod page;

use micss::status::Status;
use serde::{Deserialize, Serialize};
use service::metrics::Metric;
use service::status::ServiceStatus;

pub(super) use page::page;

/// A proxy or a server, by its configuration's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The name.
    pub(crate) name: String,
    /// What it does.
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
