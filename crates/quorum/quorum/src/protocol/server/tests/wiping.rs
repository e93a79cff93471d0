//! A dealer that continues after a restart leaves no copy of its seed in memory.

#[expect(unreachable_pub, reason = "a part of the demonstration, where it is public")]
#[path = "../../../../../../cli/demo/src/sign/memory_scan.rs"]
mod memory_scan;

use self::memory_scan::SoughtSecrets;
use super::world::BEGINNING;
use super::*;
use crate::protocol::refresh::{
    DealingRound, HandoverContext, HandoverMachine as _, HandoverServer, RefreshOutput,
};
use schnorr::SchnorrScheme;

#[test]
fn a_saved_seed_of_a_dealer_is_wiped_from_memory() {
    let mut world = World::founding(1, 16);
    world.start(1);
    let agreement = world.server(1).epoch.as_ref().unwrap().agreement.clone();
    let mut seed = Zeroizing::new(vec![0; 32]);
    RandomGenerator::system().fill(&mut seed).unwrap();
    let sought = SoughtSecrets::of([&*seed]);
    let before = sought.search("self").unwrap();
    assert_eq!(before.found.len(), before.sought, "it is in memory");
    let items = BTreeMap::from([(RunItemName::Seed(DealingRound::DESIGNATED), seed)]);
    let identity = Arc::new(identity(1));
    let mut server = HandoverServer::<SchnorrScheme>::new(
        identity,
        &agreement,
        &DELAYS,
        (&items, &BTreeMap::new()),
    )
    .unwrap();
    let context = HandoverContext { agreement: &agreement, signer: None, time: BEGINNING };
    let outputs = server.poll(Duration::ZERO, &context, &mut world.generator).unwrap();
    let is_new = |output: &RefreshOutput| {
        matches!(output, RefreshOutput::Save { item: RunItemName::Seed(_), .. })
    };
    assert!(!outputs.iter().any(|(_, output)| is_new(output)), "the dealer uses the saved seed");
    // The stack is not overwritten here.
    drop((server, items));
    let after = sought.search("self").unwrap();
    assert!(after.found.is_empty() && after.bytes > 1 << 20, "{:?}", after.found);
}
