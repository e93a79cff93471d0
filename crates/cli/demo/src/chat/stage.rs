//! The proxy and the members of the demonstration.

use std::collections::VecDeque;
use std::fmt::Display;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use console::CommandFailure;
use keys::{IdentityPublicKey, IdentitySecretKey};
use mix::MixClientEvent;
use mix::chat::{ChatCommand, ChatConfig, ChatEvent, ChatSession, found_group};
use mix::client::AcceptableTerms;
use mix::exchange::MixExchangeKind;
use mix::group::ArchiveLimits;
use mix::membership::{Invitation, MemberName};
use mix::proxy::{
    self, GroupProfile, MixGroupConfig, MixProxy, MixProxyHandle, MixProxyObservation,
};
use mix::wire::{GroupName, MixTerms, MixTermsError};
use transport::TransportChoice;

use super::STEP_TIMEOUT;

/// The most members of the group.
const MAX_MEMBERS: usize = 8;

/// What the proxy has had of a client, and when.
pub(super) type ProxyObservation = (IdentityPublicKey, Instant, MixProxyObservation);

/// What has happened at a member.
struct DemoMemberEvent {
    member: usize,
    event: ChatEvent,
}

/// A member.
struct DemoMember {
    session: ChatSession,
    key: IdentityPublicKey,
    /// What was asked for and not delivered.
    outstanding: usize,
    received: VecDeque<(String, String)>,
    participants: usize,
}

/// All of them. Dropped, they end.
pub(super) struct DemoChatGroup {
    names: &'static [&'static str],
    terms: MixTerms,
    members: Vec<DemoMember>,
    events: Receiver<DemoMemberEvent>,
    event_sender: Sender<DemoMemberEvent>,
    seen: Receiver<ProxyObservation>,
    proxy: MixProxyHandle,
    running: Option<JoinHandle<()>>,
}

impl Drop for DemoChatGroup {
    fn drop(&mut self) {
        self.members.clear();
        self.proxy.stop();
        if let Some(running) = self.running.take() {
            let _ = running.join();
        }
    }
}

