//! `sunder demo sign`: any two of four servers sign, then any two of four others, under one key
//! that no server has.

pub mod memory_scan;
mod report;
mod theft;
mod verifier;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use console::CommandFailure;
use console::CommandProgress;
use keys::rsa::RsaEncoding;
use quorum::group::{GroupKeyKind, verify_chain};
use quorum::in_process::{GroupKeyParameters, InProcessGroup, SignReport, SigningServers};
use quorum::policy::check_message;
use quorum::signing::{MAX_MESSAGE_LEN, SignerHealth};
use quorum::{
    CombinatorialSharing, DealerKey, GroupPublicKey, PrimeSearchProgress, ServerIndex, ShareRange,
};
use random::{RandomError, RandomGenerator};

use super::sets_of;
use super::source::DemoSourceFile;
use memory_scan::SoughtSecrets;
use report::DemoSignReport;
use theft::{ShareTheft, copies_of_shares};
use verifier::DemoSignatureVerifier;

/// The size of the key.
const MODULUS_BITS: u32 = 2048;

/// How many of the four servers of a group may be faulty.
const FAULTY: u8 = 1;

/// What is signed if no file is given.
const TEXT: &[u8] = b"Any two of four servers have signed this, and none of them has the key.\n";

/// What is signed.
struct DemoMessage {
    /// A description for people.
    description: String,
    content: Vec<u8>,
}

/// One signature.
struct DemoSignature {
    signers: Vec<ServerIndex>,
    duration: Duration,
    is_valid: bool,
    bytes: Vec<u8>,
}

/// Runs the demonstration. Leaves key, file and signatures in the directory `out`, if there is one.
///
/// # Errors
/// If the file cannot be signed, something cannot be written, or something is not as promised.
pub(super) fn run(
    file: Option<&Path>,
    out: Option<&Path>,
    json: bool,
) -> Result<(), CommandFailure> {
    let document = document(file)?;
    if let Some(out) = out {
        fs::create_dir_all(out).map_err(|error| unwritten(out, &error))?;
    }
    let mut generator = RandomGenerator::seeded().map_err(failed)?;

    let (dealer, generation) = timed(|| make_quorum_key(MODULUS_BITS));
    let dealer = dealer?;
    let key = dealer.group().clone();
    let progress = CommandProgress::unknown();
    progress.doing("splitting it for four servers");
    let (dealt, split) = timed(|| deal(&dealer, &mut generator));
    drop(dealer);
    let (setting, old) = dealt.map_err(failed)?;

    let verifier = DemoSignatureVerifier::new(key.public(), &document.content)?;
    progress.doing("signing with each two of the four");
    let old_signatures = sign(&old, &setting, &document, &verifier)?;
    let old_header = sign_header(&old, &setting)?;
    let old_copies = copies_of_shares(&old);
    // Servers have most shares in common.
    let old_shares: BTreeMap<_, _> = old_copies.iter().flatten().collect();
    let sought = SoughtSecrets::of(old_shares.values().map(|share| share.to_be_bytes()));
    let before_refresh = sought.search("self").map_err(|error| searching(&error))?;

    progress.doing("moving the key to four other servers");
    let four = old.combination().clone();
    let (refreshed, refresh) = timed(|| old.refresh(&setting, &four, &mut generator));
    let (new, _) = refreshed.map_err(failed)?;
    progress.doing("signing with each two of the new four");
    let new_signatures = sign(&new, &setting, &document, &verifier)?;
    let new_header = sign_header(&new, &setting)?;

    progress.doing("trying to sign with shares of an old and a new server");
    let theft = ShareTheft::of(&key, &document.content, &old_copies, &copies_of_shares(&new));
    progress.doing("searching this process's memory for shares of old servers");
    drop(old_copies);
    let after_refresh = sought.search("self").map_err(|error| searching(&error))?;
    drop(progress);
    let report = DemoSignReport {
        document: &document,
        verifier: &verifier,
        key: key.public(),
        generation,
        split,
        refresh,
        signatures: [old_signatures, new_signatures],
        epochs: epochs(&key, &[old_header, new_header]),
        theft,
        before_refresh,
        after_refresh,
    };
    if json { report.print_json() } else { report.print() }?;
    report.check()?;
    let Some(out) = out else { return Ok(()) };
    write_outputs(out, &report)?;
    if json {
        return Ok(());
    }
    console::print_line(&format!(
        "\nIn {}: what both groups have signed. To check it:",
        out.display()
    ))?;
    console::print_line("openssl dgst -sha256 -verify public.pem -signature message.sig message")
}

/// Writes what anyone can check with openssl: both groups have signed under one key.
fn write_outputs(out: &Path, report: &DemoSignReport) -> Result<(), CommandFailure> {
    let [before, after] = report.signatures.each_ref().map(|signatures| &signatures[0].bytes[..]);
    let pem = report.key.to_pem();
    for (name, content) in [
        ("public.pem", pem.as_bytes()),
        ("message", &report.document.content),
        ("message.sig", before),
        ("message.after.sig", after),
    ] {
        let path = out.join(name);
        fs::write(&path, content).map_err(|error| unwritten(&path, &error))?;
    }
    Ok(())
}

