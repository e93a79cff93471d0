//! The Millionaires' problem with several oblivious transfers (figure 4 of the paper): a garbled
//! circuit by half gates, over TCP without Nagle's algorithm, both parties on one host.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Barrier, LazyLock};
use std::thread;
use std::time::{Duration, Instant};

use blocks::Block;
use circuit::{CircuitSchedule, CircuitSource as _, bits, generate};
use garble::{Evaluator, Garbler, GarblingScheme, PartLabelBuffer};
use ot::base::naor_pinkas_modp::{self, ModpGroup};
use ot::base::{ModulusLen, naor_pinkas, ristretto, two_lock};
use ot::extension::{
    self, OtExtension, OtExtensionKind, OtExtensionSecurity, OtReceiverSetUp, OtSenderSetUp,
};
use ot::messages;
use random::RandomGenerator;
use serde::Deserialize;

use super::super::{DriverMeasure, DriverValues, MeasurementDriver, host, no_hosts, options};
use super::error_text;
use crate::network::EmulatedNetwork;

pub(super) const DRIVER: MeasurementDriver = MeasurementDriver {
    name: "mix-millionaires",
    values: &["time", "sent", "received"],
    hosts: &["host"],
    paths: &[],
    network: no_hosts,
    check,
    measure: DriverMeasure::Emulated(measure),
};

/// The driver's settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct MillionairesOptions {
    /// The host of both parties.
    host: String,
    /// The bits of each party's number.
    bits: u32,
    /// The transfers for the labels of the evaluator's number.
    transfers: MillionairesTransfers,
}

/// Oblivious transfers.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "String")]
enum MillionairesTransfers {
    /// Naor and Pinkas, over Ristretto255.
    NaorPinkas,
    /// Naor and Pinkas, modulo a prime.
    NaorPinkasModp(ModpGroup),
    /// The two-lock transfers of the paper.
    TwoLock(ModulusLen),
    /// Base transfers over Ristretto255.
    Ristretto,
    /// 128 of these, extended.
    Extended,
}

/// Their names.
const TRANSFERS: [(&str, MillionairesTransfers); 8] = [
    ("NP-OT", MillionairesTransfers::NaorPinkas),
    ("NP-OT-2048", MillionairesTransfers::NaorPinkasModp(ModpGroup::Modp2048)),
    ("NP-OT-1024", MillionairesTransfers::NaorPinkasModp(ModpGroup::Modp1024)),
    ("NP-OT-1024-160", MillionairesTransfers::NaorPinkasModp(ModpGroup::Modp1024Short)),
    ("RSA-OT", MillionairesTransfers::TwoLock(ModulusLen::Bits2048)),
    ("RSA-OT-1024", MillionairesTransfers::TwoLock(ModulusLen::Bits1024)),
    ("Ristretto", MillionairesTransfers::Ristretto),
    ("Extended", MillionairesTransfers::Extended),
];

/// The extension of `Extended`, the same as that of `sunder compute`.
const EXTENSION: OtExtension =
    OtExtension { kind: OtExtensionKind::SoftSpoken4, security: OtExtensionSecurity::SemiHonest };

/// The maximum number of bits.
const MAX_BITS: u32 = 64;

/// The number of runs before the measured one, which fill caches and allocate memory.
const WARM_UP: usize = 1;

/// The bytes of a label.
const LABEL_LEN: usize = size_of::<Block>();

/// How long a party waits for the other.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The sender's RSA keys of 1024 and 2048 bits. All runs share them, because generating one takes
/// tenths of a second.
static RSA_KEYS: LazyLock<Result<[two_lock::TwoLockSecretKey; 2], String>> = LazyLock::new(|| {
    let key =
        |len| random(&mut generator()?).map(|seed| two_lock::TwoLockSecretKey::generate(len, seed));
    Ok([key(ModulusLen::Bits1024)?, key(ModulusLen::Bits2048)?])
});

fn check(table: &toml::Table) -> Result<(), String> {
    let MillionairesOptions { bits, .. } = options(table)?;
    if (1..=MAX_BITS).contains(&bits) {
        return Ok(());
    }
    Err(format!("bits is {bits}; give 1 to {MAX_BITS}"))
}

