//! The report of the demonstration, as text or JSON.

use std::time::Duration;

use base16ct::lower::encode_string;
use console::CommandFailure;
use console::table::{ColumnAlignment, aligned};
use indicatif::{BinaryBytes, HumanCount};
use keys::RsaPublicKey;
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::memory_scan::MemoryScan;
use super::theft::{ShareTheft, TheftAttempts};
use super::verifier::DemoSignatureVerifier;
use super::{DemoMessage, DemoSignature, MODULUS_BITS};
use crate::report::DemoFileDocument;

/// The contents of the report.
pub(super) struct DemoSignReport<'a> {
    pub(super) document: &'a DemoMessage,
    pub(super) verifier: &'a DemoSignatureVerifier<'a>,
    /// How long it took to make the key, to split it, and to move it.
    pub(super) generation: Duration,
    pub(super) split: Duration,
    pub(super) refresh: Duration,
    /// Those of the old group, and of the new one.
    pub(super) signatures: [Vec<DemoSignature>; 2],
    /// The public key, of both groups.
    pub(super) key: &'a RsaPublicKey,
    /// The number of epochs that follow from the public key.
    pub(super) epochs: u64,
    pub(super) theft: ShareTheft,
    /// The shares of old servers that are in memory before the refresh, and after it.
    pub(super) before_refresh: MemoryScan,
    pub(super) after_refresh: MemoryScan,
}

impl DemoSignReport<'_> {
    /// Prints the report as text.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(super) fn print(&self) -> Result<(), CommandFailure> {
        let text = [self.summary(), self.steps(), self.checks(), self.explanation()];
        console::print(text.join("\n").trim_end().as_bytes())
    }

    /// Prints the report as JSON.
    ///
    /// # Errors
    /// If standard output cannot be written to.
    pub(super) fn print_json(&self) -> Result<(), CommandFailure> {
        console::print_json(&self.json())
    }

    /// Checks that everything is as promised.
    ///
    /// # Errors
    /// If something is not.
    pub(super) fn check(&self) -> Result<(), CommandFailure> {
        let all_valid = self.signatures.iter().flatten().all(|signature| signature.is_valid);
        let wrong = if !all_valid {
            "a signature is wrong"
        } else if self.epochs != 2 {
            "the new group does not have the key of the old one"
        } else if self.theft.across_groups.signed > 0 {
            "shares of an old and a new server have made a signature"
        } else if self.theft.in_one_group.signed < self.theft.in_one_group.pairs {
            "shares of two servers of a group have not made a signature"
        } else if self.before_refresh.found.len() < self.before_refresh.sought {
            "the search of memory does not find shares that are there"
        } else if !self.after_refresh.found.is_empty() {
            "an old server has not wiped its shares"
        } else {
            return Ok(());
        };
        Err(CommandFailure::Failed(format!("{wrong}; please report this with the whole output")))
    }

    fn summary(&self) -> String {
        let DemoMessage { description, content } = self.document;
        format!(
            "Four servers, of which any two sign with one RSA key of {MODULUS_BITS} bits, and four \
             others,\nto which the key moves: all in this process\n\n\
             \x20 file        {}: {} bytes\n\
             \x20 public key  SHA-256 {}\n",
            console::printable(description),
            HumanCount(content.len() as u64),
            encode_string(&self.key.digest()),
        )
    }

    fn steps(&self) -> String {
        let [old, new] = &self.signatures;
        let verified_by = if self.verifier.openssl().is_some() { "openssl" } else { "verified" };
        let row = |step: &str, time: Duration, verified: String| {
            [step.to_owned(), format!("{:.3} s", time.as_secs_f64()), verified]
        };
        let rows = [
            ["step", "time", verified_by].map(str::to_owned),
            row("make a key of two random safe primes", self.generation, String::new()),
            row("split it for four servers, and forget it", self.split, String::new()),
            row("sign with each two of the four, one signature", median(old), verified(old)),
            row("refresh: move the key to four other servers", self.refresh, String::new()),
            row("sign with each two of these, one signature", median(new), verified(new)),
        ];
        aligned(&[ColumnAlignment::Left, ColumnAlignment::Right, ColumnAlignment::Left], &rows)
    }

    fn checks(&self) -> String {
        let ShareTheft { across_groups, in_one_group } = &self.theft;
        let [before, after] = [&self.before_refresh, &self.after_refresh];
        let rows = [
            ("headers of epochs that the public key verifies", self.epochs.to_string()),
            ("old shares in memory before the refresh", of(before.found.len(), before.sought)),
            ("old shares in memory after it", of(after.found.len(), after.sought)),
            ("pairs of an old and a new server that can sign", of_pairs(across_groups)),
            ("pairs of servers of one group that can sign", of_pairs(in_one_group)),
        ];
        let rows = [("check", "result".into())].into_iter().chain(rows);
        let rows: Vec<_> = rows.map(|(check, result)| [check.to_owned(), result]).collect();
        aligned(&[ColumnAlignment::Left, ColumnAlignment::Right], &rows)
    }

    fn explanation(&self) -> String {
        let verifier = match self.verifier.openssl() {
            Some(version) => format!("\"openssl dgst -sha256 -verify\" ({version}) verified"),
            None => "openssl is not installed: Sunder itself verified".into(),
        };
        format!(
            "{verifier} the signatures.\n\
             All memory of this process, which runs all servers, was searched ({}). An adversary \
             with\ncopies of the shares of a pair tried all products of their partial signatures: \
             {} and {}.\n",
            BinaryBytes(self.after_refresh.bytes),
            HumanCount(self.theft.across_groups.products as u64),
            HumanCount(self.theft.in_one_group.products as u64),
        )
    }

    fn json(&self) -> DemoSignDocument<'_> {
        let DemoMessage { description, content } = self.document;
        let [old, new] = &self.signatures;
        DemoSignDocument {
            file: DemoFileDocument {
                name: description,
                bytes: content.len() as u64,
                sha256: encode_string(&Sha256::digest(content)),
            },
            modulus_bits: MODULUS_BITS,
            public_key: self.key.to_pem(),
            openssl: self.verifier.openssl(),
            generate_seconds: self.generation.as_secs_f64(),
            split_seconds: self.split.as_secs_f64(),
            refresh_seconds: self.refresh.as_secs_f64(),
            old_group: old.iter().map(DemoSignatureDocument::of).collect(),
            new_group: new.iter().map(DemoSignatureDocument::of).collect(),
            signed_epochs: self.epochs,
            old_shares: OldSharesDocument {
                count: self.before_refresh.sought,
                in_memory_before_refresh: self.before_refresh.found.len(),
                in_memory_after_refresh: self.after_refresh.found.len(),
                bytes_searched: self.after_refresh.bytes,
            },
            across_groups: TheftAttemptsDocument::of(&self.theft.across_groups),
            in_one_group: TheftAttemptsDocument::of(&self.theft.in_one_group),
        }
    }
}

