//! Measures the processor time of transfers at each end, on one core.
//!
//! `cargo bench -p sunder-ot` prints milliseconds for the base transfers of a set-up, and millions
//! of extended transfers a second: medians, with the least and the most, of processor time. An
//! argument is the number of repetitions, by default 15.

use std::hint::black_box;
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use blocks::Block;
use blocks::aes::AesKernel;
use rustix::time::{ClockId, clock_gettime};
use sunder_ot::base::{ModulusLen, naor_pinkas, naor_pinkas_modp, ristretto, two_lock};
use sunder_ot::extension::{
    BASE_TRANSFERS, OtExtension, OtExtensionKind, OtExtensionReceiver, OtExtensionSecurity,
    OtExtensionSender, OtReceiverSetUp, OtSenderSetUp,
};
use sunder_ot::one_of_n;

/// Extended transfers in a repetition: as many as the evaluator of `MinCut` takes.
const TRANSFERS: usize = 250_000;

/// The transfers of one call.
const CALL: usize = 16_384;

fn main() {
    let repetitions = std::env::args().find_map(|argument| argument.parse().ok());
    let repetitions: usize = repetitions.unwrap_or(15);
    println!("AES: {:?}", AesKernel::best());
    println!("{BASE_TRANSFERS} base transfers, ms: receiver's message, sender, receiver's keys");
    base(repetitions);
    println!("a set-up on two threads, ms");
    together(repetitions);
    println!("extension, set-up in ms: sender, receiver, sender");
    println!("then correlated and random, millions a second: receiver, sender");
    for kind in OtExtensionKind::ALL {
        for security in [OtExtensionSecurity::SemiHonest, OtExtensionSecurity::MaliciousReceiver] {
            extension(OtExtension { kind, security }, repetitions);
        }
    }
    println!("1 of 10,000 messages of 256 bytes, ms: sender, receiver");
    of_many(repetitions);
}

fn base(repetitions: usize) {
    const CHOICES: [u8; BASE_TRANSFERS / 8] = [0x5a; BASE_TRANSFERS / 8];
    let mut times = Times::new(repetitions);
    for i in 0..repetitions {
        let seed = Block::from(i as u128);
        let (sender, from_sender) = ristretto::RistrettoOtSender::new(seed);
        let (receiver, from_receiver) = times.measure(0, || {
            ristretto::RistrettoOtReceiver::new(seed, &CHOICES, BASE_TRANSFERS)
                .expect("as many choices")
        });
        times.measure(1, || sender.receive(&from_receiver, BASE_TRANSFERS).expect("its message"));
        times.measure(2, || receiver.receive(&from_sender).expect("its message"));
    }
    println!("{:<22} {}", "Ristretto", times.ms());
    let mut times = Times::new(repetitions);
    for i in 0..repetitions {
        let seed = Block::from(i as u128);
        let (sender, message) = naor_pinkas::NaorPinkasSender::new(seed);
        let (_, message) = times.measure(0, || {
            naor_pinkas::receive(seed, &CHOICES, BASE_TRANSFERS, &message).expect("its message")
        });
        times.measure(1, || sender.receive(&message, BASE_TRANSFERS).expect("its message"));
    }
    println!("{:<22} {}", "Naor-Pinkas", times.ms());
    for group in naor_pinkas_modp::ModpGroup::ALL {
        let mut times = Times::new(repetitions);
        for i in 0..repetitions.min(5) {
            let seed = Block::from(i as u128);
            let (sender, message) = naor_pinkas_modp::NaorPinkasModpSender::new(group, seed);
            let (_, message) = times.measure(0, || {
                naor_pinkas_modp::receive(group, seed, &CHOICES, BASE_TRANSFERS, &message)
                    .expect("its message")
            });
            times.measure(1, || sender.receive(&message, BASE_TRANSFERS).expect("its message"));
        }
        println!("{:<22} {}", format!("N.-P. {group:?}"), times.ms());
    }
    for len in [ModulusLen::Bits2048, ModulusLen::Bits1024] {
        let key = two_lock::TwoLockSecretKey::generate(len, Block::from(1));
        let mut times = Times::new(repetitions);
        for i in 0..repetitions.min(5) {
            let seed = Block::from(i as u128);
            let (sender, locked) = two_lock::TwoLockSender::new(&key, seed, BASE_TRANSFERS);
            let (receiver, message) = times.measure(0, || {
                two_lock::TwoLockReceiver::new(len, seed, &CHOICES, BASE_TRANSFERS, &locked)
                    .expect("its message")
            });
            let (_, answer) = times.measure(1, || sender.receive(&message).expect("its message"));
            times.measure(2, || receiver.receive(&answer).expect("its message"));
        }
        println!("{:<22} {}", format!("two-lock RSA {}", len.bits()), times.ms());
    }
}

