//! What the parties agree on.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use circuit::CircuitSource;
use garble::GarblingScheme;
use ot::extension::{OtExtension, OtExtensionKind, OtExtensionSecurity};

use crate::malformed::MalformedComputeFrame;

/// How the parties compute. Roles, settings, circuits and outputs are the same in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ComputeProtocol {
    /// Yao's: one party garbles the circuit, the other evaluates it. A few rounds, whatever the
    /// circuit.
    #[default]
    Yao = 0,
    /// That of Goldreich, Micali and Wigderson (Transputation, A.3): both parties hold shares of
    /// each wire. A few bits for each AND beside its transfers, and an exchange for each level of
    /// ANDs.
    Gmw = 1,
}

impl ComputeProtocol {
    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yao => "yao",
            Self::Gmw => "gmw",
        }
    }
}

/// The part of a party. With [`ComputeProtocol::Gmw`] both do nearly the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ComputeRole {
    /// Garbles the circuit, and has its first input.
    Garbler = 1,
    /// Evaluates it, and has its second input.
    Evaluator = 2,
}

impl ComputeRole {
    pub(crate) fn parse(number: u8) -> Result<Self, MalformedComputeFrame> {
        match number {
            1 => Ok(Self::Garbler),
            2 => Ok(Self::Evaluator),
            _ => Err(MalformedComputeFrame::Value("role")),
        }
    }

    /// The other one.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Garbler => Self::Evaluator,
            Self::Evaluator => Self::Garbler,
        }
    }
}

impl std::fmt::Display for ComputeRole {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Garbler => "garbler",
            Self::Evaluator => "evaluator",
        })
    }
}

/// Who learns the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum OutputLearners {
    /// Both parties.
    #[default]
    Both = 1,
    /// The evaluator only.
    Evaluator = 2,
    /// The garbler only.
    Garbler = 3,
}

impl OutputLearners {
    pub(crate) fn parse(number: u8) -> Result<Self, MalformedComputeFrame> {
        match number {
            1 => Ok(Self::Both),
            2 => Ok(Self::Evaluator),
            3 => Ok(Self::Garbler),
            _ => Err(MalformedComputeFrame::Value("party that learns the output")),
        }
    }

    /// Whether this party learns it.
    pub fn includes(self, role: ComputeRole) -> bool {
        match self {
            Self::Both => true,
            Self::Evaluator => role == ComputeRole::Evaluator,
            Self::Garbler => role == ComputeRole::Garbler,
        }
    }
}

/// How a session computes. Both parties need the same, but for `timeout` and `threads`.
#[derive(Clone, Copy, Debug)]
pub struct ComputeSettings {
    /// The protocol.
    pub protocol: ComputeProtocol,
    /// The garbling scheme of Yao's protocol. The other one has none.
    pub scheme: GarblingScheme,
    /// The oblivious transfers.
    pub transfers: OtExtension,
    /// Who learns the output.
    pub learns: OutputLearners,
    /// How long a party waits for a sign of life of the other one.
    pub timeout: Duration,
    /// The threads that garble or evaluate, at most; 0 is taken for 1. What is sent does not depend
    /// on it.
    pub threads: usize,
}

impl ComputeSettings {
    /// As many threads as can be of use for a circuit.
    pub(crate) fn threads_for(&self, source: &dyn CircuitSource) -> usize {
        usize::try_from(source.parts()).map_or(self.threads, |parts| self.threads.min(parts))
    }
}

impl Default for ComputeSettings {
    fn default() -> Self {
        Self {
            protocol: ComputeProtocol::Yao,
            scheme: GarblingScheme::HalfGates,
            transfers: OtExtension {
                kind: OtExtensionKind::Iknp,
                security: OtExtensionSecurity::SemiHonest,
            },
            learns: OutputLearners::Both,
            timeout: Duration::from_secs(30),
            threads: thread::available_parallelism().map_or(1, NonZero::get),
        }
    }
}

/// A scheme on the wire.
pub(crate) fn scheme_number(scheme: GarblingScheme) -> u8 {
    scheme as u8 + 1
}

/// The transfers on the wire: the extension, and 128 if the receiver's messages are checked. The
/// base transfers are those over Ristretto.
pub(crate) fn transfers_number(transfers: OtExtension) -> u8 {
    let kind = match transfers.kind {
        OtExtensionKind::Iknp => 1,
        OtExtensionKind::SoftSpoken2 => 2,
        OtExtensionKind::SoftSpoken4 => 4,
        OtExtensionKind::SoftSpoken8 => 8,
    };
    match transfers.security {
        OtExtensionSecurity::SemiHonest => kind,
        OtExtensionSecurity::MaliciousReceiver => kind | 128,
    }
}
