//! Requests for signatures, with servers that are silent or wrong.

use std::collections::BTreeMap;
use std::process::Command;

use handover::participant::{ParticipantId, ParticipantSet};
use keys::rsa::RsaEncoding;
use rsa_arithmetic::fixture::{large_key, short_key};
use sim::{SeededRng, run_seeds};

use super::epochs::{first_group, hand_over};
use super::{RsaGroup, id, sign, size};
use crate::signing::{
    EncodedRsaMessage, PartialRsaSignature, ThresholdRsaOutput, ThresholdRsaRequest,
};

/// What a server does with requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RsaSignerConduct {
    Correct,
    Silent,
    /// Signs with the share of another message, with and without proofs.
    OtherMessage,
    /// The same, and never sends a proof.
    OtherMessageOnce,
    OtherServer,
    /// Its answer is right, and to the question about another message.
    OtherAnswer,
    Garbage,
    ProvesNothing,
}

const WRONG: [RsaSignerConduct; 7] = [
    RsaSignerConduct::Silent,
    RsaSignerConduct::OtherMessage,
    RsaSignerConduct::OtherMessageOnce,
    RsaSignerConduct::OtherServer,
    RsaSignerConduct::OtherAnswer,
    RsaSignerConduct::Garbage,
    RsaSignerConduct::ProvesNothing,
];

impl RsaSignerConduct {
    /// Whether a server with this conduct may be accused.
    fn is_wrong(self) -> bool {
        use RsaSignerConduct::{Correct, Garbage, OtherAnswer, ProvesNothing, Silent};
        !matches!(self, Correct | Silent | OtherAnswer | Garbage | ProvesNothing)
    }
}

/// The answer of a server, if it sends any.
fn answer(
    group: &RsaGroup,
    server: ParticipantId,
    conduct: RsaSignerConduct,
    x: &EncodedRsaMessage,
    with_proof: bool,
    rng: &mut SeededRng,
) -> Option<Vec<u8>> {
    let share = &group.shares[&server];
    let other = EncodedRsaMessage::new(share.sharing().key(), &RsaEncoding::Pkcs1, b"another");
    let other = other.expect("the modulus is long enough");
    let part_of = |share: &crate::ThresholdRsaShare, x| {
        let part = if with_proof { share.sign_with_proof(x) } else { share.sign(x) };
        part.expect("x has an inverse").to_bytes()
    };
    let named = |mut part: Vec<u8>| {
        part[..32].copy_from_slice(&part_of(share, x)[..32]);
        part
    };
    Some(match conduct {
        RsaSignerConduct::Correct => part_of(share, x),
        RsaSignerConduct::Silent => return None,
        RsaSignerConduct::OtherMessageOnce if with_proof => return None,
        RsaSignerConduct::OtherMessage | RsaSignerConduct::OtherMessageOnce => {
            named(part_of(share, &other))
        }
        RsaSignerConduct::OtherServer => {
            named(part_of(group.shares.values().find(|it| it.server() != server).unwrap(), x))
        }
        RsaSignerConduct::OtherAnswer => part_of(share, &other),
        RsaSignerConduct::Garbage => rng.bytes::<90>()[..rng.index(91)].to_vec(),
        // A part without a proof is no answer to the question for one.
        RsaSignerConduct::ProvesNothing => share.sign(x).unwrap().to_bytes(),
    })
}

/// A request in a group with f faulty servers, in which servers are slow.
fn run(seed: u64) {
    let mut rng = SeededRng::new(seed);
    let group = first_group(&short_key(), if rng.chance(70) { 1 } else { 2 }, 2);
    let mut order: Vec<_> = group.shares.keys().copied().collect();
    rng.shuffle(&mut order);
    let faulty: Vec<_> = order.iter().copied().take(group.size().faulty()).collect();
    rng.shuffle(&mut order);
    let conducts: BTreeMap<_, _> =
        faulty.iter().map(|server| (*server, *rng.pick(&WRONG).unwrap())).collect();
    let message = rng.bytes::<20>().to_vec();
    let encoding = RsaEncoding::Pkcs1;
    let mut request =
        ThresholdRsaRequest::new(group.sharing().clone(), encoding, message.clone(), order)
            .unwrap();
    let x = request.encoded().clone();
    let (mut signature, mut answers, mut accused) = (None, Vec::new(), ParticipantSet::default());
    for _ in 0..1000 {
        while let Some(output) = request.poll_output() {
            match output {
                ThresholdRsaOutput::Ask { to, with_proof } => {
                    let conduct = conducts.get(&to).copied();
                    let conduct = conduct.unwrap_or(RsaSignerConduct::Correct);
                    let answer = answer(&group, to, conduct, &x, with_proof, &mut rng);
                    answers.extend(answer.map(|answer| (to, answer)));
                }
                ThresholdRsaOutput::Faulty { signer } => {
                    let conduct = conducts.get(&signer);
                    assert!(conduct.is_some_and(|it| it.is_wrong()), "{conduct:?} is accused");
                    accused.insert(signer);
                }
                ThresholdRsaOutput::Signed(it) => signature = Some(it),
            }
        }
        if answers.is_empty() {
            if signature.is_some() {
                break;
            }
            request.ask_another();
            continue;
        }
        let place = rng.index(answers.len());
        let (from, answer) =
            if rng.chance(90) { answers.swap_remove(place) } else { answers[place].clone() };
        request.handle_answer(from, &answer);
    }
    let public = group.sharing().key().group().public();
    assert!(public.verify(&message, &signature.expect("f+1 correct servers answered")));
    assert_eq!(request.faulty(), accused);
}

