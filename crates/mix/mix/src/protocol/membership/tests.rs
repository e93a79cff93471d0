//! Whole scenarios of membership, and attacks by the proxy, outsiders and former members.

mod administrators;

use std::sync::Arc;
use std::time::Duration;

use encoding::FieldWrite as _;
use keys::IdentitySecretKey;
use proptest::prelude::*;
use zeroize::Zeroizing;

use super::announcement::{AnnouncementContent, AnnouncementSecrets};
use super::roster::{AdmittedMember, RemovedMember, Roster, UsedInvitation};
use super::*;
use crate::MailboxShape;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::random::ForwardSecureRng;
use crate::protocol::wire::MixTerms;

const GROUP: &str = "friends";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// When the tests begin.
const START: Duration = Duration::from_secs(1_794_960_000);

fn name(text: &str) -> MemberName {
    MemberName::new(text).unwrap()
}

fn prekey(number: u64, byte: u8) -> PrekeySecret {
    PrekeySecret::new(number, Zeroizing::new([byte; 32]))
}

/// A group's administrator, alice, and the time.
struct Story {
    administrator: Administrator,
    identity: Arc<IdentitySecretKey>,
    now: Duration,
    random: ForwardSecureRng,
    max_members: usize,
    /// The epoch that was announced last.
    last_epoch: u32,
}

/// A person other than the administrator.
struct Person {
    identity: IdentitySecretKey,
    prekeys: Vec<PrekeySecret>,
}

impl Person {
    fn new(byte: u8) -> Self {
        Self { identity: IdentitySecretKey::new(&[byte; 32]), prekeys: vec![prekey(1, byte)] }
    }

    fn request(&self, invitation: &Invitation, named: &str) -> Vec<u8> {
        let request =
            JoinRequest { name: name(named), prekey: self.prekeys[0].public(), salt: [3; 16] };
        request.encode(&self.identity, invitation)
    }

    fn notice(&self, notice: MemberNotice, story: &Story) -> Vec<u8> {
        notice.encode(&self.identity, &story.identity.public(), GROUP)
    }
}

impl Story {
    fn new() -> Self {
        let identity = Arc::new(IdentitySecretKey::new(&[1; 32]));
        let at = GroupAddress {
            proxy_address: "127.0.0.1:4711".to_owned(),
            proxy: IdentitySecretKey::new(&[99; 32]).public(),
            group: GROUP.parse().unwrap(),
            administrator: identity.public(),
        };
        let own = prekey(1, 50).public();
        Self {
            administrator: Administrator::found(Arc::clone(&identity), at, name("alice"), own),
            identity,
            now: START,
            random: ForwardSecureRng::new([8; 32]),
            max_members: 4,
            last_epoch: 0,
        }
    }

    fn invite(&mut self, named: &str) -> Invitation {
        self.invite_with(named, NameBinding::Any)
    }

    fn invite_with(&mut self, named: &str, binding: NameBinding) -> Invitation {
        let expires = self.now + DAY;
        let secret = self.random.draw();
        let invited = self.administrator.invite(self.now, name(named), binding, expires, secret);
        Invitation::parse(&invited.unwrap().code()).unwrap()
    }

    fn ask(&mut self, person: &Person, request: &[u8]) -> Result<(), JoinRefusal> {
        let client = person.identity.public();
        let decision =
            self.administrator.handle_join_request(self.now, self.max_members, &client, request);
        // A request for another administrator is not answered.
        let Some(decision) = decision else { return Err(JoinRefusal::Unknown) };
        let administrator = self.identity.public();
        let salt = request.get(40..56).map_or([0; 16], |salt| salt.try_into().unwrap());
        let id = group_id(&administrator, GROUP);
        let outcome = decode_answer(&decision.answer, &administrator, &id, &client, &salt);
        assert_eq!(outcome, Some(decision.outcome));
        decision.outcome
    }

    fn admit(&mut self, person: &Person, named: &str) -> Result<(), JoinRefusal> {
        let invitation = self.invite("somebody-else");
        self.ask(person, &person.request(&invitation, named))
    }

