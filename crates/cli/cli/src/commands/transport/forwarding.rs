//! The status of either end of a forward.

mod metrics;
mod page;

use serde::{Deserialize, Serialize};
use service::metrics::PrometheusMetric;
use service::status::{ServiceProblem, ServiceStatus};
use transport::forward::PortForwardStatus;

pub(super) use page::page;

/// What the help of `sunder status` says of the page.
pub(super) const LEGEND: &str = "\
For a forward and what it exposes, `from clients` are the bytes of the programs
that use the service, and `to clients` those of the service.";

/// The status of either end, with the port where it listens as its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PortForwardServiceStatus {
    name: String,
    #[serde(flatten)]
    status: PortForwardStatus,
}

impl PortForwardServiceStatus {
    pub(super) fn new(name: String, status: PortForwardStatus) -> Self {
        Self { name, status }
    }
}

impl ServiceStatus for PortForwardServiceStatus {
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

    fn problems(&self) -> Vec<ServiceProblem> {
        let mut problems: Vec<ServiceProblem> = self.status.problem.iter().cloned().collect();
        if self.status.open >= self.status.max_open {
            let text = format!("all {} connections are in use", self.status.max_open);
            problems.push(ServiceProblem::new(text, None, "end connections that are not needed"));
        }
        problems
    }
}
