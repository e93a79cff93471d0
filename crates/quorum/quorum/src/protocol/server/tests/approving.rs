//! Approvals of refreshes that wait for those of others.

use super::*;
use world::{APPROVAL_EXPIRES, BEGINNING};

const ALL: [Number; 4] = [1, 2, 3, 4];

fn begun(seed: u64) -> World {
    let mut world = World::new(1, [5, 6, 7, 8], seed);
    world.run_until(|world| world.have_epoch(1, &ALL));
    world
}

/// How many servers have approved a list, as each server sees it.
fn approvals(world: &World) -> Vec<usize> {
    let old = world.statuses().into_iter().filter(|(number, _)| ALL.contains(number));
    let epochs = old.filter_map(|(_, status)| status?.epoch);
    epochs.map(|epoch| epoch.approvals.iter().map(|it| it.servers.len()).sum()).collect()
}

#[test]
fn an_approval_that_nobody_shares_expires_and_a_later_one_begins_nothing() {
    let mut world = begun(31);
    let list = group(1, 5);
    world.refresh(&[1], &list);
    let has_limit = |world: &World| {
        world.statuses()[0].1.as_ref().is_some_and(|status| status.approval_expires.is_some())
    };
    let is_shown = |world: &World| approvals(world) == [1; 4] && has_limit(world);
    assert!(world.run(is_shown), "all servers show it");
    assert_eq!(world.server(1).status().epoch.unwrap().approvals[0].group, list);
    assert!(world.server(2).status().approval_expires.is_none());
    world.now += APPROVAL_EXPIRES;
    assert!(world.run(|world| approvals(world) == [0; 4]), "it is withdrawn");
    world.refresh(&[2], &list);
    assert!(world.run(|world| approvals(world) == [1; 4]));
    assert!(!world.run(|world| world.have_epoch(2, &[5, 6, 7, 8])), "one is not enough");
    world.refresh(&[1], &list);
    assert!(world.run(|world| world.have_epoch(2, &[5, 6, 7, 8])));
}

/// The wait is saved, so that a server that is restarted every hour withdraws its approval, too.
#[test]
fn an_approval_expires_in_time_at_a_server_that_is_restarted() {
    let mut world = begun(34);
    world.refresh(&[1], &group(1, 5));
    let ends = |world: &World| world.statuses()[0].1.as_ref().and_then(|it| it.approval_expires);
    assert!(world.run(|world| approvals(world) == [1; 4] && ends(world).is_some()));
    let end = ends(&world);
    for _ in 0..2 {
        world.now += APPROVAL_EXPIRES / 3;
        world.stop(1);
        world.start(1);
        assert!(world.run(|world| ends(world) == end), "the restart changes nothing");
        assert_eq!(approvals(&world), [1; 4]);
    }
    world.now += APPROVAL_EXPIRES / 3;
    assert!(world.run(|world| approvals(world) == [0; 4]), "it is withdrawn");
    // The wait of the next approval begins with it.
    world.refresh(&[1], &group(1, 5));
    assert!(world.run(|world| approvals(world) == [1; 4] && ends(world) > end));
}

/// If the clock is set back, the wait begins again, so it is never longer than configured.
#[test]
fn an_approval_waits_no_longer_if_the_clock_is_set_back() {
    let mut world = begun(35);
    world.now += 3 * APPROVAL_EXPIRES;
    world.refresh(&[1], &group(1, 5));
    let ends = |world: &World| world.statuses()[0].1.as_ref().and_then(|it| it.approval_expires);
    assert!(world.run(|world| ends(world).is_some()));
    let before = ends(&world);
    world.clock_back = 2 * APPROVAL_EXPIRES;
    world.stop(1);
    world.start(1);
    assert!(world.run(|world| ends(world).is_some() && ends(world) < before));
    let time = BEGINNING.0 + (world.now - world.clock_back).as_secs();
    let left = ends(&world).unwrap().0 - time;
    assert!(left <= APPROVAL_EXPIRES.as_secs(), "{left} s");
    assert_eq!(approvals(&world), [1; 4]);
}

#[test]
fn an_operator_withdraws_an_approval_until_the_refresh_begins() {
    let mut world = begun(32);
    let now = world.now;
    let none = world.server(1).withdraw_approval(now);
    assert_eq!(none, Err(RefreshRefusal::NotApproved));
    world.refresh(&[1], &group(1, 5));
    assert!(world.run(|world| approvals(world) == [1; 4]));
    let now = world.now;
    assert_eq!(world.server(2).withdraw_approval(now), Err(RefreshRefusal::NotApproved));
    assert_eq!(world.server(1).withdraw_approval(now), Ok(()));
    assert!(world.run(|world| approvals(world) == [0; 4]));
    // The state is the same after a restart.
    world.stop(1);
    world.start(1);
    world.refresh(&[1, 2], &group(1, 5));
    assert!(world.run(|world| world.have_epoch(2, &[5, 6, 7, 8])));
    let now = world.now;
    assert_eq!(world.server(5).withdraw_approval(now), Err(RefreshRefusal::NotApproved));
}

/// An approval that is submitted, but not committed, is withdrawn as well, and the withdrawal is
/// reported when the log has it.
#[test]
fn an_approval_is_withdrawn_before_the_log_has_it() {
    let is_reported = |world: &World| {
        let is_own = |it: &QuorumServerEvent| {
            matches!(it, QuorumServerEvent::ApprovalWithdrawn { epoch: 2, group: Some(_) })
        };
        world.nodes[&1].events.iter().any(is_own)
    };
    for is_submitted in [false, true] {
        let mut world = begun(33);
        world.stalled.insert(1);
        world.refresh(&[1], &group(1, 5));
        if is_submitted {
            let others_have_it = |world: &World| approvals(world)[1..] == [1; 3];
            assert!(world.run(others_have_it));
        }
        let now = world.now;
        assert_eq!(world.server(1).withdraw_approval(now), Ok(()));
        assert!(!is_reported(&world), "it is not committed");
        world.stalled.clear();
        assert!(world.run(|world| approvals(world) == [0; 4] && is_reported(world)));
        // One more approval begins nothing.
        world.refresh(&[2], &group(1, 5));
        assert!(!world.run(|world| world.have_epoch(2, &[5, 6, 7, 8])));
    }
}
