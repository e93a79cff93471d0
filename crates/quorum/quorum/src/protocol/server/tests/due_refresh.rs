//! Refreshes without an operator.

use super::*;
use world::BEGINNING;

const DAY: Duration = Duration::from_secs(86_400);
const ALMOST_A_DAY: Duration = Duration::from_secs(81_400);
const REST_OF_THE_DAY: Duration = Duration::from_secs(5_000);
const ALL: [Number; 4] = [1, 2, 3, 4];

/// A group that refreshes itself every day, in its first epoch.
fn daily(seed: u64) -> World {
    let mut world = World::new(1, [], seed);
    world.run_until(|world| world.have_epoch(1, &ALL));
    for number in ALL {
        let expires = world::APPROVAL_EXPIRES;
        world.server(number).reconfigure(Vec::new(), DELAYS, TIMEOUTS, Some(DAY), expires);
    }
    world
}

fn epoch(world: &World) -> u64 {
    world.statuses()[0].1.as_ref().unwrap().epoch.as_ref().unwrap().epoch
}

#[test]
fn a_group_gets_new_shares_each_day_without_an_operator() {
    let mut world = daily(21);
    for number in 2..5 {
        world.now += ALMOST_A_DAY;
        assert!(!world.run(|world| epoch(world) == number), "too early");
        world.now += REST_OF_THE_DAY;
        let due = BEGINNING.0 + world.now.as_secs();
        assert!(world.run(|world| world.have_epoch(number, &ALL)), "epoch {number}");
        let header = world.nodes[&1].saved.start.as_ref().unwrap().header().clone();
        assert!(header.time.is_some_and(|it| it.0 >= due), "{:?}", header.time);
        let next = world.statuses()[0].1.as_ref().unwrap().next_refresh;
        assert_eq!(next.unwrap().0, header.time.unwrap().0 + DAY.as_secs());
    }
    world.sign(1, b"after");
}

/// The clocks of all servers are ahead by 29 days when an epoch begins. Its header and those after
/// it have a time in the future.
#[test]
fn clocks_that_were_ahead_prevent_no_refresh_after_they_are_right() {
    let mut world = daily(25);
    world.now += 30 * DAY;
    assert!(world.run(|world| world.have_epoch(2, &ALL)));
    world.clock_back = 29 * DAY;
    for number in [3, 4] {
        assert!(!world.run(|world| epoch(world) == number), "at once");
        world.now += ALMOST_A_DAY;
        assert!(!world.run(|world| epoch(world) == number), "too early");
        world.now += REST_OF_THE_DAY;
        assert!(world.run(|world| world.have_epoch(number, &ALL)), "epoch {number}");
    }
    let header = world.nodes[&1].saved.start.as_ref().unwrap().header();
    assert!(header.time.is_some_and(|it| it.0 >= BEGINNING.0 + 30 * DAY.as_secs()));
}

/// A faulty server cannot prevent the refresh: not by approving another list, and not by being
/// silent.
#[test]
fn a_faulty_server_does_not_prevent_the_refresh_that_is_due() {
    let mut world = daily(22);
    world.refresh(&[4], &group(1, 1));
    world.run(|_| false);
    let mut other = group(1, 1).members().to_vec();
    other.reverse();
    let now = world.now;
    let refused = world.server(4).start_refresh(QuorumGroup::new(other).unwrap(), now);
    assert_eq!(refused, Err(RefreshRefusal::UnderWay));
    world.stop(4);
    world.now += DAY;
    assert!(world.run(|world| world.have_epoch(2, &[1, 2, 3])));
}

#[test]
fn operators_who_cancel_the_refresh_that_is_due_have_an_hour_for_another_list() {
    let mut world = daily(23);
    // Without the third and fourth the refresh cannot end.
    world.stop(3);
    world.stop(4);
    world.now += DAY;
    let is_open = |world: &World| {
        let status = world.statuses()[0].1.clone().unwrap();
        status.epoch.unwrap().run.is_some()
    };
    assert!(world.run(is_open));
    let now = world.now;
    for number in [1, 2] {
        world.server(number).cancel_refresh(now).unwrap();
    }
    assert!(world.run(|world| !is_open(world)));
    assert!(!world.run(is_open), "begun again at once");
    world.now += Duration::from_secs(3_600);
    assert!(world.run(is_open));
}

/// It would be approved again, and after some withdrawals not any more.
#[test]
fn an_approval_of_the_refresh_that_is_due_does_not_expire() {
    let mut world = daily(24);
    for number in [2, 3, 4] {
        world.stop(number);
    }
    world.now += DAY;
    let is_approved = |world: &World| {
        let status = world.statuses()[0].1.clone().unwrap();
        status.epoch.unwrap().approvals.len() == 1
    };
    assert!(world.run(is_approved));
    world.now += 2 * world::APPROVAL_EXPIRES;
    world.run(|world| !is_approved(world));
    assert!(is_approved(&world));
    for number in [2, 3, 4] {
        world.start(number);
    }
    for number in [2, 3, 4] {
        let expires = world::APPROVAL_EXPIRES;
        world.server(number).reconfigure(Vec::new(), DELAYS, TIMEOUTS, Some(DAY), expires);
    }
    assert!(world.run(|world| world.have_epoch(2, &ALL)));
}
