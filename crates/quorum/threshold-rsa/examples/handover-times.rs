//! Prints how long a handover between two disjoint groups and a signature take, with all servers
//! in one process on all processors, and the processor time of each phase: of all servers together,
//! and of the slowest one. On a busy machine only processor times say something.
//!
//! usage: cargo run --release -p sunder-threshold-rsa --example handover-times [BITS [F ...]]

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use keys::rsa::RsaEncoding;
use random::RandomGenerator;
use rsa_arithmetic::{DealerKey, fixture};
use rustix::time::{ClockId, clock_gettime};
use sunder_threshold_rsa::{
    GroupSize, HandoverAgreement, HandoverDealer, HandoverEffect, HandoverEntry, HandoverEntryKind,
    HandoverReceiver, HandoverTerms, ParticipantId, ThresholdRsaOutput, ThresholdRsaRequest,
    ThresholdRsaScheme, ThresholdRsaShare, deal,
};

type Scheme = ThresholdRsaScheme;
type Entries = Vec<(ParticipantId, HandoverEntry<Scheme>)>;

/// The processor time of this thread or of all, so far.
fn processor_time(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    let seconds = u64::try_from(time.tv_sec).expect("time is positive");
    Duration::new(seconds, u32::try_from(time.tv_nsec).expect("below a second"))
}

fn of_thread() -> Duration {
    processor_time(ClockId::ThreadCPUTime)
}

/// One server of the old or the new group, with its own copy of the agreed state.
struct Server {
    id: ParticipantId,
    log: HandoverAgreement<Scheme>,
    dealer: Option<HandoverDealer<Scheme>>,
    receiver: Option<HandoverReceiver<Scheme>>,
    /// The processor time of each phase.
    times: [Duration; PHASES.len()],
}

/// The dealings, what receivers compute, and applied entries by kind: Key and Hold, Deal, the
/// choice with the new commitment, and Confirm.
const PHASES: [&str; 6] = ["deal", "receive", "apply Key, Hold", "apply Deal", "choose", "confirm"];

impl Server {
    fn wanted(&mut self) -> Entries {
        let start = of_thread();
        let mut entries = Vec::new();
        if let Some(dealer) = &self.dealer {
            entries.extend(dealer.wanted_entry(&self.log).map(|entry| (self.id, entry)));
            self.times[0] += of_thread().saturating_sub(start);
        }
        let start = of_thread();
        if let Some(receiver) = &mut self.receiver {
            receiver.handle_log(&self.log);
            let wanted = receiver.wanted_entries(&self.log);
            entries.extend(wanted.into_iter().map(|entry| (self.id, entry)));
            self.times[1] += of_thread().saturating_sub(start);
        }
        entries
    }

    fn apply(&mut self, entries: &Entries) {
        for (author, entry) in entries {
            let start = of_thread();
            let effect = self.log.apply(*author, entry);
            let phase = match (entry.kind(), effect) {
                (_, Ok(HandoverEffect::Chosen)) => 4,
                (HandoverEntryKind::Deal, _) => 3,
                (HandoverEntryKind::Confirm, _) => 5,
                _ => 2,
            };
            self.times[phase] += of_thread().saturating_sub(start);
        }
    }
}

fn on_all_processors<T: Send, R: Send>(
    items: &mut [T],
    run: impl Fn(&mut T) -> R + Sync,
) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = items.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let parts = items.chunks_mut(part);
        let running: Vec<_> = parts
            .map(|part| scope.spawn(|| part.iter_mut().map(&run).collect::<Vec<R>>()))
            .collect();
        running.into_iter().flat_map(|it| it.join().expect("no server panics")).collect()
    })
}

