//! The processor time in which one member opens the slots of a round.

use mix::{MixExchangeKind, NONCE_LEN, Participant, ReadRound};

use super::super::{first_member, percentile, processor_time};
use super::MixDeliveryOptions;

/// The number of rounds of which the median is taken.
const ROUNDS: u64 = 21;

/// Measures the processor time in ms for a round in which all members of a group take part, without
/// the time to receive its slots. It is zero if exchanges are not made by broadcast.
pub(super) fn opening_ms(options: &MixDeliveryOptions) -> Result<f64, String> {
    let terms = options.terms()?;
    if terms.exchange() != MixExchangeKind::Broadcast {
        return Ok(0.0);
    }
    let shape = terms.shape();
    let (mut member, _) = first_member(shape)?;
    // No slot opens, as nearly all do not in a group.
    let mut mailbox = vec![0; options.members * shape.own_slots_len()];
    fastrand::fill(&mut mailbox);
    let members = (0..u16::MAX).take(options.members);
    let participants = members.map(|member| Participant { member, nonce: [7; NONCE_LEN] });
    let participants: Vec<_> = participants.collect();
    let mut times: Vec<_> = (1..=ROUNDS)
        .map(|round| {
            let read = ReadRound { round, participants: participants.clone() };
            let before = processor_time();
            member.read_mailbox(&read, &mailbox, false);
            processor_time().saturating_sub(before)
        })
        .collect();
    Ok(percentile(&mut times, 50))
}
