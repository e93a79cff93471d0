//! The network on which a trial runs, and its hosts, as drivers see them.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use crate::host::EmulatedHost;
use crate::network::EmulatedNetwork;
use crate::sandbox;
use crate::site::{SiteConnection, SiteConnections};

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
    /// The machine of a site.
    Site(&'a SiteConnection),
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
            Self::Sites { sites, hosts } => {
                let site = hosts.get(name).and_then(|site| sites.site(site));
                site.map(TrialHost::Site).ok_or_else(none)
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
            Self::Site(_) => sandbox::trial_files(),
        }
    }

    /// The address at which a program of this host listens, so that others reach it at `address`.
    pub(crate) fn listening_address(&self, address: SocketAddr) -> SocketAddr {
        match self {
            Self::Emulated { .. } => address,
            Self::Site(site) => SocketAddr::new(site.listening_address(), address.port()),
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
            Self::Site(site) => site.write_file(name, content, false)?,
        }
        Ok(path)
    }
}
