//! The network on which a trial runs, and its hosts, as drivers see them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::stretched_links::link_reports;
use crate::host::EmulatedHost;
use crate::link::{EmulatedLink, LinkDirection, LinkEndReport};
use crate::network::EmulatedNetwork;
use crate::sandbox;
use crate::site::{SiteConnection, SiteConnections};
use crate::trial::LinkPlan;

/// The network on which a trial runs.
#[derive(Debug)]
pub(crate) enum TrialNetwork<'a> {
    /// Hosts and links of this machine.
    Emulated {
        /// The hosts and links.
        network: EmulatedNetwork,
        /// The directory for the trial's files, which all hosts share.
        files: &'a Path,
    },
    /// Machines of other places.
    Sites {
        /// The connections to their agents.
        sites: &'a SiteConnections,
        /// The site of each host.
        hosts: BTreeMap<String, String>,
        /// The links, if they are emulated between the sites.
        links: Option<BTreeMap<String, LinkPlan>>,
    },
}

/// A host on which a trial runs programs.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TrialHost<'a> {
    /// A host of this machine.
    Emulated {
        /// The host.
        host: &'a EmulatedHost,
        /// The directory for the trial's files.
        files: &'a Path,
    },
    /// The machine of a site, or a host that is emulated there.
    Site {
        /// The connection to its agent.
        site: &'a SiteConnection,
        /// The name of the emulated host.
        emulated: Option<&'a str>,
    },
}

impl TrialNetwork<'_> {
    /// A host, by name.
    ///
    /// # Errors
    /// If there is none, in one line.
    pub(crate) fn host(&self, name: &str) -> Result<TrialHost<'_>, String> {
        let none = || format!("there is no host {name}");
        match self {
            Self::Emulated { network, files } => {
                let host = network.host(name).ok_or_else(none)?;
                Ok(TrialHost::Emulated { host, files })
            }
            Self::Sites { sites, hosts, links } => {
                let (name, site) = hosts.get_key_value(name).ok_or_else(none)?;
                let site = sites.site(site).ok_or_else(none)?;
                Ok(TrialHost::Site { site, emulated: links.as_ref().map(|_| &**name) })
            }
        }
    }

    /// The definitions of the links, if they are emulated, on this machine or between sites.
    pub(crate) fn links(&self) -> Option<&BTreeMap<String, LinkPlan>> {
        match self {
            Self::Emulated { network, .. } => Some(network.link_plans()),
            Self::Sites { links, .. } => links.as_ref(),
        }
    }

    /// The bytes of packets that each emulated link has carried forward, in the order of their
    /// names; those that it has lost on purpose count, too.
    ///
    /// # Errors
    /// If a site does not say so, in one line.
    pub(crate) fn carried_forward(&self) -> Result<Vec<f64>, String> {
        match self {
            Self::Emulated { network, .. } => {
                let carried = |(link, plan): (&EmulatedLink, &LinkPlan)| {
                    let delivered = link.counts(LinkDirection::Forward).delivered_bytes as f64;
                    delivered / (1.0 - plan.conditions()[0].loss)
                };
                Ok(network.links().zip(network.plans()).map(carried).collect())
            }
            Self::Sites { sites, hosts, links } => {
                let links = links.as_ref().ok_or("there are no emulated links")?;
                let reports = link_reports(sites, hosts, links)?;
                let carried = |(plan, reports): (&LinkPlan, [LinkEndReport; 2])| {
                    reports[0].sent_bytes as f64 / (1.0 - plan.conditions()[0].loss)
                };
                Ok(links.values().zip(reports).map(carried).collect())
            }
        }
    }

    /// The emulated hosts and links, if the network consists of them.
    pub(crate) fn emulated(&self) -> Option<&EmulatedNetwork> {
        match self {
            Self::Emulated { network, .. } => Some(network),
            Self::Sites { .. } => None,
        }
    }
}

impl TrialHost<'_> {
    /// The directory for the trial's files on this host.
    pub(crate) fn files(&self) -> PathBuf {
        match self {
            Self::Emulated { files, .. } => (*files).to_owned(),
            Self::Site { .. } => sandbox::trial_files(),
        }
    }

    /// The address at which a program of this host listens, so that others reach it at `address`.
    pub(crate) fn listening_address(&self, address: SocketAddr) -> SocketAddr {
        match self {
            Self::Emulated { .. } | Self::Site { emulated: Some(_), .. } => address,
            Self::Site { site, .. } => SocketAddr::new(site.listening_address(), address.port()),
        }
    }

    /// Writes a file into the directory for the trial's files, and returns its path on this host.
    ///
    /// # Errors
    /// If it cannot be written, in one line.
    pub(crate) fn write_file(&self, name: &str, content: &[u8]) -> Result<PathBuf, String> {
        let path = self.files().join(name);
        match self {
            Self::Emulated { .. } => {
                fs::write(&path, content)
                    .map_err(|error| format!("{}: {error}", path.display()))?;
            }
            Self::Site { site, .. } => site.write_file(name, content, false)?,
        }
        Ok(path)
    }
}
