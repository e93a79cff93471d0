//! Attacks of new servers: unfounded complaints, confirmations of anything, and wrong shares and
//! witnesses.

use encoding::FieldReader;
use random::RandomGenerator;
use sim::SeededRng;
use zeroize::Zeroizing;

use super::super::super::entry::LogEntryBody;
use super::super::super::manifest::DealingManifest;
use super::super::super::message::{RecoveryAnswer, SubshareSum};
use super::super::super::session::SessionSecret;
use super::super::super::{
    LogEntry, RefreshMessage, RefreshRole, RefreshRun, RunItemName, new_server, possession,
};
use super::super::process::{ProcessAction, SimulatedProcess};
use super::Adversary;
use crate::protocol::combination::{Label, ServerIndex};
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::voting::{VotingKey, VotingSecret};

impl Adversary {
    pub(super) fn attack_as_receiver(
        &self,
        process: &SimulatedProcess,
        rng: &mut SeededRng,
        generator: &mut RandomGenerator,
    ) -> (&'static str, Vec<ProcessAction>) {
        let nothing = ("", Vec::new());
        let (Some(run), Some(index)) = (process.agreement().run(), process.index(RefreshRole::New))
        else {
            return nothing;
        };
        let old = process.agreement().epoch().group.combination();
        let new = run.group().combination();
        let submit = |body: LogEntryBody| {
            vec![ProcessAction::Submit(LogEntry::new(index, body, &process.secret).to_bytes())]
        };
        let send = |to: RefreshRole, message: &RefreshMessage, servers: Vec<ServerIndex>| {
            let bytes = message.to_bytes().to_vec();
            let send = |server| ProcessAction::Send {
                from: RefreshRole::New,
                to: (to, server),
                bytes: bytes.clone(),
            };
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
                let signature = secret.sign(&DealingManifest::confirmation(digest));
                let message = RefreshMessage::Confirmation { digest, signature };
                ("blind confirmation", send(RefreshRole::Old, &message, old.servers().collect()))
            }
            3 => {
                let digests: Vec<_> =
                    self.dealings.iter().map(|(_, it)| it.proofs.digest).collect();
                let Some(&digest) = rng.pick(&digests) else { return nothing };
                let signature = [7; 64];
                let message = RefreshMessage::Confirmation { digest, signature };
                ("forged confirmation", send(RefreshRole::Old, &message, old.servers().collect()))
            }
            4 => {
                let message = RefreshMessage::Need { run: run.id() };
                ("false Need", send(RefreshRole::Old, &message, old.servers().collect()))
            }
            5 => {
                let others: Vec<_> = run.session_keys().values().copied().collect();
                let fresh = SessionSecret::random(generator).unwrap().public();
                let key = *rng.pick(&others).filter(|_| rng.chance(50)).unwrap_or(&fresh);
                let voting = VotingSecret::random(generator).unwrap();
                let voting = Box::new(VotingKey::new(&voting, run.id(), index));
                let body = LogEntryBody::SessionKey { run: run.id(), key, voting };
                ("other session key", submit(body))
            }
            6 => {
                let Some((_, dealing)) = rng.pick(&self.dealings) else { return nothing };
                let message = RefreshMessage::Proofs(dealing.proofs.clone());
                ("unasked proofs", send(RefreshRole::New, &message, new.servers().collect()))
            }
            7 | 8 => {
                let body = self.computed(index, process, run, rng, generator);
                ("wrong Computed", body.map(submit).unwrap_or_default())
            }
            9 => {
                let epoch = run.header().epoch;
                let digest = rng.pick(&self.dealings).map(|(_, it)| it.proofs.digest);
                let message = match (rng.index(3), digest) {
                    (0, Some(digest)) => RefreshMessage::Fetch { digest },
                    (1, Some(dealing)) => RefreshMessage::AskSum { dealing },
                    _ => RefreshMessage::Ask { epoch, witnesses: true },
                };
                ("question", send(RefreshRole::New, &message, new.servers().collect()))
            }
            _ => {
                let message = Self::wrong_answer(process, run, rng);
                ("wrong answer", send(RefreshRole::New, &message, new.servers().collect()))
            }
        }
    }

    /// A complaint about a valid dealing, possibly with a defect.
    fn complaint(
        &self,
        index: ServerIndex,
        process: &SimulatedProcess,
        run: &RefreshRun,
        rng: &mut SeededRng,
        generator: &mut RandomGenerator,
    ) -> Option<LogEntryBody> {
        let (_, dealing) = rng.pick(&self.dealings)?;
        let saved = process.disk.saved.get(&(run.id(), RefreshRole::New));
        let session = match saved.and_then(|saved| saved.get(&RunItemName::SessionKey)) {
            Some(bytes) => SessionSecret::from_bytes(&FieldReader::new(bytes).take().ok()?).ok()?,
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
        Some(LogEntryBody::Complaint { run: run.id(), complaint: Box::new(complaint) })
    }

    /// Witnesses that no other server has, or an invalid proof.
    fn computed(
        &self,
        index: ServerIndex,
        process: &SimulatedProcess,
        run: &RefreshRun,
        rng: &mut SeededRng,
        generator: &mut RandomGenerator,
    ) -> Option<LogEntryBody> {
        let parameters = process.agreement().parameters();
        let new = run.group().combination();
        let run_id = run.id();
        let others =
            self.entries.iter().filter_map(|bytes| match LogEntry::parse(bytes).ok()?.body {
                body @ LogEntryBody::Computed { .. } => Some(body),
                _ => None,
            });
        let others: Vec<_> = others.collect();
        let saved = process.disk.saved.get(&(run_id, RefreshRole::New));
        let own = saved.and_then(|saved| saved.get(&RunItemName::Shares));
        let answer = own.and_then(|bytes| match RefreshMessage::parse(bytes) {
            Ok(RefreshMessage::Shares(answer)) => Some(answer),
            _ => None,
        });
        let Some(answer) = answer.filter(|_| rng.chance(70)) else {
            // As another server, or nothing at all.
            return rng.pick(&others).cloned().or(Some(LogEntryBody::Computed {
                run: run_id,
                witnesses: vec![1; new.label_count() * parameters.element_len()],
                possession: vec![1; 40],
                time: Some(UnixSeconds(u64::MAX)),
            }));
        };
        let mut witnesses = answer.witnesses.clone();
        let lacked: Vec<_> = new.labels().filter(|&label| !new.holds(index, label)).collect();
        let lacked = usize::from(rng.pick(&lacked)?.0);
        // A witness that the proof of possession is not about.
        witnesses[lacked * parameters.element_len() + 9] ^= 1;
        let digest = super::super::super::ShareWitnesses::digest_of(&witnesses);
        let shares: Option<Vec<_>> = answer
            .shares
            .iter()
            .map(|(label, bytes)| Some((*label, parameters.range.parse(bytes)?)))
            .collect();
        let shares = shares?;
        let held = shares.iter().map(|(label, share)| (*label, share));
        let possession =
            possession::prove(run_id, index, digest, held, parameters, generator).unwrap();
        let time = rng.chance(50).then_some(UnixSeconds(u64::MAX));
        Some(LogEntryBody::Computed { run: run_id, witnesses, possession, time })
    }

    /// Wrong shares of the right lengths.
    fn wrong_answer(
        process: &SimulatedProcess,
        run: &RefreshRun,
        rng: &mut SeededRng,
    ) -> RefreshMessage {
        let parameters = process.agreement().parameters();
        let new = run.group().combination();
        let mut bytes = vec![0; parameters.range.encoded_len()];
        bytes.fill_with(|| rng.bytes::<1>()[0]);
        if rng.chance(80) {
            // In the range.
            bytes[0] = 0;
        }
        let shares = new.labels().map(|label| (label, Zeroizing::new(bytes.clone()))).collect();
        let chosen = process.agreement().epoch().group.combination().labels();
        let chosen: Vec<_> = chosen.filter_map(|label| run.chosen(label)).collect();
        match rng.pick(&chosen) {
            Some(&dealing) if rng.chance(60) => {
                RefreshMessage::Sum(SubshareSum { dealing, shares })
            }
            _ => RefreshMessage::Shares(RecoveryAnswer {
                epoch: run.header().epoch,
                witnesses: vec![3; new.label_count() * parameters.element_len()],
                shares,
            }),
        }
    }
}
