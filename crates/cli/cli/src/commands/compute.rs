//! `sunder compute`: two parties compute on inputs that they do not show each other.

mod connection;
mod dry_run;
mod loading;
mod measuring;
mod network;
mod phases;
mod polling;
mod psi;
mod report;
mod running;

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::num::{NonZeroU64, NonZeroUsize};
use std::path::Path;
use std::time::Duration;

use circuit::{CircuitSchedule, bits};
use clap::{Subcommand, ValueEnum};
use compute::predict::PredictedTraffic;
use compute::{
    ComputeAbortReason, ComputePhase, ComputeRole, ComputeSecurity, ComputeSettings, Error,
    GarblingScheme, OutputLearners, TransferKind,
};
use console::CommandFailure;
use zeroize::Zeroizing;

use crate::circuits::{self, InputNumbers, ValueOrderOptions};
use connection::ComputeConnectOptions;
use dry_run::DryRunRequest;
use loading::{CircuitLoader, CircuitRequest};
use phases::PhaseFileOptions;
use report::ComputeReport;
use running::{ComputeSessionSetup, RunningComputation};

/// The longest text of an input, in bytes: more than any circuit takes.
const MAX_INPUT_TEXT: u64 = 128 << 20;

/// Computes a function of two parties' secret inputs.
///
/// Each party learns the output, and nothing else about the other party's input. This holds for any
/// evaluator, even one that runs a changed program. A garbler that runs a changed program can learn
/// the evaluator's input, or make the output wrong, unless both parties give --security malicious.
///
/// One party garbles a Boolean circuit, the other evaluates it (Yao's protocol); or both evaluate
/// it on shares (GMW). Both name the same circuit, protocol, scheme and transfers. With a loopback
/// address (127.0.0.1) nothing is encrypted, unless --identity or --key is given; with any other
/// address everything is encrypted.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = HELP
)]
#[expect(clippy::struct_excessive_bools, reason = "each is an option of its own")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<ComputeCommand>,
    /// This party's role; the other party takes the other role
    #[arg(long, value_enum, required = true)]
    role: Option<ComputeRoleName>,
    #[command(flatten)]
    connecting: ComputeConnectOptions,
    /// The circuit: aes128 (the garbler's key, the evaluator's block), sha256 (one padded block of
    /// 64 bytes, of which the garbler has the first), mincut (the minimum of 12,500 numbers of 20
    /// bits of each party), aes128:N or sha256:N (N rounds, each with the output of the previous
    /// round as the evaluator's input), or a file: one of Bristol's formats, a netlist of yosys, or
    /// BLIF
    #[arg(long, value_name = "NAME|FILE", required = true)]
    circuit: Option<String>,
    /// This party's input in hexadecimal. In a FILE's circuit, each value begins with a byte, and
    /// its bit i is bit (i mod 8) of byte (i div 8), unless --bit-order or --byte-order changes
    /// that. All users of this host can see it in the list of processes: --input-file keeps it
    /// secret
    #[arg(long, value_name = "HEX")]
    input: Option<String>,
    /// A file with the input in hexadecimal, which may have white space in it; - is standard input
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    input_file: Option<std::path::PathBuf>,
    /// The input values of a FILE's circuit that this party gives, by their numbers from 1, as 1,3,
    /// or none. The other party gives all others [default: the garbler gives the first]
    #[arg(long, value_name = "NUMBERS")]
    inputs: Option<InputNumbers>,
    #[command(flatten)]
    order: ValueOrderOptions,
    /// The protocol: yao, or gmw for comparison: fewer bytes with --transfers softspoken4, but half
    /// a round trip for each level of ANDs
    #[arg(long = "protocol", value_enum, value_name = "NAME", default_value = "yao")]
    protocol_name: ComputeProtocolName,
    /// Who may run a changed program (only yao; both parties choose the same)
    /// [default: evaluator]
    #[arg(long, value_enum, value_name = "LEVEL")]
    security: Option<ComputeSecurityName>,
    /// Who learns the output
    #[arg(long, value_enum, value_name = "WHO", default_value = "both")]
    output_to: OutputRecipient,
    /// Only the evaluator learns the output, as with --output-to evaluator
    #[arg(long, conflicts_with = "output_to")]
    private_output: bool,
    #[command(flatten)]
    protocol: ComputeProtocolOptions,
    /// How many times to compute the function after one set-up
    #[arg(long, value_name = "N", default_value = "1")]
    repeat: NonZeroU64,
    /// Predict the bytes, round trips and time of a run with each level of --security, for the path
    /// to the party that listens at --connect
    #[arg(long)]
    dry_run: bool,
    /// Show why auto uses this transport
    #[arg(long)]
    explain: bool,
    #[command(flatten)]
    phases: PhaseFileOptions,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Example, on two hosts: the party that listens prints the command for the other,
