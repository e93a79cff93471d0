//! A proxy that states other terms than the members have agreed to: another kind of exchange,
//! rounds that are kept, or a mailbox that costs too much.

use std::sync::Arc;
use std::time::Duration;

use super::exchanges::{
    BROADCAST, EXCHANGES, Exchanges, KEPT, OBLIVIOUS, SINCE_1970, SLOT_LEN, settings_with,
};
use super::person::{NAMES, group, secret};
use super::world::{Sight, World};
use crate::MailboxShape;
use crate::protocol::client::{AcceptableTerms, MixClient, MixClientError, MixClientSettings};
use crate::protocol::cost::MemberCost;
use crate::protocol::event::MixClientEvent;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::{Invitation, MemberName};
use crate::protocol::wire::{MembershipStatus, MixHello, MixTerms, ProxyToMember};
use crate::proxy::GroupProfile;

const ALICE: usize = 0;
const BOB: usize = 1;
const CAROL: usize = 2;
const NOW: Duration = Duration::ZERO;

fn terms(exchange: Exchanges) -> MixTerms {
    settings_with(exchange, SLOT_LEN).terms
}

/// A greeting of a proxy that knows nothing of a client, or of a group.
fn welcome(terms: MixTerms, status: MembershipStatus) -> Vec<u8> {
    ProxyToMember::Welcome { terms, status, epoch: 0, round: 0, is_restored: false }.encode()
}

fn client(
    terms: AcceptableTerms,
    invitation: Option<Invitation>,
    stored: Option<&[u8]>,
) -> MixClient {
    let settings = MixClientSettings {
        group: group(),
        founds: false,
        name: MemberName::new("dora").unwrap(),
        invitation,
        least_participants: 2,
        terms,
        now: NOW,
        since_1970: SINCE_1970,
    };
    MixClient::new(settings, Arc::new(secret(7)), stored, [3; 32]).unwrap()
}

/// Has a new connection of a client greeted with these terms.
fn greet(client: &mut MixClient, terms: MixTerms) -> Result<(), MixClientError> {
    client.handle_disconnected(NOW);
    client.begin_connection();
    client.handle_connected(NOW);
    assert_eq!(client.poll_transmit(NOW), Some(hello()));
    let handled = client.handle_message(NOW, &welcome(terms, MembershipStatus::Unknown));
    if handled.is_err() {
        assert_eq!(client.poll_transmit(NOW), None);
    }
    handled
}

fn hello() -> Vec<u8> {
    MixHello { group: group().group }.encode()
}

fn other_kind(exchange: Exchanges) -> MixClientError {
    let (offered, agreed) = (OBLIVIOUS.kind, exchange.kind);
    MixClientError::OtherExchange { offered, agreed }
}

fn count(world: &World, person: usize, error: &MixClientError) -> usize {
    world.errors.iter().filter(|(of, found)| *of == person && found == error).count()
}

/// Changes the proxy's exchanges, in a restart.
fn change(world: &mut World, exchange: Exchanges) {
    world.exchange = exchange;
    world.stop_proxy();
}

#[test]
fn a_proxy_that_offers_oblivious_exchanges_to_a_broadcast_group_is_refused() {
    for exchange in [BROADCAST, KEPT] {
        let mut world = World::of_members(exchange, 51);
        assert!(world.people[BOB].say("carol", ""));
        change(&mut world, OBLIVIOUS);
        world.seen.clear();
        let refused = other_kind(exchange);
        world.run_until("all refuse it", |world| {
            (ALICE..=CAROL).all(|person| count(world, person, &refused) > 1)
        });
        // The same after a restart from what is stored.
        world.run_until("it is stored", |world| world.people[BOB].client.is_stored());
        world.restart(BOB);
        let before = count(&world, BOB, &refused);
        world.run_until("bob refuses it again", |world| count(world, BOB, &refused) > before + 1);
        let is_greeting = |what: &Sight| match what {
            Sight::Message(len) => *len == hello().len(),
            Sight::Begin | Sight::End => true,
        };
        assert!(world.seen.iter().all(|seen| is_greeting(&seen.what)), "{:?}", world.seen);
        let line = refused.to_string();
        assert!(line.contains("set engine = \"ot\"") && !line.contains('\n'), "{line}");
        assert!(!refused.is_final());
        // Nothing is lost.
        change(&mut world, exchange);
        world.run_until("all are back", World::all_take_part);
        world.finish();
        world.check_all_read();
    }
}

