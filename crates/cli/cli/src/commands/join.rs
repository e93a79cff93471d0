//! `sunder join`: restores a file from its shares.

mod every_split;

use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use console::CommandProgress;
use serde::Serialize;
use sharing::file::SplitParameters;

use crate::commands::split::scheme_name;
use crate::share_files::candidate::{FaultyFile, ShareCandidate};
use crate::share_files::decoding::decode_segments;
use crate::share_files::input::is_dash;
use crate::share_files::names::original_name;
use crate::share_files::output::{self, OutputFile};
use crate::share_files::scan::{ScannedSplit, ShareScan};
use crate::share_files::share::{ShareFileReader, ShareFileSet};

/// Restores a file from K or more of its shares.
///
/// Every byte is checked. The result is the file that was split, or no file, if fewer than K of the
/// given files were changed or invented, by an attacker who has read fewer than K shares. Otherwise
/// forged files cannot be detected: there is no key.
///
/// If more than K shares are given, wrong ones are found and named, and the file is still restored
/// while enough shares agree. If two different files fit, none is written. An existing file is
/// never overwritten.
///
/// A folder stands for all shares in it, among any other files. If they belong to several splits,
/// choose one with --id, or join each with --all. A text file with lines of printed shares, typed
/// or scanned, stands for these shares.
#[derive(clap::Args)]
#[command(after_help = "Example: two of three shares restore the file
  sunder join plan.pdf.1.share /mnt/usb/plan.pdf.3.share
writes plan.pdf to the current directory.
  sunder join --all --out restored /mnt/shares
restores every file that has enough shares in the folder /mnt/shares.
With --out -, the file is written to standard output, each part after it was
checked. If the exit code is not 0, the output is incomplete.")]
pub(crate) struct Arguments {
    /// The file to write, or an existing directory for it; `-` is standard output [default: the
    /// shares' common NAME, in the current directory]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Join the shares of this split only: the first digits of its identifier
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    id: Option<String>,
    /// Join each split that has enough shares; --out is then a directory
    #[arg(long)]
    all: bool,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
    /// The share files, folders with them, or texts, in any order; `-` is standard input
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
    let mut scan = ShareScan::of(&arguments.shares)?;
    if arguments.all {
        return every_split::join(arguments, scan);
    }
    let candidates = arguments.choose(&mut scan)?;
    let mut shares = ShareFileSet::of(candidates, scan.faulty)?;
    let split = shares.split;
    let path = arguments.path(&shares.files)?;
    restore(&mut shares, &path)?;
    arguments.report(&split, &path, &shares.wrong())
}

/// Writes the file of these shares.
fn restore(shares: &mut ShareFileSet, path: &Path) -> Result<(), CommandFailure> {
    let mut destination = JoinDestination::create(path)?;
    let progress = CommandProgress::new(Some(shares.split.length()));
    decode_segments(shares, &progress, |bytes| destination.append(bytes))
        .map_err(|failure| destination.amend(failure))?;
    progress.doing("waiting for the disk");
    destination.complete()
}

impl Arguments {
    /// The shares to join: those of the split that was chosen, or all. Shares given by name all
    /// belong to one split, or some are wrong; a folder can have those of several.
    fn choose(&self, scan: &mut ShareScan) -> Result<Vec<ShareCandidate>, CommandFailure> {
        if self.id.is_none() && !scan.has_folder {
            return Ok(std::mem::take(&mut scan.candidates));
        }
        let splits = scan.splits();
        let all = listed(&splits);
        let id = self.id.as_deref().unwrap_or("").to_ascii_lowercase();
        let mut chosen: Vec<ScannedSplit> =
            splits.into_iter().filter(|split| split.id.starts_with(&id)).collect();
        match (chosen.pop(), chosen.len()) {
            (Some(split), 0) => Ok(split.candidates),
            (None, _) if all.is_empty() => Ok(Vec::new()),
            (None, _) => Err(CommandFailure::Usage(format!(
                "no share belongs to split {id}; there are: {all}"
            ))),
            (Some(_), _) => Err(CommandFailure::Usage(format!(
                "the shares belong to several splits; choose one with --id ID, or join each with \
                 --all --out DIR: {all}"
            ))),
        }
    }

    /// The path of the joined file.
    fn path(&self, files: &[ShareFileReader]) -> Result<PathBuf, CommandFailure> {
        let directory = match &self.out {
            Some(path) if !path.is_dir() => return Ok(path.clone()),
            // A bare name could be `-`, which is standard output.
            None => Path::new("."),
            Some(directory) => directory,
        };
        let mut names = files.iter().map(|file| original_name(file.path()));
        let first = names.next().flatten();
        let name = first.filter(|&first| names.all(|name| name == Some(first)));
        name.map(|name| directory.join(name)).ok_or_else(|| {
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
        for wrong in wrong {
            warn_of(wrong, split);
        }
        if self.json {
            return console::print_json(&JoinDocument::of(split, path, wrong));
        }
        if is_dash(path) {
            return Ok(());
        }
        console::print_line(&joined_line(split, path))
    }
}

impl<'a> JoinDocument<'a> {
    fn of(split: &SplitParameters, path: &'a Path, wrong: &'a [FaultyFile]) -> Self {
        let sharing = split.sharing();
        Self {
            file: path.to_string_lossy(),
            id: split.id().to_string(),
            scheme: scheme_name(sharing.scheme()),
            k: sharing.threshold(),
            m: sharing.shares(),
            bytes: split.length(),
            wrong,
        }
    }
}

/// Warns that a file was left out, with the assumption under which the result is right.
fn warn_of(wrong: &FaultyFile, split: &SplitParameters) {
    let k = split.sharing().threshold();
    console::warning(&format!(
        "left out {wrong}; the joined file is right without it, unless someone has read {k} shares \
         or forged {k} of these files"
    ));
}

fn joined_line(split: &SplitParameters, path: &Path) -> String {
    format!("{}: {} bytes, integrity verified", path.display(), split.length())
}

/// The splits in one line, the first few of them.
fn listed(splits: &[ScannedSplit]) -> String {
    const MAX_SHOWN: usize = 8;
    let shown = splits.iter().take(MAX_SHOWN).map(|split| {
        let name = split.name().map_or_else(String::new, |name| format!(" ({})", name.display()));
        let found = split.candidates.len();
        let k = split.candidates.iter().map(|it| it.header.split().sharing().threshold()).max();
        let k = k.unwrap_or_default();
        format!("{}{name} has {found} shares and needs {k}", split.id)
    });
    let mut shown: Vec<String> = shown.collect();
    if splits.len() > MAX_SHOWN {
        shown.push(format!("and {} more", splits.len() - MAX_SHOWN));
    }
    shown.join("; ")
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
