//! Light members. Each has a connection of its own and takes part in every round as other members
//! do: what it sends and receives has the same lengths, at the same times. But it drops what it
//! receives of a mailbox while it arrives, and opens no slots, and its own ones are random. So one
//! process can be many members of a large group.

use std::convert::Infallible;
use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use encoding::{FieldError, FieldReader};
use keys::IdentitySecretKey;
use mix::chat::ChatConfig;
use mix::wire::{
    ArchiveRecord, MAX_GREETING_LEN, MemberToProxy, MembershipStatus, MixHello, MixTerms,
    ProxyToMember,
};
use mix::{NONCE_LEN, ReadRound, RoundPosition, RoundStart};
use transport::{
    Connection, ConnectionCloser, ConnectionOptions, ConnectionSecurity, MessageStream, connect,
};

use super::super::error_text;
use super::TIMEOUT;
use crate::host::EmulatedHost;

/// The longest pause before a connection that has ended is replaced.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// The first byte of the start of a round, and the length of its first fields: that byte, the
/// epoch, the round and the round that is read.
const ROUND: u8 = 8;
const ROUND_LEN: u64 = 1 + 4 + 8 + 8;

/// A member that takes part in rounds, in its own thread. It ends when this is dropped.
pub(super) struct LightMember {
    state: Arc<Mutex<LightMemberState>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct LightMemberState {
    is_over: bool,
    /// Closes its connection.
    closer: Option<ConnectionCloser>,
}

impl LightMemberState {
    /// Has a new connection closed at the end. Returns false if that has come.
    fn open(&mut self, connection: &Connection) -> bool {
        self.closer = Some(connection.closer());
        !self.is_over
    }
}

impl LightMember {
    /// Starts a member that has joined before.
    pub(super) fn start(host: &EmulatedHost, config: &ChatConfig) -> Result<Self, String> {
        let identity = IdentitySecretKey::read(&config.config_dir.join(&config.identity));
        let identity = identity.map_err(error_text)?;
        let options = ConnectionOptions {
            transport: config.transport,
            timeout: Some(TIMEOUT),
            ..ConnectionOptions::new(ConnectionSecurity::pinned(identity, vec![config.proxy_key]))
        };
        let (proxy, hello) = (config.proxy.clone(), MixHello { group: config.group.clone() });
        let state = Arc::new(Mutex::new(LightMemberState::default()));
        let shared = state.clone();
        let work = move || {
            loop {
                let connection = connect(&proxy, &options).ok();
                let opened = connection.filter(|connection| lock(&shared).open(connection));
                if let Some(connection) = opened {
                    // The driver waits for all members, and so notices if it cannot take part.
                    let _ = take_part(connection, &hello);
                }
                if lock(&shared).is_over {
                    return;
                }
                thread::sleep(MAX_PAUSE.mul_f64(fastrand::f64()));
            }
        };
        // The thread runs on the host of the thread that starts it.
        let start = || thread::Builder::new().name("mix-light".into()).spawn(work);
        let thread = host.run(start).map_err(error_text)?.map_err(error_text)?;
        Ok(Self { state, thread: Some(thread) })
    }
}

impl Drop for LightMember {
    fn drop(&mut self) {
        let closer = {
            let mut state = lock(&self.state);
            state.is_over = true;
            state.closer.take()
        };
        if let Some(closer) = closer {
            closer.close();
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<LightMemberState>) -> MutexGuard<'_, LightMemberState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes part in rounds until the connection ends.
fn take_part(mut connection: Connection, hello: &MixHello) -> Result<Infallible, String> {
    send(&mut connection, &hello.encode())?;
    let welcome = MessageStream::new(&mut connection).receive(MAX_GREETING_LEN);
    let welcome = welcome.map_err(error_text)?.ok_or("the proxy has ended")?;
    let welcome = ProxyToMember::decode(&welcome, None).map_err(error_text)?;
    let ProxyToMember::Welcome { terms, status, epoch, round, .. } = welcome else {
        return Err(format!("the proxy answers the greeting with {welcome:?}"));
    };
    if status != MembershipStatus::Member {
        return Err(format!("it is no member, but {status:?}"));
    }
    let mut arrived = RoundPosition { epoch, round };
    let mut is_catching_up = true;
    send(&mut connection, &MemberToProxy::CatchUp(arrived).encode())?;
    loop {
        let answer = match receive(&mut connection, &terms)? {
            ProxyToMember::Round { start, .. } => {
                if !is_catching_up && let Some(read) = start.read {
                    arrived = RoundPosition { epoch: start.epoch, round: read.round };
                }
                Some(request(start.round, &terms))
            }
            ProxyToMember::Late { .. } if !is_catching_up => {
                is_catching_up = true;
                Some(MemberToProxy::CatchUp(arrived))
            }
            ProxyToMember::Past { is_last, records } => {
                is_catching_up = !is_last;
                arrived = records.iter().filter_map(position).next_back().unwrap_or(arrived);
                is_catching_up.then_some(MemberToProxy::CatchUp(arrived))
            }
            ProxyToMember::Refused(refusal) => return Err(refusal.to_string()),
            _ => None,
        };
        if let Some(answer) = answer {
            send(&mut connection, &answer.encode())?;
        }
    }
}

/// Receives a message. Of the start of a round, everything but the first fields is dropped.
fn receive(connection: &mut Connection, terms: &MixTerms) -> Result<ProxyToMember, String> {
    let mut length = [0; 8];
    connection.read_exact(&mut length).map_err(error_text)?;
    let mut rest = connection.take(u64::from_be_bytes(length));
    let mut message = Vec::new();
    rest.by_ref().take(ROUND_LEN).read_to_end(&mut message).map_err(error_text)?;
    if message.first() != Some(&ROUND) {
        rest.read_to_end(&mut message).map_err(error_text)?;
        return ProxyToMember::decode(&message, Some(terms)).map_err(error_text);
    }
    io::copy(&mut rest, &mut io::sink()).map_err(error_text)?;
    round_of(&message).map_err(error_text)
}

/// The start of a round from its first fields, as if nobody had taken part in the one before.
fn round_of(message: &[u8]) -> Result<ProxyToMember, FieldError> {
    let mut fields = FieldReader::new(message);
    fields.u8()?;
    let (epoch, round, read) = (fields.u32()?, fields.u64()?, fields.u64()?);
    let read = (read > 0).then_some(ReadRound { round: read, participants: Vec::new() });
    Ok(ProxyToMember::Round { start: RoundStart { epoch, round, read }, opening: Vec::new() })
}

/// A request like those of other members. What is in it is of no use to anybody.
fn request(round: u64, terms: &MixTerms) -> MemberToProxy {
    let mut nonce = [0; NONCE_LEN];
    let mut body = vec![0; terms.shape().own_slots_len()];
    fastrand::fill(&mut nonce);
    fastrand::fill(&mut body);
    MemberToProxy::Request { round, nonce, body }
}

/// The round of a record of the archive.
fn position(record: &ArchiveRecord) -> Option<RoundPosition> {
    match record {
        ArchiveRecord::Gap(position) => Some(*position),
        ArchiveRecord::Round(round) => Some(round.position()),
        ArchiveRecord::Announcement(_) => None,
    }
}

fn send(connection: &mut Connection, message: &[u8]) -> Result<(), String> {
    let sent = MessageStream::new(&mut *connection).send(message);
    sent.and_then(|()| connection.flush()).map_err(error_text)
}

#[cfg(test)]
mod tests {
    use mix::Participant;

    use super::*;

    #[test]
    fn the_first_fields_of_a_round_are_read() {
        let participants = vec![Participant { member: 3, nonce: [7; NONCE_LEN] }];
        let read = |participants| Some(ReadRound { round: 11, participants });
        let start = |participants| RoundStart { epoch: 2, round: 12, read: read(participants) };
        let opening = vec![9; 100];
        let message = ProxyToMember::Round { start: start(participants), opening }.encode();
        assert_eq!(message[0], ROUND);
        let fields = &message[..usize::try_from(ROUND_LEN).unwrap()];
        let (start, opening) = (start(Vec::new()), Vec::new());
        assert_eq!(round_of(fields), Ok(ProxyToMember::Round { start, opening }));
    }
}