fn measure(network: &EmulatedNetwork, table: &toml::Table) -> Result<DriverValues, String> {
    let options: MillionairesOptions = options(table)?;
    let circuit = CircuitSchedule::new(&generate::millionaires(options.bits));
    RSA_KEYS.as_ref()?;
    let problem =
        MillionairesProblem { circuit: &circuit, bits: options.bits, transfers: options.transfers };
    let (parties_host, mut last) = (host(network, &options.host)?, MillionairesRun::default());
    for _ in 0..=WARM_UP {
        last = parties_host.run(|| problem.run()).map_err(error_text)??;
    }
    Ok(DriverValues::Named(BTreeMap::from([
        ("time", last.time.as_secs_f64() * 1e3),
        ("sent", last.sent as f64),
        ("received", last.received as f64),
    ])))
}

/// The computation of both parties: whether the garbler's number is greater.
#[derive(Clone, Copy)]
struct MillionairesProblem<'a> {
    circuit: &'a CircuitSchedule,
    bits: u32,
    transfers: MillionairesTransfers,
}

/// The measurements of a run.
#[derive(Clone, Copy, Default)]
struct MillionairesRun {
    /// From when the parties are connected until both have the output.
    time: Duration,
    /// The bytes that the garbler has sent, and received.
    sent: u64,
    received: u64,
}

impl MillionairesProblem<'_> {
    fn run(self) -> Result<MillionairesRun, String> {
        let mut generator = generator()?;
        let mask = u64::MAX >> (64 - self.bits);
        let mut number = || generator.array().map(|bytes| u64::from_le_bytes(bytes) & mask);
        let (mine, theirs) = (number().map_err(error_text)?, number().map_err(error_text)?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(error_text)?;
        let address = listener.local_addr().map_err(error_text)?;
        let connected = TcpStream::connect(address).map_err(error_text)?;
        let (accepted, _) = listener.accept().map_err(error_text)?;
        let (garblers, evaluators) =
            (BufferedPartyConnection::new(accepted)?, BufferedPartyConnection::new(connected)?);
        let begin = Barrier::new(2);
        thread::scope(|scope| {
            let evaluating = scope.spawn(|| {
                begin.wait();
                self.evaluate(theirs, evaluators)
            });
            begin.wait();
            let start = Instant::now();
            let garbled = self.garble(mine, garblers);
            let evaluated = evaluating.join().unwrap_or_else(|_| Err("a party panicked".into()));
            let time = start.elapsed();
            // A party that fails closes the connection, so the other one fails too.
            let (is_greater, link) = garbled?;
            if [is_greater, evaluated?] != [mine > theirs; 2] {
                return Err(String::from("the output is wrong"));
            }
            Ok(MillionairesRun { time, sent: link.sent, received: link.received })
        })
    }

    /// The garbler: sends its labels, the tables and the decoding bits, and transfers the
    /// evaluator's labels.
    fn garble(
        self,
        number: u64,
        mut link: BufferedPartyConnection,
    ) -> Result<(bool, BufferedPartyConnection), String> {
        let (mut generator, shape) = (generator()?, self.circuit.shape());
        let offset = random(&mut generator)?.with_lsb(true);
        let seed = random(&mut generator)?;
        let garbler = Garbler::new(GarblingScheme::HalfGates, seed, offset, shape);
        let keys = self.transfers.send(&mut link, &mut generator, self.count())?;
        let pairs = garbler.input_pairs(self.bits..2 * self.bits);
        let labels = Block::bytes_of(pairs.as_flattened());
        let labels = messages::encrypt(&keys, labels, LABEL_LEN).map_err(error_text)?;
        link.send(&garbler.public().to_bytes());
        for (pair, bit) in garbler.input_pairs(0..self.bits).iter().zip(self.bits_of(number)) {
            link.send(&pair[usize::from(bit)].to_bytes());
        }
        link.send(&labels);
        let mut memory = PartLabelBuffer::default();
        for index in 0..self.circuit.parts() {
            let mut tables = Vec::new();
            garbler.garble(&mut memory, &self.circuit.part(index), &mut tables);
            link.send(&tables);
        }
        link.send(&[u8::from(garbler.decoding()[0])]);
        let [output] = link.receive(1)?[..] else { return Err("no output".into()) };
        Ok((output == 1, link))
    }

    /// The evaluator: sends the output to the garbler.
    fn evaluate(self, number: u64, mut link: BufferedPartyConnection) -> Result<bool, String> {
        let (mut generator, shape) = (generator()?, self.circuit.shape());
        let choices = &number.to_le_bytes()[..self.count().div_ceil(8)];
        let keys = self.transfers.receive(&mut link, &mut generator, choices, self.count())?;
        let public = to_block(&link.receive(LABEL_LEN)?);
        let mut evaluator = Evaluator::new(GarblingScheme::HalfGates, public, shape);
        let mut labels = link.receive(self.count() * LABEL_LEN)?;
        let transferred = link.receive(2 * self.count() * LABEL_LEN)?;
        let transferred = messages::decrypt(&keys, choices, &transferred, LABEL_LEN);
        labels.extend(transferred.map_err(error_text)?);
        for (input, label) in (0..).zip(labels.chunks_exact(LABEL_LEN)) {
            evaluator.set_input(input, to_block(label));
        }
        let mut memory = PartLabelBuffer::default();
        for index in 0..self.circuit.parts() {
            let part = self.circuit.part(index);
            let tables = link.receive(GarblingScheme::HalfGates.part_len(&part))?;
            evaluator.evaluate(&mut memory, &part, &tables).map_err(error_text)?;
        }
        let decoding = link.receive(1)?[0] == 1;
        let output = evaluator.decode(&[decoding]).map_err(error_text)?[0];
        link.send(&[u8::from(output)]);
        link.flush()?;
        Ok(output)
    }

    /// The number of transfers.
    fn count(self) -> usize {
        self.bits as usize
    }

    fn bits_of(self, number: u64) -> impl Iterator<Item = bool> {
        bits::of_bytes(&number.to_le_bytes()).into_iter().take(self.count())
    }
}

