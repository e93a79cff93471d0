//! An active attacker on all the victim's channels but one, with connections of its own.
//!
//! It reads every message of every handshake, including those on the honest channel, and controls
//! its own links completely. Each run it uses one of two strategies.

use std::time::Duration;

use sim::{SeededRng, SimulatedNetwork};
use sunder_association::{
    AssociationMessage, AssociationMessageKind, COOKIE_LEN, ConnectionCookie, CookieList,
};

use super::forgery::{Forgery, Inks};
use super::test_bed::Wire;

/// Messages of a previous handshake.
const OLD_HANDSHAKE: [[u8; COOKIE_LEN]; 3] =
    [[0x11; COOKIE_LEN], [0x22; COOKIE_LEN], [0x33; COOKIE_LEN]];

pub(crate) struct Adversary {
    rng: SeededRng,
    wires: Vec<Wire>,
    /// The victim's connections in channel order, including the honest one.
    victim: Vec<usize>,
    honest: usize,
    /// The victim's connections without the honest one.
    legs: Vec<usize>,
    own: Vec<usize>,
    /// The leg to which the attacker forwards each leg.
    crossing: Vec<usize>,
    strategy: Strategy,
    cookies: Vec<Option<[u8; COOKIE_LEN]>>,
    archive: Vec<Vec<u8>>,
    acted: bool,
}

enum Strategy {
    /// Forwards messages, except for this percentage, which it changes.
    Meddle { percent: u64 },
    /// Acts as the server to the client and as the client to the server, on all channels that it
    /// controls.
    Impersonate(Plan),
}

/// What an impersonator sends to the two ends.
struct Plan {
    /// The connection whose cookie it sends to the victim, for each leg; no cookie is invented.
    greeting: Vec<Option<usize>>,
    /// The number of changes that it makes to the list for the server. With none it forwards the
    /// list.
    edits: u64,
    /// Does not wait for the victim's list but guesses it.
    eager: bool,
    /// The number of changes that it makes to the confirms for the victim.
    confirm_edits: u64,
    greeted: bool,
    listed: bool,
}

impl Adversary {
    pub(crate) fn new(
        seed: u64,
        wires: Vec<Wire>,
        victim: Vec<usize>,
        honest: usize,
        own: Vec<usize>,
    ) -> Self {
        let mut rng = SeededRng::new(seed);
        let legs: Vec<usize> = victim.iter().copied().filter(|&leg| leg != honest).collect();
        let mut crossing = legs.clone();
        if rng.chance(30) {
            rng.shuffle(&mut crossing);
        }
        let crosses = crossing != legs;
        let strategy = pick_strategy(&mut rng, &legs, &own);
        let old = Forgery::of(OLD_HANDSHAKE.to_vec());
        Self {
            cookies: vec![None; wires.len()],
            archive: vec![
                old.encode(AssociationMessageKind::List),
                old.encode(AssociationMessageKind::Confirm),
            ],
            acted: crosses || matches!(strategy, Strategy::Impersonate(_)),
            rng,
            wires,
            victim,
            honest,
            legs,
            own,
            crossing,
            strategy,
        }
    }

    /// Whether it has done more than forward messages.
    pub(crate) fn has_acted(&self) -> bool {
        self.acted
    }

    /// Reads a message on any link.
    pub(crate) fn overhear(&mut self, connection: usize, message: &AssociationMessage) {
        if let AssociationMessage::Cookie(cookie) = message {
            self.cookies[connection] = Some(*cookie.as_bytes());
        }
        self.archive.push(message.encode());
    }

    /// Bytes on a link that it controls: of a leg, or from the server on a connection of its own.
    pub(crate) fn intercept<T>(
        &mut self,
        net: &mut SimulatedNetwork<T>,
        connection: usize,
        up: bool,
        bytes: &[u8],
    ) {
        match self.strategy {
            Strategy::Meddle { percent } if self.rng.chance(percent) => {
                self.meddle(net, connection, up, bytes);
            }
            Strategy::Meddle { .. } => self.forward(net, connection, up, bytes.to_vec()),
            Strategy::Impersonate(_) => self.impersonate(net, connection, bytes),
        }
    }

    /// An end has closed a link that it controls. An impersonator does not close the other end.
    pub(crate) fn intercept_close<T>(
        &mut self,
        net: &mut SimulatedNetwork<T>,
        connection: usize,
        up: bool,
    ) {
        if matches!(self.strategy, Strategy::Meddle { .. })
            && self.rng.chance(70)
            && let Some(to) = self.far_end(connection, up)
        {
            net.inject_close(self.wires[to].link(up), self.short());
        }
    }

