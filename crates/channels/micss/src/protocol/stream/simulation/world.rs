//! Both ends with their applications, the connections between them, and the clock.

mod handshake;
mod rejoin;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::io::ErrorKind;
use std::time::Duration;

use association::{
    AssociationProtocol, ConnectionCookie, HandshakeServer, HandshakeServerConfig,
    PendingConnectionId, SharingScheme, TermsPolicy,
};
use sim::{SeededRng, SimulatedNetwork, SimulationEvent as Happening};

use super::application::SimulatedApplication;
use super::scenario::{ChannelScenario, StreamScenario};
use super::wire::{SimulatedConnections, SimulatedRead};
use super::{CLIENT, SERVER, ms};
use crate::protocol::cookie_quorum::CookieQuorum;
use crate::protocol::incoming::{ChannelLossReason, LATE_CHANNEL_TIMEOUT};
use crate::protocol::memory::MemoryLease;
use crate::protocol::options::{OPTION_NO_RECORDS, OPTION_REJOIN, OPTION_SINGLE_USE};
use crate::protocol::stream::{StreamEndpoint, StreamFailure, StreamPhase, StreamProtocolEvent};

/// How long a connection waits for its association at the server.
const ASSOCIATION_TIMEOUT: Duration = Duration::from_secs(90);

/// A client connects lost channels again and again, as long as its stream is open. No stream that
/// ends takes longer.
const MAX_TIME: Duration = Duration::from_secs(20_000);

/// What the clock is asked for.
#[derive(Clone, Copy)]
enum SimulationAlarm {
    /// Some timer is due, or an application goes on.
    Wake,
    /// The service has been connected, or is not.
    Service,
    Break(usize),
    Kill(usize),
    /// The path of a channel is lost, or is not any more.
    Path(usize, Option<Duration>),
    /// A reset arrives at an end of a channel, whose connection was replaced so often.
    Reset(usize, usize, u32),
    /// A new connection of a channel of the stream has its cookie, or the client's offer.
    Greeted(usize),
    Offered(usize),
    /// TCP gives a channel's connection up.
    TimeOut(usize),
}

/// One end.
pub(super) struct SimulatedStreamEnd {
    stream: Option<StreamEndpoint>,
    /// The channel of each of the stream's.
    places: Vec<usize>,
    pub(super) application: SimulatedApplication,
    /// The application's connection is broken, and the stream knows it.
    is_application_broken: bool,
    lost: BTreeSet<usize>,
    pub(super) failure: Option<StreamFailure>,
    pub(super) has_finished: bool,
    pub(super) is_over: bool,
}

impl SimulatedStreamEnd {
    /// What the stream waits for.
    pub(super) fn state(&self) -> String {
        let Some(stream) = &self.stream else { return "no stream".to_owned() };
        format!(
            "{} and {:?}, {} to deliver, wants {:?}, next {:?}, lost {:?}",
            phase(stream),
            stream.application,
            stream.to_deliver().len(),
            stream.wanted(),
            stream.next_timer(),
            self.lost
        )
    }
}

pub(super) struct StreamSimulation {
    scenario: StreamScenario,
    rng: SeededRng,
    network: SimulatedNetwork<SimulationAlarm>,
    wires: SimulatedConnections,
    ends: [SimulatedStreamEnd; 2],
    /// Until the client has its cookies: what has come of those that are waited for.
    greetings: Option<(CookieQuorum, BTreeMap<usize, Vec<u8>>)>,
    table: HandshakeServer,
    /// The offers of the client on new connections, and their cookies.
    offers: BTreeMap<usize, (ConnectionCookie, Vec<u8>)>,
    /// What the server has read behind a connection's List.
    rests: Vec<Vec<u8>>,
    /// When the next alarm is due that only wakes.
    wakes_at: Option<Duration>,
    seen: BTreeSet<String>,
}

