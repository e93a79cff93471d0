//! The options of commands that connect.

use std::path::PathBuf;

use keys::PublicKey;
use transport::{Choice, Options};

use super::{parse_choice, security};
use crate::failure::Failure;

/// How the other end is reached, and who it is.
#[derive(clap::Args)]
pub(super) struct Connecting {
    /// The transport: auto, or the name of one
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_choice)]
    transport: Choice,
    /// The other end's public key, as it prints it
    #[arg(long, value_name = "KEY", required_unless_present = "insecure")]
    key: Option<PublicKey>,
    /// The file with this end's key [default: a new one for each run]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    identity: Option<PathBuf>,
    /// Without encryption and proof of keys: whoever is on the path can read and change everything
    #[arg(long, conflicts_with = "key")]
    insecure: bool,
    /// TCP's congestion control, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Use udp although the path loses some of what is sent: it may fail at any time
    #[arg(long)]
    accept_loss: bool,
}

impl Connecting {
    /// The options of the connection.
    ///
    /// # Errors
    /// When the file with the key cannot be read.
    pub(super) fn options(&self) -> Result<Options, Failure> {
        let keys: Vec<PublicKey> = self.key.into_iter().collect();
        let security = security(self.identity.as_ref(), &keys, self.insecure)?;
        Ok(Options {
            transport: self.transport,
            congestion: self.congestion.clone(),
            accept_loss: self.accept_loss,
            ..Options::new(security)
        })
    }
}
