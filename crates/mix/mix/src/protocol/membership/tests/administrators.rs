//! Several administrators: what they change at the same time, and what former ones can do.

use super::*;

/// Another administrator of the group, who knows this announcement.
fn take_over(story: &Story, person: &Person, newest: &EpochAnnouncement) -> Administrator {
    let own = Arc::new(IdentitySecretKey::new(person.prekeys[0].secret()));
    assert_eq!(own.public(), person.identity.public());
    let at = story.administrator.group().clone();
    Administrator::take_over(own, at, newest, story.now).unwrap()
}

/// Its next announcement, which it adopts, as if the proxy had taken it.
fn announce_by(story: &mut Story, other: &mut Administrator) -> EpochAnnouncement {
    let now = story.now.max(other.poll_timeout().unwrap());
    let bytes = other.handle_timeout(now, &mut story.random).unwrap();
    let made = EpochAnnouncement::verify(bytes, GROUP, &story.identity.public()).unwrap();
    other.adopt(now, &made).unwrap();
    made
}

/// A group of alice, bob and carol, whose administrators are alice and bob.
fn with_two() -> (Story, [Person; 2], Administrator) {
    let (mut story, people) = (Story::new(), [2, 3].map(Person::new));
    story.admit(&people[0], "bob").unwrap();
    story.admit(&people[1], "carol").unwrap();
    story.announce();
    story.administrator.add_administrator(&name("bob")).unwrap();
    let newest = story.announce();
    let other = take_over(&story, &people[0], &newest);
    (story, people, other)
}

#[test]
fn an_administrator_that_has_used_up_the_changes_can_be_removed() {
    let (mut story, [bob, _], mut other) = with_two();
    while other.add_administrator(&name("carol")).is_ok() {
        let _ = other.remove_administrator(&name("carol"));
    }
    let used_up = announce_by(&mut story, &mut other);
    story.administrator.adopt(story.now, &used_up).unwrap();
    assert_eq!(story.administrator.remove(&name("bob")), Ok(()));
    assert!(!story.announce().lists(&bob.identity.public()));
}

/// Bob announces each second, less than an administrator waits after an announcement.
#[test]
fn an_administrator_that_announces_again_and_again_can_be_removed() {
    let (mut story, [bob, _], mut other) = with_two();
    story.administrator.remove(&name("bob")).unwrap();
    let end = story.now + Duration::from_secs(60);
    while story.administrator.poll_timeout().unwrap() > story.now {
        assert!(story.now < end, "alice does not announce");
        let newest = announce_by(&mut story, &mut other);
        story.administrator.adopt(story.now, &newest).unwrap();
        story.now += Duration::from_secs(1);
    }
    assert!(!story.announce().lists(&bob.identity.public()));
    // The next changes wait as before.
    story.administrator.add_administrator(&name("carol")).unwrap();
    assert_eq!(story.administrator.poll_timeout(), Some(story.now + Duration::from_secs(2)));
}

#[test]
fn a_wish_to_step_down_is_made_once_and_announces_nothing() {
    let (mut story, ..) = with_two();
    for _ in 0..2 {
        story.administrator.remove_administrator(&name("alice")).unwrap();
    }
    assert!(story.administrator.steps_down() && !story.is_due());
    story.announce();
    assert!(story.administrator.steps_down() && !story.is_due());
}

#[test]
fn an_announcement_that_does_not_know_of_a_removal_does_not_undo_it() {
    let (mut story, [_, carol], mut bob) = with_two();
    let key = carol.identity.public();
    bob.remove(&name("carol")).unwrap();
    assert!(!announce_by(&mut story, &mut bob).lists(&key));
    // The proxy does not show it to alice, who announces two epochs.
    story.announce();
    let newest = story.announce();
    assert!(newest.lists(&key));
    let adopted = bob.adopt(story.now, &newest).unwrap();
    assert_eq!(adopted.readmitted, [name("carol")]);
    let again = announce_by(&mut story, &mut bob);
    assert!(!again.lists(&key) && again.follows(&newest));
    story.administrator.adopt(story.now, &again).unwrap();
    // Alice admits her again, while bob is away.
    story.admit(&carol, "carol").unwrap();
    story.announce();
    let newest = story.announce();
    let adopted = bob.adopt(story.now, &newest).unwrap();
    assert_eq!(adopted, AdoptedAnnouncement::default());
    assert!(announce_by(&mut story, &mut bob).lists(&key));
}

