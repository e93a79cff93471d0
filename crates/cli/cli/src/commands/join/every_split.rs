//! `sunder join --all`: restores the file of each split among the shares.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use console::CommandFailure;
use serde::Serialize;
use sharing::file::SplitParameters;

use super::{Arguments, JoinDocument, joined_line, restore, warn_of};
use crate::share_files::candidate::{FaultyFile, too_few};
use crate::share_files::input::is_dash;
use crate::share_files::scan::{ScannedSplit, ShareScan};
use crate::share_files::share::ShareFileSet;

/// The number of digits of an identifier that distinguish files of one name.
const ID_DIGITS: usize = 8;

/// What `--json` prints.
#[derive(Serialize)]
struct JoinAllDocument<'a> {
    joined: Vec<JoinDocument<'a>>,
    failed: Vec<FailedSplit>,
    wrong: &'a [FaultyFile],
}

/// A split that was not joined.
#[derive(Serialize)]
struct FailedSplit {
    id: String,
    error: String,
    exit_code: u8,
}

/// A file that was restored.
struct JoinedFile {
    split: SplitParameters,
    path: PathBuf,
    wrong: Vec<FaultyFile>,
}

/// Joins every split. Those that cannot be joined do not prevent the others.
///
/// # Errors
/// If one of them was not joined, or there is none.
pub(super) fn join(arguments: &Arguments, mut scan: ShareScan) -> Result<(), CommandFailure> {
    let directory = arguments.out.as_deref().unwrap_or(Path::new("."));
    if is_dash(directory) || !directory.is_dir() {
        let message = "--all needs a directory for the files; create it, and name it with --out";
        return Err(CommandFailure::Usage(message.into()));
    }
    let splits = scan.splits();
    if splits.is_empty() {
        return Err(too_few("there is no share".into(), &scan.faulty));
    }
    let names = file_names(&splits);
    let (mut joined, mut failed) = (Vec::new(), Vec::new());
    for (split, name) in splits.into_iter().zip(names) {
        let id = split.id.clone();
        match join_one(split, directory.join(name)) {
            Ok(file) => joined.push(file),
            // The disk is full, for example, for the others as well.
            Err(CommandFailure::Failed(message)) => return Err(CommandFailure::Failed(message)),
            Err(failure) => {
                let (error, exit_code) = (failure.message().to_owned(), failure.code());
                failed.push(FailedSplit { id, error, exit_code });
            }
        }
    }
    report(arguments, &joined, failed, &scan.faulty)
}

/// The names of the restored files: that of the shares, if they agree on one. An identifier
/// distinguishes splits of files of one name.
fn file_names(splits: &[ScannedSplit]) -> Vec<PathBuf> {
    let mut counts: HashMap<PathBuf, usize> = HashMap::new();
    for name in splits.iter().filter_map(ScannedSplit::name) {
        *counts.entry(name).or_default() += 1;
    }
    let name = |split: &ScannedSplit| match split.name() {
        None => PathBuf::from(&split.id),
        Some(name) if counts[&name] == 1 => name,
        Some(mut name) => {
            name.as_mut_os_string().push(format!(".{}", &split.id[..ID_DIGITS]));
            name
        }
    };
    splits.iter().map(name).collect()
}

fn join_one(split: ScannedSplit, path: PathBuf) -> Result<JoinedFile, CommandFailure> {
    let mut shares = ShareFileSet::of(split.candidates, Vec::new())?;
    let split = shares.split;
    restore(&mut shares, &path)?;
    Ok(JoinedFile { split, path, wrong: shares.wrong() })
}

fn report(
    arguments: &Arguments,
    joined: &[JoinedFile],
    failed: Vec<FailedSplit>,
    faulty: &[FaultyFile],
) -> Result<(), CommandFailure> {
    for file in joined {
        for wrong in &file.wrong {
            warn_of(wrong, &file.split);
        }
    }
    for wrong in faulty {
        console::warning(&format!("left out {wrong}"));
    }
    if !arguments.json {
        for file in joined {
            console::print_line(&joined_line(&file.split, &file.path))?;
        }
    }
    let failure = failed.iter().max_by_key(|split| split.exit_code).map(|worst| {
        let total = joined.len() + failed.len();
        let message = format!(
            "{} of {total} splits were not joined; split {}: {}",
            failed.len(),
            worst.id,
            worst.error
        );
        match worst.exit_code {
            2 => CommandFailure::Usage(message),
            _ => CommandFailure::Refused(message),
        }
    });
    if arguments.json {
        let joined = joined.iter();
        let joined = joined.map(|file| JoinDocument::of(&file.split, &file.path, &file.wrong));
        let joined = joined.collect();
        console::print_json(&JoinAllDocument { joined, failed, wrong: faulty })?;
    }
    failure.map_or(Ok(()), Err)
}
