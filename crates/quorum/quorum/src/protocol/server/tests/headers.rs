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
