//! Transcripts of handovers as JSON, from which an implementation that was written from the page
//! alone (`reference/handover.py`) computes all results again. `reference/README.md` describes the
//! format.

mod recorder;
mod scenarios;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use curve25519_dalek::scalar::Scalar;
use serde_json::{Map, Value, json};
use sim::SeededRng;

pub(super) use recorder::HandoverRecorder;
pub(super) use scenarios::share_another_secret;

use super::size;
use super::world::HandoverWorld;
use crate::frost::SigningSession;
use crate::sharing::KeyShare;
use crate::signer::FrostSigner;
use crate::tests::HandoverAgreement;
use crate::tests::HandoverEntry;
use crate::tests::HandoverReceiver;
use crate::tests::HandoverTerms;
use ::handover::HandoverEffect;
use ::handover::HandoverRole;
use ::handover::element::{PrimeOrderPoint, hash_to_scalar};
use ::handover::participant::ParticipantId;

/// Set to write the files anew, after an encoding was changed on purpose.
const WRITE: &str = "SUNDER_WRITE_TRANSCRIPTS";

/// A handover: its terms, the entries in the order of the log with those that change nothing, and
/// the seeds of receivers.
pub(super) struct HandoverTranscript {
    pub(super) terms: HandoverTerms,
    pub(super) entries: Vec<(ParticipantId, Vec<u8>)>,
    pub(super) seeds: BTreeMap<ParticipantId, [u8; 32]>,
}

fn hex(bytes: &[u8]) -> Value {
    base16ct::lower::encode_string(bytes).into()
}

fn by_number<T>(map: &BTreeMap<ParticipantId, T>, value: impl Fn(&T) -> Value) -> Value {
    let entries = map.iter().map(|(server, it)| (server.to_string(), value(it)));
    Value::Object(entries.collect::<Map<_, _>>())
}

impl HandoverTranscript {
    fn to_json(&self) -> Value {
        let mut log = HandoverAgreement::new(self.terms.clone());
        let (mut entries, mut verdicts) = (Vec::new(), Vec::new());
        for (author, bytes) in &self.entries {
            let (role, verdict) = apply_bytes(&mut log, *author, bytes);
            entries.push(json!({
                "author_role": role, "author": author.number(), "bytes": hex(bytes),
            }));
            verdicts.push(verdict);
        }
        let secrets = self.session_secrets(&log);
        let shares = self.shares(&log);
        let chosen: Vec<_> = match log.sharing() {
            Some(_) => log.chosen().iter().map(ParticipantId::number).collect(),
            None => Vec::new(),
        };
        json!({
            "run": hex(&self.terms.run),
            "old": self.terms.old.as_ref().map(|old| {
                json!({ "f": old.size().faulty(), "commitment": hex(&old.to_bytes()) })
            }),
            "new_f": self.terms.new.faulty(),
            "entries": entries,
            "receiver_secrets": by_number(&secrets, |it| json!({ "r": hex(it.as_bytes()) })),
            "expected": {
                "verdicts": verdicts,
                "chosen": chosen,
                "final": log.is_final(),
                "commitment": log.sharing().map(|it| hex(&it.to_bytes())),
                "public_key": log.sharing().map(|it| hex(&it.public_key().to_bytes())),
                "rows": by_number(&shares, |it| hex(&it.to_bytes())),
            },
            "signing": if log.is_final() { self.signing(shares) } else { Vec::new() },
        })
    }

    /// The secret r of the receivers whose session keys count.
    fn session_secrets(&self, log: &HandoverAgreement) -> BTreeMap<ParticipantId, Scalar> {
        let secret = |server| {
            let parts =
                [b"sunder-schnorr session secret v1\0", &self.seeds[server][..], b"receiver"];
            hash_to_scalar(&parts)
        };
        let registered = log.session_keys().iter().map(|(server, key)| {
            let secret = secret(server);
            assert_eq!(PrimeOrderPoint::base(&secret), *key);
            (*server, secret)
        });
        registered.collect()
    }

