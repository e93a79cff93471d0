//! Random sequences of what can go wrong with states in a group of 16: clients and the proxy lose
//! theirs or are started from old ones, disks are full, administrators come and go, the proxy
//! moves, or does not move as announced, days pass. Messages that are marked as delivered were
//! shown, none is doubled, cut off or out of order, and the group is usable at the end.

use std::time::Duration;

use super::exchanges::{BROADCAST, Exchanges, KEPT};
use super::person::{Backup, CROWD, Person, group, secret};
use super::restores::check;
use super::world::{Faults, ProxyState, World};
use crate::protocol::client::{ImportError, MixClientError};
use crate::protocol::event::MixClientEvent;
use crate::protocol::membership::{MemberName, ProxyAddress};

/// After an announced move of the proxy, its old place is left within this time.
const MOVE_WITHIN_S: u64 = 20;

/// `SUNDER_SEEDS=N` runs as many sequences of 250 rounds, `SUNDER_SEED=S` one of them.
#[test]
fn a_group_of_16_survives_lost_and_old_states() {
    let is_long = ["SUNDER_SEEDS", "SUNDER_SEED"].iter().any(|it| std::env::var(it).is_ok());
    let rounds = if is_long { 250 } else { 80 };
    let runs =
        sim::run_seeds(1, |seed| [BROADCAST, KEPT].map(|exchange| run(exchange, seed, rounds)));
    let runs = runs.as_flattened();
    let sum = |of: fn(&Counts) -> usize| runs.iter().map(of).sum::<usize>();
    let [lost, restored, changes, marked] = [
        sum(|run| run.lost),
        sum(|run| run.restored),
        sum(|run| run.changes),
        sum(|run| run.marked),
    ];
    let [moves, imports, replaced] =
        [sum(|run| run.moves), sum(|run| run.imports), sum(|run| run.replaced)];
    println!(
        "{} sequences: {lost} lost states, {restored} old states, {changes} changes of \
         administrators, {moves} moves of the proxy, {imports} imported lists, {replaced} of \
         another branch, {marked} messages marked",
        runs.len()
    );
    assert!(marked > 20 * runs.len() && restored > 0);
    let is_typical = lost.min(restored).min(changes).min(moves) > runs.len() / 2;
    assert!(is_typical || runs.len() < 40, "too little goes wrong in most sequences");
}

#[derive(Default)]
struct Counts {
    lost: usize,
    restored: usize,
    changes: usize,
    moves: usize,
    imports: usize,
    replaced: usize,
    marked: usize,
}

struct Disasters {
    world: World,
    backups: Vec<(usize, Backup)>,
    proxy_backups: Vec<ProxyState>,
    /// An announced move of the proxy, and when it happens.
    moving: Option<(ProxyAddress, Duration)>,
    /// Since when each client cannot find the proxy.
    lost_since: Vec<Option<Duration>>,
    counts: Counts,
    said: u32,
}

