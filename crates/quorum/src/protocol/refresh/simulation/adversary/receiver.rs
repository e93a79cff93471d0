//! What faulty new servers do: false complaints, confirmations of anything, wrong shares and
//! witnesses.

use sharing::Generator;
use sim::Rng;
use zeroize::Zeroizing;

use super::super::super::entry::Body;
use super::super::super::manifest::Manifest;
use super::super::super::message::{Answer, Sum};
use super::super::super::session::SessionSecret;
use super::super::super::{Entry, Item, Message, Run, Side, new_server, possession};
use super::super::process::{Action, Process};
use super::Adversary;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::voting::{VotingKey, VotingSecret};
use crate::protocol::wire::Reader;

impl Adversary {
    pub(super) fn attack_as_receiver(
        &self,
        process: &Process,
        rng: &mut Rng,
        generator: &mut Generator,
    ) -> (&'static str, Vec<Action>) {
        let nothing = ("", Vec::new());
        let (Some(run), Some(index)) = (process.board().run(), process.index(Side::New)) else {
            return nothing;
        };
        let old = process.board().epoch().group.combination();
        let new = run.group().combination();
        let submit =
            |body: Body| vec![Action::Submit(Entry::new(index, body, &process.secret).to_bytes())];
        let send = |to: Side, message: &Message, servers: Vec<ServerIndex>| {
            let bytes = message.to_bytes().to_vec();
            let send =
                |server| Action::Send { from: Side::New, to: (to, server), bytes: bytes.clone() };
            servers.into_iter().map(send).collect::<Vec<_>>()
        };
        match rng.index(12) {
            0 | 1 => {
                let body = self.complaint(index, process, run, rng, generator);
                ("complaint", body.map(submit).unwrap_or_default())
            }
            2 => {
                let digests: Vec<_> =
                    self.dealings.iter().map(|(_, it)| it.proofs.digest).collect();
                let Some(&digest) = rng.pick(&digests) else { return nothing };
                let secret = &process.secret;
                let signature = secret.sign(&Manifest::confirmation(digest));
                let message = Message::Confirmation { digest, signature };
                ("blind confirmation", send(Side::Old, &message, old.servers().collect()))
            }
            3 => {
                let digests: Vec<_> =
                    self.dealings.iter().map(|(_, it)| it.proofs.digest).collect();
                let Some(&digest) = rng.pick(&digests) else { return nothing };
                let signature = [7; 64];
                let message = Message::Confirmation { digest, signature };
                ("forged confirmation", send(Side::Old, &message, old.servers().collect()))
            }
            4 => {
                let message = Message::Need { run: run.id() };
                ("false Need", send(Side::Old, &message, old.servers().collect()))
            }
            5 => {
                let others: Vec<_> = run.session_keys().values().copied().collect();
                let fresh = SessionSecret::random(generator).unwrap().public();
                let key = *rng.pick(&others).filter(|_| rng.chance(50)).unwrap_or(&fresh);
                let voting = VotingSecret::random(generator).unwrap();
                let voting = Box::new(VotingKey::new(&voting, run.id(), index));
                let body = Body::SessionKey { run: run.id(), key, voting };
                ("other session key", submit(body))
            }
            6 => {
                let Some((_, dealing)) = rng.pick(&self.dealings) else { return nothing };
                let message = Message::Proofs(dealing.proofs.clone());
                ("unasked proofs", send(Side::New, &message, new.servers().collect()))
            }
            7 | 8 => {
                let body = self.computed(index, process, run, rng, generator);
                ("wrong Computed", body.map(submit).unwrap_or_default())
            }
            9 => {
                let epoch = run.header().epoch;
                let digest = rng.pick(&self.dealings).map(|(_, it)| it.proofs.digest);
                let message = match (rng.index(3), digest) {
                    (0, Some(digest)) => Message::Fetch { digest },
                    (1, Some(dealing)) => Message::AskSum { dealing },
                    _ => Message::Ask { epoch, witnesses: true },
                };
                ("question", send(Side::New, &message, new.servers().collect()))
            }
            _ => {
                let message = Self::wrong_answer(process, run, rng);
                ("wrong answer", send(Side::New, &message, new.servers().collect()))
            }
        }
    }

