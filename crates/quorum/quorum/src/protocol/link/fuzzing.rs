//! Checks of link input for fuzz targets.

use std::time::Duration;

use keys::IdentitySecretKey;
use keys::noise::EphemeralKey;
use zeroize::Zeroizing;

use super::handshake::{
    CONFIRM_LEN, HELLO_LEN, LinkDialer, LinkSession, REPLY_LEN, UnconfirmedLink, answer,
};
use super::lanes::{LinkLane, LinkTopic, MAX_CHUNK_LEN};
use super::records::QuorumLink;

/// An event at a server with a link.
#[derive(Clone, Debug)]
pub enum LinkFuzzStep {
    /// The peer sends a record with this chunk.
    Chunk(Vec<u8>),
    /// The server's program consumes its oldest message.
    Consume,
    /// The server sends a message of this many bytes.
    Send(u16),
    /// This many milliseconds pass.
    Wait(u16),
}

/// Checks that a handshake fails on any bytes but those of the other end: arbitrary bytes, and real
/// ones with changes.
///
/// # Panics
/// If it does not fail.
pub fn handshake(bytes: &[u8], change: impl Fn(&[u8]) -> Vec<u8>) {
    let (dialer, hello) = dial();
    let (unconfirmed, reply) = answered(&hello);
    let (_, confirm) = dialer.finish(&reply).expect("the real answer");
    for hello_seen in [cut(bytes, &[0; HELLO_LEN]), cut(&change(&hello), &hello)] {
        let is_taken = answer(&secret(2), &hello_seen, |_| true, ephemeral(4)).is_ok();
        assert_eq!(is_taken, hello_seen == hello);
    }
    for reply_seen in [cut(bytes, &[0; REPLY_LEN]), cut(&change(&reply), &reply)] {
        assert_eq!(dial().0.finish(&reply_seen).is_ok(), reply_seen == reply);
    }
    let again: UnconfirmedLink = answered(&hello).0;
    for (unconfirmed, seen) in [
        (unconfirmed, cut::<CONFIRM_LEN>(bytes, &[0; CONFIRM_LEN])),
        (again, cut(&change(&confirm), &confirm)),
    ] {
        assert_eq!(unconfirmed.confirm(&seen).is_ok(), seen == confirm);
    }
}

/// Checks that an attacker who changes the traffic of a link cannot insert a message.
///
/// # Panics
/// If a message arrives that was not sent.
pub fn outsider(messages: &[Vec<u8>], change: impl Fn(&[u8]) -> Vec<u8>) {
    let (one, two) = sessions();
    let (mut one, mut two) =
        (QuorumLink::new(one, Duration::ZERO), QuorumLink::new(two, Duration::ZERO));
    for message in messages {
        // It may be too long.
        let _ = one.send(LinkTopic::Signing, LinkLane::Urgent, message.clone().into());
    }
    let mut bytes = Vec::new();
    while one.poll_transmit(&mut bytes) {}
    let _ = two.handle_bytes(Duration::ZERO, &change(&bytes));
    let received = std::iter::from_fn(|| two.poll_received());
    assert!(received.zip(messages).all(|(got, sent)| got.bytes == *sent), "not what was sent");
}