    /// The administrator is started from its stored state.
    fn restore(&mut self, stored: &[u8]) {
        let (identity, at) = (Arc::clone(&self.identity), self.administrator.group().clone());
        self.administrator = Administrator::from_bytes(identity, &at, stored).unwrap();
    }

    /// The next epoch, when it is due. The proxy takes it.
    fn announce(&mut self) -> EpochAnnouncement {
        self.now = self.now.max(self.administrator.poll_timeout().unwrap());
        let bytes = self.administrator.handle_timeout(self.now, &mut self.random).unwrap();
        let announcement =
            EpochAnnouncement::verify(bytes, GROUP, &self.identity.public()).unwrap();
        self.last_epoch = announcement.epoch();
        let adopted = self.administrator.adopt(self.now, &announcement).unwrap();
        assert_eq!(adopted.dropped_changes, 0);
        announcement
    }

    fn deliver_notice(&mut self, person: &Person, notice: MemberNotice) -> Option<MemberName> {
        let bytes = person.notice(notice, self);
        self.administrator.handle_notice(&person.identity.public(), &bytes)
    }

    fn is_due(&self) -> bool {
        self.administrator.poll_timeout().unwrap() < self.now + DAY / 2
    }
}

fn names(opened: &OpenedAnnouncement) -> Vec<&str> {
    opened.names.iter().map(MemberName::as_str).collect()
}

#[test]
fn an_invitation_can_be_bound_to_its_name_and_a_name_does_not_mix_scripts() {
    let (mut story, bob) = (Story::new(), Person::new(2));
    let invitation = story.invite_with("bob", NameBinding::Invited);
    for other in ["bobby", "Bob"] {
        let asked = story.ask(&bob, &bob.request(&invitation, other));
        assert_eq!(asked, Err(JoinRefusal::OtherName));
    }
    // The binding is stored, and the invitation is not used up by another name.
    let stored = story.administrator.to_bytes();
    story.restore(&stored);
    assert_eq!(story.ask(&bob, &bob.request(&invitation, "bobby")), Err(JoinRefusal::OtherName));
    let (key, request) = (bob.identity.public(), bob.request(&invitation, "bob"));
    let decision = story.administrator.handle_join_request(story.now, 4, &key, &request).unwrap();
    assert_eq!((decision.invited, decision.outcome), (Some(name("bob")), Ok(())));
    // A client of its own could ask for a name with a Cyrillic letter.
    let carol = Person::new(3);
    let free = story.invite("carol");
    let asked = story.ask(&carol, &carol.request(&free, "c\u{430}rol"));
    assert_eq!(asked, Err(JoinRefusal::Malformed));
    let secret = story.random.draw();
    let mixed = name("c\u{430}rol");
    let invited =
        story.administrator.invite(story.now, mixed, NameBinding::Any, DAY + story.now, secret);
    assert!(matches!(invited, Err(InviteMemberError::Name(_))));
}

#[test]
fn an_invited_person_becomes_a_member() {
    let (mut story, bob) = (Story::new(), Person::new(2));
    let alone = story.announce();
    assert_eq!((alone.epoch(), alone.members().len()), (1, 1));
    assert_eq!(
        alone.open(&bob.identity, &bob.prekeys).err(),
        Some(OpenAnnouncementError::NotAMember)
    );
    let invitation = story.invite("bob");
    assert_eq!((invitation.name(), invitation.expires()), (&name("bob"), START + DAY));
    assert_eq!(story.ask(&bob, &bob.request(&invitation, "bob")), Ok(()));
    assert!(story.administrator.handle_timeout(story.now, &mut story.random).is_none());
    let both = story.announce();
    assert_eq!((both.epoch(), both.index_of(&bob.identity.public())), (2, Some(1)));
    let by_bob = both.open(&bob.identity, &bob.prekeys).unwrap();
    let by_alice = both.open(&story.identity, &[prekey(1, 50)]).unwrap();
    assert_eq!(names(&by_bob), ["alice", "bob"]);
    assert_eq!(*by_bob.key, *by_alice.key);
    assert_ne!(*by_bob.key, *alone.open(&story.identity, &[prekey(1, 50)]).unwrap().key);
}

