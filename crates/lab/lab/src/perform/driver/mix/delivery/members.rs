//! The members of all groups: sessions in this process.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use keys::{IdentityPublicKey, IdentitySecretKey};
use mix::chat::{ChatCommand, ChatConfig, ChatEvent, ChatSession, found_group};
use mix::client::AcceptableTerms;
use mix::membership::{Invitation, MemberName};
use rustix::time::{ClockId, clock_gettime};
use transport::TransportChoice;

use super::super::error_text;
use super::{LightMember, MixDeliveryOptions, TIMEOUT};
use crate::host::EmulatedHost;

/// The number of new members of a group that connect at a time. It is below a proxy's limit for
/// clients that are not members.
const MAX_JOINING: usize = 50;

/// The number of all new members that connect at a time. It is below a proxy's limit for clients of
/// one address that have not named their group.
const MAX_CONNECTING: usize = 100;

/// A member, by its group and its number in it, from 0. Member 0 is the group's administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct GroupMemberId {
    pub(super) group: usize,
    pub(super) number: usize,
}

impl GroupMemberId {
    /// Its name.
    pub(super) fn name(self) -> String {
        format!("member-{}", self.number)
    }

    fn file(self) -> String {
        format!("member-{}-{}", self.group, self.number)
    }
}

/// An event of a member, with its time.
pub(super) struct GroupMemberEvent {
    pub(super) member: GroupMemberId,
    pub(super) at: Instant,
    pub(super) event: ChatEvent,
}

/// All members, by their groups.
pub(super) struct GroupMemberSessions<'a> {
    host: &'a EmulatedHost,
    configs: Vec<Vec<ChatConfig>>,
    /// Those of readers and, while they join, of others.
    sessions: Vec<Vec<ChatSession>>,
    light: Vec<LightMember>,
    /// The number of participants of the last round that each has read.
    participants: Vec<Vec<usize>>,
    event_sender: Sender<GroupMemberEvent>,
    events: Receiver<GroupMemberEvent>,
}

impl<'a> GroupMemberSessions<'a> {
    /// Makes the identities of all members. Returns the administrators' keys.
    pub(super) fn make_identities(
        place: &Path,
        options: &MixDeliveryOptions,
    ) -> Result<Vec<IdentityPublicKey>, String> {
        let make = |(group, size)| {
            let keys = (0..size).map(|number| {
                let file = GroupMemberId { group, number }.file();
                let key = IdentitySecretKey::create(&place.join(format!("{file}.key")));
                key.map(|key| key.public()).map_err(error_text)
            });
            let keys = keys.collect::<Result<Vec<_>, String>>()?;
            keys.first().copied().ok_or_else(|| String::from("a group has no members"))
        };
        options.sizes().into_iter().enumerate().map(make).collect()
    }

    /// Starts the administrators, as members of the groups of a proxy.
    pub(super) fn start(
        host: &'a EmulatedHost,
        place: &Path,
        options: &MixDeliveryOptions,
        proxy_key: IdentityPublicKey,
    ) -> Result<Self, String> {
        let (event_sender, events) = channel();
        let mut members = Self {
            host,
            configs: Vec::new(),
            sessions: Vec::new(),
            light: Vec::new(),
            participants: options.sizes().into_iter().map(|size| vec![0; size]).collect(),
            event_sender,
            events,
        };
        for (group, (name, size)) in options.group_names().zip(options.sizes()).enumerate() {
            let administrator = read_key(
                &place.join(format!("{}.key", GroupMemberId { group, number: 0 }.file())),
            )?;
            let terms = AcceptableTerms {
                exchange: Some(options.engine.parse().map_err(error_text)?),
                rounds_kept: None,
                max_bytes_per_day: u64::MAX,
                max_change: u32::MAX,
            };
            let config = |number| {
                let member = GroupMemberId { group, number };
                Ok(ChatConfig {
                    config_dir: place.to_owned(),
                    identity: PathBuf::from(format!("{}.key", member.file())),
                    name: MemberName::new(&member.name()).map_err(error_text)?,
                    proxy: options.address.to_string(),
                    proxy_key,
                    group: name.parse().map_err(error_text)?,
                    administrator,
                    state: PathBuf::from(format!("{}.state", member.file())),
                    transport: TransportChoice::Named("tcp"),
                    least_anonymity: 3,
                    history: false,
                    stay: 1,
                    socks: None,
                    files: PathBuf::from("received"),
                    terms,
                })
            };
            let configs = (0..size).map(config).collect::<Result<_, String>>()?;
            members.configs.push(configs);
            found_group(&members.configs[group][0]).map_err(error_text)?;
            members.sessions.push(Vec::new());
            members.add(GroupMemberId { group, number: 0 }, None)?;
        }
        Ok(members)
    }

