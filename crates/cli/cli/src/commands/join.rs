//! `sunder join`: restores a file from its shares.

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use console::CommandProgress;
use serde::Serialize;
use sharing::file::{PROTECTED_LEN, ShareFileDecodeError, ShareFileDecoder, SplitParameters};
use sharing::locate::ShareErrorLocationError;
use sharing::tamper;
use zeroize::Zeroizing;

use crate::commands::split::scheme_name;
use crate::share_files::input::{InputFile, is_dash};
use crate::share_files::names::original_name;
use crate::share_files::output::{self, OutputFile};
use crate::share_files::share::{FaultyFile, ShareFileReader, ShareFileSet};

/// Restores a file from K or more of its shares.
///
/// Every byte is checked. The result is the file that was split, or no file, if fewer than K of the
/// given files were changed or invented, by an attacker who has read fewer than K shares. Otherwise
/// forged files cannot be detected: there is no key.
///
/// If more than K shares are given, wrong ones are found and named, and the file is still restored
/// while enough shares agree. If two different files fit, none is written. An existing file is
/// never overwritten.
#[derive(clap::Args)]
#[command(after_help = "Example: two of three shares restore the file
  sunder join plan.pdf.1.share /mnt/usb/plan.pdf.3.share
writes plan.pdf to the current directory.
With --out -, the file is written to standard output, each part after it was checked. If the exit
code is not 0, the output is incomplete.")]
pub(crate) struct Arguments {
    /// The file to write; `-` is standard output [default: the shares' common NAME, in the current
    /// directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
    /// The share files, in any order; `-` is standard input
    #[arg(value_name = "SHARE", required = true)]
    shares: Vec<PathBuf>,
}

/// What `--json` prints.
#[derive(Serialize)]
struct JoinDocument<'a> {
    file: Cow<'a, str>,
    id: String,
    scheme: &'a str,
    k: u8,
    m: u8,
    bytes: u64,
    wrong: &'a [FaultyFile],
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    if arguments.json && arguments.out.as_deref().is_some_and(is_dash) {
        let message = "--json and --out - both need standard output; choose one of them";
        return Err(CommandFailure::Usage(message.into()));
    }
    let inputs =
        arguments.shares.iter().map(|path| InputFile::open(path)).collect::<Result<_, _>>()?;
    let mut shares = ShareFileSet::of(inputs)?;
    let split = shares.split;
    let path = arguments.path(&shares.files)?;
    let mut destination = JoinDestination::create(&path)?;

    let progress = CommandProgress::new(Some(split.length()));
    join(&mut shares, &mut destination, &progress).map_err(|failure| destination.amend(failure))?;
    progress.doing("waiting for the disk");
    destination.complete()?;
    drop(progress);

    arguments.report(&split, &path, &shares.wrong())
}

impl Arguments {
    /// The path of the joined file.
    fn path(&self, files: &[ShareFileReader]) -> Result<PathBuf, CommandFailure> {
        if let Some(path) = &self.out {
            if path.is_dir() {
                let message = format!("{} is a directory; name a file in it", path.display());
                return Err(CommandFailure::Usage(message));
            }
            return Ok(path.clone());
        }
        let mut names = files.iter().map(|file| original_name(file.path()));
        let first = names.next().flatten();
        let name = first.filter(|&first| names.all(|name| name == Some(first)));
        // A bare name could be `-`, which is standard output.
        name.map(|name| Path::new(".").join(name)).ok_or_else(|| {
            let message = "the shares are not all named NAME.N.share, so the file has no name";
            CommandFailure::Usage(format!("{message}; give it one with --out FILE"))
        })
    }

    fn report(
        &self,
        split: &SplitParameters,
        path: &Path,
        wrong: &[FaultyFile],
    ) -> Result<(), CommandFailure> {
        let sharing = split.sharing();
        let (k, m) = (sharing.threshold(), sharing.shares());
        for wrong in wrong {
            console::warning(&format!(
                "left out {wrong}; the joined file is right without it, unless someone has read \
                 {k} shares or forged {k} of these files"
            ));
        }
        let (bytes, file) = (split.length(), path.to_string_lossy());
        if self.json {
            let scheme = scheme_name(sharing.scheme());
            let id = split.id().to_string();
            return console::print_json(&JoinDocument { file, id, scheme, k, m, bytes, wrong });
        }
        if is_dash(path) {
            return Ok(());
        }
        console::print_line(&format!("{file}: {bytes} bytes, integrity verified"))
    }
}

