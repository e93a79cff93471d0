//! The members of all groups: sessions in this process.

use std::fmt::Write;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use keys::{PublicKey, SecretKey};
use mix::chat::{Command, Config, Event, Session};
use mix::membership::{Invitation, Name};
use rustix::time::{ClockId, clock_gettime};
use sharing::Generator;
use transport::Choice;

use super::super::text;
use super::{Options, TIMEOUT};
use crate::host::Host;

/// How many new members of a group connect at a time: a proxy keeps so many that are strangers to
/// it.
const MAX_JOINING: usize = 50;

/// A member, by its group and its number in it, from 0. Member 0 is the group's administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct MemberId {
    pub(super) group: usize,
    pub(super) number: usize,
}

impl MemberId {
    /// Its name.
    pub(super) fn name(self) -> String {
        format!("member-{}", self.number)
    }

    fn file(self) -> String {
        format!("member-{}-{}", self.group, self.number)
    }
}

/// What has happened at a member, and when.
pub(super) struct Told {
    pub(super) member: MemberId,
    pub(super) at: Instant,
    pub(super) event: Event,
}

/// All members, by their groups.
pub(super) struct Members<'a> {
    host: &'a Host,
    configs: Vec<Vec<Config>>,
    sessions: Vec<Vec<Session>>,
    /// How many took part in the last round that each has read.
    participants: Vec<Vec<usize>>,
    tell: Sender<Told>,
    told: Receiver<Told>,
}

impl<'a> Members<'a> {
    /// Makes the identities of all members. Returns the administrators' keys.
    pub(super) fn make_identities(
        place: &Path,
        options: &Options,
    ) -> Result<Vec<PublicKey>, String> {
        let make = |group| {
            let keys = (0..options.members).map(|number| {
                let file = MemberId { group, number }.file();
                make_key(&place.join(format!("{file}.key")))
            });
            let keys = keys.collect::<Result<Vec<_>, _>>()?;
            keys.first().copied().ok_or_else(|| String::from("a group has no members"))
        };
        (0..options.groups).map(make).collect()
    }

    /// Starts the administrators, as members of the groups of a proxy.
    pub(super) fn start(
        host: &'a Host,
        place: &Path,
        options: &Options,
        proxy_key: PublicKey,
    ) -> Result<Self, String> {
        let (tell, told) = channel();
        let mut members = Self {
            host,
            configs: Vec::new(),
            sessions: Vec::new(),
            participants: vec![vec![0; options.members]; options.groups],
            tell,
            told,
        };
        for (group, name) in options.group_names().enumerate() {
            let administrator =
                read_key(&place.join(format!("{}.key", MemberId { group, number: 0 }.file())))?;
            let config = |number| {
                let member = MemberId { group, number };
                Ok(Config {
                    config_dir: place.to_owned(),
                    identity: PathBuf::from(format!("{}.key", member.file())),
                    name: Name::new(&member.name()).map_err(text)?,
                    proxy: options.address.to_string(),
                    proxy_key,
                    group: name.parse().map_err(text)?,
                    administrator,
                    state: PathBuf::from(format!("{}.state", member.file())),
                    transport: Choice::Named("tcp"),
                    least_anonymity: 3,
                    history: false,
                    stay: 1,
                })
            };
            let configs = (0..options.members).map(config).collect::<Result<_, String>>()?;
            members.configs.push(configs);
            members.sessions.push(Vec::new());
            members.add(MemberId { group, number: 0 }, None)?;
        }
        Ok(members)
    }

    fn add(&mut self, member: MemberId, invitation: Option<Invitation>) -> Result<(), String> {
        let config = &self.configs[member.group][member.number];
        let tell = self.tell.clone();
        let tell = move |event| {
            let told = tell.send(Told { member, at: Instant::now(), event });
            told.map_err(|_| "the measurement is over".into())
        };
        // The threads that it starts are on the host of the one that starts them.
        let session = self.host.run(|| Session::start(config, invitation, tell)).map_err(text)?;
        self.sessions[member.group].push(session.map_err(text)?.0);
        Ok(())
    }

    /// The administrators invite all others, who join, some at a time, one group after the other.
    /// Returns when all members of each have read a round in which all took part.
    pub(super) fn all_join(&mut self, options: &Options) -> Result<(), String> {
        for group in 0..options.groups {
            let mut joined = 1;
            while joined < options.members {
                let next = (joined + MAX_JOINING).min(options.members);
                for number in joined..next {
                    let member = MemberId { group, number };
                    let invitation = self.invite(member)?;
                    self.add(member, Some(invitation))?;
                }
                joined = next;
                let deadline = Instant::now() + TIMEOUT;
                while self.participants[group][..joined].iter().any(|seen| *seen < joined) {
                    let told = self.next(deadline, "a round in which all take part")?;
                    self.take(told)?;
                }
            }
        }
        Ok(())
    }

    /// An invitation of the group's administrator.
    fn invite(&mut self, member: MemberId) -> Result<Invitation, String> {
        let name = Name::new(&member.name()).map_err(text)?;
        self.sessions[member.group][0].ask(Command::Invite(name));
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let told = self.next(deadline, "an invitation")?;
            if let Event::Invitation(code) = &told.event {
                return Invitation::parse(code).map_err(text);
            }
            self.take(told)?;
        }
    }

    /// Has a member say something to another one of its group.
    pub(super) fn say(&self, from: MemberId, to: MemberId, text: String) {
        self.sessions[from.group][from.number].ask(Command::Say { to: to.name(), text });
    }

    /// What has happened next; `None` if nothing has until then.
    pub(super) fn next_until(&mut self, until: Instant) -> Result<Option<Told>, String> {
        let left = until.saturating_duration_since(Instant::now());
        match self.told.recv_timeout(left) {
            Ok(told) => Ok(Some(told)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err("all members have ended".into()),
        }
    }

    fn next(&mut self, deadline: Instant, what: &str) -> Result<Told, String> {
        let told = self.next_until(deadline)?;
        told.ok_or_else(|| format!("{what} has not come within {} s", TIMEOUT.as_secs()))
    }

    /// Takes what matters for who is there.
    fn take(&mut self, told: Told) -> Result<(), String> {
        let MemberId { group, number } = told.member;
        match told.event {
            Event::Status(status) => self.participants[group][number] = status.anonymity_set,
            Event::NotDone(why) | Event::Ended { why: Some(why) } => {
                return Err(format!("{}: {why}", told.member.name()));
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

/// Makes the file of an identity, and returns its public key.
pub(super) fn make_key(path: &Path) -> Result<PublicKey, String> {
    let secret: [u8; 32] =
        Generator::seeded().and_then(|mut generator| generator.array()).map_err(text)?;
    let mut digits = String::new();
    for byte in secret {
        // Writing to a text does not fail.
        let _ = write!(digits, "{byte:02x}");
    }
    fs::write(path, digits).map_err(text)?;
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(text)?;
    Ok(SecretKey::new(&secret).public())
}

fn read_key(path: &Path) -> Result<PublicKey, String> {
    Ok(SecretKey::read(path).map_err(text)?.public())
}