    fn add(&mut self, member: GroupMemberId, invitation: Option<Invitation>) -> Result<(), String> {
        let config = &self.configs[member.group][member.number];
        let sender = self.event_sender.clone();
        let report = move |event| {
            let sent = sender.send(GroupMemberEvent { member, at: Instant::now(), event });
            sent.map_err(|_| "the measurement is over".into())
        };
        // The session's threads run on the host of the thread that starts them.
        let session =
            self.host.run(|| ChatSession::start(config, invitation, report)).map_err(error_text)?;
        self.sessions[member.group].push(session.map_err(error_text)?.0);
        Ok(())
    }

    /// Lets the administrators invite all others, who join in batches, several groups at a time.
    /// Returns when all readers have read a round in which their whole group took part.
    pub(super) fn all_join(&mut self, options: &MixDeliveryOptions) -> Result<(), String> {
        let sizes = options.sizes();
        let mut joined = vec![1; sizes.len()];
        while joined != sizes {
            let (before, mut room) = (joined.clone(), MAX_CONNECTING);
            for (group, count) in joined.iter_mut().enumerate() {
                let new = (sizes[group] - *count).min(MAX_JOINING).min(room);
                for number in *count..*count + new {
                    let member = GroupMemberId { group, number };
                    let invitation = self.invite(member)?;
                    self.add(member, Some(invitation))?;
                }
                *count += new;
                room -= new;
            }
            let is_there = |seen: &[Vec<usize>], group: usize| {
                let (first, count) = (before[group], joined[group]);
                let mut reading =
                    (0..count).filter(|number| *number >= first || options.is_reader(*number));
                count == first || reading.all(|number| seen[group][number] >= count)
            };
            let deadline = Instant::now() + TIMEOUT;
            while !(0..sizes.len()).all(|group| is_there(&self.participants, group)) {
                let member_event = self.next(deadline, "a round in which all take part")?;
                self.take(member_event)?;
            }
            if let Some(readers) = options.readers {
                self.replace_by_light(&joined, readers)?;
            }
        }
        Ok(())
    }

    /// Replaces the members that have joined and are no readers by light ones.
    fn replace_by_light(&mut self, joined: &[usize], readers: usize) -> Result<(), String> {
        for ((sessions, configs), joined) in self.sessions.iter_mut().zip(&self.configs).zip(joined)
        {
            let replaced = sessions.split_off(readers.min(sessions.len()));
            // All of them end at once, and not one after the other.
            for session in &replaced {
                session.send_command(ChatCommand::Stop);
            }
            let configs = &configs[joined - replaced.len()..*joined];
            drop(replaced);
            for config in configs {
                self.light.push(LightMember::start(self.host, config)?);
            }
        }
        // They have reported their end.
        while let Ok(member_event) = self.events.try_recv() {
            self.take(member_event)?;
        }
        Ok(())
    }

    /// An invitation of the group's administrator.
    fn invite(&mut self, member: GroupMemberId) -> Result<Invitation, String> {
        let name = MemberName::new(&member.name()).map_err(error_text)?;
        self.sessions[member.group][0].send_command(ChatCommand::Invite(name));
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let member_event = self.next(deadline, "an invitation")?;
            if let ChatEvent::Invitation { code, .. } = &member_event.event {
                return Invitation::parse(code).map_err(error_text);
            }
            self.take(member_event)?;
        }
    }

    /// Sends a message from a member to another member of its group.
    pub(super) fn say(&self, from: GroupMemberId, to: GroupMemberId, text: String) {
        self.sessions[from.group][from.number]
            .send_command(ChatCommand::Say { to: to.name(), text });
    }

    /// The next event; `None` if there is none until this time.
    pub(super) fn next_until(
        &mut self,
        until: Instant,
    ) -> Result<Option<GroupMemberEvent>, String> {
        let left = until.saturating_duration_since(Instant::now());
        match self.events.recv_timeout(left) {
            Ok(member_event) => Ok(Some(member_event)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("all members have ended".into()),
        }
    }

    fn next(&mut self, deadline: Instant, what: &str) -> Result<GroupMemberEvent, String> {
        let member_event = self.next_until(deadline)?;
        member_event.ok_or_else(|| format!("{what} has not come within {} s", TIMEOUT.as_secs()))
    }

    /// Records the participants of a member's last round. Fails if a command has failed or a member
    /// has ended.
    fn take(&mut self, member_event: GroupMemberEvent) -> Result<(), String> {
        let GroupMemberId { group, number } = member_event.member;
        match member_event.event {
            ChatEvent::Status(status) => self.participants[group][number] = status.anonymity_set,
            ChatEvent::NotDone(why) | ChatEvent::Ended { why: Some(why) } => {
                return Err(format!("{}: {why}", member_event.member.name()));
            }
            _ => {}
        }
        Ok(())
    }

    /// The processor time of this process: that of all members and of the links.
    #[expect(clippy::unused_self, reason = "they are in this process")]
    pub(super) fn processor(&self) -> Duration {
        Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
    }
}

fn read_key(path: &Path) -> Result<IdentityPublicKey, String> {
    Ok(IdentitySecretKey::read(path).map_err(error_text)?.public())
}
