use keys::IdentitySecretKey;
use proptest::prelude::*;

use super::*;

fn member(name: &str, key: u8) -> (IdentityPublicKey, MemberName) {
    (IdentitySecretKey::new(&[key; 32]).public(), MemberName::new(name).unwrap())
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().copied().map(str::to_owned).collect()
}

#[test]
fn another_key_of_a_known_name_is_reported_even_after_a_restart() {
    let mut contacts = ChatContacts::default();
    assert!(contacts.update(&[member("bob", 1), member("carol", 2)]).is_empty());
    assert!(contacts.update(&[member("carol", 2)]).is_empty(), "bob has left");
    let mut contacts = ChatContacts::decode(&contacts.encode()).unwrap();
    let warnings = contacts.update(&[member("carol", 2), member("bob", 3)]);
    assert!(warnings.len() == 1 && warnings[0].contains("bob has ANOTHER KEY"), "{warnings:?}");
    // It was not verified, so it can be written to.
    assert!(contacts.recipients("bob", &names(&["bob", "carol"])).is_ok());
    assert!(contacts.update(&[member("carol", 2), member("bob", 3)]).is_empty());
    // A name that looks like it.
    let warnings = contacts.update(&[member("B0B", 4)]);
    assert!(warnings[0].contains("ANOTHER KEY than bob"), "{warnings:?}");
}

#[test]
fn nothing_is_sent_to_a_verified_member_whose_key_has_changed() {
    let mut contacts = ChatContacts::default();
    let others = names(&["bob", "carol"]);
    contacts.update(&[member("bob", 1), member("carol", 2)]);
    contacts.trust("bob", true);
    assert!(contacts.is_verified("bob") && !contacts.is_verified("carol"));
    contacts.set_group(&MemberName::new("team").unwrap(), &others, &others).unwrap();
    // The administrator gives bob's name to carol's key.
    let warnings = contacts.update(&[member("bob", 2), member("carol", 1)]);
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let mut contacts = ChatContacts::decode(&contacts.encode()).unwrap();
    for to in ["bob", "team", ALL] {
        let refused = contacts.recipients(to, &others).unwrap_err();
        assert!(refused.contains("/trust bob"), "{refused}");
    }
    assert_eq!(contacts.recipients("carol", &others), Ok(names(&["carol"])));
    assert_eq!(contacts.list().changed.len(), 1);
    contacts.trust("bob", false);
    assert_eq!(contacts.recipients("bob", &others), Ok(names(&["bob"])));
    // Another key than that of the member of the group.
    let refused = contacts.recipients("team", &others).unwrap_err();
    assert!(refused.contains("change the group team"), "{refused}");
    contacts.set_group(&MemberName::new("team").unwrap(), &others, &others).unwrap();
    assert_eq!(contacts.recipients("team", &others), Ok(others));
}

#[test]
fn a_group_is_of_keys_and_not_of_whoever_has_the_names_later() {
    let mut contacts = ChatContacts::default();
    let (others, team) = (names(&["bob", "carol"]), MemberName::new("team").unwrap());
    contacts.update(&[member("bob", 1), member("carol", 2)]);
    contacts.set_group(&team, &others, &others).unwrap();
    contacts.update(&[member("bob", 3), member("carol", 2)]);
    let mut contacts = ChatContacts::decode(&contacts.encode()).unwrap();
    let refused = contacts.recipients("team", &others).unwrap_err();
    assert!(refused.contains("bob has another key"), "{refused}");
    assert_eq!(contacts.recipients(ALL, &others), Ok(others.clone()));
    assert_eq!(contacts.recipients("bob", &others), Ok(names(&["bob"])));
    contacts.set_group(&team, &others, &others).unwrap();
    assert_eq!(contacts.recipients("team", &others), Ok(others));
}

#[test]
fn groups_of_the_version_before_get_the_keys_that_are_known() {
    let mut contacts = ChatContacts::default();
    contacts.update(&[member("bob", 1)]);
    let mut bytes = contacts.encode().to_vec();
    bytes[0] = VERSION_WITHOUT_KEYS;
    for (group, member) in [("team", "bob"), ("unknown", "eve")] {
        bytes.put_text(group);
        bytes.put_u32(1);
        bytes.put_text(member);
    }
    let mut contacts = ChatContacts::decode(&bytes).unwrap();
    let bob = names(&["bob"]);
    assert_eq!(contacts.list().groups, BTreeMap::from([("team".to_owned(), bob.clone())]));
    assert_eq!(contacts.recipients("team", &bob), Ok(bob.clone()));
    contacts.update(&[member("bob", 2)]);
    assert!(contacts.recipients("team", &bob).is_err());
}

#[test]
fn messages_to_those_that_are_left_can_be_cancelled() {
    let mut contacts = ChatContacts::default();
    let (others, team) = (names(&["bob", "carol", "dave"]), MemberName::new("team").unwrap());
    contacts.update(&[member("bob", 1), member("carol", 2), member("dave", 3)]);
    contacts.set_group(&team, &others, &others).unwrap();
    contacts.trust("bob", true);
    contacts.update(&[member("bob", 4), member("carol", 2)]);
    let others = names(&["bob", "carol"]);
    assert!(contacts.recipients("bob", &others).is_err());
    assert_eq!(contacts.cancelled("bob", &others), Ok(names(&["bob"])));
    assert_eq!(contacts.cancelled("team", &others), Ok(names(&["carol"])));
    assert_eq!(contacts.cancelled("team", &[]), Ok(Vec::new()));
    assert!(contacts.cancelled("eve", &others).is_err());
}