#[test]
fn an_invitation_whose_admission_was_dropped_can_be_used_again() {
    let (mut story, _, mut bob) = with_two();
    let (dave, invitation) = (Person::new(4), story.invite("dave"));
    let request = dave.request(&invitation, "dave");
    assert_eq!(story.ask(&dave, &request), Ok(()));
    announce_by(&mut story, &mut bob);
    let newest = announce_by(&mut story, &mut bob);
    let adopted = story.administrator.adopt(story.now, &newest).unwrap();
    assert_eq!(adopted.dropped_changes, 0);
    assert_eq!(adopted.dropped_admissions, [name("dave")], "named to the administrator");
    assert_eq!(story.ask(&dave, &request), Ok(()));
    assert!(story.announce().lists(&dave.identity.public()));
}

#[test]
fn past_announcements_of_former_administrators_are_not_believed() {
    let (mut story, _, mut bob) = with_two();
    let by_alice = story.announce();
    bob.adopt(story.now, &by_alice).unwrap();
    let by_bob = announce_by(&mut story, &mut bob);
    let forged = announce_by(&mut story, &mut bob);
    story.administrator.adopt(story.now, &by_bob).unwrap();
    story.administrator.remove_administrator(&name("bob")).unwrap();
    let next = story.announce();
    assert!(next.believes_past(&by_bob), "it is the one before");
    assert!(next.believes_past(&by_alice) && !next.believes_past(&forged));
    let later = story.announce();
    assert!(later.believes_past(&next) && !later.believes_past(&by_bob));
}

/// What an administrator's program of its own could announce.
fn forge(
    administrators: &AdministratorList,
    members: &[(&IdentitySecretKey, &str)],
    seen: &[&str],
) -> Result<EpochAnnouncement, EpochAnnouncementError> {
    let founder = IdentitySecretKey::new(&[1; 32]);
    let admitted = |(own, named): &(&IdentitySecretKey, &str)| AdmittedMember {
        key: own.public(),
        name: name(named),
        prekey: prekey(1, 5).public(),
    };
    let content = AnnouncementContent {
        administrators,
        proxy: &ProxyAddress { address: "127.0.0.1:6700".into(), key: founder.public() },
        epoch: 5,
        previous: [6; 32],
        roster: &Roster { members: members.iter().map(admitted).collect(), ..Roster::default() },
    };
    let secret = |byte| Zeroizing::new([byte; 32]);
    let secrets = AnnouncementSecrets { key: secret(7), ephemeral: secret(8), roster: secret(9) };
    let id = group_id(&founder.public(), GROUP);
    let mut bytes = announcement::encode(&founder, &id, &content, &secrets);
    let sealed = |names: &[&str]| {
        let mut text = Vec::new();
        for name in names {
            text.put_text(name);
        }
        crypto::seal(&announcement::names_key(&secrets.key, 5), &text)
    };
    let old = sealed(&members.iter().map(|member| member.1).collect::<Vec<_>>());
    let at = bytes.windows(old.len()).position(|it| it == old).unwrap();
    bytes[at..at + old.len()].copy_from_slice(&sealed(seen));
    let end = bytes.len() - 64;
    let signature = founder.sign(&announcement::signed(2, &id, &bytes[..end]));
    bytes[end..].copy_from_slice(&signature);
    EpochAnnouncement::verify(&bytes, GROUP, &founder.public())
}

