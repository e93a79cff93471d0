//! Frames of a TUN device are split into packets, and packets joined into frames, with arbitrary
//! bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tun::ip::{clamp_mss, flow, packet_len};
use tun::{ChecksumState, FrameSegments, MAX_FRAME_LEN, PacketCoalescer};

fuzz_target!(|frames: Vec<(bool, Vec<u8>)>| {
    let mut packets = Vec::new();
    for (is_partial, frame) in &frames {
        packets.push((
            frame.clone(),
            if *is_partial { ChecksumState::Partial } else { ChecksumState::Complete },
        ));
        let Some(segments) = FrameSegments::parse(frame) else { continue };
        let checksum = segments.checksum();
        // The maximum number of packets in a superpacket.
        for index in 0..segments.count().min(2_000) {
            let mut packet = Vec::new();
            segments.append(index, &mut packet);
            assert_eq!(packet.len(), segments.segment_len(index));
            clamp_mss(&mut packet, 1400, checksum);
            flow(&packet);
            assert!(packet_len(&packet).is_none_or(|len| len <= packet.len()));
            packets.push((packet, checksum));
        }
    }
    let mut coalescer = PacketCoalescer::new(true);
    let mut write = |superpacket: &tun::Superpacket<'_>| {
        let len: usize = superpacket.slices().iter().map(|slice| slice.len()).sum();
        assert!(len <= MAX_FRAME_LEN);
    };
    for (packet, checksum) in &packets {
        let _ = coalescer.push(packet, *checksum, &mut write);
    }
    coalescer.flush(&mut write);
});
