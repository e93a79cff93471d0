//! A user at each server, who has messages signed all the time.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use keys::AnyPublicKey;
use quorum::api::{ApiEncoding, QuorumApiClient, QuorumApiError};
use tokio::runtime::Builder;
use tokio::time::timeout;

/// How the messages begin that a rule of each server allows.
pub(crate) const RULE: &str = "release ";

/// The message that is registered at each server.
///
/// It has no length that an Ed25519 key refuses, because it is one of digests.
pub(crate) const REGISTERED: &str = "a message that was registered";

/// The pause between two messages of a user.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a user waits for an answer: longer than any server does.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// The users. They end when this is dropped.
pub(crate) struct Signers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    stops: AtomicBool,
    public: OnceLock<AnyPublicKey>,
    /// For each server how often a fault has begun or ended: odd while there is one.
    faults: Vec<AtomicU32>,
    record: Mutex<Record>,
}

struct Record {
    signed: u64,
    last: Instant,
    longest_pause: Duration,
    mistakes: Vec<String>,
    /// How long signatures took, and at which server.
    times: Vec<(usize, Duration)>,
    /// The last message and its signature, for each server.
    samples: BTreeMap<usize, (Vec<u8>, Vec<u8>)>,
}

impl Signers {
    /// The users of this many servers, none of whom asks for anything yet. A server may fail until
    /// [`Self::end_faults`].
    pub(crate) fn new(servers: usize) -> Self {
        let record = Record {
            signed: 0,
            last: Instant::now(),
            longest_pause: Duration::ZERO,
            mistakes: Vec::new(),
            times: Vec::new(),
            samples: BTreeMap::new(),
        };
        let shared = Arc::new(Shared {
            stops: AtomicBool::new(false),
            public: OnceLock::new(),
            faults: (0..servers).map(|_| AtomicU32::new(1)).collect(),
            record: Mutex::new(record),
        });
        Self { shared, threads: Vec::new() }
    }

    /// Starts a user at each socket, of the servers from 1. The group has this key.
    pub(crate) fn start(&mut self, public: AnyPublicKey, sockets: Vec<PathBuf>) {
        self.shared.public.set(public).expect("it is started once");
        let start = |(i, socket): (usize, PathBuf)| {
            let shared = Arc::clone(&self.shared);
            thread::spawn(move || shared.run(i + 1, &QuorumApiClient::new(&socket)))
        };
        self.threads = sockets.into_iter().enumerate().map(start).collect();
    }

    /// From now on a server may refuse, be late, or not answer.
    pub(crate) fn begin_fault(&self, server: usize) {
        let fault = &self.shared.faults[server - 1];
        if fault.load(Ordering::SeqCst).is_multiple_of(2) {
            fault.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// From now on every server must sign if it has shares.
    pub(crate) fn end_faults(&self) {
        for fault in &self.shared.faults {
            if !fault.load(Ordering::SeqCst).is_multiple_of(2) {
                fault.fetch_add(1, Ordering::SeqCst);
            }
        }
    }

    /// Begins to measure pauses anew.
    pub(crate) fn reset_pause(&self) {
        let mut record = self.shared.record.lock().unwrap();
        (record.last, record.longest_pause) = (Instant::now(), Duration::ZERO);
    }

    /// The longest time without a signature at any server.
    pub(crate) fn longest_pause(&self) -> Duration {
        let record = self.shared.record.lock().unwrap();
        record.longest_pause.max(record.last.elapsed())
    }

    /// The number of signatures.
    pub(crate) fn signed(&self) -> u64 {
        self.shared.record.lock().unwrap().signed
    }

    /// How long signatures took at these servers since this was called before.
    pub(crate) fn take_times(&self, servers: &[usize]) -> Vec<Duration> {
        let times = std::mem::take(&mut self.shared.record.lock().unwrap().times);
        let of_them = times.into_iter().filter(|(server, _)| servers.contains(server));
        of_them.map(|(_, took)| took).collect()
    }

    /// What a user got wrong.
    pub(crate) fn mistakes(&self) -> Vec<String> {
        self.shared.record.lock().unwrap().mistakes.clone()
    }

    /// The last message that each server has signed, and its signature.
    pub(crate) fn samples(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let record = self.shared.record.lock().unwrap();
        record.samples.values().cloned().collect()
    }
}

impl Drop for Signers {
    fn drop(&mut self) {
        self.shared.stops.store(true, Ordering::SeqCst);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, server: usize, client: &QuorumApiClient) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let fault = &self.faults[server - 1];
        let public = self.public.get().expect("the key is known");
        let encoding = encoding_of(public);
        for number in 0_u64.. {
            if self.stops.load(Ordering::SeqCst) {
                return;
            }
            let message = match number % 4 {
                0 => REGISTERED.into(),
                _ => format!("{RULE}{server}-{number}"),
            };
            let before = fault.load(Ordering::SeqCst);
            let begun = Instant::now();
            let signing = client.sign(message.clone().into_bytes().into(), encoding);
            let answer = runtime.block_on(async { timeout(ANSWER_TIMEOUT, signing).await });
            let is_sound = before.is_multiple_of(2) && fault.load(Ordering::SeqCst) == before;
            let mut record = self.record.lock().unwrap();
            let mut mistake = |what: &dyn std::fmt::Display| {
                let took = begun.elapsed();
                record.mistakes.push(format!("server {server}, {message}, {took:.1?}: {what}"));
            };
            match answer {
                Ok(Ok(signature)) if public.verify(message.as_bytes(), &signature) => {
                    record.times.push((server, begun.elapsed()));
                    record.signed(server, message.into_bytes(), signature.to_vec());
                }
                Ok(Ok(_)) => mistake(&"a wrong signature"),
                // It has no shares, as before or after its epoch.
                Ok(Err(QuorumApiError::Refused { status: 503, .. })) => {}
                Ok(Err(error)) if is_sound => mistake(&error),
                Err(error) if is_sound => mistake(&error),
                _ => {}
            }
            drop(record);
            thread::sleep(PAUSE);
        }
    }
}

/// The usual encoding of a key's signatures.
pub(crate) fn encoding_of(public: &AnyPublicKey) -> ApiEncoding {
    match public {
        AnyPublicKey::Rsa(_) => ApiEncoding::Pkcs1,
        AnyPublicKey::Ed25519(_) => ApiEncoding::Ed25519,
    }
}

impl Record {
    fn signed(&mut self, server: usize, message: Vec<u8>, signature: Vec<u8>) {
        self.signed += 1;
        self.longest_pause = self.longest_pause.max(self.last.elapsed());
        self.last = Instant::now();
        self.samples.insert(server, (message, signature));
    }
}
