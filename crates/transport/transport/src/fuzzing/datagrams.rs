//! Datagrams of strangers, and of the relay or the other party, between two parties of a relay.

use std::net::SocketAddr;
use std::time::Duration;

use keys::{KEY_LEN, SharedKey};
use random::RandomGenerator;
use zeroize::Zeroizing;

use crate::protocol::datagram_relay::{DatagramRelay, RelayDatagramAction};
use crate::protocol::direct::DatagramOffer;
use crate::protocol::punching::{HolePuncher, PUNCH_MESSAGE_LEN, PunchingOutcome, PunchingRole};
use crate::protocol::relay_binding::{
    BINDING_MESSAGE_LEN, BindingMessage, RelayBinding, answer, request,
};

/// A step: a number of the source, the milliseconds before, and how the bytes are made.
pub type DatagramStep = (u8, u16, u8, Vec<u8>);

/// Passes datagrams to a relay with one bound pair, and to the ends of a search for a path. Checks
/// that strangers get nothing and change nothing, and that the relay never sends more than it got.
///
/// # Panics
/// If that does not hold.
pub fn datagrams(steps: &[DatagramStep]) {
    let mut generator = RandomGenerator::system();
    let mut relay = DatagramRelay::new(&mut generator).expect("random bytes");
    let mut now = Duration::from_secs(100);
    let grants = relay.add_pair(now, &mut generator).expect("random bytes");
    let keys = [0, 1].map(|index| SharedKey::new(&grants[index].key));
    let parties = [address(0), address(1)];
    for index in 0..2 {
        let mut binding = RelayBinding::new(&grants[index], now);
        while let Some(request) = binding.poll_transmit(now) {
            if let RelayDatagramAction::Answer(answer) =
                relay.handle_datagram(now, parties[index], &request)
            {
                binding.handle_datagram(now, &answer);
            }
        }
    }
    let mut binding = RelayBinding::new(&grants[0], now);
    let key = Zeroizing::new([7; KEY_LEN]);
    let candidates = [address(5), address(6)];
    let relay_address = Some(address(9));
    let mut puncher =
        HolePuncher::new(PunchingRole::Connecting, &key, &candidates, relay_address, now);
    for (source, ms, kind, bytes) in steps {
        now += Duration::from_millis((*ms).into());
        let from = address(*source);
        let id = grants[usize::from(*kind & 1)].id;
        let key = &keys[usize::from(*kind & 1)];
        let challenge = *bytes.first_chunk().unwrap_or(&[0; 16]);
        // With the right key, from any address; or any bytes.
        let datagram = match kind % 4 {
            0 => request(id, key, challenge).to_vec(),
            1 => answer(id, key, challenge, from, *ms & 1 == 1).to_vec(),
            _ => bytes.clone(),
        };
        if let Some(message) = BindingMessage::parse(&datagram) {
            assert_eq!(datagram.len(), BINDING_MESSAGE_LEN);
            let _ = message.is_request_of(key);
        }
        match relay.handle_datagram(now, from, &datagram) {
            RelayDatagramAction::Drop => {}
            RelayDatagramAction::Answer(answer) => assert!(answer.len() <= datagram.len()),
            RelayDatagramAction::Forward(to) => {
                assert!(parties.contains(&from) && parties.contains(&to) && from != to);
            }
        }
        assert_eq!(relay.counts(), (2, 2));
        binding.handle_datagram(now, &datagram);
        // Nobody but the fuzzer's caller has this key, so that nothing is answered.
        let (is_mine, answer) = puncher.handle_datagram(now, from, &datagram);
        assert!(answer.is_none() && (!is_mine || datagram.len() == PUNCH_MESSAGE_LEN));
        while puncher.poll_transmit(now).is_some() {}
        let outcome = puncher.outcome(now);
        assert!(matches!(outcome, PunchingOutcome::Searching | PunchingOutcome::NoPath));
    }
    while binding.poll_transmit(binding.poll_timeout().unwrap_or_default()).is_some() {}
    for (.., bytes) in steps {
        if let Ok(offer @ DatagramOffer::Candidates { .. }) = DatagramOffer::read(&mut &bytes[..])
            && let DatagramOffer::Candidates { addresses, .. } = &offer
        {
            assert!(addresses.len() <= usize::from(bytes[1 + KEY_LEN]));
            let encoded = offer.encode();
            assert_eq!(DatagramOffer::read(&mut &encoded[..]).expect("encoded"), offer);
        }
    }
}

fn address(number: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, 1 + number % 10], 4000))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn strangers_change_nothing(steps in prop::collection::vec(
            (any::<u8>(), 0..3000_u16, any::<u8>(), prop::collection::vec(any::<u8>(), 0..120)),
            0..30,
        )) {
            datagrams(&steps);
        }
    }
}