with its key.
  sunder compute --role garbler --listen 0.0.0.0:7001 --circuit aes128 \\
    --input-file key.hex

Example, on one host (FIPS 197, appendix B):
  sunder compute --role garbler --listen 127.0.0.1:7001 --circuit aes128 \\
    --input 2b7e151628aed2a6abf7158809cf4f3c &
  sunder compute --role evaluator --connect 127.0.0.1:7001 --circuit aes128 \\
    --input 3243f6a8885a308d313198a2e0370734
Both print 3925841d02dc09fbdc118597196a0b32.

The evaluator need not be trusted. The garbler must be trusted to run this
program unchanged, unless both parties give --security malicious.";

/// What both parties choose alike.
#[derive(clap::Args)]
struct ComputeProtocolOptions {
    /// The garbling scheme of yao: half-gates (keyed again for each gate), half-gates-keyed (with
    /// the labels as keys), fixed-key (for comparison: less secure with each gate), glnp15 (under
    /// standard assumptions only), or three-halves (a quarter fewer bytes)
    /// [default: half-gates]
    #[arg(long, value_name = "NAME")]
    scheme: Option<GarblingScheme>,
    /// The protocol of the oblivious transfers: of the evaluator's input, or with gmw two for each
    /// AND
    /// [default: iknp]
    #[arg(long, value_enum, value_name = "NAME")]
    transfers: Option<ObliviousTransferName>,
    /// How long the other party may be silent, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
    /// The number of threads that garble or evaluate; the other party may use another number
    /// [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

impl ComputeProtocolOptions {
    /// The options that are not the defaults, for the other party's command.
    fn options(&self, name: ComputeProtocolName) -> String {
        let protocol = match name {
            ComputeProtocolName::Yao => "",
            ComputeProtocolName::Gmw => " --protocol gmw",
        };
        protocol.to_owned() + &self.circuit_options()
    }

    /// Those of them that belong to circuits.
    fn circuit_options(&self) -> String {
        let scheme = match self.scheme {
            None | Some(GarblingScheme::HalfGates) => String::new(),
            Some(scheme) => format!(" --scheme {scheme}"),
        };
        let transfers = match self.transfers() {
            ObliviousTransferName::Iknp => String::new(),
            transfers => format!(" --transfers {}", transfers.name()),
        };
        scheme + &transfers
    }

    fn transfers(&self) -> ObliviousTransferName {
        self.transfers.unwrap_or(ObliviousTransferName::Iknp)
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout.into())
    }

