//! `sunder split`: splits a file into shares.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use console::CommandFailure;
use console::CommandProgress;
use random::RandomGenerator;
use serde::Serialize;
use sharing::file::{HEADER_LEN, PROTECTED_LEN, ShareFileEncoder, SplitParameters};
use sharing::{SecretSharingScheme, SharingParameters, tamper};
use zeroize::Zeroizing;

use crate::share_files::input::{InputFile, is_dash};
use crate::share_files::names::{page_name, share_name};
use crate::share_files::output::{self, OutputFile};
use crate::share_files::page::{MAX_PAPER_SECRET, share_page};

/// Splits a file into M shares, of which any K restore it.
///
/// K - 1 shares reveal nothing but the file's length. Writes NAME.1.share to NAME.M.share, readable
/// by you only, either all of them or none. Existing files are never overwritten. `sunder join`
/// detects changed and invented shares if they are fewer than K and the attacker has read fewer
/// than K. There is no key: an attacker who has K shares can create shares of any file.
///
/// With --paper, a page to print is written beside each share, NAME.1.html to NAME.M.html, with the
/// share as QR codes and as lines to type. `sunder join` reads a text file of such lines.
#[derive(clap::Args)]
#[command(after_help = "Example: three shares, any two of which restore the file
  sunder split -k 2 -m 3 --out /mnt/backup plan.pdf
writes /mnt/backup/plan.pdf.1.share, plan.pdf.2.share and plan.pdf.3.share
there. Keep them apart: any two of them restore the file.")]
pub(crate) struct Arguments {
    /// The number of shares that restore the file
    #[arg(short, value_name = "K", value_parser = clap::value_parser!(u8).range(1..))]
    k: u8,
    /// The number of shares to create, at most 255
    #[arg(short, value_name = "M", value_parser = clap::value_parser!(u8).range(1..))]
    m: u8,
    /// The sharing scheme
    #[arg(long, value_enum, default_value_t = SharingSchemeName::Shamir)]
    scheme: SharingSchemeName,
    /// The source of random bytes
    #[arg(long, value_enum, default_value_t = RandomSourceName::Seeded)]
    rng: RandomSourceName,
    /// The directory for the shares
    #[arg(long, value_name = "DIR", default_value = ".")]
    out: PathBuf,
    /// Also write each share as a page to print, with QR codes; for at most 4096 bytes
    #[arg(long)]
    paper: bool,
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
    /// The file to split; `-` is standard input, whose shares are named stdin.1.share and so on
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum SharingSchemeName {
    /// Any K of the M shares restore the file
    Shamir,
    /// All shares are needed: K must equal M
    Xor,
}

#[derive(Clone, Copy, ValueEnum)]
enum RandomSourceName {
    /// AES-128 in counter mode with a key from the system: fast, and as secret as AES
    Seeded,
    /// The system's random source for every byte: slower
    Os,
}

/// What `--json` prints.
#[derive(Serialize)]
struct SplitDocument<'a> {
    id: String,
    scheme: &'a str,
    k: u8,
    m: u8,
    bytes: u64,
    files: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pages: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    let sharing = arguments.sharing()?;
    let mut input = InputFile::open(&arguments.file)?;
    if arguments.paper {
        refuse_long(input.len().unwrap_or(0), input.path())?;
    }
    let paths = arguments.paths(share_name)?;
    let page_paths = if arguments.paper { arguments.paths(page_name)? } else { Vec::new() };
    let mut shares = create_all(&paths)?;
    let mut pages = create_all(&page_paths)?;
    let progress = CommandProgress::new(input.len());
    let split = write_shares(sharing, arguments.rng, &mut input, &mut shares, &progress)?;
    if arguments.paper {
        refuse_long(split.length(), input.path())?;
        write_pages(&shares, &mut pages, &arguments.file_name()?.to_string_lossy())?;
    }
    progress.doing("waiting for the disk");
    output::publish_all(shares.into_iter().chain(pages).collect())?;
    drop(progress);
    arguments.report(&split, &paths, &page_paths)
}

fn create_all(paths: &[PathBuf]) -> Result<Vec<OutputFile>, CommandFailure> {
    paths.iter().cloned().map(OutputFile::create).collect()
}

/// Refuses a file that is too long for `--paper`.
fn refuse_long(len: u64, path: &Path) -> Result<(), CommandFailure> {
    if len <= MAX_PAPER_SECRET {
        return Ok(());
    }
    Err(CommandFailure::Usage(format!(
        "{} is too long for paper: it has more than {MAX_PAPER_SECRET} bytes; encrypt it, and split \
         its key with --paper, or leave out --paper",
        path.display()
    )))
}

