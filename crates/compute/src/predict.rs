//! What a run will take, before there is another party.

use std::time::{Duration, Instant};

use blocks::Block;
use circuit::Source;
use garble::{Evaluator, Garbler};
use ot::base::ristretto;
use ot::extension::{Receiver, ReceiverSetUp, SENDER_LEN, Sender, SenderSetUp};

use crate::error::Error;
use crate::parties::{self, garbler::TABLES};
use crate::random::Random;
use crate::settings::{Role, Settings};
use crate::wire::{Begin, HEADER_LEN, Hello};

/// The transfers that are made to measure their speed.
const MAX_TRANSFERS: usize = 1 << 16;

/// The bytes that the parties send, exactly, but for the signs of life of slow runs: frames with
/// their headers, without what the transport adds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// By the garbler.
    pub garbler: u64,
    /// By the evaluator.
    pub evaluator: u64,
    /// Round trips until the garbler has the result, or would have it.
    pub round_trips: u32,
}

impl Traffic {
    /// That of a session with so many instances.
    pub fn of(source: &mut dyn Source, settings: &Settings, instances: u32) -> Self {
        let frame = |len: usize| (HEADER_LEN + len) as u64;
        let (mut tables, mut pending) = (0, 0);
        source.rewind();
        while let Some(batch) = source.next_batch() {
            pending += settings.scheme.table_len(batch);
            if pending >= TABLES {
                tables += frame(std::mem::take(&mut pending));
            }
        }
        if pending > 0 {
            tables += frame(pending);
        }
        let shape = source.shape();
        let output = shape.outputs.len().div_ceil(8);
        let told = |role, len| if settings.learns.includes(role) { len } else { 0 };
        let (mut answers, mut extends) = (0, 0);
        let label = if settings.scheme.has_offset() { 16 } else { 32 };
        for part in parties::parts(shape.evaluator_inputs) {
            answers += frame(label * part.len());
            extends += frame(settings.transfers.message_len(part.len()));
        }
        let begin = frame(Begin::LEN);
        let garbler = begin + frame(16) + answers + tables + frame(told(Role::Evaluator, output));
        let result = told(Role::Garbler, output + parties::DIGEST_LEN);
        let evaluator = begin + extends + frame(result);
        let count = u64::from(instances);
        Self {
            garbler: frame(Hello::LEN) + frame(SENDER_LEN) + count * garbler,
            evaluator: frame(Hello::LEN)
                + frame(ristretto::SENDER_LEN)
                + frame(settings.transfers.reply_len())
                + count * evaluator,
            round_trips: instances + 1,
        }
    }
}

/// What the steps of one instance take on one core each, as measured here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steps {
    /// The set-up of the transfers, with both parties at work at the same time.
    pub set_up: Duration,
    /// The extension for the evaluator's input, at both parties one after the other.
    pub inputs: Duration,
    /// Garbling.
    pub garble: Duration,
    /// Evaluating.
    pub evaluate: Duration,
}

impl Steps {
    /// Garbles and evaluates as much of a circuit as is possible in about `limit`.
    ///
    /// # Errors
    /// If the system gives no random bytes.
    pub fn measure(
        source: &mut dyn Source,
        settings: &Settings,
        limit: Duration,
    ) -> Result<Self, Error> {
        let mut random = Random::system()?;
        let offset = random.block().with_lsb(true);
        let (set_up, mut sender, mut receiver) = set_up(settings, offset, &mut random)?;
        let inputs = source.shape().evaluator_inputs as usize;
        let inputs = extend(inputs, settings, &mut sender, &mut receiver)?;
        let (garble, evaluate) = gates(source, settings, limit, random.block(), offset);
        Ok(Self { set_up, inputs, garble, evaluate })
    }

    /// What so many instances take where the network takes `network` in all, and both parties
    /// compute at the same time.
    pub fn total(&self, network: Duration, instances: u32) -> Duration {
        // Gates are garbled while the transfers are set up.
        let computing = self.inputs + self.garble.max(self.evaluate);
        self.set_up + network.max(computing * instances)
    }
}

fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = Instant::now();
    (work(), start.elapsed())
}

