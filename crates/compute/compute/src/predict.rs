//! Predicts the cost of a run without another party.

mod gmw;
mod network;

use std::io::{self, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use blocks::Block;
use circuit::{Circuit, CircuitPart, CircuitSchedule, CircuitSource, FIRST_INPUT};
use garble::workers::with_workers;
use garble::{Evaluator, Garbler, PartLabelBuffer};
use ot::base::ristretto;
use ot::extension::{
    OtExtensionReceiver, OtExtensionSender, OtReceiverSetUp, OtSenderSetUp, SENDER_LEN,
};

use crate::error::Error;
use crate::parties::{self, dual};
use crate::random::PartyRng;
use crate::session::ComputeSession;
use crate::settings::{ComputeProtocol, ComputeRole, ComputeSettings};
use crate::wire::{ComputeBegin, ComputeHello, HEADER_LEN};

pub use gmw::GmwSteps;
pub use network::network_time;

/// The number of transfers that are made to measure their speed.
const MAX_TRANSFERS: usize = 1 << 16;

/// The exact number of bytes that the parties send: frames with their headers, without the overhead
/// of the transport and without the keepalives of slow runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PredictedTraffic {
    /// By the garbler.
    pub garbler: u64,
    /// By the evaluator.
    pub evaluator: u64,
    /// The number of round trips until the garbler has the result, or would have it.
    pub round_trips: u32,
}

impl PredictedTraffic {
    /// The traffic of a session with `instances` instances.
    pub fn of(source: &dyn CircuitSource, settings: &ComputeSettings, instances: u32) -> Self {
        match settings.protocol {
            ComputeProtocol::Yao => Self::of_yao(source, settings, instances),
            ComputeProtocol::Gmw => gmw::traffic(source, settings, instances),
        }
    }

    /// The traffic of this session with another instance, of another circuit.
    #[must_use]
    pub fn and(self, source: &dyn CircuitSource, settings: &ComputeSettings) -> Self {
        let [with, without] = [1, 0].map(|instances| Self::of(source, settings, instances));
        Self {
            garbler: self.garbler + with.garbler - without.garbler,
            evaluator: self.evaluator + with.evaluator - without.evaluator,
            round_trips: self.round_trips + with.round_trips - without.round_trips,
        }
    }

    fn of_yao(source: &dyn CircuitSource, settings: &ComputeSettings, instances: u32) -> Self {
        let shape = source.shape();
        let begin = frame(ComputeBegin::LEN);
        let [garbler, evaluator] = execution(source, settings, shape.evaluator_inputs);
        let (garbler, evaluator) = if settings.security().is_dual() {
            // In the other execution, the parties have the other roles.
            let [of_evaluator, of_garbler] = execution(source, settings, shape.garbler_inputs);
            let proof = frame(dual::PROOF_LEN);
            (garbler + of_garbler + proof, evaluator + of_evaluator + proof)
        } else {
            (garbler, evaluator)
        };
        Self::of_session(settings, instances, [begin + garbler, begin + evaluator], instances + 1)
    }

    /// The traffic of a session, given the bytes of each instance.
    fn of_session(
        settings: &ComputeSettings,
        instances: u32,
        [garbler, evaluator]: [u64; 2],
        round_trips: u32,
    ) -> Self {
        let (count, hello) = (u64::from(instances), frame(ComputeHello::LEN));
        let sender = frame(SENDER_LEN);
        let receiver = frame(ristretto::SENDER_LEN) + frame(settings.extension().reply_len());
        let [of_garbler, of_evaluator] =
            if settings.security().is_dual() { [sender + receiver; 2] } else { [sender, receiver] };
        Self {
            garbler: hello + of_garbler + count * garbler,
            evaluator: hello + of_evaluator + count * evaluator,
            round_trips,
        }
    }
}