fn run(exchange: Exchanges, seed: u64, rounds: u64) -> Counts {
    let mut world = World::of_crowd(exchange, seed, CROWD.len());
    world.faults = Faults { cuts: 1, clients: 1, ..Faults::default() };
    world.address = Some(group().proxy_address());
    for person in &mut world.people {
        (person.has_restored, person.founds) = (true, false);
    }
    let mut all = Disasters {
        world,
        backups: Vec::new(),
        proxy_backups: Vec::new(),
        moving: None,
        lost_since: vec![None; CROWD.len()],
        counts: Counts::default(),
        said: 0,
    };
    let mut checked = [0; CROWD.len()];
    let end = all.world.rounds + rounds;
    let deadline = all.world.now + Duration::from_secs(4 * 86_400);
    while all.world.rounds < end {
        assert!(all.world.now < deadline, "no rounds: {}", all.world.describe());
        all.world.tick();
        all.perform();
        all.go_on();
        check(&mut all.world, &mut checked, all.said);
    }
    all.end(seed);
    check(&mut all.world, &mut checked, all.said);
    let Disasters { world, mut counts, .. } = all;
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
        let person = world.rng.usize(0..CROWD.len());
        match world.rng.u32(0..2_000) {
            0..80 => {
                self.said += 1;
                let to = world.rng.usize(0..CROWD.len());
                let padding = " and on".repeat(world.rng.usize(0..20));
                if person != to {
                    let text = format!("{padding} number {}.", self.said);
                    world.people[person].say(CROWD[to], &text);
                }
            }
            80..86 => self.backups.push((person, world.people[person].backup())),
            86..89 => self.proxy_backups.push(world.proxy_state()),
            89..94 if !self.backups.is_empty() => {
                self.counts.restored += 1;
                let (person, backup) = self.backups[world.rng.usize(0..self.backups.len())].clone();
                world.people[person].restore(backup);
                world.restart(person);
            }
            94..96 if !self.proxy_backups.is_empty() => {
                self.counts.restored += 1;
                let at = world.rng.usize(0..self.proxy_backups.len());
                world.restore_proxy_state(self.proxy_backups[at].clone());
            }
            // Not everything is lost at once: most have the newest members.
            96..100 if is_known(world) => {
                self.counts.lost += 1;
                world.lose_proxy_state();
            }
            100..104 if is_known(world) => {
                self.counts.lost += 1;
                world.people[person].lose_state();
                world.restart(person);
            }
            104..108 => {
                let until = world.now + Duration::from_secs(2);
                world.people[person].full_until = Some(until);
            }
            108..120 => {
                let name = MemberName::new(CROWD[world.rng.usize(0..CROWD.len())]).unwrap();
                let (now, client) = (world.now, &mut world.people[person].client);
                let changed = match self.said % 2 {
                    0 => client.add_administrator(now, &name),
                    _ => client.remove_administrator(now, &name),
                };
                self.counts.changes += usize::from(changed.is_ok());
            }
            120..122 => world.now += Duration::from_secs(3_600),
            122..130 if self.moving.is_none() => self.announce_move(person),
            _ => {}
        }
    }

    /// An administrator announces another proxy, to which the group moves some time later.
    fn announce_move(&mut self, person: usize) {
        let world = &mut self.world;
        let number = 100 + self.counts.moves;
        let key = secret(number).public();
        let to = ProxyAddress { address: format!("mix{number}.example:6700"), key };
        if world.people[person].client.move_proxy(world.now, to.clone()).is_ok() {
            let after = Duration::from_secs(world.rng.u64(2..=MOVE_WITHIN_S));
            self.moving = Some((to, world.now + after));
        }
    }

    /// What happens by itself, and what users do about it.
    fn go_on(&mut self) {
        let now = self.world.now;
        for person in &mut self.world.people {
            person.full_until = person.full_until.filter(|until| *until > now);
        }
        if let Some((to, _)) = self.moving.take_if(|(_, at)| *at <= now) {
            // If the announcement was lost, the administrator sees that nobody follows.
            let is_there = |person: &&Person| person.next_announced() == Some(&to);
            if 2 * self.world.people.iter().filter(is_there).count() > CROWD.len() {
                self.counts.moves += 1;
                self.world.address = Some(to);
                self.world.lose_proxy_state();
            }
        }
        for person in 0..CROWD.len() {
            self.help(person);
        }
    }

    /// Somebody that does not find the proxy, or has another list than it, gets a list from
    /// somebody that is there.
    fn help(&mut self, person: usize) {
        let now = self.world.now;
        let world = &mut self.world;
        let is_fork = |it: &(usize, MixClientError)| it.0 == person && it.1 == MixClientError::Fork;
        let link = world.people[person].client.link.as_ref();
        let is_out = link.is_none_or(|link| !link.is_current);
        let since = self.lost_since[person].filter(|_| is_out);
        self.lost_since[person] = is_out.then(|| since.unwrap_or(now));
        if since.is_none_or(|since| now < since + Duration::from_secs(10)) {
            return;
        }
        self.lost_since[person] = None;
        let has_met_fork = world.errors.iter().any(is_fork);
        let is_there = |other: &usize| {
            let client = &world.people[*other].client;
            client.link.as_ref().is_some_and(|link| link.is_current)
        };
        let there: Vec<usize> = (0..CROWD.len()).filter(is_there).collect();
        let newest = there.iter().max_by_key(|&&other| world.people[other].status().epoch);
        let Some(newest) = newest.map(|&other| &world.people[other]) else { return };
        if self.moving.is_none()
            && newest.next_announced().is_some_and(|at| Some(at) != world.address.as_ref())
        {
            // The proxy has not moved as announced. An administrator who is there corrects that,
            // because the list would lead nobody to the proxy.
            let right = world.address.clone().expect("it is somewhere");
            for other in there {
                if world.people[other].client.move_proxy(now, right.clone()).is_ok() {
                    return;
                }
            }
            return;
        }
        let Some(exported) = newest.client.export().map(<[u8]>::to_vec) else { return };
        let client = &mut world.people[person].client;
        match client.import(now, &exported) {
            Ok(()) => self.counts.imports += 1,
            Err(ImportError::Fork) if has_met_fork => {
                self.counts.replaced += usize::from(client.replace_list(now, &exported).is_ok());
            }
            Err(_) => {}
        }
    }

    /// Nothing goes wrong any more. Everybody comes back, and speaks.
    fn end(&mut self, seed: u64) {
        self.world.people.iter_mut().for_each(|person| person.full_until = None);
        self.world.faults = Faults::default();
        let deadline = self.world.now + Duration::from_secs(240);
        while self.moving.is_some() || !self.world.all_take_part() {
            assert!(self.world.now < deadline, "seed {seed}: {}", self.world.describe());
            self.world.tick();
            self.go_on();
        }
        let world = &mut self.world;
        for from in 0..CROWD.len() {
            world.run_until("they can speak", |world| world.people[from].status().can_send);
            let to = (from + 1) % CROWD.len();
            assert!(world.people[from].say(CROWD[to], " at the end."), "seed {seed}");
        }
        world.finish();
    }
}

/// Whether most clients have stored the proxy's epoch.
fn is_known(world: &World) -> bool {
    let epoch = world.group.as_ref().map(|group| group.status(world.now).epoch);
    let knows = |it: &&Person| Some(it.status().epoch) == epoch && it.client.is_stored();
    4 * world.people.iter().filter(knows).count() > 3 * CROWD.len()
}
