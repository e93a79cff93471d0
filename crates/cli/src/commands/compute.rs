//! `sunder compute`: two parties compute on inputs that they do not show each other.

mod connection;
mod dry_run;
mod loading;
mod psi;
mod report;

use std::num::NonZeroU64;
use std::thread;
use std::time::{Duration, Instant};

use circuit::Schedule;
use clap::{Subcommand, ValueEnum};
use compute::predict::Traffic;
use compute::{Error, Extension, Learns, Role, Scheme, Session, Settings, TransferKind, Watch};
use zeroize::Zeroizing;

use crate::circuits;
use crate::console;
use crate::failure::Failure;
use crate::progress::Progress;
use connection::{Connecting, Met};
use loading::Loaded;
pub(super) use report::PhaseDocument;
use report::{Report, Timings};

/// Computes a function of two parties' inputs. Each learns the output, and nothing else about the
/// other's input.
///
/// Security is semi-honest: it holds if both parties run this program unchanged. A party that does
/// not can learn the other's input, or make the output wrong.
///
/// One party garbles a Boolean circuit, the other evaluates it (Yao's protocol). Both name the same
/// circuit, scheme and transfers. With an address of this machine itself (127.0.0.1) nothing is
/// encrypted, unless --identity or --key is given; with any other address everything is.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = HELP
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// This party's role; the other party has the other one
    #[arg(long, value_enum, required = true)]
    role: Option<RoleName>,
    #[command(flatten)]
    connecting: Connecting,
    /// The circuit: aes128 (the garbler's key, the evaluator's block), sha256 (one padded block of
    /// 64 bytes, of which the garbler has the first), mincut (the minimum of 12,500 numbers of 20
    /// bits of each party), or a file in one of Bristol's formats
    #[arg(long, value_name = "NAME|FILE", required = true)]
    circuit: Option<String>,
    /// This party's input in hexadecimal; of a FILE's circuit, bit i is bit i mod 8 of byte i div 8
    #[arg(long, value_name = "HEX", required_unless_present_any = ["input_file", "dry_run"])]
    input: Option<String>,
    /// A file with the input in hexadecimal, so that it is not in the list of processes; - is
    /// standard input
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    input_file: Option<std::path::PathBuf>,
    #[command(flatten)]
    protocol: Protocol,
    /// How many times to compute, on one set-up
    #[arg(long, value_name = "N", default_value = "1")]
    repeat: NonZeroU64,
    /// Say what a run will take: bytes, round trips, and time, for the path to the party that
    /// listens at --connect
    #[arg(long)]
    dry_run: bool,
    /// Say why auto uses the transport that it uses
    #[arg(long)]
    explain: bool,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

const HELP: &str = "\
Example, on one machine (FIPS 197, appendix B):
  sunder compute --role garbler --listen 127.0.0.1:7001 --circuit aes128 \\
    --input 2b7e151628aed2a6abf7158809cf4f3c &
  sunder compute --role evaluator --connect 127.0.0.1:7001 --circuit aes128 \\
    --input 3243f6a8885a308d313198a2e0370734
Both print 3925841d02dc09fbdc118597196a0b32.

Security is semi-honest: use it with a party that you trust to run this program unchanged.";

/// What both parties choose alike.
#[derive(clap::Args)]
struct Protocol {
    /// The garbling scheme: half-gates (keyed again for each gate), half-gates-keyed (with the
    /// labels as keys), fixed-key (for comparison: less secure with each gate), glnp15 (under
    /// standard assumptions only), or three-halves (a quarter fewer bytes; its hash is not proven)
    #[arg(long, value_name = "NAME", default_value_t)]
    scheme: Scheme,
    /// The oblivious transfers of the evaluator's input
    #[arg(long, value_enum, value_name = "NAME", default_value = "iknp")]
    transfers: Transfers,
    /// Who learns the output
    #[arg(long, value_enum, value_name = "WHO", default_value = "both")]
    output_to: OutputTo,
    /// Only the evaluator learns the output, as with --output-to evaluator
    #[arg(long, conflicts_with = "output_to")]
    private_output: bool,
    /// How long to wait for a sign of life of the other party, in seconds
    #[arg(long, value_name = "S", default_value = "30", value_parser = clap::value_parser!(u32).range(1..))]
    timeout: u32,
}

impl Protocol {
    fn output_to(&self) -> OutputTo {
        if self.private_output { OutputTo::Evaluator } else { self.output_to }
    }