impl StreamSimulation {
    pub(super) fn new(scenario: &StreamScenario, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let mut network = SimulatedNetwork::new(rng.next_u64());
        let wires = SimulatedConnections::new(scenario, &mut network);
        let end = |end: usize| SimulatedStreamEnd {
            stream: None,
            places: Vec::new(),
            application: SimulatedApplication::new(&scenario.ends[end], scenario.is_steady),
            is_application_broken: false,
            lost: BTreeSet::new(),
            failure: None,
            has_finished: false,
            is_over: false,
        };
        let channels = scenario.channels.len();
        let quorum = CookieQuorum::new(0..channels, scenario.k.into(), Duration::ZERO);
        let mut world = Self {
            scenario: scenario.clone(),
            rng,
            network,
            wires,
            ends: [end(CLIENT), end(SERVER)],
            greetings: Some((quorum, (0..channels).map(|channel| (channel, Vec::new())).collect())),
            table: HandshakeServer::new(handshake_config()),
            offers: BTreeMap::new(),
            rests: vec![Vec::new(); channels],
            wakes_at: None,
            seen: BTreeSet::new(),
        };
        world.arm_scenario();
        for channel in 0..channels {
            let cookie = ConnectionCookie::new(world.rng.bytes());
            world.table.open(PendingConnectionId(channel as u64), cookie, Duration::ZERO).unwrap();
        }
        world
    }

    pub(super) fn end(&self, end: usize) -> &SimulatedStreamEnd {
        &self.ends[end]
    }

    pub(super) fn now(&self) -> Duration {
        self.network.now()
    }

    /// Which timers have fired, and how the ends have ended.
    pub(super) fn into_seen(mut self) -> BTreeSet<String> {
        for end in self.ends {
            let how = match end.failure {
                _ if end.has_finished => "finished".to_owned(),
                Some(StreamFailure::Protocol(error)) => format!("failed: {}", name(error)),
                Some(failure) => format!("failed: {}", name(failure)),
                None if end.is_over => "over".to_owned(),
                None => "still there".to_owned(),
            };
            self.seen.insert(how);
        }
        self.seen
    }

    fn arm_scenario(&mut self) {
        for (end, script) in self.scenario.ends.iter().enumerate() {
            if let Some(at) = script.breaks_at {
                self.network.set_timer(at, SimulationAlarm::Break(end));
            }
            if let Some(at) = script.killed_at {
                self.network.set_timer(at, SimulationAlarm::Kill(end));
            }
        }
        for (channel, script) in self.scenario.channels.iter().enumerate() {
            for outage in &script.outages {
                let noticed = outage.from + outage.noticed_after;
                if outage.until.is_none_or(|until| noticed < until) {
                    self.network
                        .set_timer(noticed, SimulationAlarm::Path(channel, Some(outage.from)));
                    if let Some(until) = outage.until {
                        // A probe finds it out.
                        let probed =
                            ms(if self.scenario.is_steady { self.rng.below(1_000) } else { 0 });
                        self.network
                            .set_timer(until + probed, SimulationAlarm::Path(channel, None));
                    }
                }
            }
            if let Some(at) = self.wires.times_out_at(channel) {
                self.network.set_timer(at, SimulationAlarm::TimeOut(channel));
            }
        }
    }

    /// Runs until both ends are over, or nothing happens any more that could end them.
    pub(super) fn run(&mut self) {
        self.pump();
        while !self.is_over()
            && self.now() < MAX_TIME
            && let Some(happening) = self.network.next_event()
        {
            self.handle(happening);
            self.pump();
        }
    }

    /// Runs for some time, in which no end may be over, or hear nothing for so long although as
    /// many channels work all that time as are needed.
    pub(super) fn run_steadily(&mut self, time: Duration, silence: Duration) {
        self.pump();
        while self.now() < time
            && let Some(happening) = self.network.next_event()
        {
            self.handle(happening);
            self.pump();
            self.check_silence(silence);
        }
    }

    fn check_silence(&self, longest: Duration) {
        let now = self.now();
        let Some(since) = now.checked_sub(longest).filter(|since| *since > ms(3_000)) else {
            return;
        };
        let is_whole = |channel: &&ChannelScenario| {
            let is_over = |until: Option<Duration>| until.is_some_and(|until| until <= since);
            channel.outages.iter().all(|outage| now < outage.from || is_over(outage.until))
        };
        let whole = self.scenario.channels.iter().filter(is_whole).count();
        for (index, end) in self.ends.iter().enumerate() {
            let context =
                || format!("end {index} at {now:?}: {}, {:#?}", end.state(), self.scenario);
            assert!(!end.is_over && end.failure.is_none(), "{:?}, {}", end.failure, context());
            let is_silent = end.application.heard_at() < since;
            assert!(whole < self.scenario.k.into() || !is_silent, "silent: {}", context());
        }
    }

    fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.is_over)
    }

    fn handle(&mut self, happening: Happening<SimulationAlarm>) {
        let now = self.network.now();
        match happening {
            Happening::Arrived { link, bytes } => {
                if self.wires.arrive(link, bytes)
                    && let Some((channel, to)) = self.wires.place(link)
                {
                    self.arm_reset(1 - to, channel, now + ms(30));
                }
            }
            Happening::Closed { link } => self.wires.end(link),
            Happening::Intercepted { link, bytes } => {
                let resets = self.wires.attack(link, bytes, (&mut self.network, &mut self.rng));
                if let Some((channel, _)) = self.wires.place(link) {
                    for end in resets {
                        self.arm_reset(end, channel, now + ms(60));
                    }
                }
            }
            Happening::InterceptedClose { link } => {
                self.wires.attack_close(link, &mut self.network);
            }
            Happening::Timer(alarm) => self.handle_alarm(alarm, now),
        }
    }

    fn handle_alarm(&mut self, alarm: SimulationAlarm, now: Duration) {
        match alarm {
            SimulationAlarm::Wake => self.wakes_at = None,
            SimulationAlarm::Service => {
                if let Some(stream) = &mut self.ends[SERVER].stream {
                    match self.scenario.refusal {
                        None => stream.accept(now),
                        Some(refusal) => stream.refuse(refusal, now),
                    }
                }
            }
            SimulationAlarm::Break(end) => self.ends[end].is_application_broken = true,
            SimulationAlarm::Kill(end) => self.close_all(end, true),
            SimulationAlarm::Path(channel, unusable_since) => {
                for end in &mut self.ends {
                    let index = end.places.iter().position(|&place| place == channel);
                    if let (Some(stream), Some(index)) = (&mut end.stream, index) {
                        stream.handle_path(index, unusable_since, now);
                    }
                }
            }
            SimulationAlarm::Reset(_, channel, replaced)
                if replaced != self.wires.replaced(channel) => {}
            SimulationAlarm::Greeted(channel) => self.handle_greeted(channel),
            SimulationAlarm::Offered(channel) => self.handle_offered(channel),
            SimulationAlarm::Reset(end, channel, _) => {
                if let Some(later) = self.wires.reset(end, channel, now) {
                    self.network.set_timer(later, alarm);
                }
            }
            SimulationAlarm::TimeOut(channel) => self.wires.time_out(channel),
        }
    }

    /// Has the ends do what they can.
    fn pump(&mut self) {
        self.handle_timeouts();
        for round in 0.. {
            if !(self.greet() | self.associate() | self.step(CLIENT) | self.step(SERVER)) {
                break;
            }
            assert!(round < 1_000_000, "an end is busy for ever");
        }
        let now = self.now();
        let wakes = self.ends.iter().filter(|end| !end.is_over).flat_map(|end| {
            let stream = end.stream.as_ref().and_then(StreamEndpoint::poll_timeout);
            [stream, end.application.wakes_at(now)]
        });
        let greetings = self.greetings.as_ref().map(|(quorum, _)| quorum.poll_timeout());
        let next = wakes.chain([greetings, self.table.poll_timeout()]).flatten().min();
        if let Some(next) = next.map(|next| next.max(now))
            && self.wakes_at.is_none_or(|at| next < at)
        {
            self.wakes_at = Some(next);
            self.network.set_timer(next, SimulationAlarm::Wake);
        }
    }

    fn handle_timeouts(&mut self) {
        let now = self.now();
        if self.table.poll_timeout().is_some_and(|at| at <= now) {
            self.seen.insert("table".to_owned());
            self.table.handle_timeout(now);
        }
        for (index, end) in self.ends.iter_mut().enumerate() {
            let Some(stream) = &mut end.stream else { continue };
            while let Some((at, timer)) = stream.next_timer()
                && at <= now
            {
                self.seen.insert(format!("{} {timer:?}", phase(stream)));
                let silence = |channel: usize| self.wires.silence(index, end.places[channel], now);
                stream.handle_timeout(now, silence);
                let again = stream.next_timer();
                assert_ne!(again, Some((at, timer)), "a timer that does nothing fires for ever");
            }
        }
    }

    /// What an end can do now. Returns whether there was anything.
    fn step(&mut self, end: usize) -> bool {
        if self.ends[end].is_over {
            return false;
        }
        let Some(mut stream) = self.ends[end].stream.take() else { return false };
        let done = [
            self.take_events(end, &mut stream),
            self.send(end, &mut stream),
            self.receive(end, &mut stream),
            self.talk(end, &mut stream),
            self.watch(end, &mut stream),
        ];
        self.ends[end].stream = Some(stream);
        done.contains(&true)
    }

    fn take_events(&mut self, end: usize, stream: &mut StreamEndpoint) -> bool {
        let now = self.now();
        let mut done = stream.has_work();
        stream.advance(now);
        while let Some(event) = stream.poll_event() {
            done = true;
            match event {
                StreamProtocolEvent::Requested(request) => {
                    assert_eq!(*request, b"service");
                    limit_memory(stream, self.scenario.ends[SERVER].memory);
                    self.network
                        .set_timer(now + self.scenario.service_delay, SimulationAlarm::Service);
                }
                StreamProtocolEvent::Opened => stream.connect_application(now),
                StreamProtocolEvent::Lost(channel, why) => {
                    assert!(self.ends[end].lost.insert(channel), "lost twice");
                    if why != ChannelLossReason::Missing {
                        self.close(end, self.ends[end].places[channel], false);
                    }
                }
                StreamProtocolEvent::Detached(channel) => {
                    self.close(end, self.ends[end].places[channel], false);
                }
                StreamProtocolEvent::Rejoin(channel) => self.begin_rejoin(channel),
                StreamProtocolEvent::Probe(_) => {}
                StreamProtocolEvent::ShutApplication => self.ends[end].application.hear_end(),
                StreamProtocolEvent::ShutChannels => {
                    for channel in self.live(end) {
                        self.wires.shut(end, channel, &mut self.network);
                    }
                }
                StreamProtocolEvent::Finished => {
                    (self.ends[end].has_finished, self.ends[end].is_over) = (true, true);
                }
                StreamProtocolEvent::Failed(failure) => self.ends[end].failure = Some(failure),
                StreamProtocolEvent::Closed { reset } => self.close_all(end, reset),
            }
        }
        done
    }

    fn send(&mut self, end: usize, stream: &mut StreamEndpoint) -> bool {
        let mut done = false;
        for channel in 0..self.ends[end].places.len() {
            let place = self.ends[end].places[channel];
            loop {
                let to_send = stream.to_send(channel);
                if to_send.is_empty() {
                    break;
                }
                assert!(!self.ends[end].lost.contains(&channel), "a lost channel is used");
                let now = self.network.now();
                match self.wires.room(end, place) {
                    None => stream.handle_broken(channel, ErrorKind::ConnectionReset, now),
                    Some(0) => break,
                    Some(room) => {
                        let most = to_send.len().min(room);
                        let is_whole = self.rng.chance(50);
                        let len = if is_whole { most } else { 1 + self.rng.index(most) };
                        self.wires.send((end, place), &to_send[..len], &mut self.network);
                        stream.handle_sent(channel, len, now);
                    }
                }
                done = true;
                // What has broken is closed before anything else is done with it.
                self.take_events(end, stream);
            }
        }
        done
    }

    fn receive(&mut self, end: usize, stream: &mut StreamEndpoint) -> bool {
        let now = self.now();
        for channel in stream.wanted() {
            assert!(!self.ends[end].lost.contains(&channel), "a lost channel is used");
            let place = self.ends[end].places[channel];
            match self.wires.read((end, place), stream.space(channel), &mut self.rng) {
                SimulatedRead::Nothing => continue,
                SimulatedRead::Bytes(len) => stream.handle_received(channel, len, now),
                SimulatedRead::Broken => {
                    stream.handle_broken(channel, ErrorKind::ConnectionReset, now);
                }
            }
            return true;
        }
        false
    }

    /// Between the stream and its application.
    fn talk(&mut self, end: usize, stream: &mut StreamEndpoint) -> bool {
        let now = self.now();
        let own = &mut self.ends[end];
        if own.is_application_broken {
            let is_new = own.failure.is_none() && !own.is_over;
            let may_break = stream.wants_application() || !stream.to_deliver().is_empty();
            if is_new && (may_break || stream.half_closed().is_some()) {
                stream.handle_application_error(now);
                return true;
            }
            return false;
        }
        let mut done = false;
        let to_deliver = stream.to_deliver();
        if !to_deliver.is_empty() && own.application.takes(now) {
            let len = own.application.hear(to_deliver, &mut self.rng, now);
            stream.handle_delivered(len, now);
            done = true;
        }
        if stream.wants_application()
            && let Some(available) = own.application.available(now)
        {
            let space = stream.application_space(available);
            let (len, has_ended) = own.application.say(space, &mut self.rng, now);
            let is_end = has_ended && stream.end_fits_behind(len);
            stream.handle_application(len, is_end, now);
            done = true;
        }
        done
    }

    /// While one direction has ended, breaks are reported as the system does.
    fn watch(&mut self, end: usize, stream: &mut StreamEndpoint) -> bool {
        if stream.half_closed().is_none() || !stream.is_raw() {
            return false;
        }
        let now = self.now();
        for (channel, &place) in self.ends[end].places.iter().enumerate() {
            let is_live = !self.ends[end].lost.contains(&channel);
            if is_live && self.wires.is_broken(end, place) {
                stream.handle_broken(channel, ErrorKind::ConnectionReset, now);
                return true;
            }
        }
        false
    }

    /// The channels of an end that are not lost.
    fn live(&self, end: usize) -> Vec<usize> {
        let SimulatedStreamEnd { places, lost, .. } = &self.ends[end];
        let live = places.iter().enumerate().filter(|(channel, _)| !lost.contains(channel));
        live.map(|(_, &place)| place).collect()
    }

    /// A reset of a channel's present connection arrives at an end.
    fn arm_reset(&mut self, end: usize, channel: usize, at: Duration) {
        let replaced = self.wires.replaced(channel);
        self.network.set_timer(at, SimulationAlarm::Reset(end, channel, replaced));
    }

    fn close(&mut self, end: usize, channel: usize, is_reset: bool) {
        if let Some(delay) = self.wires.close((end, channel), is_reset, &mut self.network) {
            self.arm_reset(1 - end, channel, self.now() + delay);
        }
    }

    /// An end is over, and closes its connections.
    fn close_all(&mut self, end: usize, is_reset: bool) {
        for channel in 0..self.rests.len() {
            self.close(end, channel, is_reset);
        }
        self.ends[end].is_over = true;
    }
}