    fn meddle<T>(
        &mut self,
        net: &mut SimulatedNetwork<T>,
        connection: usize,
        up: bool,
        bytes: &[u8],
    ) {
        self.acted = true;
        let mut changed = bytes.to_vec();
        match self.rng.below(14) {
            0 => return self.delay(net, connection, up, changed),
            1 => return,
            2 | 3 => self.flip(&mut changed),
            4 => changed = self.edit(bytes),
            5 => return self.misdirect(net, up, changed),
            6 => changed.extend(self.recall()),
            7 => changed = self.recall(),
            8 => return self.reflect(net, connection, up, changed),
            9 => changed.push(self.rng.bytes::<1>()[0]),
            10 => changed.truncate(self.rng.index(bytes.len())),
            11 => return self.cut(net, connection, up),
            12 => return self.dribble(net, connection, up, bytes),
            _ => return self.speak_unasked(net, connection, up, changed),
        }
        self.forward(net, connection, up, changed);
    }

    fn forward<T>(
        &mut self,
        net: &mut SimulatedNetwork<T>,
        connection: usize,
        up: bool,
        bytes: Vec<u8>,
    ) {
        if let Some(to) = self.far_end(connection, up) {
            net.inject(self.wires[to].link(up), bytes, self.short());
        } else if self.rng.chance(50) {
            // The cookie of its own connection has arrived: it uses it at once.
            let list = self.guess_list(1).encode(AssociationMessageKind::List);
            net.inject(self.wires[connection].up, list, self.short());
        }
    }

    /// Where bytes of a leg are delivered. The adversary's own connections have no other end.
    fn far_end(&self, connection: usize, up: bool) -> Option<usize> {
        let (from, to) =
            if up { (&self.legs, &self.crossing) } else { (&self.crossing, &self.legs) };
        from.iter().position(|&leg| leg == connection).map(|place| to[place])
    }

    fn delay<T>(
        &mut self,
        net: &mut SimulatedNetwork<T>,
        connection: usize,
        up: bool,
        bytes: Vec<u8>,
    ) {
        let long = if self.rng.chance(20) { 6000 } else { 300 };
        let delay = Duration::from_millis(self.rng.below(long));
        if let Some(to) = self.far_end(connection, up) {
            net.inject(self.wires[to].link(up), bytes, delay);
        }
    }

    fn flip(&mut self, bytes: &mut [u8]) {
        let place = self.rng.index(bytes.len());
        bytes[place] ^= 1 << self.rng.below(8);
    }

    /// The same kind of message with other contents.
    fn edit(&mut self, bytes: &[u8]) -> Vec<u8> {
        match AssociationMessage::parse(bytes) {
            Ok(AssociationMessage::Cookie(_)) => {
                let known = self.known();
                let cookie = self.rng.pick(&known).copied();
                let cookie = cookie.unwrap_or_else(|| self.rng.bytes());
                AssociationMessage::Cookie(ConnectionCookie::new(cookie)).encode()
            }
            Ok(AssociationMessage::List(list)) => {
                self.edited(Forgery::copy(&list), 1).encode(AssociationMessageKind::List)
            }
            Ok(AssociationMessage::Confirm(list)) => {
                self.edited(Forgery::copy(&list), 1).encode(AssociationMessageKind::Confirm)
            }
            // Of an open association, which the transport protects.
            Ok(AssociationMessage::Rejoin(_) | AssociationMessage::Rejoined(_)) | Err(_) => {
                bytes.to_vec()
            }
        }
    }

    /// To the wrong channel, in the right direction.
    fn misdirect<T>(&mut self, net: &mut SimulatedNetwork<T>, up: bool, bytes: Vec<u8>) {
        let held: Vec<usize> = self.legs.iter().chain(&self.own).copied().collect();
        if let Some(&to) = self.rng.pick(&held) {
            net.inject(self.wires[to].link(up), bytes, self.short());
        }
    }

    /// Back to the sender.
    fn reflect<T>(
        &mut self,
        net: &mut SimulatedNetwork<T>,
        connection: usize,
        up: bool,
        bytes: Vec<u8>,
    ) {
        net.inject(self.wires[connection].link(!up), bytes, self.short());
    }

    fn cut<T>(&mut self, net: &mut SimulatedNetwork<T>, connection: usize, up: bool) {
        net.inject_close(self.wires[connection].link(up), self.short());
        net.inject_close(self.wires[connection].link(!up), self.short());
    }

    /// One byte at a time, all in order, which is no change.
    fn dribble<T>(
        &mut self,
        net: &mut SimulatedNetwork<T>,
        connection: usize,
        up: bool,
        bytes: &[u8],
    ) {
        let Some(to) = self.far_end(connection, up) else {
            return;
        };
        for (&byte, millis) in bytes.iter().zip(0..) {
            net.inject(self.wires[to].link(up), vec![byte], Duration::from_millis(millis));
        }
    }

    /// Forwards the message and adds another, on any controlled link, in any direction, at any
    /// time.
    fn speak_unasked<T>(
        &mut self,
        net: &mut SimulatedNetwork<T>,
        connection: usize,
        up: bool,
        bytes: Vec<u8>,
    ) {
        self.forward(net, connection, up, bytes);
        let more = self.recall();
        let way = self.rng.chance(50);
        self.misdirect(net, way, more);
    }

