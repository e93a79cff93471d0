//! The options of commands that connect.

use std::path::PathBuf;

use console::CommandFailure;
use keys::{IdentityPublicKey, IdentitySecretKey};
use transport::{ConnectionOptions, Error, TransportChoice, persistent_identity, random_identity};

use super::{parse_choice, security_or};

/// The options for the address and the key of the other end.
#[derive(clap::Args)]
pub(super) struct TransportConnectOptions {
    /// The transport: auto, or the name of one
    #[arg(long, value_name = "NAME", default_value = "auto", value_parser = parse_choice)]
    pub(super) transport: TransportChoice,
    /// The other end's public key, as the other end prints it
    #[arg(long, value_name = "KEY")]
    key: Option<IdentityPublicKey>,
    /// The file with this end's key [default: for send and forward, a key that is kept; otherwise
    /// a new one]
    #[arg(long, value_name = "FILE", conflicts_with = "insecure")]
    identity: Option<PathBuf>,
    /// Without encryption and proof of keys: an attacker on the path can read and change everything
    #[arg(long, conflicts_with = "key")]
    insecure: bool,
    /// TCP's congestion control, such as bbr or cubic [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Use udp even if the path loses packets: the connection may fail at any time
    #[arg(long)]
    accept_loss: bool,
}

impl TransportConnectOptions {
    /// The options of the connection.
    ///
    /// # Errors
    /// When the other end's key is missing, or the file with this end's key cannot be read.
    pub(super) fn options(&self) -> Result<ConnectionOptions, CommandFailure> {
        self.require_key()?;
        self.options_or(random_identity)
    }

    /// The other end's key has to be known, unless both ends are insecure.
    ///
    /// # Errors
    /// When it is not given.
    fn require_key(&self) -> Result<(), CommandFailure> {
        if self.key.is_some() || self.insecure {
            return Ok(());
        }
        let text = "--key <KEY> is missing: copy the command that the other end prints";
        Err(CommandFailure::Usage(text.into()))
    }

    /// Whether the other end's key is given.
    pub(super) fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// The same with a key that is kept, so that the receiver recognises this sender in the next
    /// run.
    ///
    /// # Errors
    /// As [`Self::options`].
    pub(super) fn lasting_options(&self) -> Result<ConnectionOptions, CommandFailure> {
        self.require_key()?;
        self.lasting_options_before_pairing()
    }

    /// The same before the other end's key is known, which a code will prove.
    ///
    /// # Errors
    /// When the file with this end's key cannot be read.
    pub(super) fn lasting_options_before_pairing(
        &self,
    ) -> Result<ConnectionOptions, CommandFailure> {
        self.options_or(|| match persistent_identity() {
            Ok(Some(key)) => Ok(key),
            Ok(None) => random_identity(),
            Err(error) => {
                console::warning(&format!(
                    "this sender's key cannot be kept, so the receiver will not recognise it \
                     again: {error}"
                ));
                random_identity()
            }
        })
    }

    fn options_or(
        &self,
        other: fn() -> Result<IdentitySecretKey, Error>,
    ) -> Result<ConnectionOptions, CommandFailure> {
        let keys: Vec<IdentityPublicKey> = self.key.into_iter().collect();
        let security = security_or(self.identity.as_ref(), &keys, self.insecure, other)?;
        Ok(ConnectionOptions {
            transport: self.transport,
            congestion: self.congestion.clone(),
            accept_loss: self.accept_loss,
            ..ConnectionOptions::new(security)
        })
    }
}
