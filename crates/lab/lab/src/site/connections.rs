//! The connections of an experiment to the agents of its sites.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use keys::IdentitySecretKey;
use serde::{Deserialize, Serialize};
use transport::{ConnectionSecurity, PeerKeyPolicy};

use super::address::ExperimentSites;
use super::answer::AgentAnswer;
use super::connection::{SiteConnection, SiteLoss};
use super::error::{SiteError, SiteProblem};
use super::message::AgentRequest;
use super::path::PathReading;
use crate::machine::MachineProperties;

/// The pause before an agent that cannot be reached is contacted again.
const RECONNECT_PAUSE: Duration = Duration::from_secs(1);

/// How long to wait at the beginning until an agent is free.
const FREE_TIMEOUT: Duration = Duration::from_secs(5);

/// A site at which an experiment ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SiteRecord {
    /// The agent's key.
    pub key: String,
    /// The hosts that were there.
    pub hosts: BTreeSet<String>,
    /// The agent's machine.
    pub machine: MachineProperties,
    /// Whether the links between the hosts were emulated over the paths.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub emulates_links: bool,
}

/// A connection to a site has failed or is open again, or a path is not as the experiment needs it.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SiteChange {
    /// It has failed. The trial is repeated when it is open again.
    Lost {
        /// The site.
        site: String,
        /// Why.
        why: String,
        /// For how long to try to connect again, in seconds.
        reconnect_s: f64,
    },
    /// It is open again.
    Back {
        /// The site.
        site: String,
        /// How long that took, in seconds.
        after_s: f64,
    },
    /// The path between two sites has a longer delay than the link that is emulated over it.
    PathTooLong {
        /// The link.
        link: String,
        /// The delay that the link is to have in one direction, in ms.
        link_ms: f64,
        /// Half of the round trip of the path, in ms.
        path_ms: f64,
    },
}

/// Opens a connection. An agent may still end the programs of the controller before.
fn open_if_free(connection: &Arc<SiteConnection>) -> Result<MachineProperties, SiteError> {
    let began = Instant::now();
    loop {
        match connection.open() {
            Err(SiteError { problem: SiteProblem::Busy, .. }) if began.elapsed() < FREE_TIMEOUT => {
                thread::sleep(RECONNECT_PAUSE);
            }
            opened => return opened,
        }
    }
}

/// The connections to the agents of an experiment's sites.
#[derive(Debug)]
pub struct SiteConnections {
    /// By name.
    sites: BTreeMap<String, Arc<SiteConnection>>,
    /// The machine of each.
    machines: BTreeMap<String, MachineProperties>,
    places: ExperimentSites,
    loss: Arc<SiteLoss>,
    /// How long to contact a site again that was lost.
    reconnect_timeout: Duration,
}

impl SiteConnections {
    /// Opens the connections. A site that is lost later is contacted again for
    /// `reconnect_timeout`.
    ///
    /// # Errors
    /// The first site that cannot be used.
    pub fn open(
        sites: &ExperimentSites,
        identity: IdentitySecretKey,
        reconnect_timeout: Duration,
    ) -> Result<Self, SiteError> {
        let identity = Arc::new(identity);
        let loss = Arc::new(SiteLoss::default());
        let (mut opened, mut machines) = (BTreeMap::new(), BTreeMap::new());
        for (site, address) in sites.all() {
            let security = ConnectionSecurity::Noise {
                identity: identity.clone(),
                peers: PeerKeyPolicy::Pinned(vec![site.key]),
            };
            let connection = SiteConnection::new(site.clone(), *address, security, loss.clone());
            let connection = Arc::new(connection);
            machines.insert(site.name.clone(), open_if_free(&connection)?);
            opened.insert(site.name.clone(), connection);
        }
        Ok(Self { sites: opened, machines, places: sites.clone(), loss, reconnect_timeout })
    }

    /// What the results keep of the sites, by name, of which these hosts use some. Each host comes
    /// with the site of the experiment's file, if that names one.
    pub(crate) fn records<'a>(
        &self,
        hosts: impl Iterator<Item = (&'a String, Option<&'a str>)>,
    ) -> BTreeMap<String, SiteRecord> {
        let mut records: BTreeMap<String, SiteRecord> = BTreeMap::new();
        for (host, named) in hosts {
            let Some(site) = self.of_host(host, named) else { continue };
            let Some((connection, machine)) = self.sites.get(&site).zip(self.machines.get(&site))
            else {
                continue;
            };
            let record = records.entry(site).or_insert_with(|| SiteRecord {
                key: connection.site().key.to_string(),
                hosts: BTreeSet::new(),
                machine: machine.clone(),
                emulates_links: self.places.emulates_links(),
            });
            record.hosts.insert(host.clone());
        }
        records
    }

    /// The name of the site of a host, which the experiment's file may name.
    pub(crate) fn of_host(&self, host: &str, named: Option<&str>) -> Option<String> {
        self.places.of_host(host, named).ok().map(|(site, _)| site.to_owned())
    }

    /// Whether the links between the hosts are emulated.
    pub(crate) fn emulates_links(&self) -> bool {
        self.places.emulates_links()
    }

    /// A site, by name.
    pub(crate) fn site(&self, name: &str) -> Option<&SiteConnection> {
        self.sites.get(name).map(|site| &**site)
    }

    /// Whether a connection has failed since [`Self::prepare`].
    pub(crate) fn have_lost(&self) -> bool {
        self.loss.get().is_some()
    }

    /// Opens the connections that have failed again, within the timeout, and reports the first that
    /// was lost, and each that is back.
    ///
    /// # Errors
    /// The site that is still lost, or cannot be used any more.
    pub(crate) fn prepare(&self, report: &dyn Fn(SiteChange)) -> Result<(), SiteError> {
        if let Some((site, why)) = self.loss.get() {
            let reconnect_s = self.reconnect_timeout.as_secs_f64();
            report(SiteChange::Lost { site, why, reconnect_s });
        }
        self.loss.clear();
        for (name, site) in self.sites.iter().filter(|(_, site)| !site.is_open()) {
            let began = Instant::now();
            let machine = loop {
                match site.open() {
                    Err(error) if error.may_pass() && began.elapsed() < self.reconnect_timeout => {
                        thread::sleep(RECONNECT_PAUSE);
                    }
                    opened => break opened?,
                }
            };
            if self.machines.get(name) != Some(&machine) {
                return Err(site.error(SiteProblem::Moved));
            }
            report(SiteChange::Back { site: name.clone(), after_s: began.elapsed().as_secs_f64() });
        }
        Ok(())
    }

    /// Measures the path between two sites.
    ///
    /// # Errors
    /// If it cannot be measured, in one line that names the site.
    pub(crate) fn probe(&self, from: &str, to: &str) -> Result<PathReading, String> {
        let site = |name: &str| self.site(name).ok_or_else(|| format!("there is no site {name}"));
        let (from, to) = (site(from)?, site(to)?);
        match from.request(&AgentRequest::Probe { address: to.address() })? {
            AgentAnswer::Path(reading) => Ok(reading),
            _ => Err(from.unexpected()),
        }
    }
}
