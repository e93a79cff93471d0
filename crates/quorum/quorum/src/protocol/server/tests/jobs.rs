//! The long computations of a handover are jobs. Servers sign while these are under way.

use handover::HandoverEntryKind;

use super::super::output::RefreshJobOwner;
use super::handovers::{KINDS, four};
use super::*;
use crate::protocol::refresh::{LogEntry, LogEntryBody};

/// A server applies entries of a handover.
fn applies(task: &QuorumServerTask) -> bool {
    matches!(task, QuorumServerTask::Height(_))
}

/// A dealer computes its dealing.
fn deals(task: &QuorumServerTask) -> bool {
    matches!(task, QuorumServerTask::Refresh { machine: RefreshJobOwner::Old(_), .. })
}

/// A receiver decrypts its rows, or computes its share.
fn receives(task: &QuorumServerTask) -> bool {
    matches!(task, QuorumServerTask::Refresh { machine: RefreshJobOwner::New(_), .. })
}

/// A server examines common values of its row.
fn recovers(task: &QuorumServerTask) -> bool {
    matches!(task, QuorumServerTask::Refresh { machine: RefreshJobOwner::Recovery(_), .. })
}

/// Server 2 is needed to sign, for a user of its own and of another server.
fn sign_with_server_2(world: &mut World) {
    world.stop(3);
    world.stop(4);
    world.sign(1, b"at another server");
    world.sign(2, b"at the same server");
    world.start(3);
    world.start(4);
}

#[test]
fn a_server_signs_while_jobs_of_a_handover_are_under_way() {
    let keeps: [fn(&QuorumServerTask) -> bool; 3] = [applies, deals, receives];
    for (seed, keeps) in (40..).zip(keeps) {
        for kind in KINDS {
            let mut world = four(kind, seed);
            (world.slow, world.keeps) = (Some(2), keeps);
            world.refresh(&[1, 2], &group(1, 1));
            world.run_until(|world| !world.jobs.is_empty());
            sign_with_server_2(&mut world);
            assert_eq!(world.jobs.len(), 1, "the job has not ended");
            assert_eq!(world.server(2).status().epoch.map(|it| it.epoch), Some(1));
            world.finish_jobs();
            world.run_until(|world| world.have_epoch(2, &[1, 2, 3, 4]));
            world.sign(2, b"after");
        }
    }
}

/// A server that has lost its share answers nothing, but the requests of its users are signed.
#[test]
fn a_server_has_messages_signed_while_it_computes_a_lost_row() {
    for kind in KINDS {
        let mut world = four(kind, 43);
        world.stop(2);
        world.nodes.get_mut(&2).unwrap().saved.shares.remove(&1).unwrap();
        (world.slow, world.keeps) = (Some(2), recovers);
        world.start(2);
        world.run_until(|world| !world.jobs.is_empty());
        world.sign(2, b"by others");
        assert!(!world.jobs.is_empty() && !world.have_epoch(1, &[2]));
        world.finish_jobs();
        world.run_until(|world| world.have_epoch(1, &[2]));
    }
}

/// Server 2 does not ask others for its row, because they do not get its questions.
#[test]
fn a_share_that_is_computed_when_the_new_epoch_begins_is_used() {
    for kind in KINDS {
        let mut world = four(kind, 44);
        world.refresh(&[1, 2], &group(1, 1));
        let is_chosen = |world: &World| {
            let epoch = world.nodes[&2].server.as_ref().unwrap().epoch.as_ref().unwrap();
            epoch.agreement.run().is_some_and(|run| run.handover().unwrap().sharing().is_some())
        };
        world.run_until(is_chosen);
        (world.slow, world.keeps) = (Some(2), receives);
        world.intercepted = Some(3);
        world.run_until(|world| world.have_epoch(2, &[1, 3, 4]));
        let has_begun = |world: &World| {
            let status = world.nodes[&2].server.as_ref().unwrap().status().epoch.unwrap();
            status.epoch == 2
        };
        world.run_until(has_begun);
        world.run(|_| false);
        assert!(!world.have_epoch(2, &[2]) && !world.jobs.is_empty());
        // The receiver's rows would tell shares of the old epoch.
        assert!(world.is_wiped(1, 1) && !world.is_wiped(2, 1));
        world.finish_jobs();
        world.run_until(|world| world.have_epoch(2, &[2]) && world.is_wiped(2, 1));
        world.assert_wiped(2, &[1, 2, 3, 4]);
    }
}

