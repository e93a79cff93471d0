//! A proxy that deviates, to learn whether alice has written to bob or to carol. It watches how the
//! members behave, and guesses. The members refuse what they can notice.
#![allow(clippy::cast_precision_loss, reason = "statistics of small numbers")]

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use super::exchanges::{Exchanges, KEPT, OBLIVIOUS};
use super::person::NAMES;
use super::world::{Seen, World};
use crate::protocol::client::ClientConversations;
use crate::protocol::event::MixClientEvent;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::round::RoundStart;
use crate::protocol::wire::ProxyToMember;

const ALICE: usize = 0;
const BOB: usize = 1;
const CAROL: usize = 2;

/// How long the proxy deviates in a run, and how long it then watches.
const DEVIATES: Duration = Duration::from_secs(2);
const WATCHES: Duration = Duration::from_secs(2);

/// What the proxy does to bob, or to bob and carol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deviation {
    /// It gives the list and, by broadcast, the mailbox of five rounds before.
    OlderMailbox,
    /// It changes what comes from alice.
    DamagedMailbox,
    /// It gives bob a mailbox with other contents than carol.
    OtherMailbox,
    /// It does not tell bob of rounds.
    Withholds,
    /// Bob's messages take 300 ms longer.
    Delays,
    /// It shows bob and carol rounds in which only the other one is missing.
    Splits,
    /// It sends the start of a round again in place of the next one.
    Replays,
    /// It has slots of another length after a restart.
    OtherShape,
    /// It says that bob did not take part.
    LiesAboutParticipants,
    /// It has the other kind of exchange after a restart.
    OtherKind,
}

const DEVIATIONS: [Deviation; 10] = [
    Deviation::OlderMailbox,
    Deviation::DamagedMailbox,
    Deviation::OtherMailbox,
    Deviation::Withholds,
    Deviation::Delays,
    Deviation::Splits,
    Deviation::Replays,
    Deviation::OtherShape,
    Deviation::LiesAboutParticipants,
    Deviation::OtherKind,
];

/// What came of a run.
struct DeviantRun {
    seen: Vec<Seen>,
    /// Exchanges of bob while the proxy deviated until he said that something is wrong.
    noticed: Option<u64>,
    exchanges: u64,
    /// Whether alice's message was read.
    is_read: bool,
}

/// `SUNDER_SEEDS=N` makes as many guesses for each deviation.
#[test]
fn a_deviating_proxy_learns_nothing_from_what_members_do() {
    for exchange in [KEPT, OBLIVIOUS] {
        for deviation in DEVIATIONS {
            guess(exchange, deviation);
        }
    }
}

/// The proxy knows the program and all random numbers, so that it can compute what it would see in
/// each of the two cases. It can guess only if these differ.
fn guess(exchange: Exchanges, deviation: Deviation) {
    let guesses = sim::run_seeds(1, |seed| {
        let [to_bob, to_carol] =
            [BOB, CAROL].map(|receiver| run(exchange, seed, deviation, receiver));
        let differs = to_bob.seen != to_carol.seen;
        let mut rng = fastrand::Rng::with_seed(seed);
        let (is_bob, coin) = (rng.bool(), rng.bool());
        let is_right = differs || coin == is_bob;
        (differs, is_right, to_bob, to_carol)
    });
    let count = guesses.len() as f64;
    let differ = guesses.iter().filter(|it| it.0).count();
    let right = guesses.iter().filter(|it| it.1).count() as f64 / count;
    let half = 1.96 * (right * (1.0 - right) / count).sqrt();
    let exchanges = guesses.iter().map(|it| it.2.exchanges).sum::<u64>() as f64 / count;
    // If a fraction x of runs differed, n equal ones would have the probability (1 - x)^n.
    let bits = (1.0 - 0.01_f64.powf(1.0 / count)) / exchanges.max(1.0);
    let noticed: Vec<u64> = guesses.iter().filter_map(|it| it.2.noticed).collect();
    let mean = noticed.iter().sum::<u64>() as f64 / noticed.len().max(1) as f64;
    let read = guesses.iter().filter(|it| it.2.is_read && it.3.is_read).count();
    println!(
        "{:?} {deviation:?}: {} guesses, right {right:.3} +- {half:.3}, {differ} runs differ, at \
         most {bits:.6} bits in each of {exchanges:.0} exchanges (99 %); noticed in {} runs, after \
         {mean:.1} exchanges; read in {read}",
        exchange.kind,
        guesses.len(),
        noticed.len(),
    );
    assert_eq!(differ, 0, "{exchange:?} {deviation:?}");
    let is_noticeable = matches!(
        deviation,
        Deviation::OlderMailbox
            | Deviation::OtherMailbox
            | Deviation::Replays
            | Deviation::LiesAboutParticipants
    );
    assert!(!is_noticeable || noticed.len() == guesses.len(), "{exchange:?} {deviation:?}");
    if deviation == Deviation::OtherKind && exchange == KEPT {
        // Nobody makes oblivious exchanges in a group of broadcasts.
        assert_eq!(read, 0);
    }
}

