//! A tunnel's datagrams: parsers give back what they read, and a receiver delivers nothing without
//! a valid tag, whatever arrives on any channel.
#![no_main]

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use remicss::recv::receiver::{SymbolReceiver, SymbolReceiverLimits};
use remicss::recv::symbol_sink::{ControlShare, SymbolSink};
use remicss::wire::control::ControlMessage;
use remicss::wire::datagram::{HEADER_LEN, SymbolKind, SymbolShareHeader, expand_sequence};
use remicss::wire::handshake::HandshakeDatagram;
use remicss::wire::keys::{DirectionKeys, TagPoints};
use remicss::wire::path::PathDatagram;
use remicss::wire::tokens::{ShareTokens, TokenKey};

/// No input knows the points, so a tag is valid by chance only.
struct Nothing;

impl SymbolSink for Nothing {
    fn packets(&mut self, _: SymbolKind, packets: &[u8]) {
        panic!("delivered {packets:?}");
    }

    fn control(&mut self, _: u64, message: &[u8]) {
        panic!("delivered {message:?}");
    }

    fn control_share(&mut self, share: ControlShare) {
        panic!("told of {share:?}");
    }
}

fuzz_target!(|input: Vec<(u8, u8, Vec<u8>)>| {
    let points = TagPoints::new(&[[0x5A, 0xC3, 0x99, 0x17, 0x2B, 0xE8, 0x64, 0xF1]; 16]);
    let tokens = TokenKey::new(&[0; 16]);
    // Also of a channel that does not exist.
    let mut share_tokens = ShareTokens::new(&tokens, 4);
    let direction = DirectionKeys { channels: 3, tokens: tokens.clone(), points: Some(points) };
    let limits = SymbolReceiverLimits {
        window: 1 << 10,
        share_bytes: 1 << 17,
        held_bytes: 1 << 17,
        ..SymbolReceiverLimits::default()
    };
    let mut receiver = SymbolReceiver::new(&direction, 1, limits);
    let mut now = Duration::ZERO;
    for (channel, wait, mut bytes) in input {
        if let Ok(datagram) = HandshakeDatagram::parse(&bytes) {
            assert_eq!(
                HandshakeDatagram::parse(&datagram.encode()).map(|again| again.encode()),
                Ok(datagram.encode())
            );
        }
        if let Ok(message) = ControlMessage::parse(&bytes) {
            assert_eq!(message.encode(), bytes);
        }
        let channel = usize::from(channel % 4);
        if let Ok(datagram) = PathDatagram::open(&bytes, &tokens, channel) {
            assert_eq!(
                datagram.seal(&tokens, channel)[..PathDatagram::MIN_LEN],
                bytes[..PathDatagram::MIN_LEN]
            );
        }
        if let Ok((header, _)) = SymbolShareHeader::parse(&bytes) {
            assert_eq!(header.encode()[..], bytes[..HEADER_LEN]);
            // With the token, without which it is dropped at once.
            let number = expand_sequence(receiver.highest(), header.sequence);
            let header = SymbolShareHeader::new(
                header.kind,
                header.threshold,
                number,
                channel,
                &mut share_tokens,
            );
            bytes[..HEADER_LEN].copy_from_slice(&header.encode());
        }
        now += Duration::from_millis(wait.into());
        let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 7000));
        receiver.handle_share(channel, from, &bytes, now, &mut Nothing);
        receiver.handle_timeout(now, &mut Nothing);
    }
});