#[test]
fn each_refusal_has_its_reason() {
    let mut story = Story::new();
    let [bob, carol, dave, eve] = [2, 3, 4, 5].map(Person::new);
    let invitation = story.invite("bob");
    let of_bob = bob.request(&invitation, "bob");
    assert_eq!(story.ask(&bob, &of_bob[..20]), Err(JoinRefusal::Unknown));
    assert_eq!(story.ask(&bob, &of_bob), Ok(()));
    // The answer was lost, and the client asks again.
    assert_eq!(story.ask(&bob, &of_bob), Ok(()));
    assert_eq!(story.ask(&carol, &carol.request(&invitation, "carol")), Err(JoinRefusal::Used));
    let invitation = story.invite("carol");
    for taken in ["Bob", "b0b", "ALICE"] {
        let request = carol.request(&invitation, taken);
        assert_eq!(story.ask(&carol, &request), Err(JoinRefusal::NameTaken));
    }
    // A refused invitation is not used up, but expires.
    story.now += DAY;
    let late = story.ask(&carol, &carol.request(&invitation, "carol"));
    assert_eq!(late, Err(JoinRefusal::Expired));
    assert_eq!(story.admit(&carol, "carol"), Ok(()));
    assert_eq!(story.admit(&dave, "dave"), Ok(()));
    assert_eq!(story.admit(&eve, "eve"), Err(JoinRefusal::GroupFull));
    // Of another administrator, and with an identifier that this one has not drawn.
    let mut others = Story::new();
    let other = (0..10).map(|_| others.invite("eve")).last().unwrap();
    assert_eq!(story.ask(&eve, &eve.request(&other, "eve")), Err(JoinRefusal::Unknown));
    assert_eq!(story.announce().members().len(), 4);
}

#[test]
fn invitations_that_nobody_could_use_are_not_made() {
    let mut story = Story::new();
    let invite = |story: &mut Story, named| {
        let (now, secret) = (story.now, story.random.draw());
        story
            .administrator
            .invite(now, name(named), NameBinding::Any, now + DAY, secret)
            .map(|_| ())
    };
    assert_eq!(invite(&mut story, "Alice"), Err(InviteMemberError::NameTaken));
    for _ in 0..1024 {
        invite(&mut story, "bob").unwrap();
    }
    assert_eq!(invite(&mut story, "bob"), Err(InviteMemberError::TooMany));
    story.now += DAY;
    assert_eq!(invite(&mut story, "bob"), Ok(()));
}

#[test]
fn nobody_can_use_the_request_of_another_or_change_it() {
    let (mut story, bob, eve) = (Story::new(), Person::new(2), Person::new(3));
    let invitation = story.invite("bob");
    let request = bob.request(&invitation, "bob");
    assert_eq!(story.ask(&eve, &request), Err(JoinRefusal::Unknown));
    for at in (0..request.len()).filter(|at| !(40..56).contains(at)) {
        let mut changed = request.clone();
        changed[at] ^= 4;
        assert_eq!(story.ask(&bob, &changed), Err(JoinRefusal::Unknown), "byte {at}");
    }
    // The name is not visible to the proxy.
    assert!(!request.windows(3).any(|bytes| bytes == b"bob"));
    assert_eq!(story.ask(&bob, &request), Ok(()));
}

#[test]
fn an_announcement_is_signed_and_bound_to_its_group() {
    let (mut story, bob) = (Story::new(), Person::new(2));
    story.admit(&bob, "bob").unwrap();
    let bytes = story.announce().bytes().to_vec();
    let administrator = story.identity.public();
    assert!(!bytes.windows(3).any(|bytes| bytes == b"bob"));
    let verify = |bytes: &[u8], group, key| EpochAnnouncement::verify(bytes, group, key).err();
    assert_eq!(verify(&bytes, GROUP, &administrator), None);
    assert_eq!(verify(&bytes, "others", &administrator), Some(EpochAnnouncementError::Signature));
    let bob_key = bob.identity.public();
    let by_bob = verify(&bytes, GROUP, &bob_key);
    assert_eq!(by_bob, Some(EpochAnnouncementError::Signature));
    for at in 0..bytes.len() {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        assert_eq!(
            verify(&changed, GROUP, &administrator),
            Some(EpochAnnouncementError::Signature)
        );
    }
    assert_eq!(
        verify(&bytes[..63], GROUP, &administrator),
        Some(EpochAnnouncementError::Malformed)
    );
}

