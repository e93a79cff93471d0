use super::*;

const ROUND: u64 = 9;

fn key() -> MixGroupKey {
    MixGroupKey::new([4; 32])
}

fn participant(member: u16) -> Participant {
    Participant { member, nonce: [6; 16] }
}

/// An update of a member, without anything in its slots.
fn masked(shape: &MailboxShape, participant: Participant) -> Mailbox {
    let mut update = Mailbox::new(shape);
    key().mask(ROUND, &participant).fill(&mut update);
    update
}

/// The messages of an audit, and its verdict.
struct Audited {
    choices: Vec<u8>,
    tables: Vec<u8>,
    is_right: bool,
}

fn audit(shape: &MailboxShape, update: &Mailbox, participant: Participant, seed: u64) -> Audited {
    let mut random = fastrand::Rng::with_seed(seed);
    let blocks = [(); 3].map(|()| Block::from(random.u128(..)));
    let (auditor, set_up) = UpdateAuditor::new(blocks);
    let drawn: [u8; RANDOM_LEN] = std::array::from_fn(|_| random.u8(..));
    let (evaluation, choices) = AuditEvaluation::new(shape, update, &set_up, &drawn).unwrap();
    let subject = AuditSubject { shape, key: &key(), round: ROUND, participant };
    let tables = auditor.tables(&subject, &choices).unwrap();
    assert_eq!(set_up.len(), SET_UP_LEN);
    assert_eq!(choices.len(), choices_len(shape));
    assert!(tables.len() <= max_message_len(shape));
    let is_right = evaluation.verdict(&tables).unwrap();
    Audited { choices, tables, is_right }
}

#[test]
fn updates_of_own_slots_only_pass_the_audit() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut verdicts = [0; 2];
    for (slots, writes, slot_len) in [(1, 1, 64), (2, 1, 100), (3, 2, 96), (2, 2, 4096)] {
        let shape = MailboxShape::new(4, slots, writes, 3, slot_len).unwrap();
        let order = SlotPermutation::new(&key(), ROUND, &shape);
        for member in 0..4 {
            for foreign in [None, Some(order.sentinel()), Some(order.slot((member + 1) % 4, 0))] {
                let subject = participant(u16::try_from(member).unwrap());
                let mut update = masked(&shape, subject);
                let count = random.usize(0..=slots);
                let own = (0..slots).map(|offset| order.slot(member, offset)).take(count);
                for place in own.chain(foreign) {
                    // One bit anywhere.
                    let at = random.usize(0..slot_len);
                    update.slot_mut(place)[at] ^= 1 << random.u32(0..8);
                }
                let expected = foreign.is_none() && count <= writes;
                let found = audit(&shape, &update, subject, random.u64(..)).is_right;
                assert_eq!(found, expected, "{count} of {slots}, {foreign:?}");
                verdicts[usize::from(found)] += 1;
            }
        }
    }
    assert!(verdicts.iter().all(|&count| count > 8), "{verdicts:?}");
}

/// The mask of another round, nonce or member leaves nothing of an update in order.
#[test]
fn updates_of_another_exchange_fail_the_audit() {
    let shape = MailboxShape::new(4, 2, 1, 3, 64).unwrap();
    let update = masked(&shape, participant(1));
    assert!(audit(&shape, &update, participant(1), 1).is_right);
    let other = Participant { nonce: [7; 16], ..participant(1) };
    assert!(!audit(&shape, &update, other, 1).is_right);
    assert!(!audit(&shape, &update, participant(2), 1).is_right);
}

