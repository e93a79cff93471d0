//! Groups of members, and a proxy in a separate process (`sunder mix`), on two hosts with a link.
//! The members are those of `sunder chat` without its terminal: sessions of the crate `mix` in this
//! process, each with its own connection. Each has an identity and an invitation, and joins as a
//! user would.
//!
//! Of a large group, only some members need to be such *readers*. The others join in the same way,
//! and are then replaced by [light](LightMember) ones, which open no slots.
//!
//! In each group some pairs talk in turn: when a message is delivered, its receiver answers after a
//! random part of a round. The first message of a pair begins a new conversation and is counted
//! separately.

mod light;
mod members;
mod opening;
mod proxy;
mod talk;

use std::collections::BTreeMap;
use std::iter;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use mix::wire::MixTerms;
use mix::{MailboxShape, MixExchangeKind};
use serde::Deserialize;

use super::super::{DriverMeasure, DriverValues, MeasurementDriver, host, no_hosts, options};
use super::{CHECKS, SLOT_LEN, WireBytes, error_text, per_day, percentile};
use crate::network::EmulatedNetwork;
use crate::sandbox;
use light::LightMember;
use members::GroupMemberSessions;
use opening::opening_ms;
use proxy::ProxyProcess;
use talk::PairConversations;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "mix-delivery",
    values: &[
        "round",
        "round_95",
        "participants",
        "first",
        "first_95",
        "delivery",
        "delivery_95",
        "delivery_longest",
        "all_again",
        "up",
        "down",
        "up_day",
        "down_day",
        "proxy_processor",
        "proxy_share",
        "proxy_memory",
        "member_processor",
        "opening",
    ],
    hosts: &["proxy", "members_on"],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MixDeliveryOptions {
    /// The program.
    sunder: String,
    /// The hosts of the proxy, and of all members.
    proxy: String,
    members_on: String,
    /// Where the proxy listens.
    address: SocketAddr,
    /// `broadcast`, or the engine's name.
    engine: String,
    /// The number of groups, and of members in each.
    groups: usize,
    members: usize,
    /// The members of one more group, whose pairs do not talk; 0: there is none. What is measured
    /// of rounds and messages is that of the others.
    #[serde(default)]
    large_group: usize,
    /// How many members of each group open slots. The others are light, and do not talk. By
    /// default, all open slots.
    #[serde(default)]
    readers: Option<usize>,
    /// The slots of a member.
    slots_per_member: usize,
    /// The bytes of a slot.
    #[serde(default = "default_slot_len")]
    slot_len: usize,
    /// The slots of others that a member reads in an oblivious exchange.
    #[serde(default = "default_messages")]
    messages: usize,
    /// The group's intervals, in ms.
    interval_ms: u64,
    min_interval_ms: u64,
    /// The shortest round while members join, in ms, if it is another one. Slots then have at most
    /// the default length. The proxy is started again before the measurement.
    #[serde(default)]
    joining_ms: Option<u64>,
    /// The pairs of each group that talk.
    pairs: usize,
    /// The messages of each pair.
    deliveries: usize,
    /// Whether the proxy is started again when half of them have been delivered.
    #[serde(default)]
    restart: bool,
}

fn default_slot_len() -> usize {
    SLOT_LEN
}

fn default_messages() -> usize {
    1
}

/// The longest round while members join, if these rounds are others.
const JOINING_INTERVAL_MS: u64 = 5_000;

/// The maximum number of members of all groups.
const MAX_MEMBERS: usize = 2000;

/// The maximum number of messages of a pair.
const MAX_DELIVERIES: usize = 10_000;

/// The time limit of each wait.
const TIMEOUT: Duration = Duration::from_secs(300);

impl MixDeliveryOptions {
    fn terms(&self) -> Result<MixTerms, String> {
        let exchange: MixExchangeKind = self.engine.parse().map_err(error_text)?;
        let (slots, reads) = (self.slots_per_member, self.messages.saturating_add(CHECKS));
        let writes = if exchange == MixExchangeKind::Broadcast { slots } else { 1 };
        let members = self.members.max(self.large_group);
        let shape = MailboxShape::new(members, slots, writes, reads, self.slot_len);
        let [interval, least] = self.intervals().map(Duration::from_millis);
        MixTerms::new(exchange, shape.map_err(error_text)?, interval, least).map_err(error_text)
    }

    /// The longest and the shortest round, in ms.
    fn intervals(&self) -> [u64; 2] {
        [self.interval_ms, self.min_interval_ms]
    }

    /// The number of members of each group. The large one is the last.
    fn sizes(&self) -> Vec<usize> {
        let large = (self.large_group > 0).then_some(self.large_group);
        iter::repeat_n(self.members, self.groups).chain(large).collect()
    }

