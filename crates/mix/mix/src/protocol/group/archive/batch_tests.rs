//! What a member gets that asks for kept rounds, and the work for one request.

use std::time::Instant;

use keys::IdentitySecretKey;

use super::*;
use crate::MailboxShape;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::announcement_fixture;
use crate::protocol::wire::MixTerms;

const DAVE: u8 = 4;

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number; 32])
}

fn settings() -> MixGroupSettings {
    let shape = MailboxShape::new(3, 1, 1, 3, 64).unwrap();
    let [interval, least, keep] = [1, 1, 3_600].map(Duration::from_secs);
    let terms = MixTerms::new(MixExchangeKind::Broadcast, shape, interval, least).unwrap();
    MixGroupSettings {
        name: "friends".parse().unwrap(),
        administrator: secret(1).public(),
        terms: terms.with_keep(keep),
        audit_every_rounds: 0,
        archive: ArchiveLimits { keep, keep_bytes: 1 << 30 },
    }
}

/// An archive of three epochs with this number of small rounds in each. Dave is a member of the
/// first one and of the last one.
fn archive(rounds: u64) -> ArchiveIndex {
    let mut index = ArchiveIndex::new(settings());
    let segment = ArchiveSegment {
        number: 1,
        after: RoundPosition::default(),
        len: 0,
        began_s: 1,
        ended_s: 1,
    };
    index.segments.push_back(segment);
    for (epoch, members) in [(1, [1, DAVE]), (2, [1, 2]), (3, [1, DAVE])] {
        let members = members.map(|number| secret(number).public());
        let announcement = announcement_fixture(&secret(1), "friends", epoch, &members);
        let announced = index.verify(&announcement).unwrap();
        assert_eq!(index.add_epoch(announced), Some(true));
        for number in 1..=rounds {
            let position = RoundPosition { epoch, round: u64::from(epoch) * rounds + number };
            let place = RecordPlace { offset: 0, len: 100 };
            index.rounds.push_back(IndexedRound { position, segment: 1, place });
            index.last_closed = position;
        }
    }
    index
}

/// The rounds of a batch, and `None` for each gap.
fn rounds(batch: &PastBatch) -> Vec<Option<u64>> {
    let number = |part: &PastPart| match part {
        PastPart::Stored { position, .. } => Some(Some(position.round)),
        PastPart::Record(ArchiveRecord::Gap(_)) => Some(None),
        PastPart::Record(_) => None,
    };
    batch.parts.iter().filter_map(number).collect()
}

#[test]
fn rounds_of_epochs_without_the_member_are_left_out() {
    let index = archive(5);
    let of = |member: u8, after| {
        let batch = index.batch(&secret(member).public(), after);
        assert!(batch.is_last);
        rounds(&batch)
    };
    let after = |epoch, round| RoundPosition { epoch, round };
    assert_eq!(of(DAVE, after(0, 0)), [6, 7, 8, 9, 10, 16, 17, 18, 19, 20].map(Some));
    assert_eq!(of(DAVE, after(1, 9)), [10, 16, 17, 18, 19, 20].map(Some));
    assert_eq!(of(DAVE, after(2, 12)), [16, 17, 18, 19, 20].map(Some));
    assert_eq!(of(DAVE, after(3, 20)), []);
    assert_eq!(of(2, after(0, 0)), [11, 12, 13, 14, 15].map(Some));
    assert_eq!(of(3, after(0, 0)), []);
}

/// A member can ask at any time, and the whole group waits for the answer.
#[test]
fn a_request_does_not_pass_the_rounds_of_others_one_by_one() {
    let index = archive(100_000);
    let (key, after) = (secret(2).public(), RoundPosition { epoch: 2, round: 299_999 });
    // Even on a busy machine: it takes some milliseconds, and would take minutes.
    let began = Instant::now();
    for asked in 0..20_000 {
        assert_eq!(rounds(&index.batch(&key, after)), [Some(300_000)]);
        assert!(began.elapsed() < Duration::from_secs(30), "{asked} requests");
    }
}

/// The operator has made slots shorter: the rounds of before are missing.
#[test]
fn rounds_that_are_too_long_are_not_passed_without_a_bound() {
    let mut index = archive(20_000);
    let most = index.settings.terms.max_past_round_len();
    index.rounds.iter_mut().for_each(|round| round.place.len = most + 1);
    let key = secret(1).public();
    let (mut after, mut batches) = (RoundPosition::default(), 0);
    loop {
        let batch = index.batch(&key, after);
        assert!(batch.parts.len() <= MAX_PAST_LEN / GAP_LEN + 3, "{}", batch.parts.len());
        batches += 1;
        if batch.is_last {
            break;
        }
        let position = |part: &PastPart| match part {
            PastPart::Record(record) => record.position(),
            PastPart::Stored { position, .. } => Some(*position),
        };
        let next = batch.parts.iter().filter_map(position).next_back().unwrap();
        assert!(next > after);
        after = next;
    }
    assert!(batches > 10, "{batches}");
}