impl TryFrom<String> for MillionairesTransfers {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let found = TRANSFERS.iter().find(|(known, _)| *known == name);
        found.map(|(_, transfers)| *transfers).ok_or_else(|| {
            let names = TRANSFERS.map(|(known, _)| known).join(", ");
            format!("there are no transfers {name:?}; give one of {names}")
        })
    }
}

impl MillionairesTransfers {
    /// The two keys of each transfer.
    fn send(
        self,
        link: &mut BufferedPartyConnection,
        generator: &mut RandomGenerator,
        count: usize,
    ) -> Result<Vec<[Block; 2]>, String> {
        let seed = random(generator)?;
        let keys = match self {
            Self::NaorPinkas => {
                let (sender, message) = naor_pinkas::NaorPinkasSender::new(seed);
                link.send(&message);
                sender.receive(&link.receive(naor_pinkas::receiver_len(count))?, count)
            }
            Self::NaorPinkasModp(group) => {
                let (sender, message) = naor_pinkas_modp::NaorPinkasModpSender::new(group, seed);
                link.send(&message);
                let message = link.receive(naor_pinkas_modp::receiver_len(group, count))?;
                sender.receive(&message, count)
            }
            Self::TwoLock(len) => {
                let [short, long] = RSA_KEYS.as_ref()?;
                let key = if len == ModulusLen::Bits1024 { short } else { long };
                let (sender, locked) = two_lock::TwoLockSender::new(key, seed, count);
                link.send(&locked);
                let message = link.receive(two_lock::answer_len(len, count))?;
                let (keys, answer) = sender.receive(&message).map_err(error_text)?;
                link.send(&answer);
                Ok(keys)
            }
            Self::Ristretto => {
                let (sender, message) = ristretto::RistrettoOtSender::new(seed);
                link.send(&message);
                link.flush()?;
                sender.receive(&link.receive(ristretto::receiver_len(count))?, count)
            }
            Self::Extended => {
                let (sender, message) = OtSenderSetUp::new(EXTENSION, random(generator)?, seed);
                link.send(&message);
                let reply = link.receive(EXTENSION.reply_len())?;
                let mut sender = sender.receive(&reply).map_err(error_text)?;
                let mut keys = vec![[Block::ZERO; 2]; count];
                let message = link.receive(EXTENSION.message_len(count))?;
                sender.random(&message, &mut keys).map(|()| keys)
            }
        };
        keys.map_err(error_text)
    }