fn hand_over(
    old: &[ThresholdRsaShare],
    new: GroupSize,
    dealers: usize,
    generator: &mut RandomGenerator,
) -> (Vec<ThresholdRsaShare>, [[Duration; 2]; PHASES.len()]) {
    let sharing = Some(old[0].sharing().clone());
    let run = generator.array().expect("random bytes");
    let terms = HandoverTerms { run, old: sharing, new };
    let mut seed = || generator.array().expect("random bytes");
    let log = HandoverAgreement::new(terms.clone());
    let server = |id, dealer, receiver| Server {
        id,
        log: log.clone(),
        dealer,
        receiver,
        times: [Duration::ZERO; PHASES.len()],
    };
    let mut servers = Vec::new();
    for (place, share) in old.iter().enumerate() {
        let dealer = HandoverDealer::new(&terms, share.server(), Some(share), &seed());
        servers.push(server(share.server(), dealer.filter(|_| place < dealers), None));
    }
    for id in new.participants() {
        servers.push(server(id, None, HandoverReceiver::new(&terms, id, &seed())));
    }
    while !servers[0].log.is_final() {
        let entries = on_all_processors(&mut servers, Server::wanted).concat();
        on_all_processors(&mut servers, |server| server.apply(&entries));
    }
    let times = std::array::from_fn(|phase| {
        let of_phase = || servers.iter().map(|server| server.times[phase]);
        [of_phase().sum(), of_phase().max().unwrap_or_default()]
    });
    on_all_processors(&mut servers, Server::wanted);
    let shares = servers.into_iter().filter_map(|server| server.receiver?.into_share());
    (shares.collect(), times)
}

fn sign(shares: &[ThresholdRsaShare], message: &[u8]) -> Duration {
    let by_server: BTreeMap<_, _> = shares.iter().map(|it| (it.server(), it)).collect();
    let start = Instant::now();
    let order = by_server.keys().copied().collect::<Vec<_>>();
    let sharing = shares[0].sharing().clone();
    let request = ThresholdRsaRequest::new(sharing, RsaEncoding::Pkcs1, message.to_vec(), order);
    let mut request = request.expect("the modulus is long enough");
    let mut asked = Vec::new();
    while let Some(ThresholdRsaOutput::Ask { to, .. }) = request.poll_output() {
        asked.push(to);
    }
    let x = request.encoded().clone();
    let parts = on_all_processors(&mut asked, |to| {
        (*to, by_server[to].sign(&x).expect("x has an inverse").to_bytes())
    });
    for (from, part) in parts {
        request.handle_answer(from, &part);
    }
    assert!(matches!(request.poll_output(), Some(ThresholdRsaOutput::Signed(_))));
    start.elapsed()
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|it| it.parse().expect("a number"));
    let bits: u32 = arguments.next().unwrap_or(2048);
    let mut faulty: Vec<u8> =
        arguments.map(|it| u8::try_from(it).expect("f is at most 16")).collect();
    if faulty.is_empty() {
        faulty = vec![1, 3, 10];
    }
    let mut generator = RandomGenerator::seeded().expect("random bytes");
    let key = match bits {
        2048 => fixture::large_key(),
        _ => DealerKey::generate(bits, &mut generator).expect("a size of a modulus"),
    };
    for faulty in faulty {
        let size = GroupSize::of_faulty(faulty).expect("f is from 1 to 16");
        let start = Instant::now();
        let first = deal(&key, size, size, &mut generator).expect("a size of a group");
        println!("f = {faulty}, n = {}, {bits} bits", first.len());
        println!("  the dealer's sharing with all rows: {:?}", start.elapsed());
        for dealers in [first.len(), size.signer_count()] {
            let (start, busy) = (Instant::now(), processor_time(ClockId::ProcessCPUTime));
            let (second, times) = hand_over(&first, size, dealers, &mut generator);
            let busy = processor_time(ClockId::ProcessCPUTime).saturating_sub(busy);
            println!(
                "  handover, {dealers} dealers: {:?}, {busy:?} of processors",
                start.elapsed()
            );
            for (phase, [all, slowest]) in PHASES.iter().zip(times) {
                println!("    {phase}: {all:?} of all servers, {slowest:?} of the slowest");
            }
            let mut signed: Vec<_> = (0..50_u8).map(|it| sign(&second, &[it])).collect();
            signed.sort();
            println!(
                "  signature: p50 {:?}; a share has {} bytes",
                signed[25],
                second[0].to_bytes().len()
            );
        }
    }
}
