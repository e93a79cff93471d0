//! The exchange of one member with a proxy over a link (figure 7 of the paper): both ends are
//! threads of this process, each on its own host, with the same kind of connection as real members.
//! The updates of the other members are computed between the exchanges and are not part of the
//! measured time.

use std::collections::BTreeMap;
use std::iter;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use mix::engine::{self, MixEngineError, MixEngineName};
use mix::wire::{MemberToProxy, MixTerms, ProxyToMember};
use mix::{Mailbox, MixGroupKey, MixMember, Participant, ReadRound, RoundStart};
use serde::Deserialize;
use transport::{
    Connection, ConnectionSecurity, Listener, MessageStream, connect, random_identity,
};

use super::super::{DriverMeasure, DriverValues, MeasurementDriver, host, no_hosts, options};
use super::{
    WireBytes, engine, error_text, first_member, per_day, percentile, processor_time, seed, shape,
};
use crate::network::EmulatedNetwork;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "mix-exchange",
    values: &["time", "time_95", "member", "proxy", "up", "down", "up_day", "down_day"],
    hosts: &["member", "proxy"],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MixExchangeOptions {
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
    /// The number of measured exchanges.
    exchanges: usize,
    /// The time from the beginning of an exchange to that of the next one, in ms.
    round_ms: f64,
}

/// The maximum number of exchanges.
const MAX_EXCHANGES: usize = 10_000;

/// The maximum time of a round, in ms.
const MAX_ROUND_MS: f64 = 60_000.0;

/// The number of exchanges before the measured ones. The first one reads nothing.
const WARM_UP: usize = 2;

/// How long an end waits for the other.
const TIMEOUT: Duration = Duration::from_secs(120);

fn check(table: &toml::Table) -> Result<(), String> {
    let options: MixExchangeOptions = options(table)?;
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

impl MixExchangeOptions {
    fn terms(&self) -> Result<MixTerms, String> {
        let shape = shape(self.members, self.slots_per_member, self.messages)?;
        // The interval is not used here.
        let interval = Duration::from_secs(60);
        MixTerms::new(engine(&self.engine)?, shape, interval, interval).map_err(error_text)
    }
}

fn measure(network: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: MixExchangeOptions = options(table)?;
    let (terms, name) = (options.terms()?, engine(&options.engine)?);
    let identity = || random_identity().map_err(error_text);
    let (own, proxys) = (identity()?, identity()?);
    let proxy_key = proxys.public();
    let (members_host, proxys_host) =
        (host(network, &options.member)?, host(network, &options.proxy)?);
    let listening = transport::ConnectionOptions::new(ConnectionSecurity::open(proxys));
    let listener = proxys_host.run(|| Listener::bind(&options.address.to_string(), &listening));
    let listener = listener.map_err(error_text)?.map_err(error_text)?;
    let connecting = transport::ConnectionOptions {
        transport: transport::TransportChoice::Named("tcp"),
        timeout: Some(TIMEOUT),
        ..transport::ConnectionOptions::new(ConnectionSecurity::pinned(own, vec![proxy_key]))
    };
    let (turns, taken) = channel();
    let (done, dones) = channel();
    let (proxy, member) = thread::scope(|scope| {
        let proxy = scope
            .spawn(move || proxys_host.run(move || serve(&listener, &terms, name, &taken, &done)));
        let member = members_host.run(move || {
            let connection =
                connect(&options.address.to_string(), &connecting).map_err(error_text)?;
            let mut end = ExchangeMember::new(&terms, name, connection)?;
            end.exchange(network, &options, &ProxyRoundControl { requests: turns, results: dones })
        });
        (proxy.join().unwrap_or_else(|_| Ok(Err("the proxy panicked".into()))), member)
    });
    // An end that fails closes the connection, so the other one fails too.
    let (proxy, member) = (proxy.map_err(error_text)?, member.map_err(error_text)?);
    match (proxy, member) {
        (Ok(()), member) => member,
        (Err(proxy), Ok(_)) => Err(proxy),
        (Err(proxy), Err(member)) => Err(format!("{member}; the proxy: {proxy}")),
    }
}

/// A request to the proxy to open a round.
struct OpenRoundRequest {
    start: RoundStart,
    read: Mailbox,
}

/// The proxy's measurements of a round.
struct ProxyRoundResult {
    began: Instant,
    processor: Duration,
    update: Mailbox,
}

/// The channels by which the member controls the proxy's rounds.
struct ProxyRoundControl {
    requests: Sender<OpenRoundRequest>,
    results: Receiver<ProxyRoundResult>,
}

/// The proxy's end: a connection, and an exchange for each turn.
fn serve(
    listener: &Listener,
    terms: &MixTerms,
    name: MixEngineName,
    turns: &Receiver<OpenRoundRequest>,
    done: &Sender<ProxyRoundResult>,
) -> Result<(), String> {
    let connection = listener.accept_timeout(TIMEOUT).map_err(error_text)?;
    let connection = connection.ok_or("no member has connected")?;
    connection.set_timeout(Some(TIMEOUT)).map_err(error_text)?;
    let mut messages = MessageStream::new(connection);
    let mut engine = engine::proxy(name, terms.shape(), seed()?).map_err(error_text)?;
    loop {
        for message in iter::from_fn(|| engine.poll_set_up()) {
            send(&mut messages, &ProxyToMember::SetUp(message).encode())?;
        }
        if engine.is_ready() {
            break;
        }
        match from_member(&mut messages, terms)? {
            MemberToProxy::SetUp(message) => engine.handle_set_up(&message).map_err(error_text)?,
            _ => return Err(unexpected_message()),
        }
    }
    while let Ok(OpenRoundRequest { start, read }) = turns.recv() {
        let (began, processor) = (Instant::now(), processor_time());
        let opening = engine.opening(&read).map_err(error_text)?;
        let round = start.round;
        send(&mut messages, &ProxyToMember::Round { start, opening }.encode())?;
        let MemberToProxy::Request { body, .. } = from_member(&mut messages, terms)? else {
            return Err(unexpected_message());
        };
        let (update, body) = engine.answer(&body, &read).map_err(error_text)?;
        send(&mut messages, &ProxyToMember::Answer { round, body }.encode())?;
        let processor = processor_time().saturating_sub(processor);
        if done.send(ProxyRoundResult { began, processor, update }).is_err() {
            break;
        }
    }
    Ok(())
}

/// The member's end.
struct ExchangeMember<'a> {
    terms: &'a MixTerms,
    messages: MessageStream<Connection>,
    engine: Box<dyn engine::MemberEngine>,
    member: MixMember,
    key: MixGroupKey,
}