/// Joins all segments. The memory used does not depend on their number.
fn join(
    shares: &mut ShareFileSet,
    destination: &mut JoinDestination,
    progress: &CommandProgress,
) -> Result<(), CommandFailure> {
    let mut decoder = ShareFileDecoder::new(shares.split);
    let mut segment = Zeroizing::new(vec![0; PROTECTED_LEN]);
    while let Some(len) = decoder.next_len() {
        let position = decoder.position();
        shares.read(len, position)?;
        let present = || shares.files.iter().filter(|file| file.is_present());
        let coordinates: Vec<u8> = present().map(ShareFileReader::x).collect();
        let parts: Vec<&[u8]> = present().map(|file| file.part(len)).collect();
        let wrong = decoder
            .decode(&coordinates, &parts, &mut segment[..len])
            .map_err(|error| explain(&error, position, shares))?;
        shares.mark_faulty(&wrong, position);

        let bytes = &segment[tamper::OVERHEAD..len];
        destination.append(bytes)?;
        progress.advance(bytes.len());
    }
    shares.read_end()
}

/// Explains what to do about a segment that cannot be joined.
fn explain(error: &ShareFileDecodeError, position: u64, shares: &ShareFileSet) -> CommandFailure {
    let lost = shares.losses();
    CommandFailure::Refused(match error {
        ShareFileDecodeError::Tampered(_) => format!(
            "a share was changed: from byte {position} on, the shares do not join to what was \
             split; give more shares, to find the changed one, or unchanged copies{lost}"
        ),
        ShareFileDecodeError::Locate(ShareErrorLocationError::Ambiguous { first, second }) => {
            format!(
                "two different files fit from byte {position} on: one is joined from {}, another \
                 from {}; one of them was forged, and nothing shows which; give only shares that \
                 you trust{lost}",
                shares.names_of(first),
                shares.names_of(second)
            )
        }
        ShareFileDecodeError::Locate(_) => format!(
            "too many shares were changed: from byte {position} on, no choice of them joins to \
             what was split; give more shares{lost}"
        ),
        ShareFileDecodeError::Shares(error) => {
            format!("the shares cannot be joined: {error}{lost}")
        }
    })
}

/// The destination of the joined file.
enum JoinDestination {
    /// A file that gets its name only when it is complete.
    File(OutputFile),
    /// Standard output, and whether anything was written to it.
    Stdout(File, bool),
}

impl JoinDestination {
    fn create(path: &Path) -> Result<Self, CommandFailure> {
        if !is_dash(path) {
            return Ok(Self::File(OutputFile::create(path.to_owned())?));
        }
        // A separate descriptor, without the line buffer of the standard library's handle.
        let descriptor = io::stdout().as_fd().try_clone_to_owned();
        let file = descriptor.map_err(|error| stdout_failure(&error))?;
        Ok(Self::Stdout(file.into(), false))
    }

    /// Appends bytes that have been checked.
    fn append(&mut self, bytes: &[u8]) -> Result<(), CommandFailure> {
        match self {
            Self::File(output) => output.append(bytes),
            Self::Stdout(file, begun) => {
                *begun = true;
                file.write_all(bytes).map_err(|error| stdout_failure(&error))
            }
        }
    }

    fn complete(self) -> Result<(), CommandFailure> {
        match self {
            Self::File(output) => output::publish_all(vec![output]),
            Self::Stdout(..) => Ok(()),
        }
    }

    /// Adds to a failure that a part of the file was already written.
    fn amend(&self, failure: CommandFailure) -> CommandFailure {
        match self {
            Self::Stdout(_, true) => {
                failure.and("what was written to standard output is incomplete")
            }
            _ => failure,
        }
    }
}

fn stdout_failure(error: &io::Error) -> CommandFailure {
    CommandFailure::writing(Path::new("standard output"), error)
}
