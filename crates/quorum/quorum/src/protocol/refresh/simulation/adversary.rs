//! One adversary controls all faulty processes. It knows their keys, shares and subshares, sees
//! what they receive and what anyone submits, and can send anything.

mod dealer;
mod receiver;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentityPublicKey;
use random::RandomGenerator;
use sim::SeededRng;

use self::dealer::ForgedDealing;
use super::super::dealing::Dealing;
use super::super::{LabeledShares, RefreshMessage, RefreshRole};
use super::ms;
use super::process::{ProcessAction, SimulatedProcess, group_of};
use super::scenario::RefreshScenario;
use crate::protocol::combination::ServerIndex;

/// The largest number of messages and entries that it keeps for replays.
const MAX_KEPT: usize = 100;

/// How a faulty process treats the outputs of its program. In every behavior, it also attacks.
enum ByzantineBehavior {
    Silent,
    Correct,
    /// Drops, changes, repeats and replaces outputs.
    Tampering,
    /// Sends its dealings to some servers only.
    Withholding(Vec<ServerIndex>),
}

pub(super) struct Adversary {
    styles: BTreeMap<usize, ByzantineBehavior>,
    /// The old shares of faulty servers, which are never wiped.
    shares: BTreeMap<usize, Arc<LabeledShares>>,
    /// Messages that its processes received, with the roles of sender and receiver.
    heard: Vec<(RefreshRole, Vec<u8>)>,
    entries: Vec<Vec<u8>>,
    /// Dealings that its processes received.
    dealings: Vec<(usize, Dealing)>,
    /// Forged dealings, in the order of their creation.
    forged: Vec<ForgedDealing>,
    left: u64,
    next_at: Duration,
    max_pause: Duration,
    /// The attacks, with their numbers.
    pub(super) attacks: BTreeMap<&'static str, u64>,
}

impl Adversary {
    pub(super) fn new(
        scenario: &RefreshScenario,
        processes: &[SimulatedProcess],
        rng: &mut SeededRng,
    ) -> Self {
        let shares = |&it: &usize| Some((it, processes[it].disk.shares.clone()?));
        let style = |&it: &usize| {
            let style = match rng.index(10) {
                0 => ByzantineBehavior::Silent,
                1 => ByzantineBehavior::Correct,
                2..6 => ByzantineBehavior::Tampering,
                _ => {
                    let new = &scenario.candidates[scenario.candidates.len() - 1];
                    let mut victims: Vec<_> = new.combination().servers().collect();
                    rng.shuffle(&mut victims);
                    victims.truncate(new.combination().faulty());
                    ByzantineBehavior::Withholding(victims)
                }
            };
            (it, style)
        };
        Self {
            shares: scenario.byzantine.iter().filter_map(shares).collect(),
            styles: scenario.byzantine.iter().map(style).collect(),
            heard: Vec::new(),
            entries: Vec::new(),
            dealings: Vec::new(),
            forged: Vec::new(),
            left: scenario.attacks,
            next_at: Duration::ZERO,
            max_pause: scenario.max_delay,
            attacks: BTreeMap::new(),
        }
    }

    /// When it acts next.
    pub(super) fn next_at(&self) -> Option<Duration> {
        (self.left > 0).then_some(self.next_at)
    }

    /// Sees an entry that anyone submits, before it is committed.
    pub(super) fn see_entry(&mut self, bytes: &[u8]) {
        keep(&mut self.entries, bytes.to_vec());
    }

    /// Sees a message to a faulty process.
    pub(super) fn see_message(
        &mut self,
        at: (usize, &SimulatedProcess),
        (from_side, from): (RefreshRole, IdentityPublicKey),
        message: &RefreshMessage,
        bytes: &[u8],
    ) {
        keep(&mut self.heard, (from_side, bytes.to_vec()));
        match message {
            RefreshMessage::Dealing(dealing) => keep(&mut self.dealings, (at.0, dealing.clone())),
            RefreshMessage::Confirmation { digest, signature } => {
                let group = group_of(at.1.agreement(), RefreshRole::New);
                let index = group.and_then(|group| group.index_of(&from));
                let forged = self.forged.iter_mut().find(|forged| forged.digest == *digest);
                if let (Some(forged), Some(index)) = (forged, index) {
                    forged.confirmations.insert(index, *signature);
                }
            }
            _ => {}
        }
    }

