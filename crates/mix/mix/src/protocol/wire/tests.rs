use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;
use crate::protocol::engine::MixEngineName;

fn terms() -> MixTerms {
    let shape = MailboxShape::new(5, 2, 1, 3, 64).unwrap();
    let [interval, least] = [1000, 200].map(Duration::from_millis);
    MixTerms::new(MixEngineName::Ot, shape, interval, least).unwrap()
}

fn any_terms() -> impl Strategy<Value = MixTerms> {
    let numbers = (2..=64_usize, 1..=8_usize, 3..=16_usize, 64..=256_usize);
    let intervals = (1..=3_600_000_u64, 1..=3_600_000_u64);
    (select(&MixExchangeKind::ALL[..]), numbers, intervals).prop_map(
        |(exchange, numbers, intervals)| {
            let (members, slots, reads, slot_len) = numbers;
            let shape = MailboxShape::new(members, slots, slots, reads, slot_len).unwrap();
            // The circuit of a large shape is too long.
            let is_large = shape.mailbox_len() > 100_000;
            let exchange = if is_large { MixEngineName::Ot.into() } else { exchange };
            let (one, other) = intervals;
            let [interval, least] = [one.max(other), one.min(other)].map(Duration::from_millis);
            MixTerms::new(exchange, shape, interval, least).unwrap()
        },
    )
}

fn any_key() -> impl Strategy<Value = IdentityPublicKey> {
    any::<[u8; 32]>().prop_map(|random| keys::IdentitySecretKey::new(&random).public())
}

fn any_position() -> impl Strategy<Value = RoundPosition> {
    (any::<u32>(), any::<u64>()).prop_map(|(epoch, round)| RoundPosition { epoch, round })
}

fn any_record() -> impl Strategy<Value = ArchiveRecord> {
    let participants = btree_map(0..5_u16, any::<[u8; NONCE_LEN]>(), 0..=5);
    let round = (any_position(), any::<u64>(), 1..3_u16, participants, any::<u8>()).prop_map(
        |(RoundPosition { epoch, round }, closed_s, slots_per_member, participants, byte)| {
            let participant = |(member, nonce)| Participant { member, nonce };
            let participants: Vec<_> = participants.into_iter().map(participant).collect();
            let mailbox = vec![byte; participants.len() * usize::from(slots_per_member) * 64];
            let read = ReadRound { round, participants };
            let slot_len = 64;
            ArchiveRecord::Round(ArchivedRound {
                epoch,
                closed_s,
                slots_per_member,
                slot_len,
                read,
                mailbox,
            })
        },
    );
    prop_oneof![
        any_position().prop_map(ArchiveRecord::Gap),
        bytes().prop_map(ArchiveRecord::Announcement),
        round,
    ]
}

fn any_start() -> impl Strategy<Value = RoundStart> {
    let participants = btree_map(0..5_u16, any::<[u8; NONCE_LEN]>(), 0..=5);
    let read = option::of((1..1000_u64, participants));
    (any::<u32>(), 1000..u64::MAX, read).prop_map(|(epoch, round, read)| {
        let read = read.map(|(round, participants)| {
            let participant = |(member, nonce)| Participant { member, nonce };
            ReadRound { round, participants: participants.into_iter().map(participant).collect() }
        });
        RoundStart { epoch, round, read }
    })
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=MAX_NOTICE_LEN)
}

fn to_proxy() -> impl Strategy<Value = MemberToProxy> {
    prop_oneof![
        bytes().prop_map(MemberToProxy::Join),
        bytes().prop_map(MemberToProxy::Notice),
        bytes().prop_map(MemberToProxy::Announce),
        (any_key(), bytes()).prop_map(|(key, answer)| MemberToProxy::JoinAnswer { key, answer }),
        bytes().prop_map(MemberToProxy::SetUp),
        (any::<u64>(), any::<[u8; 16]>(), bytes())
            .prop_map(|(round, nonce, body)| MemberToProxy::Request { round, nonce, body }),
        bytes().prop_map(MemberToProxy::AuditSetUp),
        bytes().prop_map(MemberToProxy::AuditTables),
        any_position().prop_map(MemberToProxy::CatchUp),
    ]
}

/// What comes after the welcome.
fn to_member() -> impl Strategy<Value = ProxyToMember> {
    prop_oneof![
        select(&ProxyRefusal::ALL[..]).prop_map(ProxyToMember::Refused),
        (any_key(), bytes()).prop_map(|(key, request)| ProxyToMember::JoinRequest { key, request }),
        (any_key(), bytes()).prop_map(|(key, notice)| ProxyToMember::Notice { key, notice }),
        bytes().prop_map(ProxyToMember::JoinAnswer),
        bytes().prop_map(ProxyToMember::Announcement),
        bytes().prop_map(ProxyToMember::SetUp),
        (any_start(), bytes()).prop_map(|(start, opening)| ProxyToMember::Round { start, opening }),
        (any::<u64>(), bytes()).prop_map(|(round, body)| ProxyToMember::Answer { round, body }),
        any::<u64>().prop_map(|round| ProxyToMember::Late { round }),
        (any::<u32>(), any::<u64>(), any::<u16>(), any::<[u8; NONCE_LEN]>()).prop_map(
            |(epoch, round, member, nonce)| {
                ProxyToMember::Audit { epoch, round, subject: Participant { member, nonce } }
            }
        ),
        bytes().prop_map(ProxyToMember::AuditChoices),
        (any_key(), any::<u64>())
            .prop_map(|(key, round)| ProxyToMember::AuditFailed { key, round }),
        (any::<bool>(), vec(any_record(), 0..4))
            .prop_map(|(is_last, records)| ProxyToMember::Past { is_last, records }),
    ]
}

