//! A replicated service: a list of all commands, which answers with their number.

use super::handovers::{KINDS, stopped};
use super::*;
use crate::protocol::replication::{
    MAX_STATE_LEN, ReplicatedService, ServiceAnswerError, ServiceRequest, ServiceStatement,
    SignedServiceAnswer, StateMachine,
};
use crate::protocol::signing::PartialSignQuery;

/// A state machine for which every command and its order matter.
#[derive(Default)]
struct CommandList(Vec<u8>);

impl StateMachine for CommandList {
    fn apply(&mut self, command: &[u8]) -> Vec<u8> {
        if self.0.len() + command.len() < MAX_STATE_LEN {
            self.0.extend(command);
            self.0.push(b'\n');
        }
        Sha256Digest::of(&[&self.0]).0.to_vec()
    }

    fn snapshot(&self) -> Vec<u8> {
        self.0.clone()
    }

    fn restore(&mut self, snapshot: &[u8]) -> Result<(), MalformedEncoding> {
        if snapshot.last().is_some_and(|last| *last != b'\n') {
            return Err(MalformedEncoding("not a list"));
        }
        self.0 = snapshot.to_vec();
        Ok(())
    }
}

pub(super) fn counting_service() -> ReplicatedService {
    ReplicatedService::new("list", CommandList::default()).unwrap()
}

impl World {
    /// Sends a command to a server. Returns the request, and the number of its reply.
    fn send_command(&mut self, at: Number, command: &[u8]) -> (ServiceRequest, LocalRequestId) {
        let request = ServiceRequest::new("list", command, &mut self.generator).unwrap();
        let id = LocalRequestId(10_000 + self.rng.next_u64() % (1 << 40));
        let now = self.now;
        self.server(at).command(now, id, request.as_bytes().to_vec());
        (request, id)
    }

    /// The answer of the group, verified as by a client.
    fn command(&mut self, at: Number, command: &[u8]) -> Vec<u8> {
        let (request, id) = self.send_command(at, command);
        self.run_until(|world| world.nodes[&at].replies.contains_key(&id));
        let answer = self.nodes[&at].replies[&id].clone().unwrap();
        request.verify(&self.public(), &answer).unwrap().answer
    }

    /// The digests of the states of these servers.
    fn states(&self, servers: &[Number]) -> Vec<Option<Sha256Digest>> {
        servers.iter().map(|it| self.nodes[it].server.as_ref()?.service_digest()).collect()
    }

    fn run_until_equal(&mut self, servers: &[Number], state: &[u8]) {
        let state = Some(Sha256Digest::of(&[state]));
        self.run_until(|world| world.states(servers).iter().all(|it| *it == state));
    }
}

/// A group whose key is shared by a polynomial keeps the state from its first epoch, through
/// refreshes.
#[test]
fn replicated_service_moves_with_a_key_that_is_shared_by_a_polynomial() {
    for kind in KINDS {
        let mut world = stopped(kind, 1, 1);
        for number in 1..=4 {
            world.nodes.get_mut(&number).unwrap().service = true;
            world.start(number);
        }
        world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
        for number in 100..=103 {
            world.nodes.insert(number, Node { service: true, ..Node::default() });
            world.start(number);
        }
        assert_eq!(world.command(1, b"a"), digest_of(b"a\n"));
        world.refresh(&[1, 2], &group(1, 100));
        world.run_until(|world| world.have_epoch(2, &[100, 101, 102, 103]));
        assert_eq!(world.command(103, b"b"), digest_of(b"a\nb\n"));
        world.run_until_equal(&[100, 101, 102, 103], b"a\nb\n");
    }
}

fn digest_of(list: &[u8]) -> Vec<u8> {
    Sha256Digest::of(&[list]).0.to_vec()
}