fn unwritten(path: &Path, error: &io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("cannot write {}: {error}", path.display()))
}

/// Reads the file. It is not read whole if it is too long.
fn document(file: Option<&Path>) -> Result<DemoMessage, CommandFailure> {
    let Some(path) = file else {
        return Ok(DemoMessage { description: "a line of text".into(), content: TEXT.to_vec() });
    };
    let DemoSourceFile { file, description, .. } = DemoSourceFile::open(path)?;
    let mut content = Vec::new();
    file.take(MAX_MESSAGE_LEN as u64 + 1)
        .read_to_end(&mut content)
        .map_err(|error| CommandFailure::Usage(format!("cannot read {description}: {error}")))?;
    check_message(&content, GroupKeyKind::Rsa)
        .map_err(|error| CommandFailure::Usage(format!("cannot sign {description}: {error}")))?;
    Ok(DemoMessage { description, content })
}

/// Splits the key for the first group.
fn deal(
    dealer: &DealerKey,
    generator: &mut RandomGenerator,
) -> Result<(GroupKeyParameters, InProcessGroup), RandomError> {
    let combination = CombinatorialSharing::new(FAULTY).expect("it is small");
    let setting = GroupKeyParameters::new(dealer.group(), ShareRange::new(MODULUS_BITS));
    let group = setting.deal(dealer, &combination, generator)?;
    Ok((setting, group))
}

/// Signs with each two servers of a group.
fn sign(
    group: &InProcessGroup,
    setting: &GroupKeyParameters,
    document: &DemoMessage,
    verifier: &DemoSignatureVerifier,
) -> Result<Vec<DemoSignature>, CommandFailure> {
    let servers: Vec<_> = group.combination().servers().collect();
    let signing = group.signing_servers(setting);
    let signature = |set: Vec<usize>| {
        let signers: Vec<_> = set.into_iter().map(|at| servers[at]).collect();
        let others: Vec<_> = servers.iter().copied().filter(|it| !signers.contains(it)).collect();
        let SignReport { signature, took, .. } =
            sign_without(&signing, &document.content, &others)?;
        let signature = signature.ok_or_else(|| failed("the servers do not sign"))?;
        let is_valid = verifier.verify(&signature)?;
        Ok(DemoSignature { signers, duration: took, is_valid, bytes: signature })
    };
    sets_of(group.combination().signer_count(), servers.len()).map(signature).collect()
}

/// Signs without some servers, which are known not to answer.
fn sign_without(
    servers: &SigningServers,
    message: &[u8],
    silent: &[ServerIndex],
) -> Result<SignReport, CommandFailure> {
    let mut health = SignerHealth::new(&servers.group().combination);
    for &server in silent {
        health.silent(server, Duration::ZERO);
    }
    servers.sign(message, RsaEncoding::Pkcs1, &mut health, silent).map_err(failed)
}

/// The header of a group's epoch, and the group's signature of it.
fn sign_header(
    group: &InProcessGroup,
    setting: &GroupKeyParameters,
) -> Result<(Vec<u8>, Vec<u8>), CommandFailure> {
    let header = group.header().to_bytes();
    let signed = sign_without(&group.signing_servers(setting), &header, &[])?;
    Ok((header, signed.signature.ok_or_else(|| failed("the servers do not sign"))?))
}

/// The number of epochs that whoever has the public key can follow; 0 if the chain is broken.
fn epochs(key: &GroupPublicKey, headers: &[(Vec<u8>, Vec<u8>)]) -> u64 {
    let headers = headers.iter().map(|(header, signature)| (&header[..], &signature[..]));
    let verify = |message: &[u8], signature: &[u8]| key.public().verify(message, signature);
    verify_chain(headers, verify).map_or(0, |last| last.epoch)
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

fn searching(error: &io::Error) -> CommandFailure {
    CommandFailure::Failed(format!("cannot search this process's memory, /proc/self/mem: {error}"))
}

fn failed(error: impl Display) -> CommandFailure {
    CommandFailure::Failed(format!("the group of servers: {error}"))
}

/// Makes a key of two random safe primes, on all processors.
///
/// # Errors
/// If there are no random bytes.
pub fn make_quorum_key(bits: u32) -> Result<DealerKey, CommandFailure> {
    let progress = CommandProgress::unknown();
    let tried = |search: PrimeSearchProgress| {
        let PrimeSearchProgress { prime, tried } = search;
        progress.doing(format!("searching for safe prime {prime} of 2: {tried} numbers tried"));
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let key = DealerKey::generate_on(threads, bits, &tried);
    key.map_err(|error| CommandFailure::Failed(error.to_string()))
}
