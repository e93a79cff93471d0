//! Errors, and the phases in which they occur.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::malformed::MalformedComputeFrame;
use crate::settings::{ComputeProtocol, ComputeRole, ComputeSecurity};

/// Why there is no output. Each text is one line.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The connection has failed.
    #[error("{phase}: {source}")]
    Io {
        /// The current phase.
        phase: ComputePhase,
        /// The error of the connection.
        source: Arc<io::Error>,
    },
    /// The other party has closed the connection.
    #[error("{phase}: the other party has ended the connection")]
    Ended {
        /// The current phase.
        phase: ComputePhase,
    },
    /// The other party does not respond.
    #[error("{phase}: nothing from the other party for {} s", .after.as_secs_f64())]
    Silent {
        /// The current phase.
        phase: ComputePhase,
        /// The time without a message.
        after: Duration,
    },
    /// The other party has aborted with a reason.
    #[error("{phase}: the other party has given up: {reason}")]
    Aborted {
        /// The current phase.
        phase: ComputePhase,
        /// Why.
        reason: ComputeAbortReason,
    },
    /// The received bytes are not of this protocol.
    #[error("the other end does not speak this protocol: is it sunder compute?")]
    NotThisProtocol,
    /// The other party has another version.
    #[error(
        "the other party has version {theirs} of the protocol, this one version {ours}: use the \
         same release"
    )]
    Version {
        /// This party's.
        ours: u8,
        /// The other's.
        theirs: u8,
    },
    /// Both parties have the same role.
    #[error("both parties are the {role}: one must be the {}", .role.other())]
    SameRole {
        /// Of both.
        role: ComputeRole,
    },
    /// The parties are to compute different things.
    #[error("{what} is not the same at both parties")]
    Differs {
        /// The difference.
        what: &'static str,
    },
    /// The parties have different levels of security.
    #[error(
        "the other party has --security {theirs}, this one {ours}: give both the same (a program \
         without this option has semi-honest)"
    )]
    Security {
        /// This party's.
        ours: ComputeSecurity,
        /// The other's.
        theirs: ComputeSecurity,
    },
    /// The circuits have inputs and outputs of different lengths.
    #[error("the circuit is not the same at both parties: {ours} here, {theirs} there")]
    Sizes {
        /// Of this party's circuit.
        ours: String,
        /// Of the other's.
        theirs: String,
    },
    /// The other party has sent an invalid message.
    #[error("{phase}: the other party sends {source}")]
    Malformed {
        /// The current phase.
        phase: ComputePhase,
        /// What is wrong with the message.
        source: MalformedComputeFrame,
    },
    /// The base transfers or their extension have failed.
    #[error("{phase}: {source}")]
    Transfer {
        /// The current phase.
        phase: ComputePhase,
        /// The error of the transfers.
        source: ot::Error,
    },
    /// The input does not have the length that the circuit takes.
    #[error("the input has {given} bits, the circuit takes {expected} of the {role}")]
    InputLen {
        /// Of the party.
        role: ComputeRole,
        /// The bits of the circuit's input.
        expected: u32,
        /// The bits that were given.
        given: usize,
    },
    /// The circuit is larger than the protocol allows.
    #[error("the circuit has more than 2^28 bits of input or output")]
    TooLarge,
    /// The evaluator cannot prove that it has the labels of the output that it reports.
    #[error("the evaluator reports an output that it cannot prove: it is not used")]
    Unproven,
    /// The outputs of the two executions are not the same, or are not proven.
    #[error(
        "the two executions disagree, so there is no output: the other party deviates from the \
         protocol (it may have learnt one bit of this party's input) or a computer is faulty"
    )]
    Disagree,
    /// Only one party is to learn the output, where both must.
    #[error("with --security malicious both parties learn the output: leave out --output-to")]
    PrivateOutput,
    /// The session was stopped, with [`Stopper::stop`](crate::ComputeStopper::stop).
    #[error("this party was stopped")]
    Stopped,
    /// An earlier run of the session has failed.
    #[error("the session has failed before: make a new one")]
    Failed,
    /// The system gives no random bytes or no thread.
    #[error("the operating system reports an error: {0}")]
    System(Arc<io::Error>),
}

impl Error {
    /// Whether it is a failed security check rather than a network failure.
    pub fn is_security(&self) -> bool {
        match self {
            Self::Unproven | Self::Disagree => true,
            Self::Transfer { source, .. } => *source == ot::Error::Inconsistent,
            Self::Io { source, .. } => {
                transport_error(source).is_some_and(transport::Error::is_security)
            }
            _ => false,
        }
    }

    /// The reason that is sent to the other party.
    pub(crate) fn reason(&self) -> Option<ComputeAbortReason> {
        match self {
            Self::NotThisProtocol | Self::Version { .. } => Some(ComputeAbortReason::Version),
            Self::SameRole { .. } => Some(ComputeAbortReason::Role),
            Self::Differs { .. } | Self::Security { .. } | Self::Sizes { .. } => {
                Some(ComputeAbortReason::Differs)
            }
            Self::Malformed { .. } | Self::Transfer { .. } => Some(ComputeAbortReason::Malformed),
            Self::Unproven | Self::Disagree => Some(ComputeAbortReason::Unproven),
            Self::InputLen { .. } | Self::TooLarge | Self::PrivateOutput => {
                Some(ComputeAbortReason::Input)
            }
            Self::System(_) => Some(ComputeAbortReason::System),
            Self::Stopped => Some(ComputeAbortReason::Stopped),
            Self::Io { .. }
            | Self::Ended { .. }
            | Self::Silent { .. }
            | Self::Aborted { .. }
            | Self::Failed => None,
        }
    }