    /// The chosen keys.
    fn receive(
        self,
        link: &mut BufferedPartyConnection,
        generator: &mut RandomGenerator,
        choices: &[u8],
        count: usize,
    ) -> Result<Vec<Block>, String> {
        let seed = random(generator)?;
        let keys = match self {
            Self::NaorPinkas => {
                let message = link.receive(naor_pinkas::SENDER_LEN)?;
                let received = naor_pinkas::receive(seed, choices, count, &message);
                let (keys, message) = received.map_err(error_text)?;
                link.send(&message);
                Ok(keys)
            }
            Self::NaorPinkasModp(group) => {
                let message = link.receive(naor_pinkas_modp::sender_len(group))?;
                let received = naor_pinkas_modp::receive(group, seed, choices, count, &message);
                let (keys, message) = received.map_err(error_text)?;
                link.send(&message);
                Ok(keys)
            }
            Self::TwoLock(len) => {
                let locked = link.receive(two_lock::locked_len(len, count))?;
                let receiver = two_lock::TwoLockReceiver::new(len, seed, choices, count, &locked);
                let (receiver, message) = receiver.map_err(error_text)?;
                link.send(&message);
                receiver.receive(&link.receive(two_lock::answer_len(len, count))?)
            }
            Self::Ristretto => {
                let (receiver, message) = ristretto::RistrettoOtReceiver::new(seed, choices, count)
                    .map_err(error_text)?;
                link.send(&message);
                link.flush()?;
                receiver.receive(&link.receive(ristretto::SENDER_LEN)?)
            }
            Self::Extended => {
                let receiver = OtReceiverSetUp::new(EXTENSION, seed);
                let message = link.receive(extension::SENDER_LEN)?;
                let (mut receiver, mut reply) = receiver.receive(&message).map_err(error_text)?;
                let mut keys = vec![Block::ZERO; count];
                let extended = receiver.random(choices, &mut keys, &mut reply);
                link.send(&reply);
                extended.map(|()| keys)
            }
        };
        keys.map_err(error_text)
    }
}

/// A buffered connection that flushes before it waits for the other end.
struct BufferedPartyConnection {
    stream: TcpStream,
    unsent: Vec<u8>,
    sent: u64,
    received: u64,
}

impl BufferedPartyConnection {
    fn new(stream: TcpStream) -> Result<Self, String> {
        stream.set_nodelay(true).map_err(error_text)?;
        stream.set_read_timeout(Some(TIMEOUT)).map_err(error_text)?;
        stream.set_write_timeout(Some(TIMEOUT)).map_err(error_text)?;
        Ok(Self { stream, unsent: Vec::new(), sent: 0, received: 0 })
    }

    fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend_from_slice(bytes);
        self.sent += bytes.len() as u64;
    }

    fn flush(&mut self) -> Result<(), String> {
        self.stream.write_all(&std::mem::take(&mut self.unsent)).map_err(error_text)
    }

    fn receive(&mut self, len: usize) -> Result<Vec<u8>, String> {
        self.flush()?;
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).map_err(error_text)?;
        self.received += len as u64;
        Ok(bytes)
    }
}

fn generator() -> Result<RandomGenerator, String> {
    RandomGenerator::seeded().map_err(error_text)
}

fn random(generator: &mut RandomGenerator) -> Result<Block, String> {
    generator.array().map(Block::from_bytes).map_err(error_text)
}

fn to_block(bytes: &[u8]) -> Block {
    Block::from_bytes(*bytes.first_chunk().expect("a block has 16 bytes"))
}
