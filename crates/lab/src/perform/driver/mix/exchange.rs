//! The exchange of one member with a proxy over a link (figure 7 of the paper): both ends are
//! threads of this process, on hosts of their own, with a connection as members have it. What the
//! other members add to the mailbox is computed between the exchanges, and takes none of the time.

use std::collections::BTreeMap;
use std::iter;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use keys::SecretKey;
use mix::engine::{self, EngineError};
use mix::wire::{Terms, ToMember, ToProxy};
use mix::{
    Conversations, Epoch, GroupKey, Mailbox, Member, MemberInfo, Participant, ReadRound, RoundStart,
};
use serde::Deserialize;
use sharing::Generator;
use transport::{Connection, Listener, Messages, Security, connect, random_identity};

use super::super::{Driver, Values, host, no_hosts, options};
use super::{WireBytes, engine, per_day, percentile, processor_time, shape, text};
use crate::network::Network;

pub(super) const DRIVER: Driver = Driver {
    name: "mix-exchange",
    values: &["time", "time_95", "member", "proxy", "up", "down", "up_day", "down_day"],
    hosts: &["member", "proxy"],
    network: no_hosts,
    check,
    measure,
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// The ends' hosts.
    member: String,
    proxy: String,
    /// Where the proxy listens.
    address: SocketAddr,
    /// The engine's name.
    engine: String,
    /// The members of the group, and the slots of each.
    members: usize,
    slots_per_member: usize,
    /// The slots of others that the member reads in an exchange.
    messages: usize,
    /// How many exchanges are measured.
    exchanges: usize,
    /// The time from the beginning of an exchange to that of the next one, in ms.
    round_ms: f64,
}

/// The maximum number of exchanges.
const MAX_EXCHANGES: usize = 10_000;

/// The maximum time of a round, in ms.
const MAX_ROUND_MS: f64 = 60_000.0;

/// The exchanges before those that are measured. The first one reads nothing.
const WARM_UP: usize = 2;

/// How long an end waits for the other.
const TIMEOUT: Duration = Duration::from_secs(120);

fn check(table: &toml::Table) -> Result<(), String> {
    let options: Options = options(table)?;
    let (exchanges, round_ms) = (options.exchanges, options.round_ms);
    if !(1..=MAX_EXCHANGES).contains(&exchanges) {
        return Err(format!("exchanges is {exchanges}; give 1 to {MAX_EXCHANGES}"));
    }
    if !(round_ms > 0.0 && round_ms <= MAX_ROUND_MS) {
        return Err(format!(
            "round_ms is {round_ms}; give at most {MAX_ROUND_MS}, and more than 0"
        ));
    }
    options.terms().map(|_| ())
}

impl Options {
    fn terms(&self) -> Result<Terms, String> {
        let shape = shape(self.members, self.slots_per_member, self.messages)?;
        // These ends keep to no interval.
        let interval = Duration::from_secs(60);
        Terms::new(engine(&self.engine)?, shape, interval, interval).map_err(text)
    }
}

fn measure(network: &Network, table: &toml::Table) -> Result<Values, String> {
    let options: Options = options(table)?;
    let terms = options.terms()?;
    let identity = || random_identity().map_err(text);
    let (own, proxys) = (identity()?, identity()?);
    let proxy_key = proxys.public();
    let (members_host, proxys_host) =
        (host(network, &options.member)?, host(network, &options.proxy)?);
    let listening = transport::Options::new(Security::open(proxys));
    let listener = proxys_host.run(|| Listener::bind(&options.address.to_string(), &listening));
    let listener = listener.map_err(text)?.map_err(text)?;
    let connecting = transport::Options {
        transport: transport::Choice::Named("tcp"),
        timeout: Some(TIMEOUT),
        ..transport::Options::new(Security::pinned(own, vec![proxy_key]))
    };
    let (turns, taken) = channel();
    let (done, dones) = channel();
    let (proxy, member) = thread::scope(|scope| {
        let proxy =
            scope.spawn(move || proxys_host.run(move || serve(&listener, &terms, &taken, &done)));
        let member = members_host.run(move || {
            let connection = connect(&options.address.to_string(), &connecting).map_err(text)?;
            let mut end = MemberEnd::new(&terms, connection)?;
            end.exchange(network, &options, &Harness { turns, dones })
        });
        (proxy.join().unwrap_or_else(|_| Ok(Err("the proxy panicked".into()))), member)
    });
    // An end that fails ends the connection, of which the other one complains.
    let (proxy, member) = (proxy.map_err(text)?, member.map_err(text)?);
    match (proxy, member) {
        (Ok(()), member) => member,
        (Err(proxy), Ok(_)) => Err(proxy),
        (Err(proxy), Err(member)) => Err(format!("{member}; the proxy: {proxy}")),
    }
}

