//! `sign`: signatures of files, in the formats of stock tools.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use clap::ValueEnum;
use console::{CommandFailure, CommandProgress};
use formats::FormatEncoding;
use formats::cms::SignerCertificate;
use hyper::body::Bytes;
use keys::AnyPublicKey;
use quorum::api::ApiEncoding;

use super::files::{exists, is_standard, read_bounded, read_message, write_new, write_standard};
use super::format_name::SignatureFormatName;
use super::servers::{GroupKeyOptions, QuorumServersOptions};

/// The longest file of a certificate, in bytes.
const MAX_CERTIFICATE: usize = 1 << 20;

/// Has files signed by f+1 servers, and writes the signatures to new files.
///
/// A file must be registered or allowed by a rule at f+1 servers, including the one that is asked.
/// Without --format the signature of FILE is FILE.sig. In the other formats, FILE is what
/// `sunder quorum prepare` has written, FILE.tbs, and the result has the ending .csr, .crt, .p7s,
/// .asc or .jwt in place of .tbs. Existing files are not overwritten. Exit code 3: the server
/// refuses to sign the file.
///
/// Signatures by an RSA key are PKCS #1 v1.5 with SHA-256, except for --encoding and JSON Web
/// Tokens with PS256. Signatures by an Ed25519 key are Ed25519 of the whole file.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder quorum sign --socket /run/sunder/quorum-office/api release.txt
Then: openssl dgst -sha256 -verify public.pem -signature release.txt.sig release.txt
Or:   sunder quorum sign --socket /run/sunder/quorum-office/api \\
          --format x509-cert www.tbs