/// What the garbler and the evaluator send in an execution of Yao's protocol with so many bits of
/// input that are transferred, besides *begin* and *proof*.
fn execution(
    source: &dyn CircuitSource,
    settings: &ComputeSettings,
    transferred_bits: u32,
) -> [u64; 2] {
    let parts = (0..source.parts()).map(|index| source.part(index));
    let lens = parts.map(|part| settings.scheme.part_len(&part)).filter(|len| *len > 0);
    let tables: u64 = lens.map(frame).sum();
    let (mut answers, mut extends) = (0, 0);
    let label = if settings.scheme.has_offset() { 16 } else { 32 };
    for part in parties::parts(transferred_bits) {
        answers += frame(label * part.len());
        extends += frame(settings.extension().message_len(part.len()));
    }
    let outputs = source.shape().outputs.len();
    let garbler = frame(16) + answers + tables;
    if settings.security().is_dual() {
        let parts = parties::parts(u32::try_from(outputs).unwrap_or(u32::MAX));
        let hashes: u64 = parts.map(|part| frame(dual::OUTPUT_LEN * part.len())).sum();
        return [garbler + frame(0) + hashes, extends];
    }
    let output = outputs.div_ceil(8);
    let revealed_len = |role, len| if settings.learns.includes(role) { len } else { 0 };
    let decoding = frame(revealed_len(ComputeRole::Evaluator, output));
    let result = frame(revealed_len(ComputeRole::Garbler, output + parties::DIGEST_LEN));
    [garbler + decoding, extends + result]
}

/// The length of a frame whose content has `len` bytes.
fn frame(len: usize) -> u64 {
    (HEADER_LEN + len) as u64
}

/// The durations of the steps of one instance of Yao's protocol, measured on this computer with the
/// threads of the settings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct YaoSteps {
    /// The set-up of the transfers, and everything else that does not depend on the circuit.
    pub set_up: Duration,
    /// The extension for the evaluator's input, at both parties one after the other.
    pub inputs: Duration,
    /// Garbling.
    pub garble: Duration,
    /// Evaluating.
    pub evaluate: Duration,
    /// Whether each party garbles and evaluates, in dual execution.
    pub is_dual: bool,
}