    /// The outputs of a faulty process, instead of those of its program.
    pub(super) fn change(
        &mut self,
        at: usize,
        action: ProcessAction,
        rng: &mut SeededRng,
    ) -> Vec<ProcessAction> {
        match &self.styles[&at] {
            ByzantineBehavior::Silent => Vec::new(),
            ByzantineBehavior::Correct => vec![action],
            ByzantineBehavior::Withholding(victims) => {
                let is_dealing = |bytes: &[u8]| {
                    matches!(RefreshMessage::parse(bytes), Ok(RefreshMessage::Dealing(_)))
                };
                let is_withheld = matches!(
                    &action,
                    ProcessAction::Send { to: (RefreshRole::New, to), bytes, .. }
                        if victims.contains(to) && is_dealing(bytes)
                );
                if is_withheld { Vec::new() } else { vec![action] }
            }
            ByzantineBehavior::Tampering => match rng.index(10) {
                0..5 => vec![action],
                5 => Vec::new(),
                6 => match action {
                    ProcessAction::Send { from, to, bytes } => {
                        let action = || ProcessAction::Send { from, to, bytes: bytes.clone() };
                        vec![action(), action()]
                    }
                    ProcessAction::Submit(bytes) => {
                        vec![ProcessAction::Submit(bytes.clone()), ProcessAction::Submit(bytes)]
                    }
                },
                _ => vec![match action {
                    ProcessAction::Send { from, to, bytes } => {
                        ProcessAction::Send { from, to, bytes: flipped(bytes, rng) }
                    }
                    ProcessAction::Submit(bytes) => ProcessAction::Submit(flipped(bytes, rng)),
                }],
            },
        }
    }

    /// The attacks of faulty processes.
    pub(super) fn act(
        &mut self,
        now: Duration,
        processes: &[SimulatedProcess],
        rng: &mut SeededRng,
        generator: &mut RandomGenerator,
    ) -> Vec<(usize, ProcessAction)> {
        let mut actions = Vec::new();
        while self.left > 0 && self.next_at <= now {
            self.left -= 1;
            let long = if rng.chance(10) { ms(10_000) } else { ms(0) };
            self.next_at = now + rng.duration_between(ms(1), self.max_pause + long + ms(2));
            let faulty: Vec<usize> = self.styles.keys().copied().collect();
            let Some(&at) = rng.pick(&faulty) else { continue };
            let (name, done) = match rng.index(10) {
                0 => self.replay(&processes[at], rng),
                1..6 => self.attack_as_dealer(at, &processes[at], rng, generator),
                _ => self.attack_as_receiver(&processes[at], rng, generator),
            };
            if !done.is_empty() {
                *self.attacks.entry(name).or_default() += 1;
            }
            actions.extend(done.into_iter().map(|action| (at, action)));
            self.prove_forged(processes, rng, &mut actions);
        }
        actions
    }

    /// A message or entry from before, perhaps of another run, or garbage.
    fn replay(
        &mut self,
        process: &SimulatedProcess,
        rng: &mut SeededRng,
    ) -> (&'static str, Vec<ProcessAction>) {
        let to_side = if rng.chance(50) { RefreshRole::Old } else { RefreshRole::New };
        let servers =
            group_of(process.agreement(), to_side).map(|group| group.combination().servers());
        let Some(servers) = servers else { return ("replay", Vec::new()) };
        let from = [RefreshRole::Old, RefreshRole::New]
            .into_iter()
            .filter(|&it| process.index(it).is_some());
        let from: Vec<_> = from.collect();
        let Some(&from) = rng.pick(&from) else { return ("replay", Vec::new()) };
        let name = match rng.index(3) {
            0 => "replayed entry",
            1 => "replayed message",
            _ => "garbage",
        };
        let done = match name {
            "replayed entry" => {
                let some = (0..3).filter_map(|_| rng.pick(&self.entries).cloned());
                some.map(ProcessAction::Submit).collect()
            }
            "replayed message" => {
                let Some((_, bytes)) = rng.pick(&self.heard) else { return (name, Vec::new()) };
                let send =
                    |to| ProcessAction::Send { from, to: (to_side, to), bytes: bytes.clone() };
                servers.map(send).collect()
            }
            _ => {
                let bytes = rng.bytes::<40>().to_vec();
                let send =
                    |to| ProcessAction::Send { from, to: (to_side, to), bytes: bytes.clone() };
                servers.map(send).chain([ProcessAction::Submit(bytes.clone())]).collect()
            }
        };
        (name, done)
    }
}

/// Stores an item. The first ones, which may be of another run, and the last ones are kept.
fn keep<T>(kept: &mut Vec<T>, it: T) {
    if kept.len() == MAX_KEPT {
        kept.remove(MAX_KEPT / 2);
    }
    kept.push(it);
}

/// Flips one bit, or truncates the bytes.
fn flipped(mut bytes: Vec<u8>, rng: &mut SeededRng) -> Vec<u8> {
    let at = rng.index(bytes.len());
    if rng.chance(10) {
        bytes.truncate(at);
    } else if let Some(byte) = bytes.get_mut(at) {
        *byte ^= 1 << rng.index(8);
    }
    bytes
}