    /// Whether the member of a group with this number, from 0, opens slots.
    fn is_reader(&self, number: usize) -> bool {
        self.readers.is_none_or(|readers| number < readers)
    }

    /// The names of the groups.
    fn group_names(&self) -> impl Iterator<Item = String> {
        (1..=self.sizes().len()).map(|number| format!("group-{number}"))
    }
}

fn check(table: &toml::Table) -> Result<(), String> {
    let options: MixDeliveryOptions = options(table)?;
    let MixDeliveryOptions { groups, members, large_group, readers, pairs, deliveries, .. } =
        options;
    let all = groups.saturating_mul(members).saturating_add(large_group);
    let terms = options.terms()?;
    if groups == 0 || all > MAX_MEMBERS {
        return Err(format!(
            "groups is {groups}; give 1 or more, and at most {MAX_MEMBERS} members"
        ));
    }
    // With two members, a member would not send.
    if members < 3 || (1..3).contains(&large_group) {
        return Err(format!("members is {members}; give 3 or more, also for a large group"));
    }
    if readers.is_some() && terms.exchange() != MixExchangeKind::Broadcast {
        return Err("readers can be given for broadcasts only".into());
    }
    if readers.is_some_and(|readers| readers < 3) {
        return Err("give 3 readers or more".into());
    }
    let most = members.min(readers.unwrap_or(members)) / 2;
    if !(1..=most).contains(&pairs) {
        return Err(format!("pairs is {pairs}; give 1 to {most}, because each has two readers"));
    }
    if !(2..=MAX_DELIVERIES).contains(&deliveries) {
        return Err(format!("deliveries is {deliveries}; give 2 to {MAX_DELIVERIES}"));
    }
    Ok(())
}

fn measure(network: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: MixDeliveryOptions = options(table)?;
    let (proxys_host, members_host) =
        (host(network, &options.proxy)?, host(network, &options.members_on)?);
    let opening = opening_ms(&options)?;
    // In reality members have their own disks, so here they do not share a disk.
    let place = tempfile::tempdir_in(sandbox::SCRATCH).map_err(error_text)?;
    let administrators = GroupMemberSessions::make_identities(place.path(), &options)?;
    let mut proxy = ProxyProcess::start(proxys_host, place.path(), &options, &administrators)?;
    let mut members =
        GroupMemberSessions::start(members_host, place.path(), &options, proxy.key())?;
    members.all_join(&options)?;
    proxy.wait_for_all(Instant::now() + TIMEOUT)?;
    if options.joining_ms.is_some() {
        proxy.restart_to_measure(&options)?;
        proxy.wait_for_all(Instant::now() + TIMEOUT)?;
    }

    let (bytes, processor) = (WireBytes::of(network, &options.members_on)?, members.processor());
    let began = Instant::now();
    proxy.begin()?;
    let mut talk = PairConversations::new(&options);
    if options.restart {
        talk.run(&mut members, &mut proxy, options.deliveries / 2)?;
        proxy.restart()?;
    }
    talk.run(&mut members, &mut proxy, options.deliveries)?;
    proxy.wait_for_all(Instant::now() + TIMEOUT)?;
    let bytes = WireBytes::of(network, &options.members_on)?.since(bytes);
    let processor = members.processor().saturating_sub(processor);
    let mut rounds = proxy.end()?;
    let share = rounds.processor.as_secs_f64() / began.elapsed().as_secs_f64();

    let [up, down] = bytes.each(rounds.exchanges);
    let each = |time: Duration| time.as_secs_f64() * 1e3 / rounds.exchanges.max(1) as f64;
    let (of_proxy, of_members) = (each(rounds.processor), each(processor));
    let round = percentile(&mut rounds.times, 50);
    Ok(DriverValues::Named(BTreeMap::from([
        ("round", round),
        ("round_95", percentile(&mut rounds.times, 95)),
        ("participants", rounds.mean_participants()),
        ("first", percentile(&mut talk.first, 50)),
        ("first_95", percentile(&mut talk.first, 95)),
        ("delivery", percentile(&mut talk.later, 50)),
        ("delivery_95", percentile(&mut talk.later, 95)),
        ("delivery_longest", percentile(&mut talk.later, 100)),
        ("all_again", rounds.rejoin_time.as_secs_f64() * 1e3),
        ("up", up),
        ("down", down),
        ("up_day", per_day(up, round)),
        ("down_day", per_day(down, round)),
        ("proxy_processor", of_proxy),
        ("proxy_share", share),
        ("proxy_memory", rounds.memory_bytes as f64),
        ("member_processor", of_members),
        ("opening", opening),
    ])))
}