impl DemoChatGroup {
    /// Starts a proxy with a group, whose administrator admits the others. Returns when all take
    /// part.
    pub(super) fn start(
        place: &Path,
        names: &'static [&'static str],
    ) -> Result<Self, CommandFailure> {
        let terms = terms().map_err(failed)?;
        let make_key = |name: &str| IdentitySecretKey::create(&place.join(name)).map_err(failed);
        let keys = names.iter().map(|name| Ok(make_key(name)?.public()));
        let keys = keys.collect::<Result<Vec<_>, CommandFailure>>()?;
        make_key("proxy")?;
        let group: GroupName = "friends".parse().map_err(failed)?;
        let config = proxy::MixProxyConfig {
            config_dir: place.to_owned(),
            identity: "proxy".into(),
            listen: "127.0.0.1:0".into(),
            state: "proxy.state".into(),
            balancers: Vec::new(),
            groups: vec![MixGroupConfig {
                name: group.clone(),
                administrator: keys[0],
                terms,
                audit_every_rounds: 0,
                archive: ArchiveLimits { keep: Duration::ZERO, keep_bytes: 0 },
            }],
        };
        let proxy = MixProxy::open(&config).map_err(failed)?;
        let (handle, address, key) = (proxy.handle(), proxy.local_addr(), proxy.public_key());
        let (event_sender, events) = channel();
        let (record, seen) = channel();
        handle.observe(&group, move |key, seen| _ = record.send((key, Instant::now(), seen)));
        let running = thread::Builder::new().name("mix-accept".into()).spawn(move || {
            // If it fails, the members lose their connections.
            let _ = proxy.run();
        });
        let mut stage = Self {
            names,
            terms,
            members: Vec::new(),
            events,
            event_sender,
            seen,
            proxy: handle,
            running: Some(running.map_err(failed)?),
        };
        for (at, name) in names.iter().enumerate() {
            let config = ChatConfig {
                config_dir: place.to_owned(),
                identity: name.into(),
                name: MemberName::new(name).map_err(failed)?,
                proxy: address.to_string(),
                proxy_key: key,
                group: group.clone(),
                administrator: keys[0],
                state: format!("{name}.state").into(),
                transport: TransportChoice::Named("tcp"),
                least_anonymity: names.len(),
                history: false,
                stay: 1,
                socks: None,
                files: "received".into(),
                terms: AcceptableTerms::default(),
            };
            if at == 0 {
                found_group(&config).map_err(failed)?;
            }
            stage.add(&config, at, keys[at])?;
        }
        stage.wait("all members", |stage| {
            stage.members.iter().all(|member| member.participants == names.len()).then_some(())
        })?;
        Ok(stage)
    }

    fn add(
        &mut self,
        config: &ChatConfig,
        at: usize,
        key: IdentityPublicKey,
    ) -> Result<(), CommandFailure> {
        let invitation = if at == 0 { None } else { Some(self.invite(at)?) };
        let sender = self.event_sender.clone();
        let report = move |event| {
            sender
                .send(DemoMemberEvent { member: at, event })
                .map_err(|_| "the demonstration is over".into())
        };
        let (session, _) = ChatSession::start(config, invitation, report).map_err(failed)?;
        let (received, outstanding) = (VecDeque::new(), 0);
        self.members.push(DemoMember { session, key, outstanding, received, participants: 0 });
        Ok(())
    }

    /// An invitation of the first member for this one.
    fn invite(&mut self, at: usize) -> Result<Invitation, CommandFailure> {
        self.members[0]
            .session
            .send_command(ChatCommand::Invite(MemberName::new(self.names[at]).map_err(failed)?));
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            let member_event = self.next(deadline, "an invitation")?;
            if let ChatEvent::Invitation { code, .. } = member_event.event {
                return Invitation::parse(&code).map_err(failed);
            }
            self.take(member_event)?;
        }
    }

    /// What the exchanges are like.
    pub(super) fn terms(&self) -> MixTerms {
        self.terms
    }

    /// The key of a member.
    pub(super) fn key(&self, member: usize) -> IdentityPublicKey {
        self.members[member].key
    }

    /// Has a member say something.
    pub(super) fn say(&mut self, from: usize, to: usize, text: &str) {
        let member = &mut self.members[from];
        member.outstanding += 1;
        member.session.send_command(ChatCommand::Say {
            to: self.names[to].to_owned(),
            text: text.to_owned(),
        });
    }

    /// Waits for the next message to a member: who has sent it, and what.
    pub(super) fn wait_for_message(
        &mut self,
        to: usize,
    ) -> Result<(String, String), CommandFailure> {
        self.wait("a message", |stage| stage.members[to].received.pop_front())
    }

    /// Waits until all that a member sent has arrived.
    pub(super) fn wait_until_delivered(&mut self, from: usize) -> Result<(), CommandFailure> {
        self.wait("a delivery", |stage| (stage.members[from].outstanding == 0).then_some(()))
    }

    /// Waits until the proxy has had this many updates of a member, from now on. Returns all that
    /// it has had meanwhile.
    pub(super) fn wait_for_updates(
        &mut self,
        key: &IdentityPublicKey,
        count: usize,
    ) -> Result<Vec<ProxyObservation>, CommandFailure> {
        while self.seen.try_recv().is_ok() {}
        let deadline = Instant::now() + STEP_TIMEOUT;
        let (mut seen, mut updates) = (Vec::new(), 0);
        while updates < count {
            let left = deadline.saturating_duration_since(Instant::now());
            let record = self.seen.recv_timeout(left).map_err(|_| late("an update"))?;
            updates +=
                usize::from(record.0 == *key && matches!(record.2, MixProxyObservation::Update(_)));
            seen.push(record);
        }
        Ok(seen)
    }

    fn wait<T>(
        &mut self,
        what: &str,
        mut is_done: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<T, CommandFailure> {
        let deadline = Instant::now() + STEP_TIMEOUT;
        loop {
            if let Some(done) = is_done(self) {
                return Ok(done);
            }
            let member_event = self.next(deadline, what)?;
            self.take(member_event)?;
        }
    }

    fn next(&self, deadline: Instant, what: &str) -> Result<DemoMemberEvent, CommandFailure> {
        let left = deadline.saturating_duration_since(Instant::now());
        self.events.recv_timeout(left).map_err(|error| match error {
            RecvTimeoutError::Timeout => late(what),
            RecvTimeoutError::Disconnected => failed("a member has ended"),
        })
    }

    fn take(&mut self, member_event: DemoMemberEvent) -> Result<(), CommandFailure> {
        let Some(member) = self.members.get_mut(member_event.member) else { return Ok(()) };
        match member_event.event {
            ChatEvent::Message { from, text, .. } => {
                member.received.push_back((from, text));
            }
            ChatEvent::Client(MixClientEvent::Delivered { .. }) => member.outstanding -= 1,
            ChatEvent::Status(status) => member.participants = status.anonymity_set,
            ChatEvent::NotSent { why, .. }
            | ChatEvent::NotDone(why)
            | ChatEvent::Ended { why: Some(why) } => {
                return Err(failed(why));
            }
            _ => {}
        }
        Ok(())
    }
}

/// The terms of a group by default, with shorter rounds: everything is on this machine.
fn terms() -> Result<MixTerms, MixTermsError> {
    let shape = *GroupProfile::Interactive.terms(MAX_MEMBERS)?.shape();
    let (interval, least) = (Duration::from_secs(2), Duration::from_millis(10));
    MixTerms::new(MixExchangeKind::Broadcast, shape, interval, least)
}

fn late(what: &str) -> CommandFailure {
    failed(format!("{what} has not come within {} s", STEP_TIMEOUT.as_secs()))
}

fn failed(error: impl Display) -> CommandFailure {
    CommandFailure::Failed(format!("the chat: {error}"))
}