    /// The shares of the receivers whose session keys count. Those that lack rows obtain them from
    /// the others.
    fn shares(&self, log: &HandoverAgreement) -> BTreeMap<ParticipantId, KeyShare> {
        if log.sharing().is_none() {
            return BTreeMap::new();
        }
        let mut receivers: BTreeMap<_, _> = log
            .session_keys()
            .keys()
            .map(|server| {
                let seed = &self.seeds[server];
                let mut receiver = HandoverReceiver::new(&self.terms, *server, seed).unwrap();
                receiver.handle_log(log);
                (*server, receiver)
            })
            .collect();
        for server in log.session_keys().keys() {
            let dealers = log.chosen().iter();
            let values = dealers.flat_map(|dealer| {
                let values = receivers.iter().filter(|(from, _)| *from != server);
                values.filter_map(move |(from, it)| {
                    Some((*from, dealer, it.common_value(dealer, *server)?))
                })
            });
            let values: Vec<_> = values.collect();
            let receiver = receivers.get_mut(server).unwrap();
            for (from, dealer, value) in values {
                receiver.handle_value(log, from, dealer, &value);
            }
        }
        receivers
            .into_iter()
            .filter_map(|(it, receiver)| Some((it, receiver.into_share()?)))
            .collect()
    }

    /// Two sessions, of the first and of the last f'+1 servers.
    fn signing(&self, shares: BTreeMap<ParticipantId, KeyShare>) -> Vec<Value> {
        let Some(sharing) = shares.values().next().map(|it| it.sharing().clone()) else {
            return Vec::new();
        };
        let count = sharing.size().signer_count();
        let mut signers: BTreeMap<_, _> =
            shares.into_iter().map(|(it, share)| (it, FrostSigner::new(share))).collect();
        let servers: Vec<_> = signers.keys().copied().collect();
        let mut rng = SeededRng::new(u64::from(self.terms.run[0]));
        let sets = [&servers[..count], &servers[servers.len() - count..]];
        let messages = [&b"addresses: 192.0.2.1"[..], b""];
        let sign = |(servers, message): (&[ParticipantId], &[u8])| {
            let coordinator = servers[0];
            let commitments = servers
                .iter()
                .map(|it| (*it, signers.get_mut(it).unwrap().commit(coordinator, &rng.bytes())));
            let session = SigningSession::new(message.to_vec(), commitments.collect());
            let answers: BTreeMap<_, _> = servers
                .iter()
                .map(|it| {
                    let signer = signers.get_mut(it).unwrap();
                    (*it, signer.sign(coordinator, &session.encoded(), &rng.bytes()).unwrap())
                })
                .collect();
            let values = session.values(sharing.public_key());
            let signature = values.aggregate(answers.values().map(|it| it.share));
            assert!(super::verifies(&sharing, message, &signature));
            json!({
                "session": hex(&session.to_bytes()),
                "answers": by_number(&answers, |it| hex(&it.to_bytes())),
                "message": hex(message),
                "signature": hex(&signature),
            })
        };
        sets.into_iter().zip(messages).map(sign).collect()
    }
}

/// The author's role, and what an entry does. One that cannot be read changes nothing.
pub(super) fn apply_bytes(
    log: &mut HandoverAgreement,
    author: ParticipantId,
    bytes: &[u8],
) -> (&'static str, &'static str) {
    let entry = HandoverEntry::from_bytes(bytes).ok();
    let role = match entry.as_ref().map(HandoverEntry::role) {
        Some(HandoverRole::Dealer) => "dealer",
        Some(HandoverRole::Receiver) | None => "receiver",
    };
    let verdict = match entry.and_then(|it| log.apply(author, &it).ok()) {
        None => "unchanged",
        Some(HandoverEffect::AuthorFaulty { .. }) => "faulty",
        Some(_) => "applied",
    };
    (role, verdict)
}

fn reference() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("reference")
}

fn file(name: &str) -> PathBuf {
    reference().join("transcripts").join(format!("{name}.json"))
}

/// Files that others check must not change by accident.
#[test]
fn transcripts_are_those_of_the_files() {
    let transcripts = scenarios::all();
    let is_written = std::env::var_os(WRITE).is_some();
    for (name, transcript) in &transcripts {
        let json = transcript.to_json();
        if is_written {
            let text = serde_json::to_string_pretty(&json).unwrap() + "\n";
            fs::write(file(name), text).unwrap();
        }
        let text = fs::read_to_string(file(name)).unwrap_or_default();
        let saved: Value = serde_json::from_str(&text).unwrap_or_default();
        assert!(saved == json, "{name}.json differs; if it should, set {WRITE}=1 once");
    }
    let files = fs::read_dir(reference().join("transcripts")).unwrap().count();
    assert_eq!(files, transcripts.len(), "a file of no scenario");
}

