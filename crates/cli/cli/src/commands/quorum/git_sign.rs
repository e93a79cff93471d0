//! `git-sign`: signs commits and tags in place of `gpg`.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use console::CommandFailure;
use formats::SignatureFormat;
use formats::openpgp::{self, OpenPgpMessage};
use quorum::api::{ApiEncoding, MAX_BODY_LEN};

use super::files::write_standard;
use super::prepare::git_message;
use super::servers::{GroupKeyOptions, QuorumServersOptions};
use super::sign::signature_of;

/// Signs a commit or tag for git, in place of gpg. Verification is left to gpg.
///
/// The group needs an RSA key. With an Ed25519 key, use `sunder quorum ssh-agent`.
///
/// git calls the program in `gpg.program` with gpg's arguments. Write a script that calls this
/// command with them, as in the example. To sign, git names a key, which is not used: the group
/// signs. The servers must allow the commit or tag by a rule, or it must be registered, as
/// `sunder quorum prepare git` writes it.
#[derive(clap::Args)]
#[command(
    after_help = "Example of a script, for git config gpg.program /usr/local/bin/office-sign:
#!/bin/sh
exec sunder quorum git-sign --socket /run/sunder/quorum-office/api -- \"$@\""
)]
pub(super) struct QuorumGitSignArguments {
    #[command(flatten)]
    servers: QuorumServersOptions,
    #[command(flatten)]
    key: GroupKeyOptions,
    /// The arguments of gpg
    #[arg(last = true, required = true, value_name = "ARGUMENT")]
    gpg: Vec<OsString>,
}

pub(super) fn git_sign(arguments: &QuorumGitSignArguments) -> Result<(), CommandFailure> {
    let is = |wanted: &[&str]| arguments.gpg.iter().any(|it| wanted.iter().any(|word| it == word));
    if is(&["--verify"]) {
        let error = Command::new("gpg").args(&arguments.gpg).exec();
        return Err(CommandFailure::Failed(format!("cannot run gpg: {error}")));
    }
    if !is(&["-bsau", "-bsa", "--detach-sign"]) {
        let why = "git-sign makes detached signatures as git asks for them: -bsau KEY";
        return Err(CommandFailure::Usage(why.into()));
    }
    let mut payload = Vec::new();
    let read = std::io::stdin().take(MAX_BODY_LEN as u64 + 1).read_to_end(&mut payload);
    read.map_err(|error| CommandFailure::Failed(format!("cannot read standard input: {error}")))?;
    if payload.len() >= MAX_BODY_LEN {
        return Err(CommandFailure::Usage("the commit or tag has more than 1 MiB".into()));
    }
    let key = arguments.key.key(&arguments.servers)?;
    let unusable = |error: formats::FormatError| CommandFailure::Usage(error.to_string());
    let rsa_key = openpgp::key_of(&key).map_err(unusable)?;
    let message = git_message(rsa_key, &payload).map_err(CommandFailure::Usage)?;
    let format = SignatureFormat::OpenPgp;
    format.describe(&message).map_err(unusable)?;
    let created = OpenPgpMessage::parse(&message).map_err(unusable)?.created;
    let message = message.into();
    let signature = signature_of(&arguments.servers, &message, ApiEncoding::Pkcs1, Some(&key))?;
    write_standard(&format.wrap(&message, &signature, &key, None).map_err(unusable)?)?;
    // What git waits for (GnuPG, doc/DETAILS): a detached signature by RSA with SHA-256.
    let fingerprint = openpgp::fingerprint(rsa_key);
    let fingerprint = base16ct::HexDisplay(&fingerprint);
    let status = format!(
        "[GNUPG:] BEGIN_SIGNING H8\n[GNUPG:] SIG_CREATED D 1 8 00 {created} {fingerprint:X}\n"
    );
    if is(&["--status-fd=1"]) {
        return write_standard(status.as_bytes());
    }
    if is(&["--status-fd=2"]) {
        let written = std::io::stderr().write_all(status.as_bytes());
        return written.map_err(|error| CommandFailure::Failed(format!("cannot write: {error}")));
    }
    Ok(())
}
