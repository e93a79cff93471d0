//! The chain of signed headers, which clients, new servers and servers that were away follow.

use super::ed25519::{generated, numbers};
use super::handovers::started;
use super::world::ALL_KINDS;
use super::*;

/// No message about signatures arrives in the second epoch, and the next one begins. Without the
/// missing signature nobody could be invited, or verify the chain, ever again.
#[test]
fn a_header_that_its_epoch_has_not_signed_is_signed_in_the_next_one() {
    for kind in ALL_KINDS {
        let mut world = started(kind, 1, 41);
        let old = numbers(1, 1);
        generated(&mut world, &old);
        world.lost = Some(LinkTopic::Signing);
        for number in [2, 3] {
            world.refresh(&[1, 2], &group(1, 1));
            world.run_until(|world| {
                world.statuses().iter().all(|(_, status)| {
                    let epoch = status.as_ref().and_then(|status| status.epoch.as_ref());
                    epoch.is_some_and(|epoch| epoch.epoch == number && epoch.has_shares)
                })
            });
        }
        assert!(!world.have_epoch(3, &[1]), "{kind:?}: signed without messages");
        let start = world.nodes[&1].saved.start.as_ref().unwrap();
        assert_eq!(start.signed_prefix().last().unwrap().header.epoch, 1, "{kind:?}");
        world.lost = None;
        world.run_until(|world| world.have_epoch(3, &old));
        let new = numbers(100, 1);
        world.join(new.clone());
        world.refresh(&[1, 2], &group(1, 100));
        world.run_until(|world| world.have_epoch(4, &new));
        world.sign(100, b"after");
        let chain = world.nodes[&100].saved.start.as_ref().unwrap().chain.clone();
        let bytes: Vec<_> = chain.iter().map(|it| (it.header.to_bytes(), &it.signature)).collect();
        let pairs = bytes.iter().map(|(header, signature)| (&header[..], &signature[..]));
        let public = world.public();
        let last = verify_chain(pairs, |message, signature| public.verify(message, signature));
        assert_eq!(last.unwrap().epoch, 4, "{kind:?}");
    }
}

/// With one epoch more, no server could read its own start after a restart, and the key would be
/// lost. At regular times the last epochs are not used up, so that operators can move the key.
#[test]
fn no_refresh_begins_whose_chain_is_too_long_to_read() {
    let mut world = World::new(1, [], 42);
    world.stop(1);
    // Server 1 has followed so many epochs. It need not have shares.
    let saved = &mut world.nodes.get_mut(&1).unwrap().saved;
    saved.shares.clear();
    saved.voting.clear();
    let at = |world: &mut World, number: u64| {
        let saved = &mut world.nodes.get_mut(&1).unwrap().saved;
        let chain = &mut saved.start.as_mut().unwrap().chain;
        while let Some(last) = chain.last()
            && last.header.epoch < number
        {
            let mut header = last.header.clone();
            (header.epoch, header.previous) = (header.epoch + 1, last.header.digest());
            chain.push(SignedGroupHeader { header, signature: Vec::new() });
        }
        world.start(1);
        let (day, expires) = (Duration::from_secs(86_400), world::APPROVAL_EXPIRES);
        world.server(1).reconfigure(Vec::new(), DELAYS, TIMEOUTS, Some(day), expires);
        let now = world.now;
        let refused = world.server(1).start_refresh(group(1, 1), now);
        (world.server(1).status().next_refresh.is_some(), refused)
    };
    let last = u64::from(MAX_EPOCHS);
    assert!(LAST_DUE_EPOCH < last);
    assert_eq!(at(&mut world, last - 1), (false, Ok(())));
    assert_eq!(at(&mut world, last), (false, Err(RefreshRefusal::TooManyEpochs)));
    let start = world.nodes[&1].saved.start.as_ref().unwrap();
    let bytes = start.to_bytes();
    assert!(GroupStart::epochs_in(&bytes).is_ok_and(|epochs| epochs == MAX_EPOCHS as usize));
    assert!(GroupStart::parse(&bytes).is_ok(), "the last one can be read");
}