    /// # Errors
    /// If there are options that do not fit together.
    fn settings(
        &self,
        name: ComputeProtocolName,
        security: Option<ComputeSecurityName>,
        learns: OutputLearners,
    ) -> Result<ComputeSettings, CommandFailure> {
        let protocol = name.protocol();
        if self.scheme.is_some() && protocol == compute::ComputeProtocol::Gmw {
            let message = "--scheme has no meaning with --protocol gmw, which garbles nothing; \
                           leave it out";
            return Err(CommandFailure::Usage(message.into()));
        }
        let is_trusting = matches!(security, None | Some(ComputeSecurityName::SemiHonest));
        if protocol == compute::ComputeProtocol::Gmw && !is_trusting {
            let message = "--protocol gmw is semi-honest: leave out --security, or use yao";
            return Err(CommandFailure::Usage(message.into()));
        }
        let defaults = ComputeSettings::default();
        let security = security.map_or(defaults.security, ComputeSecurityName::level);
        let security = match protocol {
            compute::ComputeProtocol::Yao => security,
            compute::ComputeProtocol::Gmw => ComputeSecurity::SemiHonest,
        };
        if security == ComputeSecurity::Malicious && learns != OutputLearners::Both {
            return Err(failed(&Error::PrivateOutput));
        }
        Ok(ComputeSettings {
            protocol,
            security,
            scheme: self.scheme.unwrap_or(defaults.scheme),
            learns,
            transfers: self.transfers().kind(),
            timeout: self.timeout(),
            threads: self.threads.map_or(defaults.threads, NonZeroUsize::get),
        })
    }
}

/// The garbling scheme, if there is one.
fn scheme_name(settings: &ComputeSettings) -> Option<&'static str> {
    (settings.protocol == compute::ComputeProtocol::Yao).then(|| settings.scheme.name())
}

#[derive(Clone, Copy, ValueEnum)]
enum ComputeProtocolName {
    /// A few rounds, for any circuit
    Yao,
    /// One exchange for each level of ANDs
    Gmw,
}