#[test]
fn former_members_get_no_epoch_key() {
    let mut story = Story::new();
    let [bob, carol] = [2, 3].map(Person::new);
    story.admit(&bob, "bob").unwrap();
    story.admit(&carol, "carol").unwrap();
    let before = story.announce();
    assert!(before.open(&bob.identity, &bob.prekeys).is_ok());
    let leave = MemberNotice::Leave { number: 2 };
    // Another member cannot say it for bob.
    let forged = carol.notice(leave, &story);
    assert_eq!(story.administrator.handle_notice(&bob.identity.public(), &forged), None);
    assert_eq!(story.deliver_notice(&bob, leave), Some(name("bob")));
    assert!(story.is_due());
    let after = story.announce();
    assert_eq!(
        after.open(&bob.identity, &bob.prekeys).err(),
        Some(OpenAnnouncementError::NotAMember)
    );
    assert!(after.open(&carol.identity, &carol.prekeys).is_ok());
    assert_eq!(story.administrator.remove(&name("bob")), Err(RemoveMemberError::Unknown));
    assert_eq!(story.administrator.remove(&name("alice")), Err(RemoveMemberError::Administrator));
    assert_eq!(story.administrator.remove(&name("carol")), Ok(()));
    assert_eq!(story.announce().members().len(), 1);
    // Bob joins again, and a copy of his old notice changes nothing.
    let again = Person { identity: bob.identity, prekeys: vec![prekey(3, 7)] };
    story.admit(&again, "bob").unwrap();
    assert_eq!(story.deliver_notice(&again, leave), None);
    assert_eq!(story.announce().members().len(), 2);
}

#[test]
fn an_epoch_lasts_a_day_and_has_its_own_prekeys() {
    let (mut story, mut bob) = (Story::new(), Person::new(2));
    story.admit(&bob, "bob").unwrap();
    let first = story.announce();
    assert!(!story.is_due());
    bob.prekeys = vec![prekey(2, 20)];
    let next = MemberNotice::Prekey { prekey: bob.prekeys[0].public(), opened: 1 };
    assert_eq!(story.deliver_notice(&bob, next), None);
    assert!(!story.is_due());
    let began = story.now;
    let second = story.announce();
    assert_eq!(story.now, began + DAY);
    assert!(second.open(&bob.identity, &bob.prekeys).is_ok());
    // The keys that bob still has do not open the recorded announcement.
    assert_eq!(first.open(&bob.identity, &bob.prekeys).err(), Some(OpenAnnouncementError::Prekey));
    for (announcement, byte) in [(&first, 20), (&second, 2)] {
        let number = announcement.prekey_of(&bob.identity.public()).unwrap();
        let opened = announcement.open(&bob.identity, &[prekey(number, byte)]);
        assert_eq!(opened.err(), Some(OpenAnnouncementError::Damaged));
    }
    // Nor do the other member's keys, or those of the epochs after.
    let carol = Person::new(3);
    assert_eq!(
        first.open(&carol.identity, &bob.prekeys).err(),
        Some(OpenAnnouncementError::NotAMember)
    );
}

