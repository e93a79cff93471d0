//! Attacks of old servers: invalid dealings, several dealings of one round, and invalid entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use random::RandomGenerator;
use rsa_arithmetic::modulus::RsaElement;
use sim::SeededRng;

use super::super::super::dealing::{Dealing, DealingDelivery, DealingProofs, DealingSeed};
use super::super::super::entry::LogEntryBody;
use super::super::super::manifest::{DealingManifest, DealingRound, MAX_ROUNDS};
use super::super::super::session::{SessionCipher, SessionPoint, SessionSecret};
use super::super::super::{LogEntry, RefreshAgreement, RefreshMessage, RefreshRole, RefreshRun};
use super::super::process::{ProcessAction, SimulatedProcess};
use super::Adversary;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::testing::group;
use crate::protocol::wire::Sha256Digest;

/// A dealing that the adversary created.
pub(super) struct ForgedDealing {
    process: usize,
    pub(super) digest: Sha256Digest,
    manifest: DealingManifest,
    pub(super) confirmations: BTreeMap<ServerIndex, [u8; 64]>,
    is_proved: bool,
}

/// The defect of a dealing.
#[derive(Clone, Copy, PartialEq)]
enum DealingDefect {
    None,
    /// The ciphertext decrypts to other subshares.
    Subshare,
    /// The ciphertext does not decrypt.
    Ciphertext,
    /// The ciphertext has another length.
    Length,
    /// The dealer's signature is wrong.
    Signature,
    /// The proofs' product is not the witness.
    Product,
    /// Two proofs are wrong, but their product is right.
    Proofs,
    /// Two proofs are negated, which makes no difference.
    Sign,
    /// Proofs are not numbers modulo N.
    NoNumbers,
}

const DEFECTS: [(DealingDefect, &str); 9] = [
    (DealingDefect::None, "right dealing"),
    (DealingDefect::Subshare, "wrong subshare"),
    (DealingDefect::Ciphertext, "wrong ciphertext"),
    (DealingDefect::Length, "short ciphertext"),
    (DealingDefect::Signature, "unsigned dealing"),
    (DealingDefect::Product, "wrong product"),
    (DealingDefect::Proofs, "wrong proofs"),
    (DealingDefect::Sign, "negated proofs"),
    (DealingDefect::NoNumbers, "proofs that are no numbers"),
];

impl Adversary {
    pub(super) fn attack_as_dealer(
        &mut self,
        at: usize,
        process: &SimulatedProcess,
        rng: &mut SeededRng,
        generator: &mut RandomGenerator,
    ) -> (&'static str, Vec<ProcessAction>) {
        let agreement = process.agreement();
        let Some(index) = process.index(RefreshRole::Old) else { return ("", Vec::new()) };
        let submit = |entry: LogEntry| vec![ProcessAction::Submit(entry.to_bytes())];
        match (rng.index(12), agreement.run()) {
            (0, _) => {
                let entry = agreement.approval(index, group(1, 90), &process.secret);
                ("approval of another group", submit(entry))
            }
            (1, _) => ("cancellation", submit(agreement.cancellation(index, &process.secret))),
            (_, None) => ("", Vec::new()),
            (2, Some(run)) => {
                let entry = self.wrong_proved(index, process, run, rng);
                ("wrong Proved", entry.into_iter().flat_map(submit).collect())
            }
            (_, Some(run)) => {
                let &(defect, name) = rng.pick(&DEFECTS).expect("there are some");
                (name, self.deal((at, index), process, run, defect, rng, generator))
            }
        }
    }

