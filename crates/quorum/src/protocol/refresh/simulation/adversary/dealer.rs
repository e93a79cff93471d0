//! What faulty old servers do: wrong dealings, several of one round, and wrong entries.

use std::collections::BTreeMap;
use std::sync::Arc;

use sharing::Generator;
use sim::Rng;

use super::super::super::dealing::{Dealing, DealingSeed, Delivery, Proofs};
use super::super::super::entry::Body;
use super::super::super::manifest::{MAX_ROUNDS, Manifest, Round};
use super::super::super::session::{SessionCipher, SessionPoint, SessionSecret};
use super::super::super::{Board, Entry, Message, Run, Side};
use super::super::process::{Action, Process};
use super::Adversary;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::rsa::modulus::Element;
use crate::protocol::testing::group;
use crate::protocol::wire::Digest;

/// A dealing that the adversary made.
pub(super) struct Forged {
    process: usize,
    pub(super) digest: Digest,
    manifest: Manifest,
    pub(super) confirmations: BTreeMap<ServerIndex, [u8; 64]>,
    is_proved: bool,
}

/// What is wrong with a dealing.
#[derive(Clone, Copy, PartialEq)]
enum Defect {
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
    /// Proofs are no numbers.
    NoNumbers,
}

const DEFECTS: [(Defect, &str); 9] = [
    (Defect::None, "right dealing"),
    (Defect::Subshare, "wrong subshare"),
    (Defect::Ciphertext, "wrong ciphertext"),
    (Defect::Length, "short ciphertext"),
    (Defect::Signature, "unsigned dealing"),
    (Defect::Product, "wrong product"),
    (Defect::Proofs, "wrong proofs"),
    (Defect::Sign, "negated proofs"),
    (Defect::NoNumbers, "proofs that are no numbers"),
];

impl Adversary {
    pub(super) fn attack_as_dealer(
        &mut self,
        at: usize,
        process: &Process,
        rng: &mut Rng,
        generator: &mut Generator,
    ) -> (&'static str, Vec<Action>) {
        let board = process.board();
        let Some(index) = process.index(Side::Old) else { return ("", Vec::new()) };
        let submit = |entry: Entry| vec![Action::Submit(entry.to_bytes())];
        match (rng.index(12), board.run()) {
            (0, _) => {
                let entry = board.approval(index, group(1, 90), &process.secret);
                ("approval of another group", submit(entry))
            }
            (1, _) => ("cancellation", submit(board.cancellation(index, &process.secret))),
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
        process: &Process,
        run: &Run,
        defect: Defect,
        rng: &mut Rng,
        generator: &mut Generator,
    ) -> Vec<Action> {
        let board = process.board();
        let Some(shares) = self.shares.get(&at) else { return Vec::new() };
        let (parameters, new) = (board.parameters(), run.group().combination());
        let seed = DealingSeed::random(generator).unwrap();
        let labels: Vec<Label> = shares.keys().copied().filter(|_| rng.chance(50)).collect();
        let round = if rng.chance(50) { 0 } else { rng.index(MAX_ROUNDS.into()) };
        let round = Round(u8::try_from(round).expect("it is small"));
        let mut rows: Vec<_> = labels
            .iter()
            .map(|label| (*label, seed.prove_row(*label, &shares[label], new, parameters)))
            .collect();
        if rows.is_empty() {
            return Vec::new();
        }
        let row = rng.index(rows.len());
        damage_proofs(&mut rows[row].1, board, defect, rng);
        let ephemeral = seed.ephemeral();
        let proofs = Proofs::new(run.id(), index, round, ephemeral.public(), rows);
        let proofs = Arc::new(proofs);
        let forged = Forged {
            process: at,
            digest: proofs.digest,
            manifest: proofs.manifest.clone(),
            confirmations: BTreeMap::new(),
            is_proved: false,
        };
        self.forged.push(forged);
        // All servers, or as few as can make it chosen.
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
                let damage = Damage { defect, row, to, key, ephemeral: &ephemeral };
                damage.apply(&mut dealing, process, rng);
            }
            let bytes = Message::Dealing(dealing).to_bytes().to_vec();
            actions.push(Action::Send { from: Side::Old, to: (Side::New, to), bytes });
        }
        actions
    }

    /// Submits Proved for forged dealings as soon as faulty servers can complete the confirmations.
    pub(super) fn prove_forged(
        &mut self,
        processes: &[Process],
        rng: &mut Rng,
        actions: &mut Vec<(usize, Action)>,
    ) {
        for forged in &mut self.forged {
            let process = &processes[forged.process];
            let (Some(run), Some(index)) = (process.board().run(), process.index(Side::Old)) else {
                continue;
            };
            if forged.is_proved || forged.manifest.run != run.id() || rng.chance(20) {
                continue;
            }
            let mut confirmations = forged.confirmations.clone();
            for &faulty in self.styles.keys() {
                if let Some(index) = run.group().index_of(&processes[faulty].public) {
                    let signature =
                        processes[faulty].secret.sign(&Manifest::confirmation(forged.digest));
                    confirmations.insert(index, signature);
                }
            }
            let quorum = run.group().combination().quorum();
            if confirmations.len() >= quorum {
                forged.is_proved = true;
                let confirmations = confirmations.into_iter().take(quorum).collect();
                let body = Body::Proved { manifest: forged.manifest.clone(), confirmations };
                let entry = Entry::new(index, body, &process.secret);
                actions.push((forged.process, Action::Submit(entry.to_bytes())));
            }
        }
    }

    /// An entry with too few, duplicate or forged confirmations, or of another's dealing.
    fn wrong_proved(
        &self,
        index: ServerIndex,
        process: &Process,
        run: &Run,
        rng: &mut Rng,
    ) -> Option<Entry> {
        let forged = rng.pick(&self.forged)?;
        let quorum = run.group().combination().quorum();
        let own = process.secret.sign(&Manifest::confirmation(forged.digest));
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
        let body = Body::Proved { manifest: forged.manifest.clone(), confirmations };
        Some(Entry::new(index, body, &process.secret))
    }
}

