//! Why a site cannot be used.

use std::io;

use thiserror::Error;

use super::message::version;

/// Why a site cannot be used, in one line.
#[derive(Debug, Error)]
#[error("site {site}: {problem}")]
pub struct SiteError {
    pub(super) site: String,
    pub(super) problem: SiteProblem,
}

/// The problem of a site.
#[derive(Debug, Error)]
pub(super) enum SiteProblem {
    /// There is no connection.
    #[error(transparent)]
    Connection(#[from] transport::Error),
    /// The agent has another version.
    #[error("its agent has {theirs}, and this is {}; install the same version", version())]
    Version {
        /// The agent's version.
        theirs: String,
    },
    /// Another controller uses the agent.
    #[error("its agent is busy with another experiment; try again later")]
    Busy,
    /// The agent is not the one with which the run began.
    #[error("its machine, kernel or version is not the one with which the run began")]
    Moved,
    /// The connection has failed, or the agent does not answer as it has to.
    #[error("{0}")]
    Broken(String),
}

impl SiteError {
    /// Whether it is a failed security check, and not a failure of the network.
    pub fn is_security(&self) -> bool {
        matches!(&self.problem, SiteProblem::Connection(error) if error.is_security())
    }

    /// Whether it may be over later.
    pub(super) fn may_pass(&self) -> bool {
        match &self.problem {
            SiteProblem::Busy | SiteProblem::Broken(_) => true,
            SiteProblem::Connection(_) => !self.is_security(),
            SiteProblem::Version { .. } | SiteProblem::Moved => false,
        }
    }
}

impl From<io::Error> for SiteProblem {
    fn from(error: io::Error) -> Self {
        match error.downcast::<transport::Error>() {
            Ok(error) => Self::Connection(error),
            Err(error) => Self::Broken(error.to_string()),
        }
    }
}
