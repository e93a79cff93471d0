//! Random sequences of what can go wrong with states: clients and the proxy lose theirs or are
//! started from old ones, disks are full, administrators come and go, days pass. Messages that are
//! marked as delivered were shown, none is doubled or cut off, and the group is usable at the end.

use std::time::Duration;

use super::exchanges::{BROADCAST, Exchanges, KEPT};
use super::person::{Backup, NAMES};
use super::restores::check;
use super::world::{Faults, ProxyState, World};
use crate::protocol::event::MixClientEvent;
use crate::protocol::membership::MemberName;

const ROUNDS: u64 = 250;

/// `SUNDER_SEEDS=N` runs as many sequences, `SUNDER_SEED=S` one of them.
#[test]
fn a_group_survives_lost_and_old_states() {
    let runs = sim::run_seeds(6, |seed| [BROADCAST, KEPT].map(|exchange| run(exchange, seed)));
    let runs = runs.as_flattened();
    let sum = |of: fn(&Counts) -> usize| runs.iter().map(of).sum::<usize>();
    let [lost, restored, changes, marked] = [
        sum(|run| run.lost),
        sum(|run| run.restored),
        sum(|run| run.changes),
        sum(|run| run.marked),
    ];
    println!(
        "{} sequences: {lost} lost states, {restored} old states, {changes} changes of \
         administrators, {marked} messages marked",
        runs.len()
    );
    assert!(lost.min(restored).min(changes) > runs.len() && marked > 20 * runs.len());
}

#[derive(Default)]
struct Counts {
    lost: usize,
    restored: usize,
    changes: usize,
    marked: usize,
}

struct Disasters {
    world: World,
    backups: Vec<(usize, Backup)>,
    proxy_backups: Vec<ProxyState>,
    counts: Counts,
    said: u32,
}

fn run(exchange: Exchanges, seed: u64) -> Counts {
    let mut world = World::of_members(exchange, seed);
    world.faults = Faults { cuts: 1, clients: 1, ..Faults::default() };
    for person in &mut world.people {
        (person.has_restored, person.founds) = (true, false);
    }
    let (backups, proxy_backups) = (Vec::new(), Vec::new());
    let mut all = Disasters { world, backups, proxy_backups, counts: Counts::default(), said: 0 };
    let mut checked = [0; NAMES.len()];
    let end = all.world.rounds + ROUNDS;
    let deadline = all.world.now + Duration::from_secs(4 * 86_400);
    while all.world.rounds < end {
        assert!(all.world.now < deadline, "no rounds: {}", all.world.describe());
        all.world.tick();
        all.perform();
        let now = all.world.now;
        for person in &mut all.world.people {
            person.full_until = person.full_until.filter(|until| *until > now);
        }
        check(&all.world, &mut checked);
    }
    let Disasters { mut world, mut counts, .. } = all;
    world.people.iter_mut().for_each(|person| person.full_until = None);
    world.faults = Faults::default();
    world.run_until("all take part", |world| {
        world.people.iter().all(|it| it.status().anonymity_set == NAMES.len())
    });
    for (from, to) in [(0, 1), (1, 2), (2, 0)] {
        world.run_until("they can speak", |world| world.people[from].status().can_send);
        assert!(world.people[from].say(NAMES[to], " at the end."), "seed {seed}");
    }
    world.finish();
    check(&world, &mut checked);
    counts.marked = world.people.iter().map(|person| person.marked.len()).sum();
    for person in &world.people {
        let is_wrong = |it: &&MixClientEvent| {
            matches!(it, MixClientEvent::NotOfThisRound { .. } | MixClientEvent::LeftOut { .. })
        };
        assert_eq!(person.reported.iter().find(is_wrong), None);
    }
    counts
}

impl Disasters {
    fn perform(&mut self) {
        let world = &mut self.world;
        let person = world.rng.usize(0..NAMES.len());
        match world.rng.u32(0..2_000) {
            0..60 => {
                self.said += 1;
                let to = world.rng.usize(0..NAMES.len());
                let padding = " and on".repeat(world.rng.usize(0..20));
                if person != to {
                    let text = format!("{padding} number {}.", self.said);
                    world.people[person].say(NAMES[to], &text);
                }
            }
            60..66 => self.backups.push((person, world.people[person].backup())),
            66..69 => self.proxy_backups.push(world.proxy_state()),
            69..72 if !self.backups.is_empty() => {
                self.counts.restored += 1;
                let (person, backup) = self.backups[world.rng.usize(0..self.backups.len())].clone();
                world.people[person].restore(backup);
                world.restart(person);
            }
            72..74 if !self.proxy_backups.is_empty() => {
                self.counts.restored += 1;
                let at = world.rng.usize(0..self.proxy_backups.len());
                world.restore_proxy_state(self.proxy_backups[at].clone());
            }
            // Not everything is lost at once: somebody has the newest members.
            74..76 if is_whole(world) => {
                self.counts.lost += 1;
                world.lose_proxy_state();
            }
            76..78 if is_whole(world) => {
                self.counts.lost += 1;
                world.people[person].lose_state();
                world.restart(person);
            }
            78..81 => {
                let until = world.now + Duration::from_secs(2);
                world.people[person].full_until = Some(until);
            }
            81..90 => {
                let name = MemberName::new(NAMES[world.rng.usize(0..NAMES.len())]).unwrap();
                let (now, client) = (world.now, &mut world.people[person].client);
                let changed = match self.said % 2 {
                    0 => client.add_administrator(now, &name),
                    _ => client.remove_administrator(now, &name),
                };
                self.counts.changes += usize::from(changed.is_ok());
            }
            90..92 => world.now += Duration::from_secs(3_600),
            _ => {}
        }
    }
}

/// Whether all clients have stored the proxy's epoch.
fn is_whole(world: &World) -> bool {
    let epoch = world.group.as_ref().map(|group| group.status(world.now).epoch);
    world.people.iter().all(|it| Some(it.status().epoch) == epoch && it.client.is_stored())
}