#[test]
fn members_agree_to_another_kind_if_their_configuration_says_so() {
    let mut world = World::of_members(BROADCAST, 52);
    for (number, person) in world.people.iter_mut().enumerate() {
        assert!(person.say(NAMES[(number + 1) % 3], ""));
        person.terms.exchange = Some(OBLIVIOUS.kind);
    }
    change(&mut world, OBLIVIOUS);
    (ALICE..=CAROL).for_each(|person| world.restart(person));
    world.run_until("all take part", World::all_take_part);
    world.finish();
    // They have agreed. A broadcast is always accepted, and does not change that.
    for exchange in [OBLIVIOUS, BROADCAST, OBLIVIOUS] {
        world.run_until("all is stored", |world| {
            world.people.iter().all(|person| person.client.is_stored())
        });
        change(&mut world, exchange);
        for person in ALICE..=CAROL {
            world.people[person].terms.exchange = None;
            world.restart(person);
        }
        world.run_until("all take part", World::all_take_part);
    }
}

#[test]
fn a_new_client_expects_the_exchanges_of_its_invitation() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 53);
        let code = world.invite("dora", Duration::from_secs(60)).code();
        let mut invited =
            client(AcceptableTerms::default(), Some(Invitation::parse(&code).unwrap()), None);
        let is_oblivious = exchange == OBLIVIOUS;
        let expected = if is_oblivious { Ok(()) } else { Err(other_kind(exchange)) };
        assert_eq!(greet(&mut invited, terms(OBLIVIOUS)), expected);
        assert_eq!(greet(&mut invited, terms(exchange)), Ok(()));
    }
}

/// A state of a version before agrees to the first terms that it is offered, and to no others.
#[test]
fn a_state_of_a_version_before_agrees_to_the_next_terms() {
    let state = client(AcceptableTerms::default(), None, None).stored();
    // Without branches that were left, an address, and the terms, in this order.
    let len = state.len() - 2 - 1 - 1;
    assert_eq!(state[len..], [0, 0, 1 + MixExchangeKind::Broadcast.number(), 0]);
    let before = [&[4][..], &state[1..len]].concat();
    for (first, other) in [(OBLIVIOUS, None), (BROADCAST, Some(OBLIVIOUS))] {
        let mut old = client(AcceptableTerms::default(), None, Some(&before));
        assert_eq!(old.stored()[0], 4, "there is nothing new to write");
        // It is no member, but the terms are its own.
        assert_eq!(greet(&mut old, terms(first)), Err(MixClientError::NotAMember));
        let state = old.stored();
        let mut new = client(AcceptableTerms::default(), None, Some(&state));
        let offered = other.unwrap_or(first);
        let expected = other.map_or(MixClientError::NotAMember, |_| other_kind(first));
        assert_eq!(greet(&mut new, terms(offered)), Err(expected));
    }
}

#[test]
fn a_proxy_that_begins_to_keep_rounds_does_not_change_who_is_counted() {
    for is_allowed in [false, true] {
        let mut world = World::of_members(BROADCAST, 54);
        for person in [ALICE, CAROL] {
            world.run_until("it is stored", |world| world.people[person].client.is_stored());
        }
        if is_allowed {
            world.people[BOB].terms.rounds_kept = Some(true);
            world.run_until("it is stored", |world| world.people[BOB].client.is_stored());
            world.restart(BOB);
        }
        change(&mut world, KEPT);
        world.run_until("all take part, with these terms", |world| {
            let links = || world.people.iter().map(|it| it.client.link.as_ref());
            links().all(|link| link.is_some_and(|link| !link.terms().keep().is_zero()))
                && world.all_take_part()
        });
        // A second connection does not report it again.
        world.cut_of(BOB);
        world.leave(ALICE);
        world.leave(CAROL);
        world.run_until("bob is alone", |world| world.people[BOB].status().anonymity_set == 1);
        let bob = &mut world.people[BOB];
        assert_eq!(bob.status().can_send, is_allowed);
        assert_eq!(bob.say("carol", ""), is_allowed);
        let reports = bob.reported.iter().filter(|it| **it == MixClientEvent::RoundsKept).count();
        assert_eq!(reports, usize::from(!is_allowed));
    }
}

/// Whatever its terms say, for example if it makes rounds faster.
#[test]
fn a_member_takes_no_more_bytes_in_a_day_than_its_user_accepts() {
    for exchange in EXCHANGES {
        let mut world = World::of_members(exchange, 55);
        let client = &mut world.people[BOB].client;
        let today = client.status().bytes_today;
        let most = today.sent + today.received + 10_000;
        client.settings.terms.max_bytes_per_day = most;
        let refused = MixClientError::TooMuchToday { max_mb_per_day: most / 1_000_000 };
        world.run_until("bob ends it", |world| count(world, BOB, &refused) > 1);
        let today = world.people[BOB].status().bytes_today;
        // The message that was too much, and what has come in further connections.
        assert!((most..most + 10_000).contains(&(today.sent + today.received)), "{today:?}");
        world.people[BOB].client.settings.terms = world.people[ALICE].terms;
        world.run_until("he is back", World::all_take_part);
    }
}

