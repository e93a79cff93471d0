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

/// The deviating parties against which Yao's protocol is secure. `docs/protocols/yao.md` states and
/// proves what each level promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum ComputeSecurity {
    /// None: both parties follow the protocol.
    SemiHonest = 0,
    /// Any evaluator: its transfers are checked. The garbler follows the protocol.
    #[default]
    Evaluator = 1,
    /// Any party, except that it can learn one additional bit of the other's input, at the risk of
    /// being detected: each party garbles the circuit for the other one, and they compare the
    /// outputs (dual execution). Both parties learn the output.
    Malicious = 2,
}

impl ComputeSecurity {
    /// All levels, the weakest first.
    pub const ALL: [Self; 3] = [Self::SemiHonest, Self::Evaluator, Self::Malicious];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SemiHonest => "semi-honest",
            Self::Evaluator => "evaluator",
            Self::Malicious => "malicious",
        }
    }

    pub(crate) fn parse(number: u8) -> Result<Self, MalformedComputeFrame> {
        let found = Self::ALL.into_iter().find(|level| *level as u8 == number);
        found.ok_or(MalformedComputeFrame::Value("level of security"))
    }

    /// Whether both parties garble the circuit, and both evaluate it.
    pub(crate) fn is_dual(self) -> bool {
        self == Self::Malicious
    }
}

impl std::fmt::Display for ComputeSecurity {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(self.name())
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
    /// The deviating parties that Yao's protocol withstands. Ignored in GMW, which is semi-honest.
    pub security: ComputeSecurity,
    /// The oblivious transfers.
    pub transfers: OtExtensionKind,
    /// Who learns the output.
    pub learns: OutputLearners,
    /// How long a party waits for a frame of the other, such as a keepalive.
    pub timeout: Duration,
    /// The maximum number of threads that garble or evaluate; 0 means 1. It does not change what is
    /// sent.
    pub threads: usize,
}

impl ComputeSettings {
    /// The level of security of the protocol.
    pub(crate) fn security(&self) -> ComputeSecurity {
        match self.protocol {
            ComputeProtocol::Yao => self.security,
            ComputeProtocol::Gmw => ComputeSecurity::SemiHonest,
        }
    }

    /// The transfers, whose receiver is checked unless it is trusted.
    pub(crate) fn extension(&self) -> OtExtension {
        let security = match self.security() {
            ComputeSecurity::SemiHonest => OtExtensionSecurity::SemiHonest,
            ComputeSecurity::Evaluator | ComputeSecurity::Malicious => {
                OtExtensionSecurity::MaliciousReceiver
            }
        };
        OtExtension { kind: self.transfers, security }
    }

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
            security: ComputeSecurity::Evaluator,
            transfers: OtExtensionKind::Iknp,
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
