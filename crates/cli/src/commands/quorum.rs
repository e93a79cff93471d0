//! `sunder quorum`: signatures by 3f+1 servers, none of which has the key.

mod init;

use std::path::{Path, PathBuf};

use clap::Subcommand;
use keys::SecretKey;
use keys::file::exposure;
use quorum::api::{Client, ClientError};

use crate::console;
use crate::failure::Failure;
pub(crate) use init::make_key;

/// RSA signatures by a group of 3f+1 servers, of which any f+1 sign and none has the key.
///
/// Any f servers learn nothing of the key and cannot sign. `openssl dgst -verify` verifies the
/// signatures.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(init::Arguments),
    Identity(Identity),
    Pubkey(Pubkey),
}

/// Prints the public key of a server's identity, for the list of servers.
///
/// The file has 64 hexadecimal digits; make one: (umask 077; openssl rand -hex 32 > identity.key).
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum identity /etc/sunder/quorum/identity.key")]
struct Identity {
    /// The identity key's file
    file: PathBuf,
}

/// Prints the group's public key in PEM, which a running server has.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder quorum pubkey --socket /run/sunder/quorum.sock > public.pem
Then: openssl dgst -sha256 -verify public.pem -signature FILE.sig FILE"
)]
struct Pubkey {
    #[command(flatten)]
    server: Server,
}

/// A running server.
#[derive(clap::Args)]
struct Server {
    /// The socket of the server, as in its configuration
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
}

/// Runs the subcommand.
///
/// # Errors
/// As the subcommand.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    match &arguments.command {
        Command::Init(arguments) => init::run(arguments),
        Command::Identity(arguments) => identity(&arguments.file),
        Command::Pubkey(arguments) => pubkey(&arguments.server),
    }
}

fn identity(file: &Path) -> Result<(), Failure> {
    let key = SecretKey::read(file).map_err(|error| Failure::Usage(error.to_string()))?;
    if let Some(error) = exposure(file) {
        let (what, fix) = (error.what(), error.fix());
        console::warning(&format!("key: {what}, and be this server: {fix}"));
    }
    console::print_line(&key.public().to_string())
}

fn pubkey(server: &Server) -> Result<(), Failure> {
    let pem = server.ask(async |client| client.public_key().await)?;
    console::print(pem.trim_ascii_end())
}

impl Server {
    /// Asks the server.
    fn ask<T>(
        &self,
        request: impl AsyncFnOnce(&Client) -> Result<T, ClientError>,
    ) -> Result<T, Failure> {
        let runtime = service::runtime()?;
        runtime.block_on(request(&Client::new(&self.socket))).map_err(|error| refused(&error))
    }
}

/// What a server's policy forbids is refused; other requests have failed.
fn refused(error: &ClientError) -> Failure {
    let message = error.to_string();
    if error.is_forbidden() { Failure::Refused(message) } else { Failure::Failed(message) }
}