fn run(exchange: Exchanges, seed: u64, deviation: Deviation, receiver: usize) -> DeviantRun {
    let mut world = World::of_members(exchange, seed);
    world.people.iter_mut().for_each(|it| it.reported.clear());
    (world.errors, world.seen) = (Vec::new(), Vec::new());
    assert!(world.people[ALICE].say(NAMES[receiver], &" and on".repeat(20)));
    let before = world.people[BOB].client.exchanges();
    let told = Rc::new(Cell::new(0));
    deviate(&mut world, exchange, deviation, told.clone());
    let mut noticed = None;
    let end = world.now + DEVIATES;
    while world.now < end {
        world.tick();
        if noticed.is_none() && has_noticed(&world) {
            noticed = Some(told.get());
        }
    }
    (world.tamper, world.withhold) = (None, None);
    world.delays[BOB] = Duration::ZERO;
    let end = world.now + WATCHES;
    while world.now < end {
        world.tick();
    }
    let exchanges = world.people[BOB].client.exchanges() - before;
    let is_read = !world.people[receiver].shown.is_empty();
    DeviantRun { seen: world.seen, noticed, exchanges, is_read }
}

fn has_noticed(world: &World) -> bool {
    let is_report = |event: &MixClientEvent| {
        matches!(
            event,
            MixClientEvent::NotOfThisRound { .. }
                | MixClientEvent::ChangedByProxy { .. }
                | MixClientEvent::LeftOut { .. }
        )
    };
    world.people[BOB].reported.iter().any(is_report)
        || world.errors.iter().any(|(person, _)| *person == BOB)
}

/// The number of a member in the epoch.
fn number(world: &World, person: usize) -> u16 {
    match &world.people[person].client.conversations {
        ClientConversations::Member(member) => member.epoch().own(),
        ClientConversations::Waiting(_) => panic!("no member"),
    }
}

/// Lets the proxy deviate from now on. `told` counts the rounds that bob is told of.
fn deviate(world: &mut World, exchange: Exchanges, deviation: Deviation, told: Rc<Cell<u64>>) {
    match deviation {
        Deviation::Delays => world.delays[BOB] = Duration::from_millis(300),
        Deviation::OtherShape => {
            world.slot_len = 64;
            world.stop_proxy();
        }
        Deviation::OtherKind => {
            world.exchange = if exchange == KEPT { OBLIVIOUS } else { KEPT };
            world.stop_proxy();
        }
        Deviation::Withholds => {
            let is_it = |person, message: &ProxyToMember| {
                person == BOB && matches!(message, ProxyToMember::Round { .. })
            };
            world.withhold = Some(Box::new(is_it));
        }
        _ => {}
    }
    let [bob, carol] = [BOB, CAROL].map(|person| number(world, person));
    // The slots of a member follow each other in a mailbox.
    let len = world.own_slots_len();
    let is_broadcast = exchange.kind == MixExchangeKind::Broadcast;
    let before: RefCell<Vec<(RoundStart, Vec<u8>)>> = RefCell::default();
    world.tamper = Some(Box::new(move |person, message| {
        let is_oblivious_answer =
            !is_broadcast && person == BOB && deviation == Deviation::DamagedMailbox;
        if let ProxyToMember::Answer { body, .. } = message
            && is_oblivious_answer
        {
            // The second slot that bob has asked for.
            let at = body.len() / 2;
            body[at] ^= 1;
        }
        let ProxyToMember::Round { start, opening } = message else { return };
        if person == BOB {
            told.set(told.get() + 1);
        }
        let remove = |start: &mut RoundStart, opening: &mut Vec<u8>, index: u16| {
            let Some(read) = &mut start.read else { return };
            let Some(at) = read.participants.iter().position(|it| it.member == index) else {
                return;
            };
            read.participants.remove(at);
            if is_broadcast {
                opening.drain(1 + at * len..=(at + 1) * len);
            }
        };
        match deviation {
            Deviation::OlderMailbox if person == BOB => {
                let mut before = before.borrow_mut();
                before.push((start.clone(), opening.clone()));
                if let [.., (old, mailbox), _, _, _, _, _] = &before[..]
                    && let (Some(read), Some(old)) = (&mut start.read, &old.read)
                {
                    read.participants.clone_from(&old.participants);
                    if is_broadcast {
                        opening.clone_from(mailbox);
                    }
                }
            }
            Deviation::DamagedMailbox
                if person == BOB && is_broadcast && start.read.is_some() && opening.len() > len =>
            {
                // Alice, who has founded the group, is the first participant.
                opening[1..=len].iter_mut().for_each(|byte| *byte ^= 0x55);
            }
            Deviation::OtherMailbox if person == BOB => match &mut start.read {
                Some(_) if is_broadcast => {
                    opening[1..].iter_mut().for_each(|byte| *byte = byte.wrapping_mul(7) ^ 0x33);
                }
                Some(read) => read.participants.iter_mut().for_each(|it| it.nonce[0] ^= 1),
                None => {}
            },
            Deviation::Splits if person == BOB => remove(start, opening, carol),
            Deviation::Splits if person == CAROL => remove(start, opening, bob),
            Deviation::LiesAboutParticipants if person == BOB => remove(start, opening, bob),
            Deviation::Replays if person == BOB => {
                let mut before = before.borrow_mut();
                before.push((start.clone(), opening.clone()));
                if let [.., (old, mailbox), _] = &before[..]
                    && before.len().is_multiple_of(4)
                {
                    (*start, *opening) = (old.clone(), mailbox.clone());
                }
            }
            _ => {}
        }
    }));
}
