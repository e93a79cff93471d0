//! Sites: machines on which an agent runs an experiment's programs.
//!
//! `docs/protocols/agent.md` specifies the protocol. [`LabAgent`](crate::LabAgent) is its other
//! end.
//!
//! # Map
//!
//! - `address`: a site's address and key, and at which site each host is, pure.
//! - `message`: requests and answers as bytes, pure. `answer`: the answers. `trial_path`: names of
//!   files, pure. In `message`: `emulation`, hosts and links that are emulated at sites;
//!   `contained`, programs in sandboxes.
//! - `path`: a path between two sites, and whether it has changed, pure.
//! - `connection`: the connection to the agent of a site. `connections`: those of an experiment.
//!   `program`: a program at a site. `upload`: files for a site. `error`: why a site cannot be
//!   used.

mod address;
mod answer;
mod connection;
mod connections;
mod error;
mod message;
mod path;
mod program;
mod trial_path;
mod upload;

pub use address::{ExperimentSites, HostPlacement, SiteAddress, SiteAddressError};
pub(crate) use answer::{AgentAnswer, AgentRefusal};
pub(crate) use connection::SiteConnection;
pub use connections::{SiteChange, SiteConnections, SiteRecord};
pub use error::SiteError;
pub(crate) use message::contained::ContainedStart;
pub(crate) use message::emulation::{MAX_LINK_ENDS, SiteHost, SiteLinkEnd};
pub(crate) use message::{
    AgentRequest, FilePiece, MAX_PIECE_LEN, MAX_REQUEST_LEN, ProgramReadiness, ProgramSignal,
    ProgramStart, version,
};
pub use path::{PathReading, SitePath};
pub(crate) use program::SiteProgram;
pub(crate) use trial_path::TrialFilePath;
