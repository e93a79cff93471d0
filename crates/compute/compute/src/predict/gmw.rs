//! Predicts the cost of a run of GMW.

use std::time::{Duration, Instant};

use circuit::{Circuit, CircuitSchedule, CircuitSource, FIRST_INPUT};
use zeroize::Zeroizing;

use super::{
    PredictedTraffic, both_parties, frame, measure_set_up, scaled, set_up_transfers, timed,
};
use crate::error::Error;
use crate::gmw::gates::{GmwAndLevel, GmwWireShares};
use crate::gmw::triples::{self, AndTriples, FRAME_TRIPLES};
use crate::random::PartyRng;
use crate::settings::{ComputeRole, ComputeSettings};
use crate::wire::ComputeBegin;

/// The number of exchanges that are made to measure the duration of one.
const EXCHANGES: u32 = 128;

/// The traffic of the parties.
pub(super) fn traffic(
    source: &dyn CircuitSource,
    settings: &ComputeSettings,
    instances: u32,
) -> PredictedTraffic {
    let (opened, exchanges) = exchanges(source);
    let shape = source.shape();
    let output = shape.outputs.len().div_ceil(8);
    let revealed_len = |role| frame(if settings.learns.includes(role) { output } else { 0 });
    let message = |count| frame(settings.extension().message_len(triples::transfers(count)));
    let columns: u64 = triples::parts(shape.ands).map(message).sum();
    let both = frame(ComputeBegin::LEN) + frame(16) + opened;
    let sent = [
        both + revealed_len(ComputeRole::Evaluator),
        both + columns + revealed_len(ComputeRole::Garbler),
    ];
    // Both parties send at the same time, so an exchange takes half a round trip. In addition to
    // the exchanges of the gates, there are those of the seeds and of the output, and one for the
    // set-up before the first instance.
    let halves = exchanges.saturating_add(2).saturating_mul(instances).saturating_add(1);
    PredictedTraffic::of_session(settings, instances, sent, halves.div_ceil(2))
}

/// The number of bytes that a party opens in an instance, and the number of exchanges.
fn exchanges(source: &dyn CircuitSource) -> (u64, u32) {
    let mut level = GmwAndLevel::new(source.shape());
    let (mut bytes, mut exchanges) = (0, 0_u32);
    let mut exchange = |level: &mut GmwAndLevel| {
        if level.len() > 0 {
            bytes += frame(2 * level.len().div_ceil(8));
            exchanges = exchanges.saturating_add(1);
            level.clear();
        }
    };
    for part in (0..source.parts()).map(|index| source.part(index)) {
        for batch in part.batches() {
            if level.ends_before(batch) {
                exchange(&mut level);
            }
            level.add(batch.ands);
        }
        exchange(&mut level);
    }
    (bytes, exchanges)
}

/// The durations of the steps of one instance of GMW, measured on this computer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GmwSteps {
    /// The set-up of the transfers, and everything else that does not depend on the circuit.
    pub set_up: Duration,
    /// The triples, on one core at each party.
    pub triples: Duration,
    /// The gates, on one core at each party, including each exchange without a network.
    pub gates: Duration,
}

impl GmwSteps {
    /// Makes triples, evaluates as much of a circuit as is possible in about `limit`, and exchanges
    /// bits with another thread.
    ///
    /// # Errors
    /// If the system gives no random bytes, no thread or no sockets.
    pub fn measure(
        source: &dyn CircuitSource,
        settings: &ComputeSettings,
        limit: Duration,
    ) -> Result<Self, Error> {
        let set_up = measure_set_up(settings)?;
        let per_part = measure_triples_frame(settings)?;
        let ands = source.shape().ands;
        let triples = scaled(per_part, ands, FRAME_TRIPLES as u64);
        let (_, exchanges) = exchanges(source);
        let gates = gates(source, limit) + exchange(settings)? * exchanges;
        Ok(Self { set_up, triples, gates })
    }

    /// The duration of a number of instances if the network takes `network` in total. Triples are
    /// made and sent while gates are evaluated. The gates wait for the network at each exchange.
    pub fn total(&self, network: Duration, instances: u32) -> Duration {
        self.set_up + (self.triples * instances).max(network + self.gates * instances)
    }
}