docs/guides/quorum-signing.md shows every format."
)]
pub(super) struct QuorumSignArguments {
    #[command(flatten)]
    servers: QuorumServersOptions,
    #[command(flatten)]
    key: GroupKeyOptions,
    /// The form of the signature
    #[arg(long, value_enum, default_value_t = SignatureFormatName::Raw)]
    format: SignatureFormatName,
    /// How the file is encoded: for --format raw and RSA keys
    #[arg(long, value_enum)]
    encoding: Option<SignatureEncodingName>,
    /// The certificate of the group's key, in PEM: for --format cms
    #[arg(long, value_name = "FILE")]
    certificate: Option<PathBuf>,
    /// The file to write, or - for standard output: for one FILE
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Files of at most 1 MiB, or - for standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum SignatureEncodingName {
    /// PKCS #1 v1.5 with SHA-256
    Pkcs1,
    /// PKCS #1 v1.5 with SHA-512
    Pkcs1Sha512,
    /// PSS with SHA-256 and a salt of 32 bytes
    Pss,
}

/// A file to sign.
struct SigningTask {
    /// For messages.
    name: String,
    message: Bytes,
    /// `None`: standard output.
    target: Option<PathBuf>,
}

pub(super) fn sign(arguments: &QuorumSignArguments) -> Result<(), CommandFailure> {
    let format = arguments.format;
    check_options(arguments)?;
    let tasks = tasks(arguments)?;
    let key = arguments.key.key(&arguments.servers)?;
    if arguments.encoding.is_some() && key.rsa().is_none() {
        let why = "--encoding is for RSA keys, and the group has an Ed25519 key: leave it out";
        return Err(CommandFailure::Usage(why.into()));
    }
    let certificate = signer_certificate(arguments, &key)?;
    for task in tasks.iter().filter(|_| format != SignatureFormatName::Raw) {
        format.describe(&task.name, &task.message)?;
        format.check_key(&task.name, &task.message, &key)?;
    }
    let progress = (tasks.len() > 1).then(|| CommandProgress::steps(tasks.len() as u64));
    let mut failures = Vec::new();
    for task in &tasks {
        if let Some(progress) = &progress {
            progress.doing(format!("  {}", console::printable(&task.name)));
        }
        let signed = sign_one(arguments, task, &key, certificate.as_ref());
        failures.extend(signed.err().map(|failure| (task, failure)));
        if let Some(progress) = &progress {
            progress.advance(1);
        }
    }
    drop(progress);
    let count = failures.len();
    let Some((_, last)) = failures.last() else { return Ok(()) };
    if tasks.len() == 1 {
        return Err(failures.remove(0).1);
    }
    for (task, failure) in &failures {
        console::warning(&format!("{}: {}", task.name, failure.message()));
    }
    let summary = format!("{count} of {} files are not signed", tasks.len());
    Err(match last {
        CommandFailure::Refused(_) => CommandFailure::Refused(summary),
        _ => CommandFailure::Failed(summary),
    })
}

fn check_options(arguments: &QuorumSignArguments) -> Result<(), CommandFailure> {
    let format = arguments.format;
    let wrong = |why: &str| Err(CommandFailure::Usage(why.into()));
    if arguments.encoding.is_some() && format != SignatureFormatName::Raw {
        return wrong(
            "--encoding is for --format raw; the other formats determine it: leave it out",
        );
    }
    match (&arguments.certificate, format == SignatureFormatName::Cms) {
        (None, true) => {
            return wrong("--format cms needs --certificate, the certificate of the group's key");
        }
        (Some(_), false) => return wrong("--certificate is for --format cms: leave it out"),
        _ => {}
    }
    if arguments.out.is_some() && arguments.files.len() > 1 {
        return wrong("--out is for one FILE: leave it out, and each signature gets its own name");
    }
    Ok(())
}

/// The files with what they contain, after a check that nothing would be overwritten.
fn tasks(arguments: &QuorumSignArguments) -> Result<Vec<SigningTask>, CommandFailure> {
    let mut names = HashSet::new();
    let mut tasks = Vec::new();
    for file in &arguments.files {
        let target = match &arguments.out {
            Some(out) => out.clone(),
            None if is_standard(file) => file.clone(),
            None => target_of(file, arguments.format),
        };
        let target = (!is_standard(&target)).then_some(target);
        if let Some(target) = target.as_deref().filter(|target| target.exists()) {
            return Err(exists(target));
        }
        let name =
            if is_standard(file) { "standard input".into() } else { file.display().to_string() };
        if !names.insert(target.clone()) {
            let why = format!("{name}: two signatures would be written to the same file");
            return Err(CommandFailure::Usage(why));
        }
        tasks.push(SigningTask { name, message: read_message(file)?, target });
    }
    Ok(tasks)
}

fn target_of(file: &Path, format: SignatureFormatName) -> PathBuf {
    let is_prepared = format != SignatureFormatName::Raw
        && file.extension().is_some_and(|ending| ending == "tbs");
    let mut path =
        if is_prepared { file.with_extension("") } else { file.to_owned() }.into_os_string();
    path.push(".");
    path.push(format.ending());
    path.into()
}

fn signer_certificate(
    arguments: &QuorumSignArguments,
    key: &AnyPublicKey,
) -> Result<Option<SignerCertificate>, CommandFailure> {
    let Some(path) = &arguments.certificate else { return Ok(None) };
    let text = read_bounded(path, MAX_CERTIFICATE as u64)?;
    let text = String::from_utf8_lossy(&text);
    let certificate = SignerCertificate::from_pem(&text, key);
    let wrong = |error| CommandFailure::Usage(format!("{}: {error}", path.display()));
    certificate.map(Some).map_err(wrong)
}

fn sign_one(
    arguments: &QuorumSignArguments,
    task: &SigningTask,
    key: &AnyPublicKey,
    certificate: Option<&SignerCertificate>,
) -> Result<(), CommandFailure> {
    let format = arguments.format.format();
    let failed =
        |error: formats::FormatError| CommandFailure::Usage(format!("{}: {error}", task.name));
    let encoding = match format.encoding(&task.message, key).map_err(failed)? {
        FormatEncoding::Ed25519 => ApiEncoding::Ed25519,
        FormatEncoding::Pss => ApiEncoding::Pss,
        FormatEncoding::Pkcs1 => match arguments.encoding {
            None | Some(SignatureEncodingName::Pkcs1) => ApiEncoding::Pkcs1,
            Some(SignatureEncodingName::Pkcs1Sha512) => ApiEncoding::Pkcs1Sha512,
            Some(SignatureEncodingName::Pss) => ApiEncoding::Pss,
        },
    };
    // The signature of a plain file is not verified with a key that only a server has named: this
    // may be another server, and it may lie.
    let is_checked = arguments.format != SignatureFormatName::Raw || arguments.key.is_in_file();
    let checked = is_checked.then_some(key);
    let signature = signature_of(&arguments.servers, &task.message, encoding, checked)?;
    let signed = format.wrap(&task.message, &signature, key, certificate).map_err(failed)?;
    match &task.target {
        Some(target) => {
            write_new(target, &signed)?;
            console::print_line(&format!("{}: the signature", target.display()))
        }
        None => write_standard(&signed),
    }
}

/// Has a message signed, and checks the signature if the key is known.
pub(super) fn signature_of(
    servers: &QuorumServersOptions,
    message: &Bytes,
    encoding: ApiEncoding,
    key: Option<&AnyPublicKey>,
) -> Result<Bytes, CommandFailure> {
    servers.ask(async |group| group.sign(message, encoding, key).await)
}