#[test]
fn replicated_service_answers_and_moves_to_another_group() {
    for (old, new) in [(1, 1), (1, 2), (2, 1)] {
        let members: Vec<Number> = (0..=3 * new).map(|i| 100 + i).collect();
        let mut world = World::with_service(old, members.clone(), 1, true);
        let first: Vec<Number> = (1..=3 * old + 1).collect();
        world.run_until(|world| world.have_epoch(1, &first));
        assert_eq!(world.command(1, b"a"), digest_of(b"a\n"));
        assert_eq!(world.command(2, b"b"), digest_of(b"a\nb\n"));
        world.run_until_equal(&first, b"a\nb\n");
        world.refresh(&first[..=usize::from(old)], &group(new, 100));
        world.run_until(|world| world.have_epoch(2, &members));
        assert_eq!(world.command(103, b"c"), digest_of(b"a\nb\nc\n"));
        world.run_until_equal(&members, b"a\nb\nc\n");
        // The old group does not answer any more, and the state survives a restart of all.
        let (_, id) = world.send_command(1, b"d");
        world.run_until(|world| world.nodes[&1].replies.contains_key(&id));
        assert_eq!(world.nodes[&1].replies[&id], Err(SignRefusal::NoMember));
        for &member in &members {
            world.stop(member);
        }
        for &member in &members {
            world.start(member);
        }
        world.run_until_equal(&members, b"a\nb\nc\n");
        assert_eq!(world.command(101, b"d"), digest_of(b"a\nb\nc\nd\n"));
    }
}

/// Clients send commands at all times while links lose messages, servers stop and start, and the
/// group moves. All states become equal, and each accepted answer is in the one history.
#[test]
fn replicated_service_has_one_history_in_a_refresh_under_load() {
    for seed in 0..8 {
        let members: Vec<Number> = (100..104).collect();
        let mut world = World::with_service(1, members.clone(), seed, true);
        world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
        (world.loss, world.crashes) = (5, 5);
        let mut sent = Vec::new();
        for round in 0..40u8 {
            if round == 10 {
                // An operator tries again after a restart.
                world.refresh(&[1, 2, 3], &group(1, 100));
            }
            let at = if round % 2 == 0 { 1 + round % 4 } else { 100 + round % 4 };
            let (request, id) = world.send_command(at, &[b'a' + round % 26]);
            sent.push((at, request, id));
            let until = world.now + Duration::from_millis(300);
            world.run(|world| world.now >= until);
        }
        (world.loss, world.crashes) = (0, 0);
        if !world.have_epoch(2, &members) {
            let (now, to) = (world.now, group(1, 100));
            for number in 1..=4 {
                let _ = world.server(number).start_refresh(to.clone(), now);
            }
        }
        world.run_until(|world| world.have_epoch(2, &members));
        world.run_until(|world| {
            let states = world.states(&members);
            states[0].is_some() && states.iter().all(|it| *it == states[0])
        });
        let last = world.command(100, b"last");
        let public = world.public();
        let mut answers = BTreeMap::new();
        for (at, request, id) in sent {
            if let Some(Ok(answer)) = world.nodes[&at].replies.get(&id) {
                let answer = request.verify(&public, answer).unwrap();
                answers.insert(answer.answer, answer.height);
            }
        }
        assert!(answers.len() > 5, "seed {seed}: {} answers", answers.len());
        // Replay of the final state gives each accepted answer.
        let list = world.server(100).service_snapshot().unwrap();
        let prefixes = (0..=list.len()).filter(|end| list[..*end].ends_with(b"\n"));
        let history: BTreeSet<Vec<u8>> = prefixes.map(|end| digest_of(&list[..end])).collect();
        assert!(history.contains(&last));
        assert!(answers.keys().all(|answer| history.contains(answer)), "seed {seed}");
    }
}