/// What the triples of a frame take at the slower party.
fn measure_triples_frame(settings: &ComputeSettings) -> Result<Duration, Error> {
    let mut random = PartyRng::system()?;
    let offset = random.block().with_lsb(true);
    let (mut sender, mut receiver) = set_up_transfers(settings, offset, &mut random)?;
    let mut choices = blocks::prg::Prg::new(random.block());
    let mut keys = (Zeroizing::new(Vec::new()), Zeroizing::new(Vec::new()));
    let mut least = Duration::MAX;
    // The first one is slower: memory is new.
    for _ in 0..3 {
        let mut message = Vec::new();
        let (made, theirs) = timed(|| {
            triples::of_receiver(
                &mut receiver,
                &mut choices,
                FRAME_TRIPLES,
                &mut keys.0,
                &mut message,
            )
        });
        made?;
        let (made, ours) =
            timed(|| triples::of_sender(&mut sender, &message, FRAME_TRIPLES, &mut keys.1));
        made?;
        least = least.min(theirs.max(ours));
    }
    Ok(least)
}

/// What one party computes of the gates.
fn gates(source: &dyn CircuitSource, limit: Duration) -> Duration {
    let shape = source.shape();
    let mut shares = GmwWireShares::new(shape, ComputeRole::Garbler);
    let mut triples = AndTriples::default();
    let mut content = Vec::new();
    let mut exchange = |shares: &mut GmwWireShares| {
        let words = shares.waiting().div_ceil(64);
        for bits in [&mut triples.a, &mut triples.b, &mut triples.c] {
            bits.clear();
            bits.resize(words, 0);
        }
        content.clear();
        shares.open(&triples, &mut content);
        shares.apply_opened(&triples, &content);
    };
    let (start, mut done) = (Instant::now(), 0);
    for part in (0..source.parts()).map(|index| source.part(index)) {
        shares.begin(&part);
        for batch in part.batches() {
            if shares.must_open_before(batch) {
                exchange(&mut shares);
            }
            shares.add(batch);
            done += (batch.ands.len() + batch.linear.len()) as u64;
            if start.elapsed() > limit {
                return scaled(start.elapsed(), shape.ands + shape.xors + shape.nots, done);
            }
        }
        exchange(&mut shares);
        shares.end(&part);
    }
    start.elapsed()
}

/// What an exchange takes without a network: both parties' threads wake each other.
fn exchange(settings: &ComputeSettings) -> Result<Duration, Error> {
    let mut circuit = Circuit::new(&[1, 1]);
    let last = (0..EXCHANGES).fold(FIRST_INPUT, |wire, _| circuit.and(wire, FIRST_INPUT + 1));
    circuit.output(&[last]);
    let schedule = CircuitSchedule::new(&circuit);
    let took = both_parties(settings, |session| {
        session.run(&schedule, &[1])?;
        let start = Instant::now();
        session.run(&schedule, &[1])?;
        Ok(start.elapsed())
    });
    Ok(took? / EXCHANGES)
}

#[cfg(test)]
mod tests {
    use circuit::generate;

    use super::*;
    use crate::settings::ComputeProtocol;

    #[test]
    fn measuring_gives_all_steps() {
        let schedule = CircuitSchedule::new(&generate::aes128());
        let settings =
            ComputeSettings { protocol: ComputeProtocol::Gmw, ..ComputeSettings::default() };
        let limit = Duration::from_millis(20);
        let steps = GmwSteps::measure(&schedule, &settings, limit).unwrap();
        for step in [steps.set_up, steps.triples, steps.gates] {
            assert!(step > Duration::ZERO && step < Duration::from_secs(10), "{steps:?}");
        }
        let network = Duration::from_secs(20);
        assert_eq!(steps.total(network, 1), steps.set_up + steps.gates + network);
    }

    #[test]
    fn exchanges_are_as_many_as_the_depth() {
        let circuits = [
            generate::aes128(),
            generate::sha256(32),
            generate::minimum(900, 900, 20),
            generate::intersection(50, 32),
            generate::edit_distance(9, 7, 3),
            generate::millionaires(32),
        ];
        for circuit in circuits {
            let schedule = CircuitSchedule::in_one_part(&circuit);
            let (bytes, exchanges) = exchanges(&schedule);
            assert_eq!(exchanges, circuit.depth());
            let bits = schedule.shape().ands / 4;
            assert!((bits..bits + 7 * u64::from(exchanges) + 1).contains(&bytes));
        }
    }
}
