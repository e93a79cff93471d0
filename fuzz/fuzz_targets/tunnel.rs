//! A tunnel's datagrams: whatever comes on whatever channel, parsers give back what they read, and a
//! receiver delivers nothing that has no tag.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use remicss::control::Message;
use remicss::datagram::{Header, Kind};
use remicss::handshake::Datagram;
use remicss::keys::{Direction, Points, Token};
use remicss::probe::answer;
use remicss::receiver::{Deliver, Limits, Receiver};

/// Nobody knows the points, so nothing but chance makes a tag.
struct Nothing;

impl Deliver for Nothing {
    fn packets(&mut self, _: Kind, packets: &[u8]) {
        panic!("delivered {packets:?}");
    }

    fn control(&mut self, _: u64, message: &[u8]) {
        panic!("delivered {message:?}");
    }

    fn control_share(&mut self, _: u64, channel: usize, _: u64, _: Duration) {
        assert!(channel < 3);
    }
}

fuzz_target!(|input: Vec<(u8, u8, Vec<u8>)>| {
    let points = Points::new([[0x5A, 0xC3, 0x99, 0x17, 0x2B, 0xE8, 0x64, 0xF1]; 16]);
    let direction = Direction { tokens: vec![Token::new([0; 3]); 3], points: Some(points) };
    let limits = Limits {
        window: 1 << 10,
        share_bytes: 1 << 17,
        held_bytes: 1 << 17,
        ..Limits::default()
    };
    let mut receiver = Receiver::new(&direction, 1, limits);
    let mut now = Duration::ZERO;
    for (channel, wait, mut bytes) in input {
        if let Ok(datagram) = Datagram::parse(&bytes) {
            assert_eq!(Datagram::parse(&datagram.encode()).map(|again| again.encode()), Ok(datagram.encode()));
        }
        if let Ok(message) = Message::parse(&bytes) {
            assert_eq!(message.encode(), bytes);
        }
        let _ = answer(&bytes, Token::new([0; 3]), Token::new([1; 3]));
        // With the token that gets it past the door.
        if let Some(token) = bytes.get_mut(1..4) {
            token.fill(0);
        }
        if let Ok((header, _)) = Header::parse(&bytes) {
            assert_eq!(header.encode()[..], bytes[..7]);
        }
        now += Duration::from_millis(wait.into());
        receiver.handle_share(usize::from(channel % 4), &bytes, now, &mut Nothing);
        receiver.handle_timeout(now, &mut Nothing);
    }
});