/// The variant of an error, and the beginning of what it has.
fn name(error: impl Debug) -> String {
    format!("{error:?}").split(['(', '{']).take(2).collect()
}

/// The name of the phase that a stream is in.
fn phase(stream: &StreamEndpoint) -> &'static str {
    match stream.phase {
        StreamPhase::Confirming(_) => "Confirming",
        StreamPhase::Answer => "Answer",
        StreamPhase::Request => "Request",
        StreamPhase::Connecting => "Connecting",
        StreamPhase::Refused => "Refused",
        StreamPhase::Open => "Open",
        StreamPhase::Aborting => "Aborting",
        StreamPhase::Over => "Over",
    }
}

/// Long records need memory, of which there is so much in each direction.
fn limit_memory(stream: &mut StreamEndpoint, memory: Option<usize>) {
    if let Some(memory) = memory {
        let lease = || MemoryLease::limited(move |bytes| bytes <= memory);
        stream.limit_memory(lease(), lease(), lease());
    }
}

fn handshake_config() -> HandshakeServerConfig {
    let policy = TermsPolicy {
        protocols: vec![AssociationProtocol::MicssStream],
        schemes: vec![SharingScheme::Xor, SharingScheme::Shamir],
        min_threshold: 1,
        max_channels: 16,
        options: OPTION_NO_RECORDS | OPTION_SINGLE_USE | OPTION_REJOIN,
    };
    HandshakeServerConfig {
        max_pending: 16,
        timeout: ASSOCIATION_TIMEOUT,
        quorum_timeout: Some(LATE_CHANNEL_TIMEOUT),
        policy,
    }
}
