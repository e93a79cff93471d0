//! Random events in random order. The invariants of [`World`] hold, only misbehaving clients are
//! refused, and when events cease, every connected member takes part.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::world::{CLIENTS, INTERVAL, World, announcement};
use crate::protocol::engine::MixEngineName;
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::wire::{MemberToProxy, MembershipStatus};

#[derive(Clone, Debug)]
enum Op {
    Connect(usize),
    Disconnect(usize),
    Silence(usize),
    Deliver(usize),
    RunJob(usize),
    Pass(u64),
    Settle,
    Restart,
    /// By the administrator, of these clients, with the number of the last one plus this.
    Announce(Vec<usize>, u32),
    /// By another one.
    Forge(usize),
    Join(usize),
    JoinAnswer(usize),
    Notice(usize, u8),
    Bytes(usize, Vec<u8>),
    Request(usize, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let client = 0..CLIENTS;
    let members = proptest::sample::subsequence((0..CLIENTS).collect::<Vec<_>>(), 1..=6);
    prop_oneof![
        6 => client.clone().prop_map(Op::Connect),
        2 => client.clone().prop_map(Op::Disconnect),
        1 => client.clone().prop_map(Op::Silence),
        12 => client.clone().prop_map(Op::Deliver),
        12 => any::<usize>().prop_map(Op::RunJob),
        6 => (0..1500_u64).prop_map(Op::Pass),
        4 => Just(Op::Settle),
        1 => Just(Op::Restart),
        2 => (members, 0..3_u32).prop_map(|(members, plus)| Op::Announce(members, plus)),
        1 => client.clone().prop_map(Op::Forge),
        1 => client.clone().prop_map(Op::Join),
        1 => client.clone().prop_map(Op::JoinAnswer),
        1 => (client.clone(), any::<u8>()).prop_map(|(client, byte)| Op::Notice(client, byte)),
        1 => (client.clone(), vec(any::<u8>(), 0..40)).prop_map(|(client, it)| Op::Bytes(client, it)),
        1 => (client, 0..20_u64).prop_map(|(client, round)| Op::Request(client, round)),
    ]
}

struct Test {
    world: World,
    /// The greatest number of an epoch that was announced.
    epoch: u32,
    /// The clients that may be refused, because of messages that the test sent in their name.
    misbehaved: [bool; CLIENTS],
}

impl Test {
    fn perform(&mut self, op: Op) {
        let world = &mut self.world;
        match op {
            Op::Connect(client) => {
                world.clients[client].is_silent = false;
                self.misbehaved[client] = false;
                world.connect(client);
            }
            Op::Disconnect(client) => world.disconnect(client),
            Op::Silence(client) => world.clients[client].is_silent = true,
            Op::Deliver(client) => world.deliver(client),
            Op::RunJob(which) => world.run_job(which),
            Op::Pass(milliseconds) => world.pass(Duration::from_millis(milliseconds)),
            Op::Settle => world.settle(),
            Op::Restart => world.restart(),
            Op::Announce(members, plus) => {
                let epoch = self.epoch + plus;
                self.epoch = epoch.max(self.epoch);
                let announcement = world.next_announcement(epoch, &members);
                self.misbehave(0, &MemberToProxy::Announce(announcement));
            }
            Op::Forge(client) => {
                let forged = announcement(7, self.epoch + 1, &[0, 1, 2]);
                self.misbehave(client, &MemberToProxy::Announce(forged));
            }
            Op::Join(client) => self.misbehave(client, &MemberToProxy::Join(vec![1; 100])),
            Op::JoinAnswer(client) => {
                let key = super::world::secret(7).public();
                self.misbehave(client, &MemberToProxy::JoinAnswer { key, answer: vec![2; 65] });
            }
            Op::Notice(client, byte) => {
                self.misbehave(client, &MemberToProxy::Notice(vec![byte; 77]));
            }
            Op::Bytes(client, bytes) => {
                self.misbehaved[client] = true;
                if world.clients[client].connection.is_some() {
                    world.clients[client].outbox.push_back(bytes);
                }
            }
            Op::Request(client, back) => {
                let round = world.last_round().saturating_sub(back);
                let request = MemberToProxy::Request { round, nonce: [0; 16], body: vec![0; 40] };
                self.misbehave(client, &request);
            }
        }
        for (client, it) in self.world.clients.iter().enumerate() {
            use crate::protocol::wire::ProxyRefusal::Removed;
            let is_fair = it.refused.is_none_or(|refusal| refusal == Removed);
            assert!(is_fair || self.misbehaved[client], "{client} was refused: {:?}", it.refused);
        }
    }

    fn misbehave(&mut self, client: usize, message: &MemberToProxy) {
        self.misbehaved[client] = true;
        self.world.send(client, message);
    }

    /// All members that are connected, have not misbehaved and are not silent take part soon.
    fn check_all_take_part(&mut self) {
        let world = &mut self.world;
        world.run(INTERVAL * 4);
        let before = world.last_round();
        world.run(INTERVAL * 4);
        for (client, it) in world.clients.iter().enumerate() {
            let is_member = world.group.number_of(&super::world::secret(client).public()).is_some();
            if it.connection.is_some() && is_member && !it.is_silent && !self.misbehaved[client] {
                let rounds = it.rounds.iter().filter(|&&round| round > before).count();
                assert!(rounds > 2, "{client} is left out");
                assert!(it.status.is_some(), "{client} has no standing");
            }
        }
    }
}

proptest! {
    #[test]
    fn nobody_is_disturbed(seed: u64, is_broadcast: bool, ops in vec(op(), 1..150)) {
        let oblivious = MixEngineName::Ot.into();
        let exchange = if is_broadcast { MixExchangeKind::Broadcast } else { oblivious };
        let world = World::of_members_by(exchange, seed, 5);
        prop_assert_eq!(world.clients[0].status, Some(MembershipStatus::Administrator));
        let mut test = Test { world, epoch: 1, misbehaved: [false; CLIENTS] };
        for op in ops {
            test.perform(op);
        }
        test.check_all_take_part();
    }
}