/// A faulty server asks for signatures of false statements, and a client gets wrong answers.
#[test]
fn replicated_service_signs_no_false_statement() {
    let mut world = World::with_service(1, [], 5, true);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    let (request, id) = world.send_command(1, b"a");
    world.run_until(|world| world.nodes[&1].replies.contains_key(&id));
    let right = world.nodes[&1].replies[&id].clone().unwrap();
    let signed = SignedServiceAnswer::parse(&right).unwrap();
    let public = world.public();
    // The client refuses another answer, and the answer to another or an earlier request.
    let mut other = signed.clone();
    *other.statement.last_mut().unwrap() ^= 1;
    let forged = request.verify(&public, &other.to_bytes());
    assert_eq!(forged, Err(ServiceAnswerError::Signature));
    let again = ServiceRequest::new("list", b"a", &mut world.generator).unwrap();
    assert_eq!(again.verify(&public, &right), Err(ServiceAnswerError::OtherRequest));
    // Servers do not help to sign any of these.
    let statement = ServiceStatement::parse(&signed.statement).unwrap();
    let renamed = ServiceStatement { name: "other".into(), ..statement };
    let checkpoint = [&b"SNDR-QUORUM-SVC\0\x02\0\0\0\x04list\0\0\0\0\0\0\0\0"[..], &[7; 32]];
    let now = world.now;
    let mut ask = |message: Vec<u8>| {
        while world.poll(2) {}
        let (encoding, message) = (RsaEncoding::Pkcs1, message.into());
        let query = PartialSignQuery { epoch: 1, signers: None, encoding, message };
        let bytes = [&[1, 0, 0, 0, 0, 0, 0, 0, 7][..], &query.to_bytes()].concat();
        let from = identity(1).public();
        world.server(2).handle_message(now, &from, LinkTopic::Signing, &bytes, 0);
        let sent = world.links.len();
        while world.poll(2) {}
        world.links.drain(sent..).map(|(.., bytes)| bytes[0]).collect::<Vec<u8>>()
    };
    world_assert(&mut ask, &signed.statement, 2);
    world_assert(&mut ask, &other.statement, 3);
    world_assert(&mut ask, &renamed.to_bytes(), 3);
    world_assert(&mut ask, &checkpoint.concat(), 3);
    // A height that is not applied here yet: busy. Kind and name are before the epoch.
    let mut later = signed.statement.clone();
    later[16 + 1 + 8 + 8] = 1;
    world_assert(&mut ask, &later, 4);
    // Users cannot have such a message signed.
    let (id, encoding) = (LocalRequestId(5), RsaEncoding::Pkcs1);
    world.server(1).sign(now, id, other.statement, encoding);
    world.run_until(|world| world.nodes[&1].replies.contains_key(&id));
    let refused = Err(SignRefusal::Policy(MessageRefusal::Service));
    assert_eq!(world.nodes[&1].replies[&id], refused);
}

/// Asserts the kind of the message by which a server answers.
fn world_assert(ask: &mut impl FnMut(Vec<u8>) -> Vec<u8>, statement: &[u8], kind: u8) {
    assert_eq!(ask(statement.to_vec()), [kind]);
}

/// The first byte of a message with the state.
const STATE: u8 = 5;

/// A new server accepts only the state that the old group has signed, for its own height.
#[test]
fn replicated_service_refuses_a_wrong_state() {
    let members: Vec<Number> = (100..104).collect();
    let mut world = World::with_service(1, members.clone(), 6, true);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    world.command(1, b"a");
    world.refresh(&[1, 2], &group(1, 100));
    world.intercepted = Some(STATE);
    let to_it = |world: &World| world.kept.iter().filter(|it| it.1 == 100).count();
    world.run_until(|world| to_it(world) == 3);
    let states: Vec<_> = world.kept.iter().filter(|it| it.1 == 100).cloned().collect();
    let now = world.now;
    for (from, _, right) in &states {
        let mut wrong = right.to_vec();
        let last = wrong.len() - 2;
        wrong[last] ^= 1;
        let from = identity(*from).public();
        world.server(100).handle_message(now, &from, LinkTopic::Refresh, &wrong, 0);
        assert!(!world.server(100).has_service_state());
    }
    while world.poll(100) {}
    let is_refusal = |it: &&QuorumServerEvent| match it {
        QuorumServerEvent::MessageRefused { why, .. } => why.contains("has not signed"),
        _ => false,
    };
    assert_eq!(world.nodes[&100].events.iter().filter(is_refusal).count(), 3);
    let from = identity(3).public();
    world.server(100).handle_message(now, &from, LinkTopic::Refresh, &states[0].2, 0);
    assert!(world.server(100).has_service_state(), "the right one, from any server");
    world.intercepted = None;
    world.run_until(|world| world.have_epoch(2, &members));
    // The state of the opening is not the one of the epoch's beginning.
    world.command(100, b"b");
    world.run_until_equal(&members, b"a\nb\n");
}

/// An epoch does not begin while too few servers of the new group have the state.
#[test]
fn a_new_group_begins_only_with_the_state() {
    let members: Vec<Number> = (100..104).collect();
    let mut world = World::with_service(1, members.clone(), 8, true);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    world.command(1, b"a");
    world.refresh(&[1, 2], &group(1, 100));
    world.intercepted = Some(STATE);
    let until = world.now + Duration::from_secs(60);
    world.run(|world| world.now >= until);
    assert!(world.now >= until && world.kept.len() > 10);
    let epoch = |world: &mut World, at| world.server(at).status().epoch.unwrap();
    assert_eq!(epoch(&mut world, 1).epoch, 1);
    let run = epoch(&mut world, 1).run.unwrap();
    assert_eq!((run.chosen, run.without_shares.len()), (4, 4), "all but the state is there");
    assert_eq!(world.command(2, b"b"), digest_of(b"a\nb\n"), "the old group answers meanwhile");
    world.intercepted = None;
    world.run_until(|world| world.have_epoch(2, &members));
    world.run_until_equal(&members, b"a\nb\n");
}

