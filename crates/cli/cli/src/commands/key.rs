//! `sunder key`: makes key files, and says what a key file is good for.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use base16ct::HexDisplay;
use clap::Subcommand;
use console::CommandFailure;
use keys::file::exposure;
use keys::{IdentitySecretKey, KeyFileError, SharedKey};
use serde::Serialize;

/// Makes a key file, or describes one without printing the key.
///
/// A key file has 32 random bytes as 64 hexadecimal digits, and one format for all of Sunder: the
/// key that both ends of a tunnel share, and the secret key of an identity, by which other hosts
/// recognise this one.
#[derive(clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Examples: sunder key new tunnel.key
          sunder key show tunnel.key, at both ends of a tunnel: equal keys
          have equal fingerprints
          sunder key public identity.key, for the other host"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: KeyCommand,
}

#[derive(Subcommand)]
enum KeyCommand {
    /// Writes a random key to a new file that only you can read
    New(KeyFileArguments),
    /// Shows the fingerprint and the public key of a key file, and who can read it
    Show(ShowArguments),
    /// Prints the public key of a key file, by which other hosts recognise its owner
    Public(KeyFileArguments),
}

#[derive(clap::Args)]
struct KeyFileArguments {
    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

#[derive(clap::Args)]
struct ShowArguments {
    /// Print one JSON document on standard output
    #[arg(long)]
    json: bool,
    /// The key file
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

/// What `show` prints.
#[derive(Serialize)]
struct KeyDocument {
    file: PathBuf,
    /// 16 hexadecimal digits, equal for equal keys.
    fingerprint: String,
    public: String,
    /// Why others can read or replace the file, if they can.
    exposure: Option<String>,
}

/// Runs the subcommand.
///
/// # Errors
/// If the file cannot be read or written, or has no key.
pub(crate) fn run(arguments: &Arguments) -> Result<(), CommandFailure> {
    match &arguments.command {
        KeyCommand::New(arguments) => {
            create(&arguments.file)?;
            let file = arguments.file.display();
            console::note(&format!("{file} has a new key, which only you can read"));
            Ok(())
        }
        KeyCommand::Show(arguments) => show(arguments),
        KeyCommand::Public(arguments) => {
            let key = IdentitySecretKey::read(&arguments.file).map_err(|error| wrong(&error))?;
            console::print_line(&key.public().to_string())
        }
    }
}

fn create(file: &Path) -> Result<(), CommandFailure> {
    let created = IdentitySecretKey::create(file).map(drop);
    created.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => CommandFailure::Usage(format!(
            "{} exists, and is kept; name another file, or remove it if nothing uses its key",
            file.display()
        )),
        ErrorKind::NotFound => CommandFailure::Usage(format!(
            "{}: there is no such directory; make it first",
            file.parent().unwrap_or(file).display()
        )),
        _ => CommandFailure::Failed(format!("cannot write {}: {error}", file.display())),
    })
}

fn show(arguments: &ShowArguments) -> Result<(), CommandFailure> {
    let file = &arguments.file;
    let shared = SharedKey::read(file).map_err(|error| wrong(&error))?;
    let identity = IdentitySecretKey::read(file).map_err(|error| wrong(&error))?;
    let exposure = exposure(file).map(|error| format!("{}; {}", error.problem(), error.advice()));
    let document = KeyDocument {
        file: file.clone(),
        fingerprint: format!("{:x}", HexDisplay(&shared.fingerprint())),
        public: identity.public().to_string(),
        exposure,
    };
    if arguments.json {
        return console::print_json(&document);
    }
    console::print_line(&format!("fingerprint  {}", document.fingerprint))?;
    console::print_line(&format!("public key   {}", document.public))?;
    let access =
        document.exposure.unwrap_or_else(|| "only its owner can read or replace it".into());
    console::print_line(&format!("access       {access}"))
}

fn wrong(error: &KeyFileError) -> CommandFailure {
    CommandFailure::Usage(error.to_string())
}