fn set_up(
    settings: &Settings,
    offset: Block,
    random: &mut Random,
) -> Result<(Duration, Sender, Receiver), Error> {
    let seeds = [random.block(), random.block()];
    let ((sender, message), points) =
        timed(|| SenderSetUp::new(settings.transfers, offset, seeds[0]));
    let receiver = ReceiverSetUp::new(settings.transfers, seeds[1]);
    let point = receiver.point();
    let (keys, one) = timed(|| sender.receive_point(&point));
    let (received, other) = timed(|| receiver.receive(&message));
    let (keys, (receiver, reply)) = (keys?, received?);
    let (sender, last) = timed(|| keys.receive(&reply));
    Ok((points + one.max(other) + last, sender?, receiver))
}

/// What `count` transfers take.
fn extend(
    count: usize,
    settings: &Settings,
    sender: &mut Sender,
    receiver: &mut Receiver,
) -> Result<Duration, Error> {
    let tried = count.min(MAX_TRANSFERS);
    if tried == 0 {
        return Ok(Duration::ZERO);
    }
    let choices = vec![0x5a; tried.div_ceil(8)];
    let mut keys = vec![Block::ZERO; tried];
    let mut message = Vec::with_capacity(settings.transfers.message_len(tried));
    let start = Instant::now();
    receiver.extend(&choices, &mut keys, &mut message)?;
    sender.extend(&message, &mut keys)?;
    Ok(scaled(start.elapsed(), count as u64, tried as u64))
}

/// What garbling and evaluating the whole circuit take.
fn gates(
    source: &mut dyn Source,
    settings: &Settings,
    limit: Duration,
    seed: Block,
    offset: Block,
) -> (Duration, Duration) {
    source.rewind();
    let shape = source.shape().clone();
    let mut garbler = Garbler::new(settings.scheme, seed, offset, &shape);
    let mut evaluator = Evaluator::new(settings.scheme, garbler.public(), &shape);
    for (at, [zero, _]) in (0..).zip(garbler.input_pairs(0..shape.inputs())) {
        evaluator.set_input(at, zero);
    }
    let (mut garble, mut evaluate, mut done) = (Duration::ZERO, Duration::ZERO, 0);
    let mut tables = Vec::new();
    while garble + evaluate < limit {
        let Some(batch) = source.next_batch() else { return (garble, evaluate) };
        tables.clear();
        garble += timed(|| garbler.garble(batch, &mut tables)).1;
        evaluate += timed(|| evaluator.evaluate(batch, &tables)).1;
        done += (batch.ands.len() + batch.linear.len()) as u64;
    }
    let all = shape.ands + shape.xors + shape.nots;
    (scaled(garble, all, done), scaled(evaluate, all, done))
}

/// A duration for `count`, from that for `tried`.
fn scaled(duration: Duration, count: u64, tried: u64) -> Duration {
    let nanos = duration.as_nanos() * u128::from(count) / u128::from(tried.max(1));
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use circuit::{Schedule, generate};

    use super::*;
    use crate::settings::Learns;

    #[test]
    fn measuring_gives_all_steps() {
        let schedule = Schedule::new(&generate::aes128());
        let settings = Settings::default();
        let limit = Duration::from_millis(20);
        let steps = Steps::measure(&mut schedule.source(), &settings, limit).unwrap();
        for step in [steps.set_up, steps.inputs, steps.garble, steps.evaluate] {
            assert!(step > Duration::ZERO && step < Duration::from_secs(10), "{steps:?}");
        }
        let network = Duration::from_secs(20);
        assert_eq!(steps.total(network, 1), steps.set_up + network);
    }

    #[test]
    fn private_outputs_take_fewer_bytes() {
        let schedule = Schedule::new(&generate::aes128());
        let of = |learns| {
            let settings = Settings { learns, ..Settings::default() };
            Traffic::of(&mut schedule.source(), &settings, 1)
        };
        let [both, private] = [Learns::Both, Learns::Evaluator].map(of);
        assert_eq!(both.evaluator - private.evaluator, 32);
        assert_eq!(both.garbler, private.garbler);
    }
}