/// A server without its disk gets the state of the epoch's beginning, and the commands since.
#[test]
fn a_server_without_its_disk_recovers_the_service() {
    let members: Vec<Number> = (100..104).collect();
    let mut world = World::with_service(1, members.clone(), 9, true);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    world.command(1, b"a");
    world.refresh(&[1, 2], &group(1, 100));
    world.run_until(|world| world.have_epoch(2, &members));
    world.command(100, b"b");
    world.stop(102);
    world.command(100, b"c");
    *world.nodes.get_mut(&102).unwrap() = Node { service: true, ..Node::default() };
    world.start(102);
    world.run_until_equal(&members, b"a\nb\nc\n");
    assert_eq!(world.command(102, b"d"), digest_of(b"a\nb\nc\nd\n"));
}

/// A faulty server's commands stop at its part of the log. Those of others go on.
#[test]
fn a_flood_of_commands_is_bounded_for_each_server() {
    let mut world = World::with_service(1, [], 10, true);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    let agreement = |world: &World| {
        let server = world.nodes[&1].server.as_ref().unwrap();
        server.epoch.as_ref().unwrap().agreement.clone()
    };
    let faulty = identity(4);
    let requests = vec![vec![7; 16_000]; 4];
    let mut flooded = agreement(&world);
    let mut bytes = 0;
    while let Some(entry) = flooded.command_entry(ServerIndex(3), requests.clone(), &faulty) {
        flooded.apply(&entry).unwrap();
        bytes += entry.to_bytes().len();
        assert!(bytes <= 16 << 20);
    }
    assert!(bytes > 15 << 20, "{bytes}");
    let other = flooded.command_entry(ServerIndex(0), requests.clone(), &identity(1)).unwrap();
    assert!(flooded.check(&other).is_ok());
    // A batch cannot be committed again, nor by another server, nor without its predecessor.
    let mut agreement = agreement(&world);
    let first = agreement.command_entry(ServerIndex(3), requests.clone(), &faulty).unwrap();
    agreement.apply(&first).unwrap();
    assert_eq!(agreement.check(&first), Err(LogEntryRefusal::Repeated));
    let second = agreement.command_entry(ServerIndex(3), requests.clone(), &faulty).unwrap();
    agreement.apply(&second).unwrap();
    let third = agreement.command_entry(ServerIndex(3), requests.clone(), &faulty).unwrap();
    assert_eq!(flooded.check(&third), Err(LogEntryRefusal::CommandsFull));
    let plain = agreement.clone().with_commands(false);
    assert_eq!(plain.check(&third), Err(LogEntryRefusal::NoService));
    let fresh = agreement.clone().with_commands(true);
    assert_eq!(fresh.check(&third), Err(LogEntryRefusal::Early));
    let forged = agreement.command_entry(ServerIndex(3), requests, &identity(1)).unwrap();
    assert_eq!(agreement.check(&forged), Err(LogEntryRefusal::Signature));
    // Its users beyond the limits are refused.
    let sent: Vec<_> = (0..300).map(|_| world.send_command(1, b"x").1).collect();
    world.run_until(|world| sent.iter().all(|id| world.nodes[&1].replies.contains_key(id)));
    let busy = sent.iter().filter(|id| world.nodes[&1].replies[*id] == Err(SignRefusal::Busy));
    assert_eq!(busy.count(), 300 - 256);
    let answered = sent.iter().filter(|id| world.nodes[&1].replies[*id].is_ok());
    assert_eq!(answered.count(), 256);
}

/// The group has no signature for the answer, but the command was applied.
#[test]
fn a_command_that_was_applied_is_not_refused_as_if_it_were_not() {
    let mut world = World::with_service(1, [], 11, true);
    world.run_until(|world| world.have_epoch(1, &[1, 2, 3, 4]));
    let id = world.send_command(1, b"x").1;
    let state = |world: &World| world.nodes[&1].server.as_ref().unwrap().service_snapshot();
    world.run_until(|world| state(world).is_some_and(|it| it == b"x\n"));
    assert!(!world.nodes[&1].replies.contains_key(&id));
    for number in [2, 3, 4] {
        world.stop(number);
    }
    world.run_until(|world| world.nodes[&1].replies.contains_key(&id));
    assert_eq!(world.nodes[&1].replies[&id], Err(SignRefusal::NotCommitted));
}
