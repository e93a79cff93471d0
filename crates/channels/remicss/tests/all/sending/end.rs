//! A sender, and the handling of its output.

use std::time::Duration;

use model::{
    ChannelModel, ChannelSet, ChannelSubset, LossProbability, PlanRequest, RiskProbability,
    ScheduleObjective, ScheduleRequirements, ShareSchedule, ShareSelection,
};
use random::RandomGenerator;
use sharing::{Joiner, SharingParameters};
use sunder_remicss::MAX_CHANNELS;
use sunder_remicss::send::schedule::{DynamicScheduler, PlannedScheduler, SymbolScheduler};
use sunder_remicss::send::sender::{SentSymbol, SymbolSendError, SymbolSender, SymbolSenderError};
use sunder_remicss::wire::datagram::{HEADER_LEN, SymbolKind, SymbolShareHeader};
use sunder_remicss::wire::keys::{DirectionKeys, TagPoints};
use sunder_remicss::wire::symbol::{SymbolTagger, TamperedSymbol};
use sunder_remicss::wire::tokens::TokenKey;
use udp::{DatagramBatch, TokenBucketPacer};

pub(crate) const MS: Duration = Duration::from_millis(1);

/// The bytes that IPv4 and UDP add to a datagram, and all that is added to a packet.
pub(crate) const OUTER: usize = 28;
pub(crate) const OVERHEAD: usize = OUTER + HEADER_LEN + 1 + 8;

pub(crate) fn points() -> TagPoints {
    TagPoints::new(&std::array::from_fn(|k| [u8::try_from(7 * k + 1).unwrap(); 8]))
}

pub(crate) fn direction(n: usize) -> DirectionKeys {
    DirectionKeys { channels: n, tokens: TokenKey::new(&[0xAB; 16]), points: Some(points()) }
}

/// The pace for this rate in bit/s, after the headroom.
pub(crate) fn pacer(rate_bps: Option<u64>) -> TokenBucketPacer {
    TokenBucketPacer::new(rate_bps.map(|rate| rate * 2000 / 1999), 1500, OUTER)
}

pub(crate) fn sender_at(
    floor: u8,
    rates: &[Option<u64>],
    scheduler: Box<dyn SymbolScheduler>,
) -> Result<SymbolSender, SymbolSenderError> {
    let pacers = rates.iter().copied().map(pacer).collect();
    let generator = RandomGenerator::seeded().unwrap();
    SymbolSender::new(&direction(rates.len()), floor, pacers, scheduler, generator)
}

pub(crate) fn constant(threshold: ShareSelection) -> Box<dyn SymbolScheduler> {
    Box::new(PlannedScheduler::new(&ShareSchedule::constant(threshold), &[]))
}

pub(crate) fn dynamic(kappa: f64, mu: f64) -> Box<dyn SymbolScheduler> {
    Box::new(DynamicScheduler::new(kappa, mu).unwrap())
}

pub(crate) fn subset(bits: u32) -> ChannelSubset {
    (0..MAX_CHANNELS).filter(|channel| bits >> channel & 1 == 1).collect()
}

pub(crate) fn batches(n: usize) -> Vec<DatagramBatch> {
    (0..n).map(|_| DatagramBatch::default()).collect()
}

/// Everything in the batches, channel by channel; they are empty afterwards.
pub(crate) fn take(batches: &mut [DatagramBatch]) -> Vec<Vec<Vec<u8>>> {
    let datagrams = |batch: &DatagramBatch| {
        batch.runs().flat_map(|(bytes, len)| bytes.chunks(len)).map(<[u8]>::to_vec).collect()
    };
    let all = batches.iter().map(datagrams).collect();
    batches.iter_mut().for_each(DatagramBatch::clear);
    all
}

/// Joins datagrams of one symbol, each with its channel, and opens it.
pub(crate) fn open(
    shares: &[(usize, Vec<u8>)],
) -> Result<(SymbolShareHeader, u8, Vec<u8>), TamperedSymbol> {
    let (header, _) = SymbolShareHeader::parse(&shares[0].1).unwrap();
    let sharing = SharingParameters::shamir(header.threshold, 16).unwrap();
    let coordinates: Vec<u8> =
        shares.iter().map(|(channel, _)| u8::try_from(channel + 1).unwrap()).collect();
    let bytes: Vec<&[u8]> = shares.iter().map(|(_, share)| &share[HEADER_LEN..]).collect();
    let mut symbol = vec![0; bytes[0].len()];
    Joiner::new(sharing).join(&coordinates, &bytes, &mut symbol).unwrap();
    let tagger = SymbolTagger::new(Some(&points()));
    let contents = tagger.open(header.kind, header.threshold, header.sequence, &symbol)?;
    Ok((header, contents.previous, contents.content.to_vec()))
}

/// The single datagram of each channel that has one.
pub(crate) fn shares(batches: &mut [DatagramBatch]) -> Vec<(usize, Vec<u8>)> {
    let mut shares = Vec::new();
    for (channel, datagrams) in take(batches).into_iter().enumerate() {
        assert!(datagrams.len() <= 1);
        shares.extend(datagrams.into_iter().map(|datagram| (channel, datagram)));
    }
    shares
}

pub(crate) fn send(
    sender: &mut SymbolSender,
    content: &[u8],
    now: Duration,
    batches: &mut [DatagramBatch],
) -> Result<SentSymbol, SymbolSendError> {
    sender.begin().extend_from_slice(content);
    sender.finish(SymbolKind::Packet, 0, now, batches)
}

/// The paper's channels (VI), in Mbit/s.
pub(crate) const DIVERSE: [f64; 5] = [5.0, 20.0, 60.0, 65.0, 100.0];
pub(crate) const LOSSES: [f64; 5] = [0.01, 0.005, 0.01, 0.02, 0.03];

pub(crate) fn channels(rates: &[f64]) -> ChannelSet {
    let channel = |(&rate, &loss)| {
        ChannelModel::new(RiskProbability(0.1), LossProbability(loss), 1.0, rate).unwrap()
    };
    ChannelSet::new(rates.iter().zip(&LOSSES).map(channel).collect()).unwrap()
}

pub(crate) fn request(kappa: f64, mu: f64, min_k: usize) -> PlanRequest {
    let objectives = vec![ScheduleObjective::Loss];
    let requirements = ScheduleRequirements {
        kappa: Some(kappa),
        mu: Some(mu),
        full_rate: true,
        min_k,
        objectives,
        ..ScheduleRequirements::default()
    };
    PlanRequest::new(requirements).unwrap()
}

pub(crate) fn diverse_plan(kappa: f64, mu: f64, floor: u8) -> Box<dyn SymbolScheduler> {
    let set = channels(&DIVERSE);
    let plan = set.plan(&request(kappa, mu, usize::from(floor))).unwrap();
    Box::new(PlannedScheduler::new(&plan.schedule, set.channels()))
}

pub(crate) fn sender_of(rates: &[f64], scheduler: Box<dyn SymbolScheduler>) -> SymbolSender {
    let rates: Vec<Option<u64>> = rates.iter().map(|mbit| Some((mbit * 1e6) as u64)).collect();
    sender_at(1, &rates, scheduler).unwrap()
}