#[test]
fn a_prekey_that_crosses_an_announcement_leads_to_another_epoch() {
    let (mut story, mut bob) = (Story::new(), Person::new(2));
    story.admit(&bob, "bob").unwrap();
    assert!(story.announce().open(&bob.identity, &bob.prekeys).is_ok());
    bob.prekeys = vec![prekey(2, 20)];
    let next = MemberNotice::Prekey { prekey: bob.prekeys[0].public(), opened: 1 };
    story.admit(&Person::new(3), "carol").unwrap();
    let crossed = story.announce();
    assert_eq!(
        crossed.open(&bob.identity, &bob.prekeys).err(),
        Some(OpenAnnouncementError::Prekey)
    );
    story.deliver_notice(&bob, next);
    assert!(story.is_due());
    assert!(story.announce().open(&bob.identity, &bob.prekeys).is_ok());
    // The same notice again, or an older one, changes nothing.
    story.deliver_notice(&bob, next);
    story.deliver_notice(&bob, MemberNotice::Prekey { prekey: prekey(1, 9).public(), opened: 0 });
    assert!(!story.is_due());
    assert!(story.announce().open(&bob.identity, &bob.prekeys).is_ok());
}

/// The notice arrives when the epoch is made, and before the proxy has taken it.
#[test]
fn a_prekey_that_crosses_a_proposal_leads_to_another_epoch() {
    let (mut story, mut bob) = (Story::new(), Person::new(2));
    story.admit(&bob, "bob").unwrap();
    story.announce();
    story.admit(&Person::new(3), "carol").unwrap();
    story.now = story.administrator.poll_timeout().unwrap();
    let made = story.administrator.handle_timeout(story.now, &mut story.random).unwrap().to_vec();
    bob.prekeys = vec![prekey(2, 20)];
    let next = MemberNotice::Prekey { prekey: bob.prekeys[0].public(), opened: 1 };
    story.deliver_notice(&bob, next);
    let made = EpochAnnouncement::verify(&made, GROUP, &story.identity.public()).unwrap();
    story.administrator.adopt(story.now, &made).unwrap();
    assert!(made.open(&bob.identity, &bob.prekeys).is_err() && story.is_due());
    assert!(story.announce().open(&bob.identity, &bob.prekeys).is_ok());
    assert!(!story.is_due());
}

/// As where notices take longer than the shortest epoch.
#[test]
fn epochs_that_cross_notices_back_off() {
    let (mut story, bob) = (Story::new(), Person::new(2));
    story.admit(&bob, "bob").unwrap();
    story.announce();
    let mut waits = Vec::new();
    for number in 2..12 {
        let opened = story.last_epoch - 1;
        story.deliver_notice(
            &bob,
            MemberNotice::Prekey { prekey: prekey(number, 20).public(), opened },
        );
        let before = story.now;
        story.announce();
        waits.push(story.now.abs_diff(before).as_secs());
    }
    assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 128, 128, 128]);
    // Joining clients do not wait for this backoff, and it ends after an epoch that all have
    // opened.
    story.max_members = 9;
    for (byte, expected) in [(3, 2), (4, 2)] {
        story.admit(&Person::new(byte), ["carol", "dave"][usize::from(byte) - 3]).unwrap();
        let before = story.now;
        story.announce();
        assert_eq!(story.now.abs_diff(before).as_secs(), expected);
    }
    let opened = story.last_epoch - 1;
    story.deliver_notice(&bob, MemberNotice::Prekey { prekey: prekey(12, 20).public(), opened });
    let before = story.now;
    story.announce();
    assert_eq!(story.now.abs_diff(before).as_secs(), 2);
}

#[test]
fn the_administrator_is_restored_from_its_stored_state() {
    let (mut story, bob, carol) = (Story::new(), Person::new(2), Person::new(3));
    let invitation = story.invite("carol");
    story.admit(&bob, "bob").unwrap();
    story.announce();
    let stored = story.administrator.to_bytes();
    story.restore(&stored);
    assert_eq!(story.administrator.to_bytes(), stored);
    assert_eq!(story.ask(&carol, &carol.request(&invitation, "carol")), Ok(()));
    // A proposal that the proxy may not have received is made once.
    story.now = story.administrator.poll_timeout().unwrap();
    let proposal = story.administrator.handle_timeout(story.now, &mut story.random);
    let proposal = proposal.unwrap().to_vec();
    assert_eq!(story.administrator.poll_timeout(), None);
    story.restore(&story.administrator.to_bytes());
    assert_eq!(story.administrator.proposal(), Some(&proposal[..]));
    let next = EpochAnnouncement::verify(&proposal, GROUP, &story.identity.public()).unwrap();
    assert_eq!((next.epoch(), next.members().len()), (2, 3));
    let damaged = &stored[..stored.len() - 1];
    let at = story.administrator.group().clone();
    assert!(Administrator::from_bytes(Arc::clone(&story.identity), &at, damaged).is_none());
}

