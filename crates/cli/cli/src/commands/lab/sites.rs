//! The options of `sunder lab run` for sites.

use std::path::PathBuf;
use std::time::Duration;

use console::CommandFailure;
use lab::site::{
    ExperimentSites, HostPlacement, SiteAddress, SiteAddressError, SiteChange, SiteConnections,
    SiteError,
};

use crate::commands::transport::kept_identity;

/// Where an experiment runs, if not on an emulated network.
#[derive(clap::Args)]
pub(super) struct SiteOptions {
    /// Run on real machines instead of an emulated network: the sites with these agents, as sunder
    /// lab agent prints them there; may be given several times, or separated by commas
    #[arg(long, value_name = "NAME=HOST:PORT/KEY", value_delimiter = ',')]
    sites: Vec<SiteAddress>,
    /// A host that is at another site than its key `site` or its name says; may be given several
    /// times
    #[arg(long, value_name = "HOST=SITE", requires = "sites", value_delimiter = ',')]
    place: Vec<HostPlacement>,
    /// Give the hosts networks of their own at their sites, and emulate the links between them over
    /// the paths between the sites, with the conditions of the experiment; needs no root
    #[arg(long, requires = "sites")]
    emulate_links: bool,
    /// The file with this end's key, which the agents admit [default: a key that is kept]
    #[arg(long, value_name = "FILE", requires = "sites")]
    identity: Option<PathBuf>,
    /// For how long to contact a site again that is lost, before the run ends
    #[arg(long, value_name = "SECONDS", requires = "sites", default_value_t = 300, value_parser = clap::value_parser!(u64).range(0..=86_400))]
    reconnect: u64,
}

impl SiteOptions {
    /// The sites; `None` for an emulated network.
    ///
    /// # Errors
    /// If they cannot be used as they are given.
    pub(super) fn sites(&self) -> Result<Option<ExperimentSites>, CommandFailure> {
        if self.sites.is_empty() {
            return Ok(None);
        }
        let wrong = |error: SiteAddressError| CommandFailure::Usage(error.to_string());
        let sites = ExperimentSites::new(&self.sites, &self.place).map_err(wrong)?;
        Ok(Some(if self.emulate_links { sites.with_emulated_links() } else { sites }))
    }

    /// Opens the connections to the sites.
    ///
    /// # Errors
    /// If a site cannot be used, or this end's key cannot be read.
    pub(super) fn open(&self, sites: &ExperimentSites) -> Result<SiteConnections, CommandFailure> {
        let identity = kept_identity(self.identity.as_deref())?;
        let reconnect_timeout = Duration::from_secs(self.reconnect);
        SiteConnections::open(sites, identity, reconnect_timeout).map_err(|error| unusable(&error))
    }
}

fn unusable(error: &SiteError) -> CommandFailure {
    let message = error.to_string();
    if error.is_security() {
        CommandFailure::Refused(message)
    } else {
        CommandFailure::Failed(message)
    }
}

/// Says that a site is lost, or back.
pub(super) fn show(change: &SiteChange) {
    match change {
        SiteChange::Lost { site, why, reconnect_s } => console::warning(&format!(
            "site {site} is lost: {why}; connecting again for up to {reconnect_s} s, then the trial \
             is repeated"
        )),
        SiteChange::Back { site, after_s } => {
            console::note(&format!("site {site} is back after {after_s:.0} s"));
        }
        SiteChange::PathTooLong { link, link_ms, path_ms } => console::warning(&format!(
            "link {link} cannot have a delay of {link_ms} ms: that of the path is {path_ms:.1} ms; \
             this trial is invalid"
        )),
    }
}