    /// An error of the operating system.
    pub(crate) fn system(error: io::Error) -> Self {
        Self::System(Arc::new(error))
    }

    /// The same error, in the phase in which it was found.
    pub(crate) fn in_phase(self, phase: ComputePhase) -> Self {
        match self {
            Self::Io { source, .. } => Self::Io { phase, source },
            Self::Ended { .. } => Self::Ended { phase },
            Self::Silent { after, .. } => Self::Silent { phase, after },
            Self::Aborted { reason, .. } => Self::Aborted { phase, reason },
            Self::Malformed { source, .. } => Self::Malformed { phase, source },
            Self::Transfer { source, .. } => Self::Transfer { phase, source },
            other => other,
        }
    }

    /// The more specific of two errors of one run.
    pub(crate) fn more_specific(self, other: Self) -> Self {
        if other.specificity() > self.specificity() { other } else { self }
    }

    /// Whether it may be only a consequence of another error.
    pub(crate) fn may_be_consequence(&self) -> bool {
        self.specificity() < 3
    }

    fn specificity(&self) -> u8 {
        match self {
            Self::Failed => 0,
            _ if self.is_security() => 3,
            Self::Io { .. } | Self::Ended { .. } => 1,
            Self::Aborted { .. } => 2,
            _ => 3,
        }
    }
}

fn transport_error(error: &io::Error) -> Option<&transport::Error> {
    transport::Error::of(error)
}

impl From<MalformedComputeFrame> for Error {
    fn from(source: MalformedComputeFrame) -> Self {
        Self::Malformed { phase: ComputePhase::Setup, source }
    }
}

impl From<ot::Error> for Error {
    fn from(source: ot::Error) -> Self {
        Self::Transfer { phase: ComputePhase::Setup, source }
    }
}

/// A phase of a session. Phases overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ComputePhase {
    /// The parties exchange their roles and versions, and make the base transfers.
    Setup,
    /// The parties check that they compute the same.
    Agreement,
    /// In Yao's protocol, the evaluator gets the labels of both inputs. In GMW, each party gets its
    /// share of the other's input.
    Inputs,
    /// The parties make the triples of the ANDs. Only in GMW.
    Triples,
    /// In Yao's protocol, the garbler garbles and sends while the evaluator receives and evaluates.
    /// In GMW, both evaluate.
    Gates,
    /// The parties learn the output.
    Output,
}

impl ComputePhase {
    /// All, in their order.
    pub const ALL: [Self; 6] =
        [Self::Setup, Self::Agreement, Self::Inputs, Self::Triples, Self::Gates, Self::Output];

    /// Whether the protocol has this phase.
    pub fn is_of(self, protocol: ComputeProtocol) -> bool {
        self != Self::Triples || protocol == ComputeProtocol::Gmw
    }

    /// Its name in documents.
    pub fn name(self) -> &'static str {
        match self {
            Self::Setup => "setup",
            Self::Agreement => "agreement",
            Self::Inputs => "inputs",
            Self::Triples => "triples",
            Self::Gates => "gates",
            Self::Output => "output",
        }
    }
}

impl fmt::Display for ComputePhase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Setup => "setting up the transfers",
            Self::Agreement => "comparing what is computed",
            Self::Inputs => "transferring the inputs",
            Self::Triples => "making the triples",
            Self::Gates => "transferring the gates",
            Self::Output => "learning the output",
        })
    }
}

/// Why a party aborts, as it reports to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ComputeAbortReason {
    /// The versions differ.
    Version = 1,
    /// The roles are the same.
    Role = 2,
    /// The circuit or the settings differ.
    Differs = 3,
    /// It has received an invalid message.
    Malformed = 4,
    /// The evaluator's result is wrong.
    Unproven = 5,
    /// Its input does not fit the circuit.
    Input = 6,
    /// Its operating system has failed.
    System = 7,
    /// It cannot load its circuit.
    Circuit = 8,
    /// It was stopped.
    Stopped = 9,
}

impl ComputeAbortReason {
    const ALL: [Self; 9] = [
        Self::Version,
        Self::Role,
        Self::Differs,
        Self::Malformed,
        Self::Unproven,
        Self::Input,
        Self::System,
        Self::Circuit,
        Self::Stopped,
    ];

    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MalformedComputeFrame> {
        let found = Self::ALL.into_iter().find(|reason| bytes == [*reason as u8]);
        found.ok_or(MalformedComputeFrame::Value("reason to give up"))
    }
}

impl fmt::Display for ComputeAbortReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Version => "it has another version of the protocol",
            Self::Role => "it has the same role",
            Self::Differs => "it computes another circuit, or has other settings",
            Self::Malformed => "it has received what it does not understand",
            Self::Unproven => "the reported output is not proven",
            Self::Input => "its input does not fit the circuit",
            Self::System => "its operating system has reported an error",
            Self::Circuit => "it cannot load its circuit",
            Self::Stopped => "it was stopped",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A manipulation on the path also ends the connection, but the security error is reported.
    #[test]
    fn a_security_error_outranks_the_end_of_the_connection() {
        let phase = ComputePhase::Setup;
        let changed = || {
            let error = transport::Error::Changed { peer: "peer".to_owned() };
            Error::Io { phase, source: Arc::new(error.into()) }
        };
        for end in [|| Error::Ended { phase: ComputePhase::Setup }, || Error::Failed] {
            assert!(
                end().more_specific(changed()).is_security()
                    && changed().more_specific(end()).is_security()
            );
        }
        assert!(!changed().may_be_consequence());
    }
}
