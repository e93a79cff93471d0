//! The Internet checksum (RFC 1071).

/// The state of a packet's transport checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumState {
    /// The field holds the checksum, right or wrong, as the sender computed it.
    Complete,
    /// The checksum is still to be computed. The packet is TCP or UDP directly after its IP header,
    /// and the field holds the sum of the pseudo-header, not inverted.
    Partial,
}

/// Completes the checksum over all bytes from `start` on. Its field is `offset` bytes after `start`
/// and holds the sum of the pseudo-header. Does nothing if the packet has no such field.
pub(crate) fn complete(packet: &mut [u8], start: usize, offset: usize) {
    let Some(summed) = packet.get_mut(start..) else { return };
    // The sum includes the field.
    let sum = !fold(sum(summed));
    let Some(field) = summed.get_mut(offset..offset + 2) else { return };
    // In UDP a zero means that there is no checksum.
    let sum = if sum == 0 && offset == 6 { 0xffff } else { sum };
    field.copy_from_slice(&sum.to_be_bytes());
}

/// The sum of big-endian 16-bit words that the checksum is made of, not folded.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks_exact(2);
    let last = pairs.remainder().first().map_or(0, |last| u64::from(*last) << 8);
    pairs.map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u64>() + last
}

/// Folds a sum into 16 bits. The result is zero only if the sum is.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "the sum is folded")]
    let folded = sum as u16;
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_matches_the_example_of_rfc_1071() {
        // The example in section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0x2_ddf0);
        assert_eq!(fold(sum(&bytes)), 0xddf2);
        assert_eq!(sum(&[1, 2, 3]), 0x0102 + 0x0300);
    }

    #[test]
    fn zero_checksum_is_all_ones_in_udp_only() {
        // The other words add up to 0xffff.
        let mut udp = [0xff, 0xff, 0, 0, 0, 0, 0, 0];
        complete(&mut udp, 0, 6);
        assert_eq!(udp[6..], [0xff, 0xff]);
        let mut other = [0xff, 0xff, 0, 0, 0, 0, 0, 0];
        complete(&mut other, 0, 2);
        assert_eq!(other[2..4], [0, 0]);
    }

    #[test]
    fn a_field_outside_the_packet_changes_nothing() {
        for (start, offset) in [(0, 7), (8, 0), (9, 0), (65_535, 65_535)] {
            let mut packet = [1; 8];
            complete(&mut packet, start, offset);
            assert_eq!(packet, [1; 8]);
        }
    }
}
