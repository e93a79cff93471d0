//! `sunder demo`: demonstrates Sunder on this machine alone, without configuration.
//!
//! # Map
//!
//! - The default demonstration, channels: `topology` has three channels, the programs at their ends
//!   (`http`), and a `tap` on each. `source` is the file that crosses them. `samples`, `histogram`
//!   and `examine` search the captures for it, `report` prints.
//! - `sign`: signatures and a refresh: `theft`, `memory_scan`, `verifier`. `compute`: two parties.
//!   `chat`: a proxy and three members: `stage`, `distinguisher`. Each has its Cargo feature.
//! - `scratch`: files without a name, of which nothing remains.
//!
//! `histogram` and the reports are pure.

#[cfg(feature = "mix")]
mod chat;
#[cfg(feature = "compute")]
mod compute;
mod examine;
mod histogram;
mod http;
mod report;
mod samples;
mod scratch;
#[cfg(feature = "quorum")]
mod sign;
mod source;
mod tap;
mod topology;

use std::path::PathBuf;
use std::sync::Arc;

use clap::ValueEnum;
use console::CommandFailure;

use examine::{CaptureFinding, ShareCapture, examine};
pub use histogram::chi_squared;
use report::DemoChannelsReport;
use samples::FileSamples;
#[cfg(feature = "quorum")]
pub use sign::{make_quorum_key, memory_scan};
use source::{DEFAULT_LEN, DemoSourceFile};
use topology::{CHANNELS, DemoTransfer, transfer};

/// Demonstrates Sunder on this machine alone.
///
/// Needs neither root nor configuration, and leaves nothing behind but what --out says.
#[derive(clap::Args)]
#[command(after_help = "Examples:\n  sunder demo --file photo.jpg --eavesdrop all\n  \
                        sunder demo sign --file letter.txt --out signed\n  sunder demo compute\n  \
                        sunder demo chat")]
pub struct Arguments {
    /// What to demonstrate
    #[arg(value_enum, default_value_t = Demonstration::Channels)]
    job: Demonstration,
    /// The file to send instead of 256 MiB of the system's own files, or to sign, of 1 MiB at most
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The number of channels that an eavesdropper listens on [default: two]
    #[arg(long, value_enum, value_name = "CHANNELS")]
    eavesdrop: Option<EavesdropScope>,
    /// Where sunder demo sign leaves public.pem, message, message.sig and, by the four others,
    /// message.after.sig
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Demonstration {
    /// A file crosses three channels from a file server to its client, over loopback but with the
    /// real protocol. An eavesdropper on each channel records what it sees, and the captures of
    /// each channel and each pair are searched for the file. Needs disk space for four times the
    /// file in TMPDIR, or /tmp. Fails if the file arrives changed, or if one or two eavesdroppers
    /// have anything but noise
    Channels,
    /// A new RSA key of 2048 bits is split for four servers. Any two of them sign a file. Then the
    /// key moves to four others, which sign the file too. All servers are in this process. openssl
    /// verifies the signatures, if it is installed. Fails if one is wrong, if shares of an old and
    /// a new server sign together, or if a share of an old server is in memory after the move
    #[cfg(feature = "quorum")]
    Sign,
    /// Two parties compute AES-128 of a key and a block without showing them to each other, over
    /// TCP on this machine. Shows the costs of each phase, and what each party has received. Fails
    /// if the output is not that of FIPS 197, or if a party has received the other's input or
    /// anything but noise
    #[cfg(feature = "compute")]
    Compute,
    /// Three members of a group talk through a proxy, in this process. Shows what the proxy
    /// receives from a member that writes to one member, to another, or to nobody, with statistical
    /// tests of it. Fails if a line does not arrive, or if a test tells these apart
    #[cfg(feature = "mix")]
    Chat,
}

#[derive(Clone, Copy, ValueEnum)]
enum EavesdropScope {
    /// Any one or two
    Two,
    /// Also all three, which reveal the file
    All,
}

/// Runs the demonstration.
///
/// # Errors
/// If the file cannot be sent, arrives changed, or was not secret.
pub fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    arguments.check()?;
    match arguments.job {
        Demonstration::Channels => channels(arguments),
        #[cfg(feature = "quorum")]
        Demonstration::Sign => {
            sign::run(arguments.file.as_deref(), arguments.out.as_deref(), arguments.json)
        }
        #[cfg(feature = "compute")]
        Demonstration::Compute => compute::run(arguments.json),
        #[cfg(feature = "mix")]
        Demonstration::Chat => chat::run(arguments.json),
    }
}

