//! Sets of channels as bits.

/// The channels of a set, ascending. The set has bit i for channel i.
pub(crate) fn channels_in(mut set: u16) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = set.trailing_zeros() as usize;
        set &= set.wrapping_sub(1);
        (lowest < 16).then_some(lowest)
    })
}