    /// A dealing of any labels in any round, to any servers.
    fn deal(
        &mut self,
        (at, index): (usize, ServerIndex),
        process: &SimulatedProcess,
        run: &RefreshRun,
        defect: DealingDefect,
        rng: &mut SeededRng,
        generator: &mut RandomGenerator,
    ) -> Vec<ProcessAction> {
        let agreement = process.agreement();
        let Some(shares) = self.shares.get(&at) else { return Vec::new() };
        let (parameters, new) = (agreement.parameters(), run.group().combination());
        let seed = DealingSeed::random(generator).unwrap();
        let labels: Vec<Label> = shares.keys().copied().filter(|_| rng.chance(50)).collect();
        let round = if rng.chance(50) { 0 } else { rng.index(MAX_ROUNDS.into()) };
        let round = DealingRound(u8::try_from(round).expect("it is small"));
        let mut rows: Vec<_> = labels
            .iter()
            .map(|label| (*label, seed.prove_row(*label, &shares[label], new, parameters)))
            .collect();
        if rows.is_empty() {
            return Vec::new();
        }
        let row = rng.index(rows.len());
        damage_proofs(&mut rows[row].1, agreement, defect, rng);
        let ephemeral = seed.ephemeral();
        let proofs = DealingProofs::new(run.id(), index, round, ephemeral.public(), rows);
        let proofs = Arc::new(proofs);
        let forged = ForgedDealing {
            process: at,
            digest: proofs.digest,
            manifest: proofs.manifest.clone(),
            confirmations: BTreeMap::new(),
            is_proved: false,
        };
        self.forged.push(forged);
        // All servers, or the smallest number that can make the dealing chosen.
        let mut servers: Vec<_> = new.servers().collect();
        rng.shuffle(&mut servers);
        let count = [servers.len(), new.quorum(), new.signer_count() + new.faulty()][rng.index(3)];
        servers.truncate(count);
        let mut actions = Vec::new();
        for to in servers {
            // A dealing may come before the session key is known.
            let early = SessionSecret::random(generator).unwrap().public();
            let key = *run.session_keys().get(&to).unwrap_or(&early);
            let rows = labels.iter().map(|label| (*label, &shares[label]));
            let identity = &process.secret;
            let delivery = seed.deliver(proofs.digest, rows, (to, &key), new, parameters, identity);
            let mut dealing = Dealing { proofs: proofs.clone(), delivery: Arc::new(delivery) };
            if rng.chance(60) {
                let damage = DamagedDelivery { defect, row, to, key, ephemeral: &ephemeral };
                damage.apply(&mut dealing, process, rng);
            }
            let bytes = RefreshMessage::Dealing(dealing).to_bytes().to_vec();
            actions.push(ProcessAction::Send {
                from: RefreshRole::Old,
                to: (RefreshRole::New, to),
                bytes,
            });
        }
        actions
    }

    /// Submits Proved for forged dealings as soon as faulty servers can complete the confirmations.
    pub(super) fn prove_forged(
        &mut self,
        processes: &[SimulatedProcess],
        rng: &mut SeededRng,
        actions: &mut Vec<(usize, ProcessAction)>,
    ) {
        for forged in &mut self.forged {
            let process = &processes[forged.process];
            let (Some(run), Some(index)) =
                (process.agreement().run(), process.index(RefreshRole::Old))
            else {
                continue;
            };
            if forged.is_proved || forged.manifest.run != run.id() || rng.chance(20) {
                continue;
            }
            let mut confirmations = forged.confirmations.clone();
            for &faulty in self.styles.keys() {
                if let Some(index) = run.group().index_of(&processes[faulty].public) {
                    let signature = processes[faulty]
                        .secret
                        .sign(&DealingManifest::confirmation(forged.digest));
                    confirmations.insert(index, signature);
                }
            }
            let quorum = run.group().combination().quorum();
            if confirmations.len() >= quorum {
                forged.is_proved = true;
                let confirmations = confirmations.into_iter().take(quorum).collect();
                let body =
                    LogEntryBody::Proved { manifest: forged.manifest.clone(), confirmations };
                let entry = LogEntry::new(index, body, &process.secret);
                actions.push((forged.process, ProcessAction::Submit(entry.to_bytes())));
            }
        }
    }