    /// A complaint about a right dealing, with something wrong or without.
    fn complaint(
        &self,
        index: ServerIndex,
        process: &Process,
        run: &Run,
        rng: &mut Rng,
        generator: &mut Generator,
    ) -> Option<Body> {
        let (_, dealing) = rng.pick(&self.dealings)?;
        let saved = process.disk.saved.get(&(run.id(), Side::New));
        let session = match saved.and_then(|saved| saved.get(&Item::SessionKey)) {
            Some(bytes) => SessionSecret::from_bytes(&Reader::new(bytes).array().ok()?).ok()?,
            None => SessionSecret::random(generator).unwrap(),
        };
        let labels: Vec<Label> = dealing.proofs.manifest.labels().collect();
        let label = *rng.pick(&labels)?;
        let own: Vec<_> = run.group().combination().labels_of(index).collect();
        let subshare = *rng.pick(&own)?;
        let about = (label, subshare);
        let mut complaint =
            new_server::complaint(dealing, about, index, &session, generator).unwrap();
        let other = SessionSecret::random(generator).unwrap();
        match rng.index(9) {
            0 => complaint.agreed = other.public(),
            1 => {
                let ephemeral = &dealing.proofs.manifest.ephemeral;
                let proof = other.prove(ephemeral, &complaint.agreed, b"", generator);
                complaint.proof = proof.unwrap();
            }
            2 => {
                let at = rng.index(complaint.ciphertext.len());
                complaint.ciphertext[at] ^= 1;
            }
            3 => complaint.subshare = Label(rng.index(40).try_into().expect("it is small")),
            4 => complaint.label = Label(rng.index(40).try_into().expect("it is small")),
            5 => {
                let at = rng.index(complaint.proofs.len());
                complaint.proofs[at] ^= 1;
            }
            6 => complaint.delivery[rng.index(64)] ^= 1,
            _ => {}
        }
        Some(Body::Complaint { run: run.id(), complaint: Box::new(complaint) })
    }

    /// Witnesses that others do not have, or a proof that is none.
    fn computed(
        &self,
        index: ServerIndex,
        process: &Process,
        run: &Run,
        rng: &mut Rng,
        generator: &mut Generator,
    ) -> Option<Body> {
        let parameters = process.board().parameters();
        let new = run.group().combination();
        let run_id = run.id();
        let others = self.entries.iter().filter_map(|bytes| match Entry::parse(bytes).ok()?.body {
            body @ Body::Computed { .. } => Some(body),
            _ => None,
        });
        let others: Vec<_> = others.collect();
        let saved = process.disk.saved.get(&(run_id, Side::New));
        let own = saved.and_then(|saved| saved.get(&Item::Shares));
        let answer = own.and_then(|bytes| match Message::parse(bytes) {
            Ok(Message::Shares(answer)) => Some(answer),
            _ => None,
        });
        let Some(answer) = answer.filter(|_| rng.chance(70)) else {
            // As another server, or nothing at all.
            return rng.pick(&others).cloned().or(Some(Body::Computed {
                run: run_id,
                witnesses: vec![1; new.label_count() * parameters.element_len()],
                possession: vec![1; 40],
            }));
        };
        let mut witnesses = answer.witnesses.clone();
        let lacked: Vec<_> = new.labels().filter(|&label| !new.holds(index, label)).collect();
        let lacked = usize::from(rng.pick(&lacked)?.0);
        // A witness that the proof of possession is not about.
        witnesses[lacked * parameters.element_len() + 9] ^= 1;
        let digest = super::super::super::Witnesses::digest_of(&witnesses);
        let shares: Option<Vec<_>> = answer
            .shares
            .iter()
            .map(|(label, bytes)| Some((*label, parameters.range.parse(bytes)?)))
            .collect();
        let shares = shares?;
        let held = shares.iter().map(|(label, share)| (*label, share));
        let possession =
            possession::prove(run_id, index, digest, held, parameters, generator).unwrap();
        Some(Body::Computed { run: run_id, witnesses, possession })
    }

    /// Shares that are wrong, of the right lengths.
    fn wrong_answer(process: &Process, run: &Run, rng: &mut Rng) -> Message {
        let parameters = process.board().parameters();
        let new = run.group().combination();
        let mut bytes = vec![0; parameters.range.encoded_len()];
        bytes.fill_with(|| rng.bytes::<1>()[0]);
        if rng.chance(80) {
            // In the range.
            bytes[0] = 0;
        }
        let shares = new.labels().map(|label| (label, Zeroizing::new(bytes.clone()))).collect();
        let chosen = process.board().epoch().group.combination().labels();
        let chosen: Vec<_> = chosen.filter_map(|label| run.chosen(label)).collect();
        match rng.pick(&chosen) {
            Some(&dealing) if rng.chance(60) => Message::Sum(Sum { dealing, shares }),
            _ => Message::Shares(Answer {
                epoch: run.header().epoch,
                witnesses: vec![3; new.label_count() * parameters.element_len()],
                shares,
            }),
        }
    }
}