    fn recall(&mut self) -> Vec<u8> {
        self.rng.pick(&self.archive).cloned().unwrap_or_default()
    }

    fn impersonate<T>(&mut self, net: &mut SimulatedNetwork<T>, connection: usize, bytes: &[u8]) {
        match AssociationMessage::parse(bytes) {
            Ok(AssociationMessage::Cookie(_)) => self.greet_when_ready(net),
            Ok(AssociationMessage::List(list)) => self.answer(net, connection, &list),
            // The server's confirms to the impersonator are of no use to the victim, which has got
            // forged ones.
            Ok(
                AssociationMessage::Confirm(_)
                | AssociationMessage::Rejoin(_)
                | AssociationMessage::Rejoined(_),
            )
            | Err(_) => {}
        }
    }

    /// Plays the server's first part on all legs, once it has all cookies that it may use.
    fn greet_when_ready<T>(&mut self, net: &mut SimulatedNetwork<T>) {
        let held = self.legs.iter().chain(&self.own);
        let ready = held.into_iter().all(|&connection| self.cookies[connection].is_some());
        let Strategy::Impersonate(plan) = &mut self.strategy else {
            return;
        };
        if !ready || plan.greeted {
            return;
        }
        plan.greeted = true;
        let (greeting, eager, edits) = (plan.greeting.clone(), plan.eager, plan.edits);
        for (place, source) in greeting.into_iter().enumerate() {
            let cookie = source.and_then(|connection| self.cookies[connection]);
            let cookie = cookie.unwrap_or_else(|| self.rng.bytes());
            let message = AssociationMessage::Cookie(ConnectionCookie::new(cookie)).encode();
            net.inject(self.wires[self.legs[place]].down, message, self.short());
        }
        if eager {
            let list = self.guess_list(edits);
            self.present(net, &list);
        }
    }

    /// Confirms the victim's list to it on this leg, and presents another to the server.
    fn answer<T>(&mut self, net: &mut SimulatedNetwork<T>, leg: usize, list: &CookieList) {
        let Strategy::Impersonate(plan) = &self.strategy else {
            return;
        };
        let (confirm_edits, edits) = (plan.confirm_edits, plan.edits);
        let confirm = self.edited(Forgery::copy(list), confirm_edits);
        net.inject(
            self.wires[leg].down,
            confirm.encode(AssociationMessageKind::Confirm),
            self.short(),
        );
        let forged = self.edited(Forgery::copy(list), edits);
        self.present(net, &forged);
    }

    /// Plays the client's part on all legs and all its own connections, once.
    fn present<T>(&mut self, net: &mut SimulatedNetwork<T>, list: &Forgery) {
        let Strategy::Impersonate(plan) = &mut self.strategy else {
            return;
        };
        if std::mem::replace(&mut plan.listed, true) {
            return;
        }
        let held: Vec<usize> = self.legs.iter().chain(&self.own).copied().collect();
        for connection in held {
            net.inject(
                self.wires[connection].up,
                list.encode(AssociationMessageKind::List),
                self.short(),
            );
        }
    }

    /// The victim's likely list, with so many changes.
    fn guess_list(&mut self, edits: u64) -> Forgery {
        let cookies = self.victim.iter().filter_map(|&connection| self.cookies[connection]);
        let guess = Forgery::of(cookies.collect());
        self.edited(guess, edits)
    }

    fn edited(&mut self, mut forgery: Forgery, edits: u64) -> Forgery {
        let (known, own) = (self.known(), self.own_cookies());
        let inks = Inks { known: &known, own: &own, honest: self.cookies[self.honest] };
        for _ in 0..edits {
            forgery.edit(&mut self.rng, &inks);
        }
        forgery
    }

    fn known(&self) -> Vec<[u8; COOKIE_LEN]> {
        self.cookies.iter().flatten().chain(&OLD_HANDSHAKE).copied().collect()
    }

    fn own_cookies(&self) -> Vec<[u8; COOKIE_LEN]> {
        let held = self.own.iter().chain(&self.legs);
        held.filter_map(|&connection| self.cookies[connection]).collect()
    }

    fn short(&mut self) -> Duration {
        self.rng.duration_between(Duration::ZERO, Duration::from_millis(30))
    }
}

fn pick_strategy(rng: &mut SeededRng, legs: &[usize], own: &[usize]) -> Strategy {
    if rng.chance(60) {
        let percent = *rng.pick(&[10, 25, 50, 100]).unwrap();
        return Strategy::Meddle { percent };
    }
    let mut greeting: Vec<_> = legs.iter().copied().map(Some).collect();
    match rng.below(6) {
        0 => rng.shuffle(&mut greeting),
        1 => {
            let place = rng.index(greeting.len());
            greeting[place] = rng.pick(own).copied();
        }
        _ => {}
    }
    Strategy::Impersonate(Plan {
        greeting,
        edits: rng.below(3),
        eager: rng.chance(30),
        confirm_edits: u64::from(rng.chance(20)),
        greeted: false,
        listed: false,
    })
}