/// Checks that an authenticated peer cannot exceed the bounds on the memory for it.
///
/// # Panics
/// If a bound is exceeded.
pub fn peer(steps: &[LinkFuzzStep]) {
    let (mut one, two) = sessions();
    let mut link = QuorumLink::new(two, Duration::ZERO);
    let (mut now, mut waiting) = (Duration::ZERO, Vec::new());
    for step in steps {
        match step {
            LinkFuzzStep::Chunk(chunk) => {
                let chunk = &chunk[..chunk.len().min(MAX_CHUNK_LEN)];
                let mut record = vec![0; 2 + chunk.len() + 16];
                let len = one.noise.write_message(chunk, &mut record[2..]).expect("it is short");
                record[..2].copy_from_slice(&u16::try_from(len).expect("short").to_be_bytes());
                if link.handle_bytes(now, &record).is_err() {
                    return;
                }
                // The peer changes its key when it announces that.
                if chunk == [3] {
                    one.noise.rekey_outgoing();
                }
                waiting.extend(std::iter::from_fn(|| link.poll_received()));
                let unread = |lane: LinkLane| -> usize {
                    waiting.iter().filter(|it| it.lane == lane).map(|it| it.bytes.len()).sum()
                };
                assert!(unread(LinkLane::Urgent) <= 8 << 20 && unread(LinkLane::Bulk) <= 80 << 20);
            }
            LinkFuzzStep::Consume => {
                if !waiting.is_empty() {
                    let message = waiting.remove(0);
                    link.consumed(message.lane, message.bytes.len());
                }
            }
            LinkFuzzStep::Send(len) => {
                // Too many bytes may be waiting.
                let _ = link.send(LinkTopic::Log, LinkLane::Urgent, vec![7; (*len).into()].into());
            }
            LinkFuzzStep::Wait(milliseconds) => {
                now += Duration::from_millis((*milliseconds).into());
                if link.handle_timeout(now).is_err() {
                    return;
                }
            }
        }
        let mut bytes = Vec::new();
        while link.poll_transmit(&mut bytes) {
            // What the server sends to a peer with this window stays bounded.
            assert!(bytes.len() < 300 << 20);
        }
        assert!(LinkLane::ALL.map(|lane| link.queued(lane)).iter().sum::<usize>() <= 16 << 20);
    }
}

fn secret(number: u8) -> IdentitySecretKey {
    IdentitySecretKey::new(&[number; 32])
}

fn ephemeral(number: u8) -> EphemeralKey {
    EphemeralKey(Zeroizing::new([number + 100; 32]))
}

fn dial() -> (LinkDialer, [u8; HELLO_LEN]) {
    LinkDialer::new(&secret(1), &secret(2).public(), ephemeral(1))
}

fn answered(hello: &[u8; HELLO_LEN]) -> (UnconfirmedLink, [u8; REPLY_LEN]) {
    answer(&secret(2), hello, |_| true, ephemeral(2)).expect("a real hello")
}

fn sessions() -> (LinkSession, LinkSession) {
    let (dialer, hello) = dial();
    let (unconfirmed, reply) = answered(&hello);
    let (one, confirm) = dialer.finish(&reply).expect("the real answer");
    (one, unconfirmed.confirm(&confirm).expect("the real record"))
}

/// The first bytes, followed by those of `rest`.
fn cut<const N: usize>(bytes: &[u8], rest: &[u8; N]) -> [u8; N] {
    let mut out = *rest;
    out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = *byte);
    out
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use sim::SeededRng;

    use super::*;
    use crate::fuzzing::changed;

    #[test]
    fn changed_bytes_and_wrong_chunks_are_refused() {
        sim::run_seeds(200, |seed| {
            let random = RefCell::new(SeededRng::new(seed));
            let change = |bytes: &[u8]| changed(bytes, &mut random.borrow_mut());
            handshake(&change(&[5; HELLO_LEN]), change);
            outsider(&[vec![1; 10], vec![2; 20_000], Vec::new()], change);
            let mut random = random.borrow_mut();
            let mut chunk = || match random.below(9) {
                0 => LinkFuzzStep::Wait(900),
                1 => LinkFuzzStep::Consume,
                2 => LinkFuzzStep::Send(3_000),
                3 => LinkFuzzStep::Chunk(vec![3]),
                4 => LinkFuzzStep::Chunk([&[2, 0, 0, 0, 0][..], &[64]].concat()),
                5 => LinkFuzzStep::Chunk([&[0][..], &[9; 8]].concat()),
                6 => LinkFuzzStep::Chunk(changed(&[4, 1, 0, 0, 0, 3, 1, 2, 3], &mut random)),
                _ => LinkFuzzStep::Chunk(vec![4, 1, 0, 0, 0, 3, 1, 2, 3]),
            };
            peer(&(0..30).map(|_| chunk()).collect::<Vec<_>>());
        });
    }
}
