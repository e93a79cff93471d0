//! A sender under any sequence of calls.

use std::time::Duration;

use proptest::prelude::*;
use sunder_remicss::MAX_CHANNELS;
use sunder_remicss::send::sender::{SentSymbol, SymbolSendError};
use sunder_remicss::wire::datagram::SymbolKind;
use udp::PacerRateLimit;

use super::end::*;

/// A call, in any order.
#[derive(Clone, Debug)]
enum Step {
    Finish { len: usize, flow: u16 },
    Again,
    Control(usize),
    Pass(Duration),
    Rest,
    Up(u32),
    Rate { channel: usize, rate_bps: Option<u64> },
    Plan { kappa: f64, above: f64 },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let rate_bps = prop::option::of(1_000_000..100_000_000_u64);
    let step = prop_oneof![
        20 => (0..1600_usize, any::<u16>()).prop_map(|(len, flow)| Step::Finish { len, flow }),
        5 => Just(Step::Again),
        2 => (0..200_usize).prop_map(Step::Control),
        10 => (0..3000_u64).prop_map(|us| Step::Pass(Duration::from_micros(us))),
        2 => Just(Step::Rest),
        1 => (0..256_u32).prop_map(Step::Up),
        1 => (0..6_usize, rate_bps).prop_map(|(channel, rate_bps)| Step::Rate { channel, rate_bps }),
        1 => (1.0..5.0, 0.0..4.0).prop_map(|(kappa, above)| Step::Plan { kappa, above }),
    ];
    prop::collection::vec(step, 1..300)
}

proptest! {
    /// Numbers increase by one, the floor is kept, and the counts match what is sent.
    #[test]
    fn any_sequence_of_calls_keeps_the_senders_invariants(steps in steps(), floor in 1..=4_u8) {
        let mut sender = sender_at(floor, &[Some(50_000_000); 5], dynamic(4.0, 4.5)).unwrap();
        sender.set_max_datagram_len(1472);
        let (mut now, mut batches) = (MS, batches(5));
        let (mut number, mut datagrams) = (0, [0; MAX_CHANNELS]);
        for step in steps {
            let sent = match step {
                Step::Finish { len, flow } => {
                    sender.begin().resize(1 + len, 0xAA);
                    sender.finish(SymbolKind::Packet, flow, now, &mut batches)
                }
                Step::Again => sender.finish(SymbolKind::PartialPacket, 0, now, &mut batches),
                Step::Control(len) => sender.control(&vec![0x55; len], now, &mut batches),
                Step::Pass(time) => {
                    now += time;
                    continue;
                }
                Step::Rest => {
                    sender.set_idle();
                    continue;
                }
                Step::Up(bits) => {
                    sender.set_up(subset(bits));
                    continue;
                }
                Step::Rate { channel, rate_bps } => {
                    let limit = rate_bps.map(|rate_bps| PacerRateLimit { rate_bps, burst: 0 });
                    sender.set_limit(channel, limit, now);
                    continue;
                }
                Step::Plan { kappa, above } => {
                    let result = sender.set_scheduler(dynamic(kappa, (kappa + above).min(5.0)));
                    prop_assert_eq!(result.is_ok(), kappa.floor() >= f64::from(floor));
                    continue;
                }
            };
            let all = shares(&mut batches);
            for (channel, _) in &all {
                datagrams[*channel] += 1;
            }
            prop_assert_eq!(sender.counts().datagrams, datagrams);
            match sent {
                Ok(SentSymbol { number: new, threshold }) => {
                    number += 1;
                    prop_assert_eq!(new, number);
                    prop_assert!(threshold.k() >= usize::from(floor));
                    prop_assert_eq!(all.len(), threshold.m());
                    let (header, ..) = open(&all[..threshold.k()]).unwrap();
                    prop_assert_eq!(u64::from(header.sequence), number);
                }
                Err(SymbolSendError::Wait(until)) => prop_assert!(until > now && all.is_empty()),
                Err(_) => prop_assert!(all.is_empty()),
            }
        }
    }
}
