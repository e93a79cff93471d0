//! `--code`: `send` and `receive` between two hosts that have never met.

use std::io::{self, BufRead};
use std::sync::Arc;

use console::CommandFailure;
use keys::IdentityPublicKey;
use transport::{
    CodeListener, ConnectionSecurity, PairedEnd, PairingError, PairingOffer, PeerKeyPolicy,
    TransferCode, TransferRole, pair,
};

use super::{failed, reachable};

/// The value of `--code` with which the code is read from standard input.
const FROM_STDIN: &str = "-";

/// `--code`, with or without a code.
#[derive(clap::Args)]
pub(super) struct CodeOption {
    /// Use a code in place of keys. With CODE: the one that the other end shows (- reads it from
    /// standard input). Without: show one here
    #[arg(
        long,
        value_name = "CODE",
        num_args = 0..=1,
        default_missing_value = "",
        conflicts_with = "insecure"
    )]
    code: Option<String>,
}

/// How two ends meet.
pub(super) enum CodeMeeting {
    /// This end shows a code, at its own address.
    ShowAt(String),
    /// This end shows a code, at a relay.
    ShowVia(String),
    /// The other end shows this code, at its address or at a relay.
    Typed(TransferCode, String),
}

impl CodeOption {
    /// Whether it is given.
    pub(super) fn is_given(&self) -> bool {
        self.code.is_some()
    }

    /// Whether the code is read from standard input.
    pub(super) fn is_read_from_standard_input(&self) -> bool {
        self.code.as_deref() == Some(FROM_STDIN)
    }

    /// The code that the other end shows, if one is given.
    ///
    /// # Errors
    /// If it cannot be one, which costs no attempt.
    pub(super) fn typed(&self) -> Result<Option<TransferCode>, CommandFailure> {
        let Some(text) = self.code.as_ref().filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let mut line = String::new();
        let text = if text == FROM_STDIN {
            let read = io::stdin().lock().read_line(&mut line);
            read.map_err(|error| CommandFailure::Failed(format!("standard input: {error}")))?;
            line.trim()
        } else {
            text
        };
        let code = text.parse().map_err(|error| CommandFailure::Usage(format!("--code: {error}")));
        code.map(Some)
    }
}

/// Pairs this end with another one. For an end that shows a code, `announce` prints the command for
/// the other host, from its options for the address and the code.
///
/// # Errors
/// If the ends do not meet, or the code is wrong.
pub(super) fn meet(
    meeting: CodeMeeting,
    security: &ConnectionSecurity,
    role: TransferRole,
    announce: impl FnOnce(&str, &str) -> Result<(), CommandFailure>,
) -> Result<(PairedEnd, String), CommandFailure> {
    let ConnectionSecurity::Noise { identity, .. } = security else {
        return Err(CommandFailure::Usage("--code requires encryption".into()));
    };
    let offer = |is_at_relay| PairingOffer::new(identity, role, is_at_relay);
    match meeting {
        CodeMeeting::ShowAt(address) => {
            let listener = CodeListener::bind(&address).map_err(|error| failed(&error))?;
            let bound = listener.local_addr().map_or(address, |address| address.to_string());
            let address = bound.parse().ok().and_then(reachable);
            let address = address.map_or_else(|| bound.clone(), |address| address.to_string());
            announce(&address, &listener.code().text())?;
            let paired = listener.pair(offer(false)).map_err(|error| pairing_failed(&error))?;
            Ok((paired, bound))
        }
        CodeMeeting::ShowVia(relay) => {
            let listener = CodeListener::via(&relay).map_err(|error| failed(&error))?;
            announce(&relay, &listener.code().text())?;
            let paired = listener.pair(offer(true)).map_err(|error| pairing_failed(&error))?;
            Ok((paired, relay))
        }
        CodeMeeting::Typed(code, address) => {
            let own = offer(code.is_for_relay());
            let paired = pair(&address, &code, own).map_err(|error| pairing_failed(&error))?;
            Ok((paired, address))
        }
    }
}

/// The same identity, with the other end's key.
pub(super) fn pinned(security: &ConnectionSecurity, key: IdentityPublicKey) -> ConnectionSecurity {
    match security {
        ConnectionSecurity::Noise { identity, .. } => ConnectionSecurity::Noise {
            identity: Arc::clone(identity),
            peers: PeerKeyPolicy::Pinned(vec![key]),
        },
        ConnectionSecurity::Insecure => ConnectionSecurity::Insecure,
    }
}

/// Converts an error of pairing to a failure of the command.
pub(super) fn pairing_failed(error: &PairingError) -> CommandFailure {
    match error {
        PairingError::Connect(error) => failed(error),
        _ if error.is_security() => CommandFailure::Refused(error.to_string()),
        PairingError::Role(_) => CommandFailure::Usage(error.to_string()),
        _ => CommandFailure::Failed(error.to_string()),
    }
}