#[test]
fn messages_of_another_length_are_refused() {
    let shape = MailboxShape::new(3, 2, 1, 3, 64).unwrap();
    let update = masked(&shape, participant(1));
    let blocks = || [1, 2, 3].map(Block::from);
    let (_, set_up) = UpdateAuditor::new(blocks());
    let begin = |set_up: &[u8]| AuditEvaluation::new(&shape, &update, set_up, &[4; RANDOM_LEN]);
    let (_, choices) = begin(&set_up).unwrap();
    let key = key();
    let subject =
        AuditSubject { shape: &shape, key: &key, round: ROUND, participant: participant(1) };
    let tables = |choices: &[u8]| UpdateAuditor::new(blocks()).0.tables(&subject, choices);
    let answer = tables(&choices).unwrap();
    let changed = |message: &[u8]| {
        [message[1..].to_vec(), message[..message.len() - 1].to_vec(), [message, &[0]].concat()]
    };
    for set_up in changed(&set_up) {
        assert!(matches!(begin(&set_up), Err(UpdateAuditError::Length { .. })));
    }
    for choices in changed(&choices) {
        assert!(matches!(tables(&choices), Err(UpdateAuditError::Length { .. })));
    }
    for answer in changed(&answer) {
        let (evaluation, _) = begin(&set_up).unwrap();
        assert!(matches!(evaluation.verdict(&answer), Err(UpdateAuditError::Length { .. })));
    }
    assert!(matches!(begin(&vec![0xFF; SET_UP_LEN]), Err(UpdateAuditError::Transfer(_))));
}

/// With other choices in some columns than in others it could learn bits of the offset, and with
/// the offset all that the auditor has.
#[test]
fn a_proxy_that_deviates_in_the_transfers_is_detected() {
    let shape = MailboxShape::new(3, 2, 1, 3, 64).unwrap();
    let update = masked(&shape, participant(1));
    let key = key();
    let subject =
        AuditSubject { shape: &shape, key: &key, round: ROUND, participant: participant(1) };
    let begin = POINT_LEN + EXTENSION.reply_len();
    for at in [begin, begin + 100] {
        // With half of the bits of the offset a change of a row has no effect.
        let found = (0..20).filter(|&seed| {
            let (auditor, set_up) =
                UpdateAuditor::new([1, 2, 3].map(|it| Block::from(it + 10 * seed)));
            let made = AuditEvaluation::new(&shape, &update, &set_up, &[4; RANDOM_LEN]);
            let mut choices = made.unwrap().1;
            choices[at] ^= 1;
            auditor.tables(&subject, &choices).is_err()
        });
        assert!(found.count() > 10);
    }
}

/// Whatever was written, to whichever slots, the messages have the same lengths, and the proxy
/// receives labels and tables whose bits are as often 0 as 1.
#[test]
fn messages_do_not_depend_on_what_was_written() {
    let shape = MailboxShape::new(5, 4, 2, 3, 64).unwrap();
    let order = SlotPermutation::new(&key(), ROUND, &shape);
    let mut lengths = Vec::new();
    for offsets in [[0, 1], [0, 3], [2, 3]] {
        let mut update = masked(&shape, participant(3));
        for offset in offsets {
            update.slot_mut(order.slot(3, offset)).fill(0xA5);
        }
        let (mut ones, mut bits) = (0_u64, 0_u64);
        for seed in 0..20 {
            let Audited { choices, tables, is_right } =
                audit(&shape, &update, participant(3), seed);
            assert!(is_right);
            lengths.push((choices.len(), tables.len()));
            ones += tables.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>();
            bits += 8 * tables.len() as u64;
        }
        // Within 4.5 standard deviations.
        let deviation = (2 * ones).abs_diff(bits);
        assert!(deviation.pow(2) < 20 * bits, "{deviation} of {bits}");
    }
    assert!(lengths.iter().all(|it| *it == lengths[0]), "{lengths:?}");
}

#[test]
fn messages_fit_where_audits_are_made() {
    let of = |members| MailboxShape::new(members, 16, 1, 3, 64).unwrap();
    assert_eq!(max_message_len(&of(1024)), 0);
    assert!(max_message_len(&of(1023)) < 20 << 20);
    // N = 201: 1.1 kB a slot.
    let shape = MailboxShape::new(100, 2, 1, 12, 256).unwrap();
    assert!(max_message_len(&shape) < 232_000, "{}", max_message_len(&shape));
}