impl YaoSteps {
    /// Garbles and evaluates as much of a circuit as is possible in about `limit`.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn measure(
        source: &dyn CircuitSource,
        settings: &ComputeSettings,
        limit: Duration,
    ) -> Result<Self, Error> {
        let mut random = PartyRng::system()?;
        let (seed, offset) = (random.block(), random.block().with_lsb(true));
        let (garble, evaluate) = gates(source, settings, limit, seed, offset);
        let gates = Self {
            set_up: Duration::ZERO,
            inputs: Duration::ZERO,
            garble,
            evaluate,
            is_dual: false,
        };
        gates.with_transfers(source, settings)
    }

    /// The same gates with the transfers of these settings, for example with another level of
    /// security: measures these.
    ///
    /// # Errors
    /// As [`Self::measure`].
    pub fn with_transfers(
        &self,
        source: &dyn CircuitSource,
        settings: &ComputeSettings,
    ) -> Result<Self, Error> {
        let set_up = measure_set_up(settings)?;
        let mut random = PartyRng::system()?;
        let offset = random.block().with_lsb(true);
        let (mut sender, mut receiver) = set_up_transfers(settings, offset, &mut random)?;
        let (shape, is_dual) = (source.shape(), settings.security().is_dual());
        let inputs = if is_dual { shape.inputs() } else { shape.evaluator_inputs };
        let inputs = extend(inputs as usize, settings, &mut sender, &mut receiver)?;
        Ok(Self { set_up, inputs, is_dual, ..*self })
    }

    /// The duration of a number of instances if the network takes `network` in total and both
    /// parties compute concurrently.
    pub fn total(&self, network: Duration, instances: u32) -> Duration {
        // Gates are garbled while the transfers are set up.
        let gates = if self.is_dual {
            // Both use the same cores.
            self.garble + self.evaluate
        } else {
            self.garble.max(self.evaluate)
        };
        let computing = self.inputs + gates;
        self.set_up + network.max(computing * instances)
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

/// The duration of a circuit of one AND, with both parties in two threads over a pair of sockets.
/// It is almost only the set-up of the transfers.
fn measure_set_up(settings: &ComputeSettings) -> Result<Duration, Error> {
    let mut circuit = Circuit::new(&[1, 1]);
    let and = circuit.and(FIRST_INPUT, FIRST_INPUT + 1);
    circuit.output(&[and]);
    let schedule = CircuitSchedule::new(&circuit);
    let start = Instant::now();
    both_parties(settings, |session| {
        session.run(&schedule, &[1])?;
        Ok(start.elapsed())
    })
}

/// Runs the same function at both ends of a pair of sockets. Returns the result of the garbler's
/// end.
fn both_parties<T>(
    settings: &ComputeSettings,
    work: impl Fn(&mut ComputeSession) -> Result<T, Error> + Sync,
) -> Result<T, Error> {
    let (here, there) = UnixStream::pair().map_err(Error::system)?;
    let party = |socket: UnixStream, role: ComputeRole| {
        let reader = socket.try_clone().map_err(Error::system)?;
        let mut session =
            ComputeSession::over(reader, ShutdownOnDropWriter(socket), role, *settings)?;
        let done = work(&mut session)?;
        session.finish().map(|()| done)
    };
    thread::scope(|scope| {
        let other = scope.spawn(|| party(there, ComputeRole::Evaluator).map(drop));
        let done = party(here, ComputeRole::Garbler);
        other.join().unwrap_or(Err(Error::Failed))?;
        done
    })
}

/// Shuts down the writing direction on drop. Otherwise each party would wait for the other to end.
pub(crate) struct ShutdownOnDropWriter(pub(crate) UnixStream);

impl Write for ShutdownOnDropWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for ShutdownOnDropWriter {
    fn drop(&mut self) {
        // If the other party is gone, the shutdown is not needed.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}

/// Both ends of transfers.
fn set_up_transfers(
    settings: &ComputeSettings,
    offset: Block,
    random: &mut PartyRng,
) -> Result<(OtExtensionSender, OtExtensionReceiver), Error> {
    let (sender, message) = OtSenderSetUp::new(settings.extension(), offset, random.block());
    let receiver = OtReceiverSetUp::new(settings.extension(), random.block());
    let keys = sender.receive_point(&receiver.point())?;
    let (receiver, reply) = receiver.receive(&message)?;
    Ok((keys.receive(&reply)?, receiver))
}

/// The duration of `count` transfers.
fn extend(
    count: usize,
    settings: &ComputeSettings,
    sender: &mut OtExtensionSender,
    receiver: &mut OtExtensionReceiver,
) -> Result<Duration, Error> {
    let tried = count.min(MAX_TRANSFERS);
    if tried == 0 {
        return Ok(Duration::ZERO);
    }
    let choices = vec![0x5a; tried.div_ceil(8)];
    let mut keys = vec![Block::ZERO; tried];
    let mut message = Vec::with_capacity(settings.extension().message_len(tried));
    let start = Instant::now();
    receiver.extend(&choices, &mut keys, &mut message)?;
    sender.extend(&message, &mut keys)?;
    Ok(scaled(start.elapsed(), count as u64, tried as u64))
}

/// The durations of garbling and evaluating the whole circuit, extrapolated from the first parts,
/// which are measured for about `limit`.
fn gates(
    source: &dyn CircuitSource,
    settings: &ComputeSettings,
    limit: Duration,
    seed: Block,
    offset: Block,
) -> (Duration, Duration) {
    let shape = source.shape();
    let garbler = Garbler::new(settings.scheme, seed, offset, shape);
    let mut evaluator = Evaluator::new(settings.scheme, garbler.public(), shape);
    for (at, [zero, _]) in (0..).zip(garbler.input_pairs(0..shape.inputs())) {
        evaluator.set_input(at, zero);
    }
    let garble = |memory: &mut PartLabelBuffer, job: &mut TimedPartJob<'_>| {
        garbler.garble(memory, &job.part, &mut job.tables);
    };
    let evaluate = |memory: &mut PartLabelBuffer, job: &mut TimedPartJob<'_>| {
        // The tables are those of the part.
        let _ = evaluator.evaluate(memory, &job.part, &job.tables);
    };
    let (mut garbling, mut evaluating, mut done) = (Duration::ZERO, Duration::ZERO, 0);
    let mut parts = (0..source.parts()).map(|index| source.part(index));
    while garbling + evaluating < limit {
        let jobs: Vec<TimedPartJob<'_>> = parts
            .by_ref()
            .take(MEASURED_PARTS)
            .map(|part| TimedPartJob { part, tables: Vec::new() })
            .collect();
        if jobs.is_empty() {
            return (garbling, evaluating);
        }
        done += jobs.iter().map(|job| job.part.gates.ands + job.part.gates.xors).sum::<u64>();
        let threads = settings.threads_for(source);
        let (jobs, duration) = timed(|| process(threads, jobs, garble));
        garbling += duration;
        evaluating += timed(|| process(threads, jobs, evaluate)).1;
    }
    let all = shape.ands + shape.xors;
    (scaled(garbling, all, done), scaled(evaluating, all, done))
}

/// The number of parts that are garbled before they are evaluated.
const MEASURED_PARTS: usize = 32;

struct TimedPartJob<'a> {
    part: CircuitPart<'a>,
    tables: Vec<u8>,
}

