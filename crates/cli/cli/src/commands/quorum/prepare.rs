//! `prepare`: writes what is to be signed.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Subcommand, ValueEnum};
use console::CommandFailure;
use formats::cms::CmsAttributes;
use formats::jwt::{self, JwtAlgorithm};
use formats::openpgp::{self, OpenPgpKind};
use formats::x509::{
    AlternativeName, CertificateFields, CertificatePurpose, CertificationRequestFields,
    DistinguishedName, key_from_pem,
};
use formats::{FormatError, SignatureAlgorithm, SignatureFormat};
use keys::{AnyPublicKey, RsaPublicKey};
use quorum::api::MAX_BODY_LEN;
use random::RandomGenerator;

use super::files::{is_standard, read_bounded, write_new, write_standard};

/// The longest file with a public key, in bytes.
const MAX_KEY_FILE: u64 = 1 << 16;

/// The largest file whose SHA-256 is signed, in bytes: the whole of it is in memory.
const MAX_CONTENT: u64 = 1 << 30;

/// What begins the signature of a tag.
const SIGNED: &[u8] = b"\n-----BEGIN PGP SIGNATURE-----";

/// Writes what is to be signed in a format, for `register` and `sign`.
///
/// The result, FILE.tbs, contains all that the signature states: names, times, the content or its
/// SHA-256. So everyone who registers it registers the same. The line that is printed says what a
/// signature would mean, and `register` prints it too. Nothing is signed, and no server is asked.
#[derive(clap::Args)]
#[command(arg_required_else_help = true)]
pub(super) struct QuorumPrepareArguments {
    #[command(subcommand)]
    format: PrepareFormat,
}

#[derive(Subcommand)]
enum PrepareFormat {
    X509Csr(X509CsrArguments),
    X509Cert(X509CertArguments),
    Cms(CmsArguments),
    Openpgp(OpenpgpArguments),
    OpenpgpKey(OpenpgpKeyArguments),
    Jwt(JwtArguments),
    Git(GitArguments),
}

/// A certification request (PKCS #10) for the group's key.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum prepare x509-csr --pubkey public.pem \\
             --subject CN=ca.example.org --out ca.tbs")]
