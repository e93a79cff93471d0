//! The Internet checksum (RFC 1071).

/// What a packet's transport checksum is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Right as it is, or as wrong as its sender made it.
    Complete,
    /// Still to be done. The packet is TCP or UDP right behind its IP header, and the field holds
    /// the sum of the pseudo-header, not inverted.
    Partial,
}

/// Completes a checksum over all from `start` on, whose field is `offset` bytes behind that and
/// holds the pseudo-header's sum. Does nothing if there is no such field.
pub(crate) fn complete(packet: &mut [u8], start: usize, offset: usize) {
    let Some(summed) = packet.get_mut(start..) else { return };
    // The field is a part of what is added up.
    let sum = !fold(sum(summed));
    let Some(field) = summed.get_mut(offset..offset + 2) else { return };
    // In UDP a zero says that there is no checksum.
    let sum = if sum == 0 && offset == 6 { 0xffff } else { sum };
    field.copy_from_slice(&sum.to_be_bytes());
}

/// The sum of big-endian 16-bit numbers that makes the checksum, not folded.
pub(crate) fn sum(bytes: &[u8]) -> u64 {
    let pairs = bytes.chunks_exact(2);
    let last = pairs.remainder().first().map_or(0, |last| u64::from(*last) << 8);
    pairs.map(|pair| u64::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u64>() + last
}

/// Such a sum in 16 bits. It is zero only if the sum is.
pub(crate) fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is folded")]
    let folded = sum as u16;
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_sum_of_rfc_1071() {
        // The example of section 3.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(sum(&bytes), 0x2_ddf0);
        assert_eq!(fold(sum(&bytes)), 0xddf2);
        assert_eq!(sum(&[1, 2, 3]), 0x0102 + 0x0300);
    }

    #[test]
    fn a_checksum_of_zero_is_all_ones_in_udp_only() {
        // All else adds up to 0xffff.
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