#[test]
fn terms_that_cost_too_much_are_refused() {
    let of = |shape: MailboxShape, least_ms: u64| {
        let (most, least) = (Duration::from_secs(1), Duration::from_millis(least_ms));
        MixTerms::new(MixExchangeKind::Broadcast, shape, most, least).unwrap()
    };
    let small = MailboxShape::new(16, 1, 1, 3, 256).unwrap();
    let large = MailboxShape::new(1024, 16, 16, 3, 4096 - 96).unwrap();
    for costly in [of(small, 1), of(large, 200)] {
        let mut bob = client(AcceptableTerms::default(), None, None);
        let refused = greet(&mut bob, costly).unwrap_err();
        let MixClientError::TooCostly { mb_per_day, max_mb_per_day } = refused else {
            panic!("{refused}");
        };
        assert!(mb_per_day > max_mb_per_day && max_mb_per_day == 200_000, "{refused}");
        let line = refused.to_string();
        assert!(line.contains(&format!("set max_mb_per_day = {mb_per_day} in")), "{line}");
        // What is said is enough, and one less is not.
        for (less, is_accepted) in [(0, true), (1, false)] {
            let max_bytes_per_day = (mb_per_day - less) * 1_000_000;
            let accepted = AcceptableTerms { max_bytes_per_day, ..AcceptableTerms::default() };
            let error = greet(&mut client(accepted, None, None), costly).unwrap_err();
            assert_eq!(error == MixClientError::NotAMember, is_accepted, "{error}");
        }
    }
    // Not so a group of the most members with the default settings.
    for profile in GroupProfile::ALL {
        let terms = profile.terms(1024).unwrap();
        let mut bob = client(AcceptableTerms::default(), None, None);
        let cost = MemberCost::new(&terms, 1024);
        assert_eq!(greet(&mut bob, terms), Err(MixClientError::NotAMember), "{cost}");
    }
}

/// A proxy could state rounds of an hour, or mailboxes that fill a member's memory.
#[test]
fn a_proxy_changes_its_rounds_only_as_far_as_a_member_accepts() {
    let of = |slots: usize, slot_len: usize, ms: [u64; 2]| {
        let shape = MailboxShape::new(16, slots, slots, 3, slot_len).unwrap();
        let [most, least] = ms.map(Duration::from_millis);
        MixTerms::new(MixExchangeKind::Broadcast, shape, most, least).unwrap()
    };
    let messenger = GroupProfile::Messenger.terms(16).unwrap();
    let mut bob = client(AcceptableTerms::default(), None, None);
    assert_eq!(greet(&mut bob, messenger), Err(MixClientError::NotAMember));
    let state = bob.stored();
    let slow = of(1, 256, [3_600_000, 3_000]);
    let large = of(64, 4_096, [4_000, 3_000]);
    let fast = of(1, 256, [4_000, 100]);
    for terms in [slow, large, fast] {
        let mut bob = client(AcceptableTerms::default(), None, Some(&state));
        let refused = greet(&mut bob, terms).unwrap_err();
        let line = refused.to_string();
        let MixClientError::TermsChange(refused) = refused else { panic!("{line}") };
        let change = refused.change;
        assert!(change > refused.max_change && refused.max_change == 20, "{line}");
        assert!(line.contains(&format!("set max_terms_change = {change} in")), "{line}");
        // What is said is enough, and one less is not.
        for (max_change, is_accepted) in [(change, true), (change - 1, false)] {
            let accepted = AcceptableTerms { max_change, ..AcceptableTerms::default() };
            let error = greet(&mut client(accepted, None, Some(&state)), terms).unwrap_err();
            assert_eq!(error == MixClientError::NotAMember, is_accepted, "{error}");
        }
        // A first connection agrees to anything that is not too costly.
        let mut new = client(AcceptableTerms::default(), None, None);
        assert_eq!(greet(&mut new, terms), Err(MixClientError::NotAMember));
    }
    // A group may grow, and change to the next profile, of which the user is told once.
    let profile = |kind: GroupProfile, members| kind.terms(members).unwrap();
    for (terms, is_told) in [
        (messenger, false),
        (profile(GroupProfile::Messenger, 1024), false),
        (profile(GroupProfile::Interactive, 16), true),
        (profile(GroupProfile::Mail, 16), true),
    ] {
        let mut bob = client(AcceptableTerms::default(), None, Some(&state));
        for _ in 0..2 {
            assert_eq!(greet(&mut bob, terms), Err(MixClientError::NotAMember));
        }
        let is_it = |it: &&MixClientEvent| matches!(it, MixClientEvent::TermsChanged { .. });
        assert_eq!(bob.events.iter().filter(is_it).count(), usize::from(is_told));
    }
}
