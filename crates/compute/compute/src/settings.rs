//! The settings of a session.

use std::num::NonZero;
use std::thread;
use std::time::Duration;

use circuit::CircuitSource;
use garble::GarblingScheme;
use ot::extension::{OtExtension, OtExtensionKind, OtExtensionSecurity};

use crate::malformed::MalformedComputeFrame;

/// The protocol of a computation. Roles, settings, circuits and outputs do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum ComputeProtocol {
    /// Yao's: one party garbles the circuit, the other evaluates it. A few rounds, whatever the
    /// circuit.
    #[default]
    Yao = 0,
    /// That of Goldreich, Micali and Wigderson (Transputation, A.3): both parties hold shares of
    /// each wire. Each AND takes a few bits in addition to its transfers, and each level of ANDs
    /// takes an exchange.
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

/// The role of a party. In [`ComputeProtocol::Gmw`] both parties do nearly the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ComputeRole {
    /// Garbles the circuit, and provides its first input.
    Garbler = 1,
    /// Evaluates it, and provides its second input.
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

/// The settings of a session. Both parties need the same values, except for `timeout` and
/// `threads`.
#[derive(Clone, Copy, Debug)]
pub struct ComputeSettings {
    /// The protocol.
    pub protocol: ComputeProtocol,
    /// The garbling scheme of Yao's protocol. Ignored in GMW.
    pub scheme: GarblingScheme,
    /// The oblivious transfers.
    pub transfers: OtExtension,
    /// Who learns the output.
    pub learns: OutputLearners,
    /// How long a party waits for a frame of the other, such as a keepalive.
    pub timeout: Duration,
    /// The maximum number of threads that garble or evaluate; 0 means 1. It does not change what is
    /// sent.
    pub threads: usize,
}

impl ComputeSettings {
    /// The number of threads that are useful for a circuit.
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