struct X509CsrArguments {
    #[command(flatten)]
    key: PreparedKeyOptions,
    /// The name of the subject, such as CN=www.example.org,O=Example
    #[arg(long, value_name = "NAME")]
    subject: DistinguishedName,
    /// Another name: a host, an IP address or an address of electronic mail
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<AlternativeName>,
    /// The file to write, or - for standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// A certificate that the group signs.
///
/// Without --key it is for the group's own key, and its subject is also its issuer.
#[derive(clap::Args)]
#[command(
    after_help = "Example: sunder quorum prepare x509-cert --pubkey public.pem --authority \\
             --subject CN=Office --days 3650 --out office.tbs
Or:      sunder quorum prepare x509-cert --pubkey public.pem \\
             --issuer CN=Office --key www.pem --subject CN=www.example.org \\
             --name www.example.org --out www.tbs"
)]
struct X509CertArguments {
    #[command(flatten)]
    key: PreparedKeyOptions,
    /// The public key of the subject, in PEM ("BEGIN PUBLIC KEY")
    #[arg(long = "key", value_name = "FILE", requires = "issuer")]
    subject_key: Option<PathBuf>,
    /// The name of the subject, such as CN=www.example.org,O=Example
    #[arg(long, value_name = "NAME")]
    subject: DistinguishedName,
    /// The name of the signer, as in the group's own certificate
    #[arg(long, value_name = "NAME")]
    issuer: Option<DistinguishedName>,
    /// Another name: a host, an IP address or an address of electronic mail
    #[arg(long = "name", value_name = "NAME")]
    names: Vec<AlternativeName>,
    /// What the key may be used for; server-auth unless given or --authority
    #[arg(long = "purpose", value_enum)]
    purposes: Vec<CertificatePurposeName>,
    /// The subject may sign certificates
    #[arg(long)]
    authority: bool,
    /// From when it is valid, such as 2030-01-31T12:00:00Z; now unless given
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    not_before: Option<u64>,
    /// How many days it is valid
    #[arg(long, default_value_t = 90, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// The serial number, in hexadecimal digits; random unless given
    #[arg(long, value_name = "HEX", value_parser = parse_serial)]
    serial: Option<SerialNumber>,
    /// The file to write, or - for standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// A detached CMS signature (PKCS #7) of a file, by the SHA-256 of the file.
///
/// With an Ed25519 key it is the SHA-512: name the key with --pubkey.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum prepare cms firmware.bin
writes firmware.bin.tbs. The file can have up to 1 GiB.")]
struct CmsArguments {
    /// The group's public key, in PEM. Not needed if it is an RSA key
    #[arg(long, value_name = "FILE")]
    pubkey: Option<PathBuf>,
    /// When it is signed, such as 2030-01-31T12:00:00Z; now unless given
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    time: Option<u64>,
    #[command(flatten)]
    files: PreparedFileOptions,
}

/// An OpenPGP signature of a file, by an RSA key.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum prepare openpgp --pubkey public.pem \\
             --cleartext Release
writes Release.tbs. It contains the file, of somewhat less than 1 MiB.")]
struct OpenpgpArguments {
    #[command(flatten)]
    key: PreparedKeyOptions,
    /// A text with its signature (as in `InRelease`), instead of a detached one
    #[arg(long)]
    cleartext: bool,
    /// When it is signed, such as 2030-01-31T12:00:00Z; now unless given
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    time: Option<u64>,
    #[command(flatten)]
    files: PreparedFileOptions,
}

/// The group's public key with a user ID, which OpenPGP requires: an RSA key.
///
/// The key and so its fingerprint follow from the group's public key alone: as the time of its
/// creation it has the beginning of 2000.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum prepare openpgp-key --pubkey public.pem \\
             --user-id 'Office <office@example.org>' --out office-key.tbs")]
struct OpenpgpKeyArguments {
    #[command(flatten)]
    key: PreparedKeyOptions,
    /// The user ID
    #[arg(long, value_name = "TEXT")]
    user_id: String,
    /// The file to write, or - for standard output
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

/// A JSON Web Token with the claims in a file.
#[derive(clap::Args)]
#[command(after_help = "Example: sunder quorum prepare jwt --pubkey public.pem claims.json
writes claims.json.tbs. Its header has the key's thumbprint (RFC 7638) as `kid`.")]
struct JwtArguments {
    #[command(flatten)]
    key: PreparedKeyOptions,
    /// The algorithm; rs256 for RSA keys and eddsa for Ed25519 keys unless given
    #[arg(long, value_enum)]
    algorithm: Option<JwtAlgorithmName>,
    #[command(flatten)]
    files: PreparedFileOptions,
}

/// An OpenPGP signature of a commit or tag of git, as `git cat-file` prints it, by an RSA key.
///
/// The time of the signature is that of the commit or tag.
#[derive(clap::Args)]
#[command(after_help = "Example: git cat-file tag v1.0 > tag
Then:    sunder quorum prepare git --pubkey public.pem tag")]
struct GitArguments {
    #[command(flatten)]
    key: PreparedKeyOptions,
    #[command(flatten)]
    files: PreparedFileOptions,
}

#[derive(clap::Args)]
struct PreparedKeyOptions {
    /// The group's public key, in PEM
    #[arg(long, value_name = "FILE")]
    pubkey: PathBuf,
}

#[derive(clap::Args)]
struct PreparedFileOptions {
    /// The file to write, or - for standard output; FILE.tbs unless given
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// The file, or - for standard input
    file: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum CertificatePurposeName {
    /// A server in TLS
    ServerAuth,
    /// A client in TLS
    ClientAuth,
    /// Signatures of programs
    CodeSigning,
    /// Electronic mail
    EmailProtection,
}

#[derive(Clone, Copy, ValueEnum)]
enum JwtAlgorithmName {
    /// RSA: PKCS #1 v1.5 with SHA-256
    Rs256,
    /// RSA: PSS with SHA-256
    Ps256,
    /// Ed25519
    Eddsa,
}

/// The bytes of a serial number.
#[derive(Clone)]
struct SerialNumber(Vec<u8>);

pub(super) fn prepare(arguments: &QuorumPrepareArguments) -> Result<(), CommandFailure> {
    match &arguments.format {
        PrepareFormat::X509Csr(arguments) => x509_csr(arguments),
        PrepareFormat::X509Cert(arguments) => x509_cert(arguments),
        PrepareFormat::Cms(arguments) => {
            let algorithm = match &arguments.pubkey {
                Some(path) => SignatureAlgorithm::of(&read_key(path)?),
                None => SignatureAlgorithm::RsaSha256,
            };
            let content = arguments.files.read(MAX_CONTENT)?;
            let time = arguments.time.unwrap_or_else(now);
            let attributes = CmsAttributes::of(&content, algorithm, Some(time));
            arguments.files.write(SignatureFormat::Cms, &attributes.to_signed_bytes())
        }
        PrepareFormat::Openpgp(arguments) => {
            let key = arguments.key.read_rsa()?;
            let kind =
                if arguments.cleartext { OpenPgpKind::Cleartext } else { OpenPgpKind::Binary };
            let time = openpgp_time(arguments.time.unwrap_or_else(now))?;
            let content = arguments.files.read(MAX_BODY_LEN as u64)?;
            let message = openpgp::document(&key, &content, kind, time);
            arguments.files.write(SignatureFormat::OpenPgp, &arguments.files.checked(message)?)
        }
        PrepareFormat::OpenpgpKey(arguments) => {
            let message = openpgp::key_with_user_id(&arguments.key.read_rsa()?, &arguments.user_id);
            let message = message.map_err(|error| CommandFailure::Usage(error.to_string()))?;
            write(&arguments.out, SignatureFormat::OpenPgpKey, &message)
        }
        PrepareFormat::Jwt(arguments) => {
            let key = arguments.key.read()?;
            let algorithm = match arguments.algorithm {
                None => JwtAlgorithm::default_of(&key),
                Some(JwtAlgorithmName::Rs256) => JwtAlgorithm::Rs256,
                Some(JwtAlgorithmName::Ps256) => JwtAlgorithm::Ps256,
                Some(JwtAlgorithmName::Eddsa) => JwtAlgorithm::EdDsa,
            };
            let claims = arguments.files.read(MAX_BODY_LEN as u64)?;
            let message = jwt::token(&key, claims.trim_ascii(), algorithm);
            arguments.files.write(SignatureFormat::Jwt, &arguments.files.checked(message)?)
        }
        PrepareFormat::Git(arguments) => {
            let key = arguments.key.read_rsa()?;
            let payload = arguments.files.read(MAX_BODY_LEN as u64)?;
            let message = git_message(&key, &payload).map_err(|why| {
                CommandFailure::Usage(format!("{}: {why}", arguments.files.name()))
            })?;
            arguments.files.write(SignatureFormat::OpenPgp, &message)
        }
    }
}

/// What is signed for a commit or tag of git, without its signature.
///
/// # Errors
/// If it is neither: why, in one line.
pub(super) fn git_message(key: &RsaPublicKey, payload: &[u8]) -> Result<Vec<u8>, String> {
    let mut head = payload.split(|&byte| byte == b'\n').take_while(|line| !line.is_empty());
    let is_signer = |line: &&[u8]| line.starts_with(b"tagger ") || line.starts_with(b"committer ");
    let time = head.find(is_signer).and_then(|line| {
        // NAME <ADDRESS> TIME ZONE
        let line = str::from_utf8(line.rsplit(|&byte| byte == b'>').next()?).ok()?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    let why = "not a commit or tag of git with its time: write it with git cat-file";
    let time = time.ok_or(why)?;
    let time = openpgp_time(time).map_err(|failure| failure.message().to_owned())?;
    if payload.windows(SIGNED.len()).any(|part| part == SIGNED) {
        return Err("it is signed already: sign the commit or tag without its signature".into());
    }
    let message = openpgp::document(key, payload, OpenPgpKind::Binary, time);
    message.map_err(|error| error.to_string())
}

fn x509_csr(arguments: &X509CsrArguments) -> Result<(), CommandFailure> {
    let request = CertificationRequestFields {
        subject: arguments.subject.clone(),
        key: arguments.key.read()?.to_der(),
        names: arguments.names.clone(),
    };
    write(&arguments.out, SignatureFormat::X509Csr, &request.to_signed_bytes())
}

fn x509_cert(arguments: &X509CertArguments) -> Result<(), CommandFailure> {
    let group_key = arguments.key.read()?;
    let key = match &arguments.subject_key {
        None => group_key.to_der(),
        Some(path) => {
            let text = read_bounded(path, MAX_KEY_FILE)?;
            let key = key_from_pem(&String::from_utf8_lossy(&text));
            let why = "no public key in PEM (\"BEGIN PUBLIC KEY\"); openssl req -pubkey prints that of a request";
            key.ok_or_else(|| CommandFailure::Usage(format!("{}: {why}", path.display())))?
        }
    };
    let purposes: Vec<CertificatePurpose> = arguments
        .purposes
        .iter()
        .map(|name| match name {
            CertificatePurposeName::ServerAuth => CertificatePurpose::ServerAuth,
            CertificatePurposeName::ClientAuth => CertificatePurpose::ClientAuth,
            CertificatePurposeName::CodeSigning => CertificatePurpose::CodeSigning,
            CertificatePurposeName::EmailProtection => CertificatePurpose::EmailProtection,
        })
        .collect();
    let purposes = if purposes.is_empty() && !arguments.authority {
        vec![CertificatePurpose::ServerAuth]
    } else {
        purposes
    };
    let not_before = arguments.not_before.unwrap_or_else(now);
    let serial = match &arguments.serial {
        Some(SerialNumber(serial)) => serial.clone(),
        None => random_serial()?,
    };
    let certificate = CertificateFields {
        serial,
        algorithm: SignatureAlgorithm::of(&group_key),
        issuer: arguments.issuer.clone().unwrap_or_else(|| arguments.subject.clone()),
        not_before,
        not_after: not_before.saturating_add(u64::from(arguments.days) * 86_400),
        subject: arguments.subject.clone(),
        key,
        is_authority: arguments.authority,
        names: arguments.names.clone(),
        purposes,
    };
    write(&arguments.out, SignatureFormat::X509Cert, &certificate.to_signed_bytes(&group_key))
}

fn random_serial() -> Result<Vec<u8>, CommandFailure> {
    let mut serial = vec![0; 16];
    RandomGenerator::system()
        .fill(&mut serial)
        .map_err(|error| CommandFailure::Failed(format!("no random bytes: {error}")))?;
    // Positive, and of the same length each time.
    serial[0] = serial[0] & 0x7f | 0x40;
    Ok(serial)
}

impl PreparedKeyOptions {
    fn read(&self) -> Result<AnyPublicKey, CommandFailure> {
        read_key(&self.pubkey)
    }

    /// The key, which signs in OpenPGP.
    fn read_rsa(&self) -> Result<RsaPublicKey, CommandFailure> {
        let key = self.read()?;
        let key = openpgp::key_of(&key).cloned();
        key.map_err(|error| CommandFailure::Usage(format!("{}: {error}", self.pubkey.display())))
    }
}

fn read_key(path: &Path) -> Result<AnyPublicKey, CommandFailure> {
    AnyPublicKey::read(path).map_err(|error| CommandFailure::Usage(error.to_string()))
}

impl PreparedFileOptions {
    fn name(&self) -> String {
        if is_standard(&self.file) {
            "standard input".into()
        } else {
            self.file.display().to_string()
        }
    }

    fn read(&self, max: u64) -> Result<Vec<u8>, CommandFailure> {
        read_bounded(&self.file, max)
    }

    fn checked(&self, message: Result<Vec<u8>, FormatError>) -> Result<Vec<u8>, CommandFailure> {
        message.map_err(|error| CommandFailure::Usage(format!("{}: {error}", self.name())))
    }

    fn write(&self, format: SignatureFormat, message: &[u8]) -> Result<(), CommandFailure> {
        let out = match &self.out {
            Some(out) => out.clone(),
            None if is_standard(&self.file) => self.file.clone(),
            None => {
                let mut path = self.file.clone().into_os_string();
                path.push(".tbs");
                path.into()
            }
        };
        write(&out, format, message)
    }
}

/// Writes what is to be signed, and prints what it says.
fn write(out: &Path, format: SignatureFormat, message: &[u8]) -> Result<(), CommandFailure> {
    let described = format.describe(message);
    let line =
        described.map_err(|error| CommandFailure::Usage(format!("{}: {error}", out.display())))?;
    if message.len() > MAX_BODY_LEN {
        let why = format!(
            "more than {MAX_BODY_LEN} bytes are to be signed: sign a file with its SHA-256"
        );
        return Err(CommandFailure::Usage(why));
    }
    if is_standard(out) {
        console::note(&line);
        return write_standard(message);
    }
    write_new(out, message)?;
    console::print_line(&format!("{}: {line}", out.display()))
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

fn openpgp_time(seconds: u64) -> Result<u32, CommandFailure> {
    let time = u32::try_from(seconds).ok().filter(|time| *time >= openpgp::KEY_CREATED);
    let why = "OpenPGP signatures by this key have times from 2000 to 2106";
    time.ok_or_else(|| CommandFailure::Usage(why.into()))
}

fn parse_time(text: &str) -> Result<u64, String> {
    let time = humantime::parse_rfc3339_weak(text).map_err(|error| error.to_string())?;
    let since = time.duration_since(UNIX_EPOCH);
    since.map(|since| since.as_secs()).map_err(|_| "a time before 1970".into())
}

fn parse_serial(text: &str) -> Result<SerialNumber, &'static str> {
    let bytes = base16ct::mixed::decode_vec(text)
        .map_err(|_| "not hexadecimal digits, two for each byte")?;
    let is_serial = (1..=20).contains(&bytes.len()) && bytes[0] <= 0x7f && bytes[0] != 0;
    is_serial.then_some(SerialNumber(bytes)).ok_or("give 1 to 20 bytes, the first from 01 to 7f")
}
