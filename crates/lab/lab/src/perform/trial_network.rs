//! The network on which a trial runs, and its hosts, as drivers see them.

use std::fs;
use std::path::{Path, PathBuf};

use crate::host::EmulatedHost;
use crate::network::EmulatedNetwork;

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
        }
    }

    /// The emulated hosts and links, if the network consists of them.
    #[expect(clippy::unnecessary_wraps, reason = "hosts of other kinds have no emulated links")]
    pub(crate) fn emulated(&self) -> Option<&EmulatedNetwork> {
        match self {
            Self::Emulated { network, .. } => Some(network),
        }
    }
}

impl TrialHost<'_> {
    /// The directory for the trial's files on this host.
    pub(crate) fn files(&self) -> &Path {
        match self {
            Self::Emulated { files, .. } => files,
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
        }
        Ok(path)
    }
}