/// All results are in the transcripts: each verdict, and each kind of entry with each verdict.
#[test]
fn transcripts_have_each_kind_of_entry_with_each_verdict() {
    let mut seen = BTreeMap::new();
    for (_, transcript) in scenarios::all() {
        let json = transcript.to_json();
        let verdicts = json["expected"]["verdicts"].as_array().unwrap().clone();
        for ((_, bytes), verdict) in transcript.entries.iter().zip(verdicts) {
            let kind = bytes.get(32).copied().unwrap_or_default();
            *seen.entry((kind, verdict.as_str().unwrap().to_string())).or_insert(0) += 1;
        }
    }
    for kind in 1..=5 {
        for verdict in ["applied", "unchanged", "faulty"] {
            // No Hold is faulty.
            let is_seen = seen.contains_key(&(kind, verdict.to_string()));
            assert_eq!(is_seen, (kind, verdict) != (3, "faulty"), "{kind} {verdict}: {seen:?}");
        }
    }
}

/// The result of the other implementation on a file: whether it computes the same.
fn agrees(file: &Path) -> (bool, String) {
    let program = reference().join("handover.py");
    let mut command = Command::new("python3");
    let output = command.arg("-B").arg(&program).arg("verify").arg(file).output().unwrap();
    let text = [&output.stdout[..], &output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs `check` with the other implementation, or says why not.
fn with_reference(check: impl FnOnce()) {
    if let Err(why) = Command::new("python3").arg("--version").output() {
        println!("skipped: python3: {why}");
        return;
    }
    check();
}

#[test]
fn another_implementation_computes_the_same_of_each_transcript() {
    with_reference(|| {
        for (name, _) in scenarios::all() {
            let (agrees, text) = agrees(&file(name));
            assert!(agrees, "{name}: {text}");
        }
    });
}

/// Random schedules with the faults of the simulation.
#[test]
fn another_implementation_computes_the_same_of_random_handovers() {
    let random = |seed| {
        let mut rng = SeededRng::new(seed);
        let (group, _) = HandoverWorld::new(None, size(1), &mut rng).run();
        let new = size(if seed == 0 { 2 } else { 1 });
        let mut world = HandoverWorld::new(Some(&group), new, &mut rng);
        world.proceed();
        let json = world.transcript().to_json();
        assert_eq!(json["expected"]["final"], true);
        json
    };
    let transcripts: Vec<_> = (0..4).map(random).collect();
    with_reference(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("random.json");
        for (seed, json) in transcripts.iter().enumerate() {
            fs::write(&path, json.to_string()).unwrap();
            let (agrees, text) = agrees(&path);
            assert!(agrees, "seed {seed}: {text}");
        }
    });
}

#[test]
fn another_implementation_passes_its_own_tests() {
    with_reference(|| {
        let mut command = Command::new("python3");
        let command = command.arg("-B").arg(reference().join("handover.py")).arg("selftest");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    });
}

/// It would not notice a difference if it did not compare.
#[test]
fn another_implementation_refuses_wrong_results() {
    with_reference(|| {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("wrong.json");
        let right: Value =
            serde_json::from_str(&fs::read_to_string(file("resharing-4-to-4")).unwrap()).unwrap();
        let change = |pointer: &str| {
            let mut wrong = right.clone();
            let value = wrong.pointer_mut(pointer).expect(pointer);
            *value = match &*value {
                Value::Bool(it) => (!it).into(),
                Value::Array(_) => json!([1]),
                Value::String(it) if it == "applied" => "faulty".into(),
                Value::String(it) => {
                    let first = if it.starts_with('0') { '1' } else { '0' };
                    format!("{first}{}", &it[1..]).into()
                }
                _ => unreachable!("no such value is changed"),
            };
            wrong
        };
        for pointer in [
            "/expected/verdicts/0",
            "/expected/chosen",
            "/expected/final",
            "/expected/commitment",
            "/expected/public_key",
            "/expected/rows/1",
            "/signing/0/answers/1",
            "/signing/0/signature",
            "/signing/0/message",
        ] {
            fs::write(&path, change(pointer).to_string()).unwrap();
            let (agrees, text) = agrees(&path);
            assert!(!agrees, "a wrong {pointer} is accepted: {text}");
        }
    });
}