/// Processes all jobs.
fn process<'a>(
    threads: usize,
    jobs: Vec<TimedPartJob<'a>>,
    work: impl Fn(&mut PartLabelBuffer, &mut TimedPartJob<'a>) + Sync,
) -> Vec<TimedPartJob<'a>> {
    with_workers(threads, work, |workers| {
        let mut done = Vec::with_capacity(jobs.len());
        for job in jobs {
            if !workers.has_room() {
                done.extend(workers.take());
            }
            let waits = job.part.dependencies;
            workers.add(job, waits);
        }
        done.extend(std::iter::from_fn(|| workers.take()));
        done
    })
}

/// Scales the duration of `tried` items to `count` items.
fn scaled(duration: Duration, count: u64, tried: u64) -> Duration {
    let nanos = duration.as_nanos() * u128::from(count) / u128::from(tried.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use circuit::{CircuitSchedule, generate};

    use super::*;
    use crate::settings::OutputLearners;

    #[test]
    fn measuring_gives_all_steps() {
        let schedule = CircuitSchedule::new(&generate::aes128());
        let settings = ComputeSettings::default();
        let limit = Duration::from_millis(20);
        let steps = YaoSteps::measure(&schedule, &settings, limit).unwrap();
        for step in [steps.set_up, steps.inputs, steps.garble, steps.evaluate] {
            assert!(step > Duration::ZERO && step < Duration::from_secs(10), "{steps:?}");
        }
        let network = Duration::from_secs(20);
        assert_eq!(steps.total(network, 1), steps.set_up + network);
    }

    #[test]
    fn private_outputs_take_fewer_bytes() {
        let schedule = CircuitSchedule::new(&generate::aes128());
        let of = |learns| {
            let settings = ComputeSettings { learns, ..ComputeSettings::default() };
            PredictedTraffic::of(&schedule, &settings, 1)
        };
        let [both, private] = [OutputLearners::Both, OutputLearners::Evaluator].map(of);
        assert_eq!(both.evaluator - private.evaluator, 32);
        assert_eq!(both.garbler, private.garbler);
    }

    #[test]
    fn instances_of_several_circuits_are_set_up_once() {
        let schedule = CircuitSchedule::new(&generate::aes128());
        let settings = ComputeSettings::default();
        let of = |instances| PredictedTraffic::of(&schedule, &settings, instances);
        assert_eq!(of(1).and(&schedule, &settings), of(2));
    }
}