/// The round that the proxy is to open.
struct Turn {
    start: RoundStart,
    read: Mailbox,
}

/// What the proxy has done in a round.
struct Done {
    began: Instant,
    processor: Duration,
    update: Mailbox,
}

/// How the member has the proxy open rounds.
struct Harness {
    turns: Sender<Turn>,
    dones: Receiver<Done>,
}

/// The proxy's end: a connection, and an exchange for each turn.
fn serve(
    listener: &Listener,
    terms: &Terms,
    turns: &Receiver<Turn>,
    done: &Sender<Done>,
) -> Result<(), String> {
    let connection = listener.accept_timeout(TIMEOUT).map_err(text)?;
    let connection = connection.ok_or("no member has connected")?;
    connection.set_timeout(Some(TIMEOUT)).map_err(text)?;
    let mut messages = Messages::new(connection);
    let mut engine = engine::proxy(terms.engine(), terms.shape(), seed()?).map_err(text)?;
    loop {
        for message in iter::from_fn(|| engine.poll_set_up()) {
            send(&mut messages, &ToMember::SetUp(message).encode())?;
        }
        if engine.is_ready() {
            break;
        }
        match from_member(&mut messages, terms)? {
            ToProxy::SetUp(message) => engine.handle_set_up(&message).map_err(text)?,
            _ => return Err(out_of_turn()),
        }
    }
    while let Ok(Turn { start, read }) = turns.recv() {
        let (began, processor) = (Instant::now(), processor_time());
        let opening = engine.opening(&read).map_err(text)?;
        let round = start.round;
        send(&mut messages, &ToMember::Round { start, opening }.encode())?;
        let ToProxy::Request { body, .. } = from_member(&mut messages, terms)? else {
            return Err(out_of_turn());
        };
        let (update, body) = engine.answer(&body, &read).map_err(text)?;
        send(&mut messages, &ToMember::Answer { round, body }.encode())?;
        let processor = processor_time().saturating_sub(processor);
        if done.send(Done { began, processor, update }).is_err() {
            break;
        }
    }
    Ok(())
}

/// The member's end.
struct MemberEnd<'a> {
    terms: &'a Terms,
    messages: Messages<Connection>,
    engine: Box<dyn engine::MemberEngine>,
    member: Member,
    key: GroupKey,
}

impl<'a> MemberEnd<'a> {
    /// The first member of a group, after the engine's set-up.
    fn new(terms: &'a Terms, connection: Connection) -> Result<Self, String> {
        let (shape, group) = (terms.shape(), seed()?);
        let own = Arc::new(random_identity().map_err(text)?);
        let mut members = vec![MemberInfo { name: "member 0".into(), key: own.public() }];
        for number in 1..shape.members() {
            let key = SecretKey::new(&seed()?).public();
            members.push(MemberInfo { name: format!("member {number}"), key });
        }
        let epoch = Epoch::new(1, *shape, &own.public(), GroupKey::new(group), members);
        let member = Member::new(own, epoch.map_err(text)?, Conversations::new(1), 0, seed()?);
        let mut end = Self {
            terms,
            messages: Messages::new(connection),
            engine: engine::member(terms.engine(), shape, seed()?).map_err(text)?,
            member,
            key: GroupKey::new(group),
        };
        end.set_up()?;
        Ok(end)
    }

    fn set_up(&mut self) -> Result<(), String> {
        loop {
            for message in iter::from_fn(|| self.engine.poll_set_up()) {
                send(&mut self.messages, &ToProxy::SetUp(message).encode())?;
            }
            if self.engine.is_ready() {
                return Ok(());
            }
            match from_proxy(&mut self.messages, self.terms)? {
                ToMember::SetUp(message) => self.engine.handle_set_up(&message).map_err(text)?,
                _ => return Err(out_of_turn()),
            }
        }
    }