#[test]
fn requests_end_whatever_f_servers_do() {
    run_seeds(20, run);
}

/// Without proofs nobody would know which part is wrong, and f servers could spoil all requests.
#[test]
fn wrong_parts_are_found_also_without_proofs() {
    let group = first_group(&short_key(), 2, 2);
    let mut rng = SeededRng::new(1);
    let order: Vec<_> = group.size().participants().collect();
    let mut request =
        ThresholdRsaRequest::new(group.sharing().clone(), RsaEncoding::Pkcs1, b"m".to_vec(), order)
            .unwrap();
    let x = request.encoded().clone();
    let conduct = |server: ParticipantId| match server.number() {
        1 => RsaSignerConduct::OtherMessageOnce,
        2 => RsaSignerConduct::OtherMessage,
        _ => RsaSignerConduct::Correct,
    };
    let (mut asked_with_proof, mut signature) = (0, None);
    while let Some(output) = request.poll_output() {
        match output {
            ThresholdRsaOutput::Ask { to, with_proof } => {
                asked_with_proof += usize::from(with_proof);
                let answer = answer(&group, to, conduct(to), &x, with_proof, &mut rng);
                if let Some(answer) = answer {
                    request.handle_answer(to, &answer);
                }
            }
            ThresholdRsaOutput::Faulty { .. } => {}
            ThresholdRsaOutput::Signed(it) => signature = Some(it),
        }
    }
    assert_eq!(asked_with_proof, 7, "the attack: the signature of f+1 parts was wrong");
    assert!(signature.is_some());
    assert_eq!(request.faulty().iter().collect::<Vec<_>>(), [id(1), id(2)]);
}

/// A correct server's signed answer about another message, or in another epoch, would be evidence
/// against it.
#[test]
fn answers_to_other_questions_accuse_nobody() {
    let mut rng = SeededRng::new(6);
    let group = first_group(&short_key(), 1, 1);
    let next = hand_over(&group, size(1), &mut rng);
    let (sharing, key) = (next.sharing(), next.sharing().key());
    let [x, other] = [&b"m"[..], b"another"]
        .map(|message| EncodedRsaMessage::new(key, &RsaEncoding::Pkcs1, message).unwrap());
    let order: Vec<_> = next.shares.keys().copied().collect();
    let server = order[0];
    let of_other = next.shares[&server].sign_with_proof(&other).unwrap();
    let of_epoch = group.shares[&server].sign_with_proof(&x).unwrap();
    let of_server = next.shares[&order[1]].sign_with_proof(&x).unwrap();
    let proven: BTreeMap<_, _> =
        next.shares.iter().map(|(it, share)| (*it, share.sign_with_proof(&x).unwrap())).collect();
    for part in [of_other, of_epoch, of_server] {
        // The attack: as a part of x by this server in this epoch, it is wrong.
        let mut renamed = part.to_bytes();
        renamed[..32].copy_from_slice(&proven[&server].to_bytes()[..32]);
        let renamed = PartialRsaSignature::from_bytes(sharing, &renamed).unwrap();
        assert!(renamed.is_evidence(sharing, server, &x, &BTreeMap::new()));
        assert!(!part.is_evidence(sharing, server, &x, &proven));
        for with_proof in [true, false] {
            let mut request = ThresholdRsaRequest::new(
                sharing.clone(),
                RsaEncoding::Pkcs1,
                b"m".to_vec(),
                order.iter().copied(),
            )
            .unwrap();
            let mut answer = part.to_bytes();
            answer.truncate(if with_proof { answer.len() } else { 32 + 64 });
            assert!(!request.handle_answer(server, &answer), "it is ignored");
            // The right answers come later, and those of the others are enough.
            for (from, share) in next.shares.iter().rev() {
                request.handle_answer(*from, &share.sign(&x).unwrap().to_bytes());
                assert!(request.handle_answer(*from, &proven[from].to_bytes()));
                assert!(!request.handle_answer(*from, &proven[from].to_bytes()), "it is repeated");
            }
            assert_eq!(request.faulty(), ParticipantSet::default());
        }
    }
}