/// Both ends at the same time, each on a thread of its own.
fn together(repetitions: usize) {
    let extension = OtExtension {
        kind: OtExtensionKind::SoftSpoken4,
        security: OtExtensionSecurity::SemiHonest,
    };
    let mut times = Times::new(repetitions);
    for i in 0..repetitions {
        let seed = Block::from(i as u128);
        let start = Instant::now();
        thread::scope(|scope| {
            let (to_receiver, from_sender) = mpsc::channel();
            let (to_sender, from_receiver) = mpsc::channel();
            scope.spawn(move || {
                let (sender, message) = OtSenderSetUp::new(extension, Block::ONES, seed);
                to_receiver.send(message).expect("it is received");
                let point: Vec<u8> = from_receiver.recv().expect("it is sent");
                let keys = sender.receive_point(&point).expect("a point");
                let reply = from_receiver.recv().expect("it is sent");
                black_box(keys.receive(&reply).expect("the reply"));
            });
            let receiver = OtReceiverSetUp::new(extension, seed);
            to_sender.send(receiver.point().to_vec()).expect("it is received");
            let message = from_sender.recv().expect("it is sent");
            let (receiver, reply) = receiver.receive(&message).expect("its message");
            to_sender.send(reply).expect("it is received");
            black_box(receiver);
        });
        times.0[0].push(start.elapsed().as_secs_f64());
    }
    println!("{:<22} {}", "", times.ms());
}

fn extension(extension: OtExtension, repetitions: usize) {
    let mut times = Times::new(repetitions);
    let offset = Block::from(u128::MAX / 3);
    let mut ends = None;
    for i in 0..repetitions {
        let seed = Block::from(i as u128);
        let (sender, message) = times.measure(0, || OtSenderSetUp::new(extension, offset, seed));
        let (receiver, reply) = times.measure(1, || {
            OtReceiverSetUp::new(extension, seed).receive(&message).expect("its message")
        });
        let sender = times.measure(2, || sender.receive(&reply).expect("its message"));
        ends = Some((sender, receiver));
    }
    let name = format!("{:?} {:?}", extension.kind, extension.security);
    println!("{name:<30} {}", times.ms());
    let (mut sender, mut receiver) = ends.expect("at least one repetition");
    let correlated = rates(repetitions, &mut sender, &mut receiver, false);
    let random = rates(repetitions, &mut sender, &mut receiver, true);
    println!("{:<30} {} | {}", "", correlated.rates(), random.rates());
}

fn rates(
    repetitions: usize,
    sender: &mut OtExtensionSender,
    receiver: &mut OtExtensionReceiver,
    is_random: bool,
) -> Times {
    let choices = vec![0x35; CALL / 8];
    let (mut chosen, mut zeros) = (vec![Block::ZERO; CALL], vec![Block::ZERO; CALL]);
    let mut pairs = vec![[Block::ZERO; 2]; CALL];
    let mut times = Times::new(repetitions);
    let mut messages = vec![Vec::new(); TRANSFERS.div_ceil(CALL)];
    for _ in 0..repetitions {
        times.measure(0, || {
            for message in &mut messages {
                message.clear();
                let extended = if is_random {
                    receiver.random(&choices, &mut chosen, message)
                } else {
                    receiver.extend(&choices, &mut chosen, message)
                };
                extended.expect("as many choices");
                black_box(&chosen);
            }
        });
        times.measure(1, || {
            for message in &messages {
                let extended = if is_random {
                    sender.random(message, &mut pairs)
                } else {
                    sender.extend(message, &mut zeros)
                };
                extended.expect("its message");
                black_box((&pairs, &zeros));
            }
        });
    }
    times
}

fn of_many(repetitions: usize) {
    const COUNT: usize = 10_000;
    const LEN: usize = 256;
    let bits = one_of_n::transfers(COUNT);
    let (pairs, keys) = (vec![[Block::ZERO, Block::ONES]; bits], vec![Block::ZERO; bits]);
    let messages = vec![7; COUNT * LEN];
    let mut times = Times::new(repetitions);
    for _ in 0..repetitions {
        let sent = times.measure(0, || {
            one_of_n::encrypt(&pairs, &messages, COUNT, LEN).expect("as many messages")
        });
        times.measure(1, || {
            one_of_n::decrypt(&keys, 0, &sent, COUNT, LEN).expect("as many messages")
        });
    }
    println!("{:<22} {}", "", times.ms());
}

/// The processor time of this thread.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    #[allow(clippy::cast_precision_loss)] // Less than a nanosecond.
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

/// Seconds of processor time, of each step.
struct Times([Vec<f64>; 3]);

impl Times {
    fn new(repetitions: usize) -> Self {
        Self([(); 3].map(|()| Vec::with_capacity(repetitions)))
    }

    fn measure<T>(&mut self, step: usize, work: impl FnOnce() -> T) -> T {
        let start = processor_seconds();
        let result = black_box(work());
        self.0[step].push(processor_seconds() - start);
        result
    }

    fn ms(&self) -> String {
        self.show(|seconds| seconds * 1e3)
    }

    fn rates(&self) -> String {
        #[allow(clippy::cast_precision_loss)] // It is exact.
        let transfers = (TRANSFERS.div_ceil(CALL) * CALL) as f64;
        self.show(|seconds| transfers / seconds / 1e6)
    }

    fn show(&self, convert: impl Fn(f64) -> f64) -> String {
        let steps = self.0.iter().filter(|times| !times.is_empty()).map(|times| {
            let mut values: Vec<f64> = times.iter().map(|&time| convert(time)).collect();
            values.sort_by(f64::total_cmp);
            let at = |i: usize| values[i];
            let last = values.len() - 1;
            format!("{:7.2} ({:.2} to {:.2})", at(last / 2), at(0), at(last))
        });
        steps.collect::<Vec<_>>().join("  ")
    }
}
