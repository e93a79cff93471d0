//! Packet numbers.
//!
//! On the wire a number has 31 bits and wraps around. In memory it has 64 bits and never wraps, so
//! that numbers compare as integers. The first number of a direction is [`first`].

/// The number of values on the wire.
const WRAP: u64 = 1 << 31;

/// The largest value on the wire.
pub(crate) const MAX_WIRE: u32 = (1 << 31) - 1;

/// The number of the first packet of a direction; the handshake carries its low 31 bits. It is so
/// large that no number near it is negative.
pub(crate) fn first(wire: u32) -> u64 {
    WRAP + u64::from(wire & MAX_WIRE)
}

/// The low 31 bits of a number.
pub(crate) fn to_wire(number: u64) -> u32 {
    (number % WRAP) as u32
}

/// The number nearest to `near` with these low 31 bits. The highest bit of `wire` is ignored.
pub(crate) fn from_wire(wire: u32, near: u64) -> u64 {
    let ahead = u64::from(wire & MAX_WIRE).wrapping_sub(near) % WRAP;
    if ahead < WRAP / 2 { near + ahead } else { (near + ahead).saturating_sub(WRAP) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_survives_the_wire() {
        for wire in [0, 1, MAX_WIRE / 2, MAX_WIRE] {
            let start = first(wire);
            for distance in [0, 1, 1 << 20, (1 << 30) - 1] {
                assert_eq!(from_wire(to_wire(start + distance), start), start + distance);
                assert_eq!(from_wire(to_wire(start), start + distance), start);
            }
        }
        let late = first(5) + 10 * WRAP;
        assert_eq!(from_wire(to_wire(late + 7), late), late + 7);
    }
}