fn welcome() -> impl Strategy<Value = ProxyToMember> {
    use MembershipStatus::{Administrator, Member, Unknown, Waiting};
    let status = select(&[Unknown, Waiting, Member, Administrator][..]);
    (any_terms(), status, any::<u32>(), any::<u64>(), any::<bool>()).prop_map(
        |(terms, status, epoch, round, is_restored)| ProxyToMember::Welcome {
            terms,
            status,
            epoch,
            round,
            is_restored,
        },
    )
}

/// If arbitrary bytes can be decoded, the decoded message encodes to the same bytes.
fn check_any(bytes: &[u8]) {
    let terms = terms();
    if let Ok(hello) = MixHello::decode(bytes) {
        assert_eq!(hello.encode(), bytes);
    }
    if let Ok(message) = MemberToProxy::decode(bytes, &terms) {
        assert_eq!(message.encode(), bytes);
    }
    for terms in [None, Some(&terms)] {
        if let Ok(message) = ProxyToMember::decode(bytes, terms) {
            assert_eq!(message.encode(), bytes);
        }
    }
}

proptest! {
    #[test]
    fn messages_come_back(sent in to_proxy(), answered in to_member(), welcome in welcome()) {
        let terms = terms();
        prop_assert!(sent.encode().len() <= terms.max_to_proxy_len());
        prop_assert_eq!(MemberToProxy::decode(&sent.encode(), &terms), Ok(sent));
        prop_assert!(answered.encode().len() <= terms.max_to_member_len());
        prop_assert_eq!(ProxyToMember::decode(&answered.encode(), Some(&terms)), Ok(answered));
        prop_assert!(welcome.encode().len() <= MAX_GREETING_LEN);
        prop_assert_eq!(ProxyToMember::decode(&welcome.encode(), None), Ok(welcome));
    }

    #[test]
    fn hostile_bytes_have_one_meaning_or_none(bytes in vec(any::<u8>(), 0..300), kind in 0..15_u8) {
        check_any(&bytes);
        check_any(&[&[kind], &bytes[..]].concat());
    }

    #[test]
    fn changed_messages_have_one_meaning_or_none(
        sent in to_proxy(), answered in to_member(), welcome in welcome(),
        at in any::<Index>(), value: u8, cut in any::<Index>(),
    ) {
        for mut bytes in [sent.encode(), answered.encode(), welcome.encode()] {
            check_any(&bytes[..cut.index(bytes.len())]);
            check_any(&[&bytes[..], &[value]].concat());
            *at.get_mut(&mut bytes) = value;
            check_any(&bytes);
        }
    }

    #[test]
    fn a_greeting_comes_back(name in "[a-z0-9-]{1,32}") {
        let hello = MixHello { group: name.parse().unwrap() };
        prop_assert!(hello.encode().len() <= MAX_GREETING_LEN);
        prop_assert_eq!(MixHello::decode(&hello.encode()), Ok(hello));
    }
}

#[test]
fn bytes_are_as_specified() {
    assert_eq!(MixHello { group: "friends".parse().unwrap() }.encode(), b"\x04friends");
    let request =
        MemberToProxy::Request { round: 0x0102, nonce: [0xAA; NONCE_LEN], body: vec![7, 8] };
    let expected = [&[6, 0, 0, 0, 0, 0, 0, 1, 2][..], &[0xAA; 16], &[7, 8]].concat();
    assert_eq!(request.encode(), expected);
    let welcome = ProxyToMember::Welcome {
        terms: terms(),
        status: MembershipStatus::Waiting,
        epoch: 3,
        round: 4,
        is_restored: true,
    };
    let numbers = [0, 5, 0, 2, 0, 1, 0, 3, 0, 64];
    let expected =
        [&[1, 0, 0, 0, 0, 0, 0, 0, 3, 232, 0, 0, 0, 200][..], &numbers, &[1, 0, 0, 0, 3][..]]
            .concat();
    let expected = [&expected[..], &[0, 0, 0, 0, 0, 0, 0, 4, 1]].concat();
    assert_eq!(welcome.encode(), expected);
    let restore = MemberToProxy::Restore { round: 5, announcement: vec![7, 8] };
    assert_eq!(restore.encode(), [10, 0, 0, 0, 0, 0, 0, 0, 5, 7, 8]);
    let participants = vec![Participant { member: 4, nonce: [0xBB; NONCE_LEN] }];
    let read = Some(ReadRound { round: 8, participants });
    let start = RoundStart { epoch: 3, round: 9, read };
    let expected = [
        &[8, 0, 0, 0, 3][..],
        &9_u64.to_be_bytes(),
        &8_u64.to_be_bytes(),
        &[0, 1, 0, 4],
        &[0xBB; 16],
        &[5],
    ]
    .concat();
    assert_eq!(ProxyToMember::Round { start, opening: vec![5] }.encode(), expected);
}