/// The median time of a signature.
fn median(signatures: &[DemoSignature]) -> Duration {
    let mut times: Vec<_> = signatures.iter().map(|signature| signature.duration).collect();
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn verified(signatures: &[DemoSignature]) -> String {
    let valid = signatures.iter().filter(|signature| signature.is_valid).count();
    of(valid, signatures.len()) + " OK"
}

fn of_pairs(attempts: &TheftAttempts) -> String {
    of(attempts.signed, attempts.pairs)
}

fn of(part: usize, all: usize) -> String {
    format!("{part} of {all}")
}

/// What `--json` prints. Servers are counted from 0 in each group.
#[derive(Serialize)]
struct DemoSignDocument<'a> {
    file: DemoFileDocument<'a>,
    modulus_bits: u32,
    /// PEM.
    public_key: String,
    /// The version of openssl; null if it is not installed.
    openssl: Option<&'a str>,
    generate_seconds: f64,
    split_seconds: f64,
    refresh_seconds: f64,
    old_group: Vec<DemoSignatureDocument>,
    new_group: Vec<DemoSignatureDocument>,
    /// The epochs whose headers the public key verifies; 0 if one does not follow the other.
    signed_epochs: u64,
    old_shares: OldSharesDocument,
    /// Attempts with the shares of one old and one new server.
    across_groups: TheftAttemptsDocument,
    /// Attempts with the shares of two servers of one group.
    in_one_group: TheftAttemptsDocument,
}

#[derive(Serialize)]
struct DemoSignatureDocument {
    servers: Vec<u8>,
    seconds: f64,
    valid: bool,
}

impl DemoSignatureDocument {
    fn of(signature: &DemoSignature) -> Self {
        Self {
            servers: signature.signers.iter().map(|server| server.0).collect(),
            seconds: signature.duration.as_secs_f64(),
            valid: signature.is_valid,
        }
    }
}

#[derive(Serialize)]
struct OldSharesDocument {
    count: usize,
    in_memory_before_refresh: usize,
    in_memory_after_refresh: usize,
    bytes_searched: u64,
}

#[derive(Serialize)]
struct TheftAttemptsDocument {
    pairs: usize,
    products: usize,
    /// The pairs that made a signature.
    signed: usize,
}

impl TheftAttemptsDocument {
    fn of(attempts: &TheftAttempts) -> Self {
        let TheftAttempts { pairs, products, signed } = *attempts;
        Self { pairs, products, signed }
    }
}