    /// Makes exchanges, in all of which all members take part.
    fn exchange(
        &mut self,
        network: &Network,
        options: &Options,
        harness: &Harness,
    ) -> Result<Values, String> {
        let others: Vec<Participant> = (1..u16::MAX)
            .take(options.members - 1)
            .map(|member| Participant { member, nonce: [7; 16] })
            .collect();
        let (mut read, mut mailbox) = (None, Mailbox::new(self.terms.shape()));
        let (mut times, mut of_member, mut of_proxy) = (Vec::new(), Vec::new(), Vec::new());
        let mut before = WireBytes::default();
        let mut next = Instant::now();
        for round in 1..=(WARM_UP + options.exchanges) as u64 {
            sleep(next.saturating_duration_since(Instant::now()));
            next += Duration::from_secs_f64(options.round_ms / 1e3);
            if round == WARM_UP as u64 + 1 {
                before = WireBytes::of(network, &options.member)?;
            }
            let start = RoundStart { epoch: 1, round, read: read.take() };
            let gone = || String::from("the proxy has ended");
            harness.turns.send(Turn { start, read: mailbox }).map_err(|_| gone())?;
            let processor = processor_time();
            let nonce = self.exchange_once()?;
            let (ended, processor) = (Instant::now(), processor_time().saturating_sub(processor));
            let done = harness.dones.recv().map_err(|_| gone())?;
            if round > WARM_UP as u64 {
                times.push(ended.saturating_duration_since(done.began));
                of_member.push(processor);
                of_proxy.push(done.processor);
            }
            mailbox = done.update;
            self.add_masks(round, &others, &mut mailbox);
            let own = Participant { member: 0, nonce };
            let participants = iter::once(own).chain(others.iter().copied()).collect();
            read = Some(ReadRound { round, participants });
        }
        let bytes = WireBytes::of(network, &options.member)?.since(before);
        let [up, down] = bytes.each(options.exchanges as u64);
        Ok(Values::Named(BTreeMap::from([
            ("time", percentile(&mut times, 50)),
            ("time_95", percentile(&mut times, 95)),
            ("member", percentile(&mut of_member, 50)),
            ("proxy", percentile(&mut of_proxy, 50)),
            ("up", up),
            ("down", down),
            ("up_day", per_day(up, options.round_ms)),
            ("down_day", per_day(down, options.round_ms)),
        ])))
    }

    /// Does the member's part of a round, and returns its nonce.
    fn exchange_once(&mut self) -> Result<[u8; 16], String> {
        let ToMember::Round { start, opening } = from_proxy(&mut self.messages, self.terms)? else {
            return Err(out_of_turn());
        };
        let exchange = self.member.handle_round(&start, true).map_err(text)?;
        let body = self.engine.request(&opening, &exchange.update, &exchange.reads);
        let (round, nonce, body) = (start.round, exchange.nonce, body.map_err(text)?);
        send(&mut self.messages, &ToProxy::Request { round, nonce, body }.encode())?;
        let ToMember::Answer { body, .. } = from_proxy(&mut self.messages, self.terms)? else {
            return Err(out_of_turn());
        };
        let slots = self.engine.slots(&body).map_err(text)?;
        self.member.handle_slots(&slots);
        match self.member.poll_event() {
            None => Ok(nonce),
            Some(event) => Err(format!("the slots are not those of the mailbox: {event:?}")),
        }
    }

    /// Adds the updates of members that have nothing to say.
    fn add_masks(&self, round: u64, members: &[Participant], mailbox: &mut Mailbox) {
        let mut mask = Mailbox::new(self.terms.shape());
        for member in members {
            self.key.mask(round, member).fill(&mut mask);
            mailbox.add(&mask);
        }
    }
}

fn send(messages: &mut Messages<Connection>, message: &[u8]) -> Result<(), String> {
    messages.send(message).and_then(|()| messages.flush()).map_err(text)
}

fn from_member(messages: &mut Messages<Connection>, terms: &Terms) -> Result<ToProxy, String> {
    let message = messages.receive(terms.max_to_proxy_len()).map_err(text)?;
    ToProxy::decode(&message.ok_or("the member has ended")?, terms).map_err(text)
}

fn from_proxy(messages: &mut Messages<Connection>, terms: &Terms) -> Result<ToMember, String> {
    let message = messages.receive(terms.max_to_member_len()).map_err(text)?;
    ToMember::decode(&message.ok_or("the proxy has ended")?, Some(terms)).map_err(text)
}

fn out_of_turn() -> String {
    EngineError::OutOfTurn.to_string()
}

fn seed() -> Result<[u8; 32], String> {
    Generator::seeded().and_then(|mut generator| generator.array()).map_err(text)
}