#[test]
fn messages_out_of_bounds_are_rejected() {
    let terms = terms();
    for (message, bound) in [
        (MemberToProxy::Join(vec![0; MAX_JOIN_LEN + 1]), "of a request to join"),
        (MemberToProxy::Notice(vec![0; MAX_NOTICE_LEN + 1]), "of a notice"),
        (MemberToProxy::Announce(vec![0; terms.max_announcement_len() + 1]), "of an announcement"),
        (MemberToProxy::SetUp(vec![0; MAX_SET_UP_LEN + 1]), "of a set-up"),
        (
            MemberToProxy::Request {
                round: 1,
                nonce: [0; 16],
                body: vec![0; terms.max_body_len() + 1],
            },
            "of a request",
        ),
        (MemberToProxy::AuditTables(vec![0; terms.max_audit_len() + 1]), "of an audit"),
    ] {
        let decoded = MemberToProxy::decode(&message.encode(), &terms);
        assert_eq!(decoded, Err(MixWireError::Length), "{bound}");
    }
    let start = |round, read, members: &[u16]| {
        let participant = |&member| Participant { member, nonce: [0; NONCE_LEN] };
        let participants = members.iter().map(participant).collect();
        let read = Some(ReadRound { round: read, participants });
        ProxyToMember::Round { start: RoundStart { epoch: 1, round, read }, opening: vec![] }
    };
    let decode = |message: &ProxyToMember| ProxyToMember::decode(&message.encode(), Some(&terms));
    let valid = start(2, 1, &[0, 1, 4]);
    assert_eq!(decode(&valid), Ok(valid));
    let own_round = Err(MixWireError::Invalid("the round that is read"));
    assert_eq!(decode(&start(2, 2, &[0, 1])), own_round);
    let no_member = Err(MixWireError::Invalid("the list of participants"));
    assert_eq!(decode(&start(2, 1, &[0, 5])), no_member);
    let too_many = Err(MixWireError::Invalid("the number of participants"));
    assert_eq!(decode(&start(2, 1, &[0, 1, 2, 3, 4, 5])), too_many);
    let mut twice = start(2, 1, &[0, 1]).encode();
    let second = twice.len() - 18;
    twice[second + 1] = 0;
    assert_eq!(ProxyToMember::decode(&twice, Some(&terms)), no_member);
}

#[test]
fn names_of_groups_are_checked() {
    for name in ["", "Friends", "a b", "ä", "0123456789abcdef0123456789abcdef0"] {
        assert_eq!(name.parse::<GroupName>(), Err(GroupNameError), "{name}");
    }
    for version in [1, 2, 3] {
        let hello = [&[version][..], b"friends"].concat();
        assert_eq!(MixHello::decode(&hello), Err(MixWireError::Version(version)));
    }
    assert_eq!(MixHello::decode(b"\x04"), Err(MixWireError::Invalid("the name of a group")));
    assert_eq!(MixHello::decode(&[4, 0xFF]), Err(MixWireError::Invalid("the name of a group")));
    assert_eq!(MixHello::decode(&[]), Err(MixWireError::Length));
}

#[test]
fn terms_are_checked() {
    let shape = |slots, len| MailboxShape::new(100, slots, 1, 12, len).unwrap();
    let ms = Duration::from_millis;
    let of = |engine, shape, interval, least| MixTerms::new(engine, shape, interval, least);
    let ot = MixEngineName::Ot;
    assert!(of(ot, shape(2, 256), ms(1000), ms(100)).is_ok());
    for (interval, least) in [(ms(100), ms(101)), (ms(3_600_001), ms(1)), (ms(1), ms(0))] {
        assert_eq!(of(ot, shape(2, 256), interval, least), Err(MixTermsError::Interval));
    }
    let many = MailboxShape::new(1024, 64, 1, 12, 64).unwrap();
    assert!(of(ot, many, ms(1000), ms(100)).is_ok());
    let broadcast =
        |slots| MixTerms::new(MixExchangeKind::Broadcast, shape(slots, 256), ms(1000), ms(100));
    assert!(broadcast(64).is_ok());
    let error = broadcast(65).unwrap_err().to_string();
    assert_eq!(error, "a member has 65 slots, but at most 64 in a broadcast");
    let error = of(MixEngineName::Bdd, many, ms(1000), ms(100)).unwrap_err();
    let expected = "the engine `bdd` takes at most 65517 slots, not 65537; `ot` takes more";
    assert_eq!(error.to_string(), expected);
}