    fn settings(&self) -> Settings {
        let learns = match self.output_to() {
            OutputTo::Both => Learns::Both,
            OutputTo::Evaluator => Learns::Evaluator,
            OutputTo::Garbler => Learns::Garbler,
        };
        let defaults = Settings::default();
        Settings {
            scheme: self.scheme,
            learns,
            transfers: Extension { kind: self.transfers.kind(), ..defaults.transfers },
            timeout: Duration::from_secs(self.timeout.into()),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum Transfers {
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

impl Transfers {
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
enum Command {
    Psi(Box<psi::Arguments>),
}

impl Arguments {
    fn role(&self) -> Role {
        self.role.unwrap_or(RoleName::Garbler).role()
    }

    fn circuit(&self) -> &str {
        self.circuit.as_deref().unwrap_or_default()
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum RoleName {
    /// Garbles the circuit
    Garbler,
    /// Evaluates it
    Evaluator,
}

impl RoleName {
    fn role(self) -> Role {
        match self {
            Self::Garbler => Role::Garbler,
            Self::Evaluator => Role::Evaluator,
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum OutputTo {
    /// Both parties
    Both,
    /// The evaluator only
    Evaluator,
    /// The garbler only
    Garbler,
}

/// Computes.
///
/// # Errors
/// If the input or the circuit is wrong, or the other party fails.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    if let Some(Command::Psi(arguments)) = &arguments.command {
        return psi::run(arguments);
    }
    let role = arguments.role();
    let settings = arguments.protocol.settings();
    if arguments.dry_run {
        let mut loading = loading::start(arguments.circuit(), role, None)?;
        return dry_run::run(arguments, role, &settings, loading.wait()?);
    }
    let input = input(arguments)?;
    let start = Instant::now();
    let mut loading = loading::start(arguments.circuit(), role, Some(&input))?;
    let exchange = if arguments.connecting.chooses() {
        let instances = u32::try_from(arguments.repeat.get()).unwrap_or(u32::MAX);
        let traffic = Traffic::of(&mut loading.wait()?.schedule.source(), &settings, instances);
        Some(dry_run::exchange(traffic, role))
    } else {
        None
    };
    let (other, circuit) = (role.other(), arguments.circuit());
    let rest = format!("--circuit {circuit} --input HEX --role {other}");
    let Met { connection, connect } = connection::meet(&arguments.connecting, exchange, &rest)?;
    let (transport, decision) = (connection.transport(), connection.decision().cloned());
    if arguments.explain {
        let reason = decision.map_or("as the command says".to_owned(), |it| it.reason);
        console::note(&format!("{transport}: {reason}"));
    }
    let begun = Instant::now();
    let mut session = Session::start(connection, role, settings).map_err(|error| failed(&error))?;
    let Loaded { schedule, load } = loading.wait()?;
    loading::check(schedule, role, &input)?;
    let output = compute(&mut session, schedule, &input, arguments.repeat.get())?;
    let figures = session.figures();
    session.finish().map_err(|error| failed(&error))?;
    let timings = Timings { total: start.elapsed(), run: begun.elapsed(), connect, load: *load };
    let report = Report {
        arguments,
        transport,
        shape: schedule.shape(),
        output: output.as_deref(),
        timings,
        figures,
    };
    report.print()
}

/// Runs all instances, and shows how far they are.
fn compute(
    session: &mut Session,
    schedule: &Schedule,
    input: &[u8],
    repeat: u64,
) -> Result<Option<Vec<u8>>, Failure> {
    let total = schedule.shape().ands.saturating_mul(repeat);
    let _progress = Showing::start(session.watch(), total);
    let mut source = schedule.source();
    let mut first = None;
    for instance in 0..repeat {
        let output = session.run(&mut source, input).map_err(|error| failed(&error))?;
        if instance == 0 {
            first = Some(output);
        } else if first.as_ref() != Some(&output) {
            let message = format!("instance {instance} has another output than the first one");
            return Err(Failure::Failed(message));
        }
    }
    Ok(first.flatten())
}

/// A thread that shows the progress of a session on a terminal.
struct Showing {
    stop: Option<std::sync::mpsc::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Showing {
    fn start(watch: Watch, total: u64) -> Self {
        let (stop, stopped) = std::sync::mpsc::channel();
        let show = move || {
            let progress = Progress::steps(total);
            let mut shown = 0;
            while stopped.recv_timeout(Duration::from_millis(100))
                == Err(std::sync::mpsc::RecvTimeoutError::Timeout)
            {
                let now = watch.ands();
                progress.advance(usize::try_from(now - shown).unwrap_or(0));
                progress.doing(if now == 0 { "waiting for the other party" } else { "ANDs" });
                shown = now;
            }
        };
        // Without a thread nothing is shown.
        let thread = thread::Builder::new().name("progress".into()).spawn(show).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for Showing {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// This party's input.
fn input(arguments: &Arguments) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let text = match &arguments.input_file {
        Some(path) if path.as_os_str() == "-" => std::io::read_to_string(std::io::stdin())
            .map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))?,
        Some(path) => {
            std::fs::read_to_string(path).map_err(|error| Failure::reading(path, &error))?
        }
        None => arguments.input.clone().unwrap_or_default(),
    };
    let text = Zeroizing::new(text);
    let bytes = circuits::parse_hex(text.trim()).ok_or_else(|| {
        Failure::Usage("the input is not hexadecimal: give two digits a byte".into())
    })?;
    Ok(Zeroizing::new(bytes))
}

/// What an error of the crate is here.
pub(super) fn failed(error: &Error) -> Failure {
    let message = error.to_string();
    match error {
        _ if error.is_security() => Failure::Refused(message),
        Error::Differs { .. }
        | Error::Sizes { .. }
        | Error::SameRole { .. }
        | Error::Version { .. }
        | Error::InputLen { .. }
        | Error::TooLarge => Failure::Usage(message),
        _ => Failure::Failed(message),
    }
}