#[test]
fn the_largest_request_and_announcement_have_the_stated_lengths() {
    let longest = String::from_iter(['\u{20000}'; 32]);
    let (mut story, bob) = (Story::new(), Person::new(2));
    story.max_members = 2;
    let invitation = story.invite("somebody");
    let request = bob.request(&invitation, &longest);
    assert_eq!(request.len(), MAX_JOIN_REQUEST_LEN);
    story.admit(&bob, "bob").unwrap();
    assert_eq!(story.admit(&Person::new(3), "carol"), Err(JoinRefusal::GroupFull));

    let key = |number: u32| {
        let mut seed = [0; 32];
        seed[..4].copy_from_slice(&number.to_be_bytes());
        IdentitySecretKey::new(&seed)
    };
    let (founder, prekey) = (key(1), prekey(1, 2).public());
    let mut administrators = AdministratorList::founded(founder.public(), GROUP);
    (2..=15).for_each(|number| administrators.add(&founder, key(number).public()).unwrap());
    while administrators.add(&founder, key(16).public()).is_ok() {
        administrators.remove(&founder, key(16).public()).unwrap();
    }
    (2..=15).for_each(|number| administrators.remove(&founder, key(number).public()).unwrap());
    let admitted =
        |number| AdmittedMember { key: key(number).public(), name: name(&longest), prekey };
    let members = (1..=1024).map(admitted).collect();
    let used = vec![UsedInvitation { id: [3; 8], expires: 4 }; 1024];
    let removed = vec![RemovedMember { key: key(3).public(), times: 5 }; 64];
    let roster = Roster { members, used, removed };
    let content = AnnouncementContent {
        administrators: &administrators,
        proxy: &ProxyAddress { address: "a".repeat(MAX_ADDRESS_LEN), key: key(9).public() },
        epoch: 5,
        previous: [6; 32],
        roster: &roster,
    };
    let secrets = AnnouncementSecrets {
        key: story.random.draw(),
        ephemeral: story.random.draw(),
        roster: story.random.draw(),
    };
    let id = group_id(&founder.public(), GROUP);
    let bytes = announcement::encode(&founder, &id, &content, &secrets);
    // After 64 changes there is one administrator.
    assert_eq!(bytes.len(), MAX_ANNOUNCEMENT_LEN - 15 * 48);
    let read = EpochAnnouncement::verify(&bytes, GROUP, &founder.public()).unwrap();
    assert_eq!(read.open_roster(&founder).as_ref(), Some(&roster));
    assert_eq!(read.open_roster(&key(15)), None, "no administrator");
}

#[test]
fn the_terms_of_a_group_allow_its_announcements() {
    for members in [2, 16, 1024] {
        let shape = MailboxShape::new(members, 1, 1, 3, 64).unwrap();
        let second = Duration::from_secs(1);
        let terms = MixTerms::new(MixExchangeKind::Broadcast, shape, second, second).unwrap();
        assert!(terms.max_announcement_len() >= announcement::max_announcement_len(members));
    }
}

proptest! {
    #[test]
    fn no_bytes_disturb_the_administrator(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (mut story, bob) = (Story::new(), Person::new(2));
        story.admit(&bob, "bob").unwrap();
        let before = story.administrator.to_bytes();
        prop_assert_eq!(story.ask(&bob, &bytes).is_err(), true);
        prop_assert_eq!(story.administrator.handle_notice(&bob.identity.public(), &bytes), None);
        prop_assert_eq!(&before, &story.administrator.to_bytes());
        let at = story.administrator.group().clone();
        let _ = Administrator::from_bytes(Arc::clone(&story.identity), &at, &bytes);
        let _ = Administrator::from_bytes_before(Arc::clone(&story.identity), &bytes);
    }
}