/// Writes the page of each share. A secret that fits on paper has one segment.
fn write_pages(
    shares: &[OutputFile],
    pages: &mut [OutputFile],
    name: &str,
) -> Result<(), CommandFailure> {
    for (share, page) in shares.iter().zip(pages) {
        let contents = share.contents(HEADER_LEN + PROTECTED_LEN)?;
        page.append(share_page(&contents, name).map_err(CommandFailure::Failed)?.as_bytes())?;
    }
    Ok(())
}

impl Arguments {
    fn sharing(&self) -> Result<SharingParameters, CommandFailure> {
        let scheme = match self.scheme {
            SharingSchemeName::Shamir => SecretSharingScheme::Shamir,
            SharingSchemeName::Xor => SecretSharingScheme::Xor,
        };
        SharingParameters::new(scheme, self.k, self.m)
            .map_err(|error| CommandFailure::Usage(error.to_string()))
    }

    /// The name of the file that is split.
    fn file_name(&self) -> Result<&OsStr, CommandFailure> {
        let name =
            if is_dash(&self.file) { Some(OsStr::new("stdin")) } else { self.file.file_name() };
        name.ok_or_else(|| {
            CommandFailure::Usage(format!("{} does not name a file", self.file.display()))
        })
    }

    /// The path of a file for each share.
    fn paths(&self, name: impl Fn(&OsStr, u8) -> OsString) -> Result<Vec<PathBuf>, CommandFailure> {
        let original = self.file_name()?;
        Ok((1..=self.m).map(|x| self.out.join(name(original, x))).collect())
    }

    fn report(
        &self,
        split: &SplitParameters,
        paths: &[PathBuf],
        pages: &[PathBuf],
    ) -> Result<(), CommandFailure> {
        let strings = |paths: &[PathBuf]| -> Vec<String> {
            paths.iter().map(|path| path.to_string_lossy().into_owned()).collect()
        };
        let (k, m, bytes) = (self.k, self.m, split.length());
        if self.json {
            return console::print_json(&SplitDocument {
                id: split.id().to_string(),
                scheme: scheme_name(split.sharing().scheme()),
                k,
                m,
                bytes,
                files: strings(paths),
                pages: strings(pages),
            });
        }
        let named = range_of(paths);
        console::print_line(&format!(
            "{named}: {bytes} bytes in {m} shares, of which {k} are needed"
        ))?;
        if !pages.is_empty() {
            console::print_line(&format!("{}: a page to print for each share", range_of(pages)))?;
        }
        Ok(())
    }
}

/// The first and the last of these files.
fn range_of(paths: &[PathBuf]) -> String {
    match paths {
        [only] => only.display().to_string(),
        [first, .., last] => format!("{} to {}", first.display(), last.display()),
        [] => String::new(),
    }
}

/// The name of a scheme on the command line and in JSON.
pub(crate) fn scheme_name(scheme: SecretSharingScheme) -> &'static str {
    match scheme {
        SecretSharingScheme::Shamir => "shamir",
        SecretSharingScheme::Xor => "xor",
    }
}

/// Reads the input to its end and writes its shares. The memory used does not depend on the length.
fn write_shares(
    sharing: SharingParameters,
    rng: RandomSourceName,
    input: &mut InputFile,
    outputs: &mut [OutputFile],
    progress: &CommandProgress,
) -> Result<SplitParameters, CommandFailure> {
    let mut generator = match rng {
        RandomSourceName::Seeded => RandomGenerator::seeded().map_err(failed)?,
        RandomSourceName::Os => RandomGenerator::system(),
    };
    let mut encoder = ShareFileEncoder::new(sharing, &mut generator).map_err(failed)?;
    let mut segment = Zeroizing::new(vec![0; PROTECTED_LEN]);
    let mut shares = vec![Zeroizing::new(vec![0; PROTECTED_LEN]); outputs.len()];

    // The length may be known only at the end, so the headers are written last.
    outputs.iter_mut().try_for_each(|output| output.append(&[0; HEADER_LEN]))?;
    let split = loop {
        let payload = &mut segment[tamper::OVERHEAD..];
        let read =
            input.fill(payload).map_err(|error| CommandFailure::reading(input.path(), &error))?;
        let len = tamper::OVERHEAD + read;
        let mut parts: Vec<&mut [u8]> = shares.iter_mut().map(|share| &mut share[..len]).collect();
        encoder.encode(&mut segment[..len], &mut parts, &mut generator).map_err(failed)?;
        for (output, part) in outputs.iter_mut().zip(parts) {
            output.append(part)?;
        }
        progress.advance(read);
        if let Some(split) = encoder.finish() {
            break split;
        }
    };
    for (output, header) in outputs.iter_mut().zip(split.headers()) {
        output.write_beginning(&header.encode())?;
    }
    Ok(split)
}

/// Failures that no option avoids, such as missing random bytes.
fn failed(error: impl std::error::Error) -> CommandFailure {
    CommandFailure::Failed(format!("cannot split: {error}"))
}