#[test]
fn an_administrator_that_is_no_member_is_refused() {
    let [alice, bob] = [1, 2].map(|byte| IdentitySecretKey::new(&[byte; 32]));
    let mut list = AdministratorList::founded(alice.public(), GROUP);
    list.add(&alice, bob.public()).unwrap();
    let both = [(&alice, "alice"), (&bob, "bob")];
    assert!(forge(&list, &both, &["alice", "bob"]).is_ok());
    let hidden = forge(&list, &both[..1], &["alice"]);
    assert_eq!(hidden.err(), Some(EpochAnnouncementError::Malformed));
}

#[test]
fn the_roster_has_the_names_that_members_see() {
    let [alice, bob] = [1, 2].map(|byte| IdentitySecretKey::new(&[byte; 32]));
    let list = AdministratorList::founded(alice.public(), GROUP);
    let both = [(&alice, "alice"), (&bob, "bob")];
    for (seen, is_same) in [("bob", true), ("eve", false)] {
        let announcement = forge(&list, &both, &["alice", seen]).unwrap();
        let opened = announcement.open(&alice, &[prekey(1, 5)]).unwrap();
        assert_eq!(names(&opened), ["alice", seen]);
        assert_eq!(announcement.has_names(&alice, opened.names.iter()), is_same);
    }
}

/// The proxy can repeat what a member has asked as an administrator, also after it was made one
/// again.
#[test]
fn a_wish_to_step_down_counts_until_the_member_is_an_administrator_again() {
    let (mut story, [bob, _], mut other) = with_two();
    let list = |of: &Administrator| *of.newest_list().digest();
    let prekey = prekey(2, 9).public();
    let asked = MemberNotice::StepDown { prekey, opened: 2, list: list(&other) };
    // It still counts after another change of the list.
    other.add_administrator(&name("carol")).unwrap();
    let newest = announce_by(&mut story, &mut other);
    story.administrator.adopt(story.now, &newest).unwrap();
    story.deliver_notice(&bob, asked);
    assert!(!story.announce().administrators().contains(&bob.identity.public()));
    story.administrator.add_administrator(&name("bob")).unwrap();
    assert!(story.announce().administrators().contains(&bob.identity.public()));
    story.deliver_notice(&bob, asked);
    assert!(!story.is_due(), "it was asked before");
    // Asked again, it counts.
    let again = MemberNotice::StepDown { prekey, opened: 2, list: list(&story.administrator) };
    story.deliver_notice(&bob, again);
    assert!(!story.announce().administrators().contains(&bob.identity.public()));
}

/// What is said of an announcement before it is verified is what is found afterwards.
#[test]
fn a_preview_says_what_the_announcement_says() {
    let (mut story, [bob, carol], mut other) = with_two();
    let mut all = vec![story.announce(), announce_by(&mut story, &mut other)];
    other.add_administrator(&name("carol")).unwrap();
    all.push(announce_by(&mut story, &mut other));
    story.administrator.remove(&name("carol")).unwrap();
    all.extend([story.announce(), story.announce()]);
    story.administrator.remove_administrator(&name("bob")).unwrap();
    all.push(story.announce());
    for one in &all {
        let preview = AnnouncementPreview::read(one.bytes()).unwrap();
        assert_eq!(preview.members(), one.members().len());
        for key in [&story.identity, &bob.identity, &carol.identity].map(IdentitySecretKey::public)
        {
            assert_eq!(preview.lists(&key), one.lists(&key));
        }
        for other in &all {
            assert_eq!(preview.order(other), one.order(other));
            let verified = EpochAnnouncement::verify_after(
                Some(other),
                one.bytes(),
                GROUP,
                &story.identity.public(),
            );
            assert_eq!(verified.unwrap().digest(), one.digest());
        }
    }
    // Signatures of changes that are not known are verified.
    let mut forged = all[2].bytes().to_vec();
    forged[38 + 98 + 60] ^= 1;
    let forged =
        EpochAnnouncement::verify_after(Some(&all[0]), &forged, GROUP, &story.identity.public());
    assert_eq!(forged.err(), Some(EpochAnnouncementError::Signature));
}