impl ComputeProtocolName {
    fn protocol(self) -> compute::ComputeProtocol {
        match self {
            Self::Yao => compute::ComputeProtocol::Yao,
            Self::Gmw => compute::ComputeProtocol::Gmw,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ComputeSecurityName {
    /// Neither party
    SemiHonest,
    /// The evaluator
    Evaluator,
    /// Either party, which can then learn one bit, but risks being detected. It costs about twice
    /// as much, and both parties learn the output
    Malicious,
}

impl ComputeSecurityName {
    fn level(self) -> ComputeSecurity {
        match self {
            Self::SemiHonest => ComputeSecurity::SemiHonest,
            Self::Evaluator => ComputeSecurity::Evaluator,
            Self::Malicious => ComputeSecurity::Malicious,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ObliviousTransferName {
    /// 16 bytes for a bit
    Iknp,
    /// 8 bytes for a bit
    #[value(name = "softspoken2")]
    SoftSpoken2,
    /// 4 bytes for a bit, and more computation
    #[value(name = "softspoken4")]
    SoftSpoken4,
    /// 2 bytes for a bit, and much more computation
    #[value(name = "softspoken8")]
    SoftSpoken8,
}

impl ObliviousTransferName {
    fn kind(self) -> TransferKind {
        match self {
            Self::Iknp => TransferKind::Iknp,
            Self::SoftSpoken2 => TransferKind::SoftSpoken2,
            Self::SoftSpoken4 => TransferKind::SoftSpoken4,
            Self::SoftSpoken8 => TransferKind::SoftSpoken8,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Iknp => "iknp",
            Self::SoftSpoken2 => "softspoken2",
            Self::SoftSpoken4 => "softspoken4",
            Self::SoftSpoken8 => "softspoken8",
        }
    }
}

#[derive(Subcommand)]
enum ComputeCommand {
    Psi(Box<psi::Arguments>),
    PsiRuns(psi::runs::PsiRunsArguments),
}

impl Arguments {
    fn role(&self) -> ComputeRole {
        self.role.unwrap_or(ComputeRoleName::Garbler).role()
    }

    fn circuit(&self) -> &str {
        self.circuit.as_deref().unwrap_or_default()
    }

    fn output_to(&self) -> OutputRecipient {
        if self.private_output { OutputRecipient::Evaluator } else { self.output_to }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ComputeRoleName {
    /// Garbles the circuit
    Garbler,
    /// Evaluates it
    Evaluator,
}

impl ComputeRoleName {
    fn role(self) -> ComputeRole {
        match self {
            Self::Garbler => ComputeRole::Garbler,
            Self::Evaluator => ComputeRole::Evaluator,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum OutputRecipient {
    /// Both parties
    Both,
    /// The evaluator only
    #[value(alias = "receiver")]
    Evaluator,
    /// The garbler only
    #[value(alias = "sender")]
    Garbler,
}

impl OutputRecipient {
    fn learners(self) -> OutputLearners {
        match self {
            Self::Both => OutputLearners::Both,
            Self::Evaluator => OutputLearners::Evaluator,
            Self::Garbler => OutputLearners::Garbler,
        }
    }

    /// The option, for the other party's command.
    fn option(self) -> &'static str {
        match self {
            Self::Both => "",
            Self::Evaluator => " --output-to evaluator",
            Self::Garbler => " --output-to garbler",
        }
    }
}

/// Computes.
///
/// # Errors
/// If the input or the circuit is wrong, or the other party fails.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        Some(ComputeCommand::Psi(arguments)) => return psi::run(arguments),
        Some(ComputeCommand::PsiRuns(arguments)) => return psi::runs::run(arguments),
        None => {}
    }
    let (role, name) = (arguments.role(), arguments.circuit());
    let learns = arguments.output_to().learners();
    let settings =
        arguments.protocol.settings(arguments.protocol_name, arguments.security, learns)?;
    let instances = u32::try_from(arguments.repeat.get()).unwrap_or(u32::MAX);
    let Arguments { connecting, inputs, order, .. } = arguments;
    let protocol = settings.protocol;
    let request = CircuitRequest { name, role, protocol, inputs: inputs.as_ref(), order: *order };
    if arguments.dry_run {
        let mut loading = request.start(None)?;
        let loaded = loading.wait()?;
        let prediction = DryRunRequest {
            connecting,
            circuit: name,
            role,
            settings: &settings,
            levels: dry_run::levels(&settings),
            instances,
            reading: Duration::ZERO,
            json: arguments.json,
        };
        let traffic = |settings: &_| PredictedTraffic::of(&loaded.schedule, settings, instances);
        return dry_run::run(&prediction, traffic, loaded);
    }
    let input = input(arguments)?;
    let mut loading = request.start(Some(&input))?;
    let rest = others_command(arguments, &mut loading)?;
    let Arguments { phases, explain, .. } = arguments;
    let start =
        ComputeSessionSetup { connecting, role, settings, rest: &rest, explain: *explain, phases };
    let traffic = |schedule: &CircuitSchedule| PredictedTraffic::of(schedule, &settings, instances);
    let mut packed = Zeroizing::default();
    let check = |schedule: &CircuitSchedule| {
        packed = request.packed(schedule, &input)?;
        Ok(())
    };
    let mut running = start.open(&mut loading, traffic, check)?;
    let schedule = &loading.wait()?.schedule;
    let output = compute(&mut running, schedule, &packed, arguments.repeat.get())?;
    let values = &schedule.shape().output_values;
    let output = output.map(|output| order.bytes(values, &bits::of_bytes(&output)));
    let (transport, reason) = (running.transport, running.reason.take());
    let costs = running.finish(settings.protocol)?;
    let (shape, output, reason) = (schedule.shape(), output.as_deref(), reason.as_deref());
    ComputeReport { arguments, settings, transport, reason, shape, output, costs }.print()
}

/// What the other party's command has besides the address.
///
/// # Errors
/// If this party gives certain input values, and the file is not a circuit.
fn others_command(
    arguments: &Arguments,
    loading: &mut CircuitLoader,
) -> Result<String, CommandFailure> {
    let repeat = match arguments.repeat.get() {
        1 => String::new(),
        instances => format!(" --repeat {instances}"),
    };
    let security = match arguments.security.map(ComputeSecurityName::level) {
        None | Some(ComputeSecurity::Evaluator) => String::new(),
        Some(level) => format!(" --security {level}"),
    };
    let inputs = match &arguments.inputs {
        Some(inputs) => {
            let shape = loading.wait()?.schedule.shape();
            let count = shape.garbler_values.len() + shape.evaluator_values.len();
            format!(" --inputs {}", inputs.others(count))
        }
        None => String::new(),
    };
    Ok(format!(
        "--role {} --circuit {}{inputs} --input-file FILE{}{}{security}{repeat}",
        arguments.role().other(),
        arguments.circuit(),
        arguments.protocol.options(arguments.protocol_name),
        arguments.output_to().option()
    ))
}

/// Runs all instances, and shows how far they are.
fn compute(
    running: &mut RunningComputation,
    schedule: &CircuitSchedule,
    input: &[u8],
    repeat: u64,
) -> Result<Option<Vec<u8>>, CommandFailure> {
    let _showing = running.show(schedule.shape().ands.saturating_mul(repeat));
    let mut first = None;
    for instance in 0..repeat {
        let output = running.session.run(schedule, input);
        let output = output.map_err(|error| match error {
            _ if instance == 0 => failed(&error),
            Error::Ended { phase: ComputePhase::Agreement } => failed(&error).and(&format!(
                "{instance} of {repeat} instances are done: does the other party use the same \
                 --repeat?"
            )),
            _ => failed(&error).and(&format!("{instance} of {repeat} instances are done")),
        })?;
        if instance == 0 {
            first = Some(output);
        } else if first.as_ref() != Some(&output) {
            let message = format!(
                "the output of instance {instance} differs from that of the \
                                   first one"
            );
            return Err(CommandFailure::Failed(message));
        }
    }
    Ok(first.flatten())
}

/// This party's input.
fn input(arguments: &Arguments) -> Result<Zeroizing<Vec<u8>>, CommandFailure> {
    let text = match &arguments.input_file {
        Some(path) if path.as_os_str() == "-" => {
            text(io::stdin().lock(), Path::new("standard input"))?
        }
        Some(path) => {
            let file = File::open(path).map_err(|error| CommandFailure::reading(path, &error))?;
            text(file, path)?
        }
        None => {
            let missing = "this party's input is missing: give --input-file FILE, or --input HEX";
            let input = arguments.input.clone();
            Zeroizing::new(input.ok_or_else(|| CommandFailure::Usage(missing.into()))?)
        }
    };
    let wrong = |error| CommandFailure::Usage(format!("the input is not hexadecimal: {error}"));
    circuits::parse_hex(text.trim()).map_err(wrong)
}

/// The text of an input.
fn text(from: impl Read, path: &Path) -> Result<Zeroizing<String>, CommandFailure> {
    let mut text = Zeroizing::new(String::new());
    let read = from.take(MAX_INPUT_TEXT + 1).read_to_string(&mut text);
    let len = read.map_err(|error| match error.kind() {
        ErrorKind::InvalidData => {
            let path = path.display();
            CommandFailure::Usage(format!(
                "{path}: not hexadecimal; `xxd -p` converts a binary file"
            ))
        }
        _ => CommandFailure::reading(path, &error),
    })?;
    if len as u64 > MAX_INPUT_TEXT {
        let message = format!("{}: longer than any valid input", path.display());
        return Err(CommandFailure::Usage(message));
    }
    Ok(text)
}

/// Converts an error of the crate to a failure of the command.
fn failed(error: &Error) -> CommandFailure {
    let message = error.to_string();
    match error {
        _ if error.is_security() => CommandFailure::Refused(message),
        Error::Aborted { reason: ComputeAbortReason::Unproven, .. } => {
            CommandFailure::Refused(message)
        }
        Error::Sizes { .. } | Error::Differs { what: "the circuit" } => {
            CommandFailure::Usage(message).and(
                "compare the SHA-256 that `sunder circuit info` prints at both parties, and \
                     their --inputs",
            )
        }
        Error::Aborted {
            reason:
                ComputeAbortReason::Version | ComputeAbortReason::Role | ComputeAbortReason::Differs,
            ..
        }
        | Error::Differs { .. }
        | Error::Security { .. }
        | Error::SameRole { .. }
        | Error::Version { .. }
        | Error::InputLen { .. }
        | Error::TooLarge
        | Error::PrivateOutput => CommandFailure::Usage(message),
        _ => CommandFailure::Failed(message),
    }
}