/// Another dealer takes its turn. The old share follows from the dealer's secrets, so it is
/// reported as wiped when the job has ended.
#[test]
fn a_dealing_that_is_computed_after_the_epoch_changes_nothing() {
    for kind in KINDS {
        let mut world = four(kind, 45);
        (world.slow, world.keeps) = (Some(2), deals);
        world.refresh(&[1, 2], &group(1, 1));
        world.run_until(|world| world.have_epoch(2, &[1, 2, 3, 4]) && world.is_wiped(1, 1));
        world.run(|_| false);
        assert!(!world.jobs.is_empty() && !world.is_wiped(2, 1));
        let height = world.log.len();
        world.finish_jobs();
        world.run_until(|world| world.is_wiped(2, 1));
        world.run(|_| false);
        assert_eq!(world.log.len(), height);
        world.assert_wiped(2, &[1, 2, 3, 4]);
    }
}

#[test]
fn jobs_that_end_after_a_run_is_cancelled_change_nothing() {
    let keeps: [fn(&QuorumServerTask) -> bool; 2] = [deals, receives];
    for (seed, keeps) in (46..).zip(keeps) {
        for kind in KINDS {
            let mut world = four(kind, seed);
            (world.slow, world.keeps) = (Some(2), keeps);
            world.refresh(&[1, 2], &group(1, 1));
            world.run_until(|world| !world.jobs.is_empty());
            for at in [1, 3] {
                let now = world.now;
                world.server(at).cancel_refresh(now).unwrap();
            }
            let is_cancelled = |world: &World| {
                let events = &world.nodes[&2].events;
                events.iter().any(|it| matches!(it, QuorumServerEvent::RunCancelled))
            };
            world.run_until(is_cancelled);
            world.run(|_| false);
            let height = world.log.len();
            world.finish_jobs();
            world.run(|_| false);
            assert_eq!(world.log.len(), height);
            assert!(world.nodes.values().all(|node| node.saved.items.is_empty()));
            world.refresh(&[1, 2], &group(1, 1));
            world.run_until(|world| world.have_epoch(2, &[1, 2, 3, 4]));
            assert_eq!(world.nodes[&2].saved.start.as_ref().unwrap().header().run, 2);
        }
    }
}

/// The server whose Confirm is the first after so many heights of the log.
fn first_confirmed(world: &World, group: &QuorumGroup, heights: usize) -> Option<Number> {
    let entries = world.log.iter().skip(heights).flat_map(|height| &height.entries);
    let mut entries = entries.filter_map(|entry| LogEntry::parse(entry).ok());
    let confirm = entries.find(|entry| match &entry.body {
        LogEntryBody::Handover { step, .. } => step.header().kind == HandoverEntryKind::Confirm,
        _ => false,
    })?;
    (1..=4).find(|number| group.index_of(&identity(*number).public()) == Some(confirm.author))
}

/// The epoch ends just after the server has started again, before its first job has ended. Others
/// do not help it.
#[test]
fn a_server_that_starts_again_after_its_confirm_has_its_share_when_the_epoch_ends() {
    for kind in KINDS {
        let (mut world, next) = (four(kind, 48), group(1, 1));
        let heights = world.log.len();
        world.refresh(&[1, 2], &next);
        world.run_until(|world| first_confirmed(world, &next, heights).is_some());
        let number = first_confirmed(&world, &next, heights).unwrap();
        assert!(world.have_epoch(1, &[1, 2, 3, 4]), "the epoch has not ended");
        world.stop(number);
        (world.slow, world.keeps) = (Some(number), receives);
        world.intercepted = Some(3);
        world.start(number);
        world.run_until(|world| world.have_epoch(2, &[1, 2, 3, 4]));
        world.stop(number);
        world.start(number);
        assert!(world.have_epoch(2, &[number]));
    }
}