impl<'a> ExchangeMember<'a> {
    /// The first member of a group, after the engine's set-up.
    fn new(
        terms: &'a MixTerms,
        name: MixEngineName,
        connection: Connection,
    ) -> Result<Self, String> {
        let (member, key) = first_member(terms.shape())?;
        let mut end = Self {
            terms,
            messages: MessageStream::new(connection),
            engine: engine::member(name, terms.shape(), seed()?).map_err(error_text)?,
            member,
            key,
        };
        end.set_up()?;
        Ok(end)
    }

    fn set_up(&mut self) -> Result<(), String> {
        loop {
            for message in iter::from_fn(|| self.engine.poll_set_up()) {
                send(&mut self.messages, &MemberToProxy::SetUp(message).encode())?;
            }
            if self.engine.is_ready() {
                return Ok(());
            }
            match from_proxy(&mut self.messages, self.terms)? {
                ProxyToMember::SetUp(message) => {
                    self.engine.handle_set_up(&message).map_err(error_text)?;
                }
                _ => return Err(unexpected_message()),
            }
        }
    }

    /// Makes exchanges in which all members take part.
    fn exchange(
        &mut self,
        network: &EmulatedNetwork,
        options: &MixExchangeOptions,
        harness: &ProxyRoundControl,
    ) -> Result<DriverValues, String> {
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
            harness.requests.send(OpenRoundRequest { start, read: mailbox }).map_err(|_| gone())?;
            let processor = processor_time();
            let nonce = self.exchange_once()?;
            let (ended, processor) = (Instant::now(), processor_time().saturating_sub(processor));
            let done = harness.results.recv().map_err(|_| gone())?;
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
        Ok(DriverValues::Named(BTreeMap::from([
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
        let ProxyToMember::Round { start, opening } = from_proxy(&mut self.messages, self.terms)?
        else {
            return Err(unexpected_message());
        };
        let exchange = self.member.handle_round(&start, true).map_err(error_text)?;
        let body = self.engine.request(&opening, &exchange.update, &exchange.reads);
        let (round, nonce, body) = (start.round, exchange.nonce, body.map_err(error_text)?);
        send(&mut self.messages, &MemberToProxy::Request { round, nonce, body }.encode())?;
        let ProxyToMember::Answer { body, .. } = from_proxy(&mut self.messages, self.terms)? else {
            return Err(unexpected_message());
        };
        let slots = self.engine.slots(&body).map_err(error_text)?;
        self.member.handle_slots(&slots);
        match self.member.poll_event() {
            None => Ok(nonce),
            Some(event) => Err(format!("the slots are not those of the mailbox: {event:?}")),
        }
    }

    /// Adds the updates of members that have nothing to send.
    fn add_masks(&self, round: u64, members: &[Participant], mailbox: &mut Mailbox) {
        let mut mask = Mailbox::new(self.terms.shape());
        for member in members {
            self.key.mask(round, member).fill(&mut mask);
            mailbox.add(&mask);
        }
    }
}

fn send(messages: &mut MessageStream<Connection>, message: &[u8]) -> Result<(), String> {
    messages.send(message).and_then(|()| messages.flush()).map_err(error_text)
}

fn from_member(
    messages: &mut MessageStream<Connection>,
    terms: &MixTerms,
) -> Result<MemberToProxy, String> {
    let message = messages.receive(terms.max_to_proxy_len()).map_err(error_text)?;
    MemberToProxy::decode(&message.ok_or("the member has ended")?, terms).map_err(error_text)
}

fn from_proxy(
    messages: &mut MessageStream<Connection>,
    terms: &MixTerms,
) -> Result<ProxyToMember, String> {
    let message = messages.receive(terms.max_to_member_len()).map_err(error_text)?;
    ProxyToMember::decode(&message.ok_or("the proxy has ended")?, Some(terms)).map_err(error_text)
}

fn unexpected_message() -> String {
    MixEngineError::OutOfTurn.to_string()
}