    /// An entry with too few, duplicate or forged confirmations, or of another's dealing.
    fn wrong_proved(
        &self,
        index: ServerIndex,
        process: &SimulatedProcess,
        run: &RefreshRun,
        rng: &mut SeededRng,
    ) -> Option<LogEntry> {
        let forged = rng.pick(&self.forged)?;
        let quorum = run.group().combination().quorum();
        let own = process.secret.sign(&DealingManifest::confirmation(forged.digest));
        let some = forged.confirmations.iter().map(|(server, it)| (*server, *it));
        let mut confirmations: Vec<_> = some.take(quorum).collect();
        let kind = rng.index(3);
        while confirmations.len() < quorum {
            let server = match kind {
                0 => ServerIndex(u8::try_from(confirmations.len()).expect("it is small")),
                1 => confirmations.last().map_or(ServerIndex(0), |last| last.0),
                _ => break,
            };
            let signature = confirmations.last().map_or(own, |last| last.1);
            confirmations.push((server, if kind == 0 { own } else { signature }));
        }
        let body = LogEntryBody::Proved { manifest: forged.manifest.clone(), confirmations };
        Some(LogEntry::new(index, body, &process.secret))
    }
}

/// Invalidates the proofs of a row.
fn damage_proofs(
    row: &mut [u8],
    agreement: &RefreshAgreement,
    defect: DealingDefect,
    rng: &mut SeededRng,
) {
    let modulus = &agreement.parameters().modulus;
    let len = modulus.byte_len();
    let count = row.len() / len;
    let first = rng.index(count);
    let second = (first + 1 + rng.index(count - 1)) % count;
    let mut times = |at: usize, factor: &RsaElement| {
        let proof = &mut row[at * len..(at + 1) * len];
        let product = modulus.element(proof).expect("it is a proof").times(factor);
        proof.copy_from_slice(&product.to_be_bytes());
    };
    let two = modulus.one();
    let mut bytes = two.to_be_bytes();
    match defect {
        DealingDefect::Product | DealingDefect::Proofs => {
            *bytes.last_mut().expect("it has bytes") = 4;
            let four = modulus.element(&bytes).expect("it is small");
            times(first, &four);
            if defect == DealingDefect::Proofs {
                times(second, &four.inverse().expect("N is odd"));
            }
        }
        DealingDefect::Sign => {
            let mut minus_1 = modulus.to_be_bytes();
            *minus_1.last_mut().expect("it has bytes") -= 1;
            let minus_1 = modulus.element(&minus_1).expect("it is below N");
            times(first, &minus_1);
            times(second, &minus_1);
        }
        DealingDefect::NoNumbers => row[first * len..(first + 1) * len].fill(0xff),
        _ => {}
    }
}

/// The defect of a dealing for one server.
struct DamagedDelivery<'a> {
    defect: DealingDefect,
    row: usize,
    to: ServerIndex,
    key: SessionPoint,
    ephemeral: &'a SessionSecret,
}

impl DamagedDelivery<'_> {
    fn apply(&self, dealing: &mut Dealing, process: &SimulatedProcess, rng: &mut SeededRng) {
        let Dealing { proofs, delivery } = dealing;
        let DealingDelivery { mut ciphertexts, mut signature } = (**delivery).clone();
        let ciphertext = &mut ciphertexts[self.row];
        let at = rng.index(ciphertext.len());
        match self.defect {
            DealingDefect::Subshare => {
                let context = DealingManifest::session_context(proofs.digest, self.to);
                let cipher = SessionCipher::new(&self.ephemeral.agree(&self.key), &context);
                let (label, _) = proofs.manifest.rows[self.row];
                let mut plaintext = cipher.open(label, ciphertext).expect("it is right");
                let at = rng.index(plaintext.len());
                plaintext[at] ^= 1 << rng.index(8);
                *ciphertext = cipher.seal(label, &plaintext);
            }
            DealingDefect::Ciphertext => ciphertext[at] ^= 1 << rng.index(8),
            DealingDefect::Length => ciphertext.truncate(at),
            _ => {}
        }
        let mut changed = DealingDelivery { ciphertexts, signature };
        let message = DealingManifest::delivery(proofs.digest, self.to, &changed.digests());
        signature = process.secret.sign(&message);
        if self.defect == DealingDefect::Signature {
            signature[rng.index(64)] ^= 1;
        }
        changed.signature = signature;
        *delivery = Arc::new(changed);
    }
}