/// Makes the proofs of a row wrong.
fn damage_proofs(row: &mut [u8], board: &Board, defect: Defect, rng: &mut Rng) {
    let modulus = &board.parameters().modulus;
    let len = modulus.byte_len();
    let count = row.len() / len;
    let first = rng.index(count);
    let second = (first + 1 + rng.index(count - 1)) % count;
    let mut times = |at: usize, factor: &Element| {
        let proof = &mut row[at * len..(at + 1) * len];
        let product = modulus.element(proof).expect("it is a proof").times(factor);
        proof.copy_from_slice(&product.to_be_bytes());
    };
    let two = modulus.one();
    let mut bytes = two.to_be_bytes();
    match defect {
        Defect::Product | Defect::Proofs => {
            *bytes.last_mut().expect("it has bytes") = 4;
            let four = modulus.element(&bytes).expect("it is small");
            times(first, &four);
            if defect == Defect::Proofs {
                times(second, &four.inverse().expect("N is odd"));
            }
        }
        Defect::Sign => {
            let mut minus_1 = modulus.to_be_bytes();
            *minus_1.last_mut().expect("it has bytes") -= 1;
            let minus_1 = modulus.element(&minus_1).expect("it is below N");
            times(first, &minus_1);
            times(second, &minus_1);
        }
        Defect::NoNumbers => row[first * len..(first + 1) * len].fill(0xff),
        _ => {}
    }
}

/// What is wrong with a dealing to one server.
struct Damage<'a> {
    defect: Defect,
    row: usize,
    to: ServerIndex,
    key: SessionPoint,
    ephemeral: &'a SessionSecret,
}

impl Damage<'_> {
    fn apply(&self, dealing: &mut Dealing, process: &Process, rng: &mut Rng) {
        let Dealing { proofs, delivery } = dealing;
        let Delivery { mut ciphertexts, mut signature } = (**delivery).clone();
        let ciphertext = &mut ciphertexts[self.row];
        let at = rng.index(ciphertext.len());
        match self.defect {
            Defect::Subshare => {
                let context = Manifest::session_context(proofs.digest, self.to);
                let cipher = SessionCipher::new(&self.ephemeral.agree(&self.key), &context);
                let (label, _) = proofs.manifest.rows[self.row];
                let mut plaintext = cipher.open(label, ciphertext).expect("it is right");
                let at = rng.index(plaintext.len());
                plaintext[at] ^= 1 << rng.index(8);
                *ciphertext = cipher.seal(label, &plaintext);
            }
            Defect::Ciphertext => ciphertext[at] ^= 1 << rng.index(8),
            Defect::Length => ciphertext.truncate(at),
            _ => {}
        }
        let mut changed = Delivery { ciphertexts, signature };
        let message = Manifest::delivery(proofs.digest, self.to, &changed.digests());
        signature = process.secret.sign(&message);
        if self.defect == Defect::Signature {
            signature[rng.index(64)] ^= 1;
        }
        changed.signature = signature;
        *delivery = Arc::new(changed);
    }
}