impl Arguments {
    /// Checks that every option is one of the demonstration's.
    fn check(&self) -> Result<(), CommandFailure> {
        let allowed: &[&str] = match self.job {
            Demonstration::Channels => &["--file", "--eavesdrop"],
            #[cfg(feature = "quorum")]
            Demonstration::Sign => &["--file", "--out"],
            #[cfg(any(feature = "compute", feature = "mix"))]
            _ => &[],
        };
        let given = [
            ("--file", self.file.is_some()),
            ("--eavesdrop", self.eavesdrop.is_some()),
            ("--out", self.out.is_some()),
        ];
        match given.iter().find(|(option, is_given)| *is_given && !allowed.contains(option)) {
            None => Ok(()),
            Some((option, _)) => {
                let job = self.job.to_possible_value();
                let job = job.as_ref().map_or("", |job| job.get_name());
                Err(CommandFailure::Usage(format!("{option} is not for sunder demo {job}")))
            }
        }
    }
}

fn channels(arguments: &Arguments) -> Result<(), CommandFailure> {
    let source = Arc::new(prepare(arguments)?);
    let runtime = service::runtime()?;
    let mut transfer = runtime.block_on(transfer(Arc::clone(&source)))?;
    runtime.shutdown_background();

    let content = source.read_through().map_err(|error| scratch::reading(&error))?;
    let samples = FileSamples::draw(&source).map_err(|error| scratch::reading(&error))?;
    let findings =
        search(&mut transfer, &samples, arguments.eavesdrop.unwrap_or(EavesdropScope::Two))?;
    let report = DemoChannelsReport {
        source: &source,
        content: &content,
        transfer: &transfer,
        samples: samples.len(),
        findings: &findings,
    };
    if arguments.json { report.print_json() } else { report.print() }?;
    check(&report)
}

/// Opens or creates the file, if there is disk space for it and for the captures.
fn prepare(arguments: &Arguments) -> Result<DemoSourceFile, CommandFailure> {
    if let Some(path) = &arguments.file {
        let source = DemoSourceFile::open(path)?;
        scratch::require(captured(source.len))?;
        Ok(source)
    } else {
        scratch::require(DEFAULT_LEN + captured(DEFAULT_LEN))?;
        DemoSourceFile::of_the_system()
    }
}

/// The approximate size of the captures of a file of this length, headers included.
fn captured(len: u64) -> u64 {
    u64::from(CHANNELS) * (len + len / 64 + (1 << 20))
}

/// Searches the captures for the file: each channel, each pair, and all of them if requested.
fn search(
    transfer: &mut DemoTransfer,
    samples: &FileSamples,
    eavesdrop: EavesdropScope,
) -> Result<Vec<CaptureFinding>, CommandFailure> {
    let captures = transfer.captures.drain(..).map(ShareCapture::of_shares);
    let captures = captures.collect::<Result<Vec<_>, _>>();
    let captures = captures.map_err(|error| scratch::reading(&error))?;
    let max = match eavesdrop {
        EavesdropScope::Two => 2,
        EavesdropScope::All => captures.len(),
    };
    let sets: Vec<_> = (1..=max).flat_map(|size| sets_of(size, captures.len())).collect();
    examine(&captures, &sets, samples).map_err(|error| scratch::reading(&error))
}

/// All sets of `size` of the numbers below `count`.
fn sets_of(size: usize, count: usize) -> impl Iterator<Item = Vec<usize>> {
    let sets = (0..1u32 << count)
        .map(move |mask| (0..count).filter(|index| mask >> index & 1 == 1).collect::<Vec<_>>());
    sets.filter(move |set| set.len() == size)
}

/// Checks that the report matches the promises.
fn check(report: &DemoChannelsReport) -> Result<(), CommandFailure> {
    let wrong = if !report.is_equal() {
        "the file that arrived is not the one that was sent; did it change meanwhile?"
    } else if !report.is_secret() {
        "what crossed one channel or two is not noise; please report this with the whole output"
    } else if report.is_readable_with_all() == Some(false) {
        "the three captures do not make the file; please report this with the whole output"
    } else {
        return Ok(());
    };
    Err(CommandFailure::Failed(wrong.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_complete() {
        let sets: Vec<_> = (1..=3).flat_map(|size| sets_of(size, 3)).collect();
        let expected: [&[usize]; 7] = [&[0], &[1], &[2], &[0, 1], &[0, 2], &[1, 2], &[0, 1, 2]];
        assert_eq!(sets, expected);
    }
}