#[test]
fn a_sender_of_a_missed_epoch_is_compared() {
    let mut contacts = ChatContacts::default();
    let members = [member("bob", 1)];
    contacts.update(&members);
    contacts.trust("bob", true);
    let key = |number| member("x", number).0;
    // Bob himself, and a key that had his name for an epoch.
    assert_eq!(contacts.meet_former(&key(1), "bob", &[]), (ContactTrust::Verified, None));
    let (trust, warning) = contacts.meet_former(&key(2), "bob", &members);
    assert_eq!(trust, ContactTrust::Changed);
    assert!(warning.unwrap().contains("ANOTHER KEY"));
    assert!(contacts.is_verified("bob"), "bob stays as he was");
    // A name that looks like his, and one that was never seen.
    let (trust, warning) = contacts.meet_former(&key(3), "B0B", &members);
    assert_eq!(trust, ContactTrust::Changed);
    assert!(warning.unwrap().contains("ANOTHER KEY than bob"));
    assert_eq!(contacts.meet_former(&key(4), "eve", &members), (ContactTrust::Seen, None));
    // It is remembered, and so compared with members of later epochs.
    let mut contacts = ChatContacts::decode(&contacts.encode()).unwrap();
    let warnings = contacts.update(&[member("bob", 1), member("eve", 5)]);
    assert!(warnings.len() == 1 && warnings[0].contains("eve has ANOTHER KEY"), "{warnings:?}");
}

#[test]
fn a_verified_key_under_another_name_is_not_verified() {
    let mut contacts = ChatContacts::default();
    contacts.update(&[member("bob", 1)]);
    contacts.trust("bob", true);
    let warnings = contacts.update(&[member("robert", 1)]);
    assert!(warnings[0].contains("the key that bob had"), "{warnings:?}");
    assert!(contacts.recipients("robert", &names(&["robert"])).is_err());
}

#[test]
fn a_verified_name_is_watched_while_another_one_looks_like_it() {
    let mut contacts = ChatContacts::default();
    contacts.update(&[member("bob", 1)]);
    contacts.trust("bob", true);
    // A false administrator gives both names new keys, in any order.
    let both = [member("bob", 2), member("B0B", 3)];
    let others = names(&["bob", "B0B"]);
    for members in [both.clone(), [both[1].clone(), both[0].clone()]] {
        let mut contacts = ChatContacts::decode(&contacts.encode()).unwrap();
        assert_eq!(contacts.update(&members).len(), 2);
        for to in ["bob", "B0B", ALL] {
            assert!(contacts.recipients(to, &others).is_err(), "{to}");
        }
        assert!(contacts.update(&members).is_empty(), "it is said once");
    }
}

#[test]
fn a_verified_former_member_is_not_forgotten_for_others() {
    let mut contacts = ChatContacts::default();
    contacts.update(&[member("verified", 1), member("seen", 2)]);
    contacts.trust("verified", true);
    for number in 0..MAX_PEOPLE {
        let (key, _) = member("x", 3);
        let name = MemberName::new(&format!("n{number}")).unwrap();
        contacts.people.push(KnownMember::new(name, key, ContactTrust::Seen));
    }
    contacts.update(&[]);
    assert_eq!(contacts.people.len(), MAX_PEOPLE);
    assert!(contacts.is_verified("verified") && contacts.person("seen").is_none());
}

#[test]
fn a_group_is_of_members_and_its_name_is_not_that_of_a_member() {
    let mut contacts = ChatContacts::default();
    let others = names(&["bob", "carol", "dave"]);
    contacts.update(&[member("bob", 1), member("carol", 2), member("dave", 3)]);
    let team = MemberName::new("team").unwrap();
    let unknown = contacts.set_group(&team, &names(&["bob", "eve"]), &others);
    assert!(unknown.unwrap_err().contains("eve"));
    for taken in ["bob", ALL] {
        let taken = MemberName::new(taken).unwrap();
        assert!(contacts.set_group(&taken, &others, &others).is_err());
    }
    contacts.set_group(&team, &names(&["dave", "bob", "dave"]), &others).unwrap();
    let mut contacts = ChatContacts::decode(&contacts.encode()).unwrap();
    assert_eq!(contacts.recipients("team", &others), Ok(names(&["bob", "dave"])));
    assert_eq!(contacts.recipients(ALL, &others), Ok(others.clone()));
    assert!(contacts.recipients(ALL, &[]).is_err());
    // Dave has left, and later somebody takes the name of the group.
    let refused = contacts.recipients("team", &names(&["bob"])).unwrap_err();
    assert!(refused.contains("dave"), "{refused}");
    assert!(contacts.recipients("team", &names(&["bob", "dave", "team"])).is_err());
    contacts.set_group(&team, &[], &others).unwrap();
    assert!(contacts.set_group(&team, &[], &others).is_err());
    assert!(contacts.recipients("team", &others).is_err());
}

#[test]
fn a_member_cannot_get_what_is_for_all_by_its_name() {
    let contacts = ChatContacts::default();
    let others = names(&["all", "bob"]);
    assert_eq!(contacts.recipients(ALL, &others), Ok(others));
}

proptest! {
    #[test]
    fn any_bytes_are_contacts_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = ChatContacts::decode(&bytes);
        for version in [VERSION, VERSION_WITHOUT_KEYS] {
            let _ = ChatContacts::decode(&[&[version][..], &bytes].concat());
        }
    }
}
