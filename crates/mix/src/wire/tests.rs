use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::*;

fn terms() -> Terms {
    let shape = Shape::new(5, 2, 1, 3, 64).unwrap();
    let [interval, least] = [1000, 200].map(Duration::from_millis);
    Terms::new(EngineName::Ot, shape, interval, least).unwrap()
}

fn any_terms() -> impl Strategy<Value = Terms> {
    let numbers = (2..=64_usize, 1..=8_usize, 3..=16_usize, 64..=256_usize);
    let intervals = (1..=3_600_000_u64, 1..=3_600_000_u64);
    (select(&EngineName::ALL[..]), numbers, intervals).prop_map(|(engine, numbers, intervals)| {
        let (members, slots, reads, slot_len) = numbers;
        let shape = Shape::new(members, slots, slots, reads, slot_len).unwrap();
        // The circuit of a large shape is too long.
        let engine = if shape.mailbox_len() > 100_000 { EngineName::Ot } else { engine };
        let (one, other) = intervals;
        let [interval, least] = [one.max(other), one.min(other)].map(Duration::from_millis);
        Terms::new(engine, shape, interval, least).unwrap()
    })
}

fn any_key() -> impl Strategy<Value = PublicKey> {
    any::<[u8; 32]>().prop_map(|random| keys::SecretKey::new(&random).public())
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

fn to_proxy() -> impl Strategy<Value = ToProxy> {
    prop_oneof![
        bytes().prop_map(ToProxy::Join),
        bytes().prop_map(ToProxy::Notice),
        bytes().prop_map(ToProxy::Announce),
        (any_key(), bytes()).prop_map(|(key, answer)| ToProxy::JoinAnswer { key, answer }),
        bytes().prop_map(ToProxy::SetUp),
        (any::<u64>(), any::<[u8; 16]>(), bytes())
            .prop_map(|(round, nonce, body)| ToProxy::Request { round, nonce, body }),
        bytes().prop_map(ToProxy::AuditSetUp),
        bytes().prop_map(ToProxy::AuditTables),
    ]
}

/// What comes after the welcome.
fn to_member() -> impl Strategy<Value = ToMember> {
    prop_oneof![
        select(&Refusal::ALL[..]).prop_map(ToMember::Refused),
        (any_key(), bytes()).prop_map(|(key, request)| ToMember::JoinRequest { key, request }),
        (any_key(), bytes()).prop_map(|(key, notice)| ToMember::Notice { key, notice }),
        bytes().prop_map(ToMember::JoinAnswer),
        bytes().prop_map(ToMember::Announcement),
        bytes().prop_map(ToMember::SetUp),
        (any_start(), bytes()).prop_map(|(start, opening)| ToMember::Round { start, opening }),
        (any::<u64>(), bytes()).prop_map(|(round, body)| ToMember::Answer { round, body }),
        any::<u64>().prop_map(|round| ToMember::Late { round }),
        (any::<u32>(), any::<u64>(), any::<u16>(), any::<[u8; NONCE_LEN]>()).prop_map(
            |(epoch, round, member, nonce)| {
                ToMember::Audit { epoch, round, subject: Participant { member, nonce } }
            }
        ),
        bytes().prop_map(ToMember::AuditChoices),
        (any_key(), any::<u64>()).prop_map(|(key, round)| ToMember::AuditFailed { key, round }),
    ]
}

fn welcome() -> impl Strategy<Value = ToMember> {
    use Standing::{Administrator, Member, Unknown, Waiting};
    (any_terms(), select(&[Unknown, Waiting, Member, Administrator][..]), any::<u32>())
        .prop_map(|(terms, standing, epoch)| ToMember::Welcome { terms, standing, epoch })
}

/// Whatever `bytes` are, what is decoded of them has them as its encoding.
fn check_any(bytes: &[u8]) {
    let terms = terms();
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(hello.encode(), bytes);
    }
    if let Ok(message) = ToProxy::decode(bytes, &terms) {
        assert_eq!(message.encode(), bytes);
    }
    for terms in [None, Some(&terms)] {
        if let Ok(message) = ToMember::decode(bytes, terms) {
            assert_eq!(message.encode(), bytes);
        }
    }
}