/// Anyone who sees the signed answers comes to the same result as the requester.
#[test]
fn evidence_without_a_proof_needs_f_plus_1_proven_parts() {
    let group = first_group(&short_key(), 1, 1);
    let (sharing, key) = (group.sharing(), group.sharing().key());
    let x = EncodedRsaMessage::new(key, &RsaEncoding::Pkcs1, b"m").unwrap();
    let mut proven: BTreeMap<_, _> =
        group.shares.iter().map(|(it, share)| (*it, share.sign_with_proof(&x).unwrap())).collect();
    let right = group.shares[&id(1)].sign(&x).unwrap();
    let mut wrong = right.to_bytes();
    wrong[32..].copy_from_slice(&group.shares[&id(2)].sign(&x).unwrap().to_bytes()[32..]);
    let wrong = PartialRsaSignature::from_bytes(sharing, &wrong).unwrap();
    assert!(wrong.is_evidence(sharing, id(1), &x, &proven));
    assert!(!right.is_evidence(sharing, id(1), &x, &proven));
    // A wrong part among the proven ones does not count.
    proven.retain(|server, _| server.number() <= 2);
    proven.insert(id(2), group.shares[&id(3)].sign_with_proof(&x).unwrap());
    assert!(!wrong.is_evidence(sharing, id(1), &x, &proven));
}

/// A proof of another message, server, group or epoch proves nothing here.
#[test]
fn proofs_are_of_one_message_server_and_epoch() {
    let mut rng = SeededRng::new(2);
    let group = first_group(&short_key(), 1, 1);
    let next = hand_over(&group, size(1), &mut rng);
    let key = group.sharing().key();
    let [x, other] = [&b"one"[..], b"two"]
        .map(|message| EncodedRsaMessage::new(key, &RsaEncoding::Pkcs1, message).unwrap());
    let server = *next.shares.keys().next().unwrap();
    let part = group.shares[&server].sign_with_proof(&x).unwrap();
    assert!(part.is_proven(group.sharing(), server, &x));
    assert!(!part.is_proven(group.sharing(), server, &other));
    assert!(!part.is_proven(group.sharing(), id(server.number() % 4 + 1), &x));
    assert!(!part.is_proven(next.sharing(), server, &x));
    assert!(!group.shares[&server].sign(&x).unwrap().is_proven(group.sharing(), server, &x));
    let bytes = part.to_bytes();
    for i in 0..bytes.len() {
        let mut wrong = bytes.clone();
        wrong[i] ^= 1;
        let read = PartialRsaSignature::from_bytes(group.sharing(), &wrong);
        assert!(!read.is_ok_and(|it| it.is_proven(group.sharing(), server, &x)), "byte {i}");
    }
}

/// OpenSSL verifies signatures of both encodings, also after a handover.
#[test]
fn openssl_verifies_the_signatures() {
    let mut rng = SeededRng::new(4);
    let first = first_group(&large_key(), 1, 1);
    let group = hand_over(&first, size(1), &mut rng);
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let public = group.sharing().key().group().public();
    std::fs::write(path("key"), public.to_pem()).unwrap();
    std::fs::write(path("message"), b"m").unwrap();
    for (encoding, options) in [
        (RsaEncoding::Pkcs1, &[][..]),
        (RsaEncoding::Pss { salt: rng.bytes() }, &["-sigopt", "rsa_padding_mode:pss"]),
    ] {
        let signature = sign(&group, encoding, b"m", group.shares.keys().copied());
        std::fs::write(path("signature"), signature).unwrap();
        let verified = Command::new("openssl")
            .args(["dgst", "-sha256", "-verify", &path("key"), "-signature", &path("signature")])
            .args(options)
            .arg(path("message"))
            .output()
            .unwrap();
        assert!(verified.status.success(), "{verified:?}");
    }
}