proptest! {
    #[test]
    fn messages_come_back(sent in to_proxy(), answered in to_member(), welcome in welcome()) {
        let terms = terms();
        prop_assert!(sent.encode().len() <= terms.max_to_proxy_len());
        prop_assert_eq!(ToProxy::decode(&sent.encode(), &terms), Ok(sent));
        prop_assert!(answered.encode().len() <= terms.max_to_member_len());
        prop_assert_eq!(ToMember::decode(&answered.encode(), Some(&terms)), Ok(answered));
        prop_assert!(welcome.encode().len() <= MAX_GREETING_LEN);
        prop_assert_eq!(ToMember::decode(&welcome.encode(), None), Ok(welcome));
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
        let hello = Hello { group: name.parse().unwrap() };
        prop_assert!(hello.encode().len() <= MAX_GREETING_LEN);
        prop_assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
}

#[test]
fn bytes_are_as_specified() {
    assert_eq!(Hello { group: "friends".parse().unwrap() }.encode(), b"\x02friends");
    let request = ToProxy::Request { round: 0x0102, nonce: [0xAA; NONCE_LEN], body: vec![7, 8] };
    let expected = [&[6, 0, 0, 0, 0, 0, 0, 1, 2][..], &[0xAA; 16], &[7, 8]].concat();
    assert_eq!(request.encode(), expected);
    let welcome = ToMember::Welcome { terms: terms(), standing: Standing::Waiting, epoch: 3 };
    let numbers = [0, 5, 0, 2, 0, 1, 0, 3, 0, 64];
    let expected =
        [&[1, 0, 0, 0, 3, 232, 0, 0, 0, 200][..], &numbers, &[1, 0, 0, 0, 3][..]].concat();
    assert_eq!(welcome.encode(), expected);
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
    assert_eq!(ToMember::Round { start, opening: vec![5] }.encode(), expected);
}

#[test]
fn what_is_out_of_bounds_is_refused() {
    let terms = terms();
    for (message, bound) in [
        (ToProxy::Join(vec![0; MAX_JOIN_LEN + 1]), "of a request to join"),
        (ToProxy::Notice(vec![0; MAX_NOTICE_LEN + 1]), "of a notice"),
        (ToProxy::Announce(vec![0; terms.max_announcement_len() + 1]), "of an announcement"),
        (ToProxy::SetUp(vec![0; MAX_SET_UP_LEN + 1]), "of a set-up"),
        (
            ToProxy::Request { round: 1, nonce: [0; 16], body: vec![0; terms.max_body_len() + 1] },
            "of a request",
        ),
        (ToProxy::AuditTables(vec![0; terms.max_audit_len() + 1]), "of an audit"),
    ] {
        let decoded = ToProxy::decode(&message.encode(), &terms);
        assert_eq!(decoded, Err(WireError::Length), "{bound}");
    }
    let start = |round, read, members: &[u16]| {
        let participant = |&member| Participant { member, nonce: [0; NONCE_LEN] };
        let participants = members.iter().map(participant).collect();
        let read = Some(ReadRound { round: read, participants });
        ToMember::Round { start: RoundStart { epoch: 1, round, read }, opening: vec![] }
    };
    let decode = |message: &ToMember| ToMember::decode(&message.encode(), Some(&terms));
    let valid = start(2, 1, &[0, 1, 4]);
    assert_eq!(decode(&valid), Ok(valid));
    let own_round = Err(WireError::Invalid("the round that is read"));
    assert_eq!(decode(&start(2, 2, &[0, 1])), own_round);
    let no_member = Err(WireError::Invalid("the list of participants"));
    assert_eq!(decode(&start(2, 1, &[0, 5])), no_member);
    let too_many = Err(WireError::Invalid("the number of participants"));
    assert_eq!(decode(&start(2, 1, &[0, 1, 2, 3, 4, 5])), too_many);
    let mut twice = start(2, 1, &[0, 1]).encode();
    let second = twice.len() - 18;
    twice[second + 1] = 0;
    assert_eq!(ToMember::decode(&twice, Some(&terms)), no_member);
}

#[test]
fn names_of_groups_are_checked() {
    for name in ["", "Friends", "a b", "ä", "0123456789abcdef0123456789abcdef0"] {
        assert_eq!(name.parse::<GroupName>(), Err(GroupNameError), "{name}");
    }
    assert_eq!(Hello::decode(b"\x01friends"), Err(WireError::Version(1)));
    assert_eq!(Hello::decode(b"\x02"), Err(WireError::Invalid("the name of a group")));
    assert_eq!(Hello::decode(&[2, 0xFF]), Err(WireError::Invalid("the name of a group")));
    assert_eq!(Hello::decode(&[]), Err(WireError::Length));
}

#[test]
fn terms_are_checked() {
    let shape = |slots, len| Shape::new(100, slots, 1, 12, len).unwrap();
    let ms = Duration::from_millis;
    let of = |engine, shape, interval, least| Terms::new(engine, shape, interval, least);
    let ot = EngineName::Ot;
    assert!(of(ot, shape(2, 256), ms(1000), ms(100)).is_ok());
    for (interval, least) in [(ms(100), ms(101)), (ms(3_600_001), ms(1)), (ms(1), ms(0))] {
        assert_eq!(of(ot, shape(2, 256), interval, least), Err(TermsError::Interval));
    }
    let many = Shape::new(1024, 64, 1, 12, 64).unwrap();
    assert!(of(ot, many, ms(1000), ms(100)).is_ok());
    let error = of(EngineName::Bdd, many, ms(1000), ms(100)).unwrap_err();
    let expected = "the engine `bdd` takes at most 65517 slots, not 65537; `ot` takes more";
    assert_eq!(error.to_string(), expected);
}
