//! The parameters of a group's mailbox.

use std::ops::RangeInclusive;

/// Members of a group: `n_g` in the paper.
pub(crate) const MEMBERS: RangeInclusive<usize> = 2..=1024;
/// Slots per member: m in the paper.
pub(crate) const SLOTS_PER_MEMBER: RangeInclusive<usize> = 1..=1024;
/// Length of a slot in bytes.
pub(crate) const SLOT_LEN: RangeInclusive<usize> = 64..=4096;
/// Slots read per exchange: at least the sentinel, an own slot, and a slot of another member.
pub(crate) const READS: RangeInclusive<usize> = 3..=64;
/// Maximum length of a mailbox in bytes.
pub const MAX_MAILBOX_LEN: usize = 64 << 20;

/// The checked parameters of a group's mailbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxShape {
    members: usize,
    slots_per_member: usize,
    writes: usize,
    reads: usize,
    slot_len: usize,
}

/// A parameter is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}, but must be {min} to {max}")]
pub struct MailboxShapeError {
    /// The name of the parameter.
    pub what: &'static str,
    /// Its value.
    pub value: usize,
    /// The minimum.
    pub min: usize,
    /// The maximum.
    pub max: usize,
}

impl MailboxShape {
    /// The shape for `members` members (`n_g`), each with `slots_per_member` slots (m) of
    /// `slot_len` bytes. In an exchange a member writes `writes` of its own slots (s) and reads
    /// `reads` of all slots (q).
    ///
    /// # Errors
    /// If a parameter is out of its range, `writes` is not 1 to `slots_per_member`, or a mailbox
    /// has more than [`MAX_MAILBOX_LEN`] bytes.
    pub fn new(
        members: usize,
        slots_per_member: usize,
        writes: usize,
        reads: usize,
        slot_len: usize,
    ) -> Result<Self, MailboxShapeError> {
        check("the number of members", members, MEMBERS)?;
        check("the number of slots of a member", slots_per_member, SLOTS_PER_MEMBER)?;
        check("the number of slots written", writes, 1..=slots_per_member)?;
        check("the number of slots read", reads, READS)?;
        check("the length of a slot", slot_len, SLOT_LEN)?;
        let shape = Self { members, slots_per_member, writes, reads, slot_len };
        check("the length of a mailbox", shape.mailbox_len(), 0..=MAX_MAILBOX_LEN)?;
        Ok(shape)
    }

    /// `n_g`, the number of members.
    pub fn members(&self) -> usize {
        self.members
    }

    /// m, the number of slots of a member.
    pub fn slots_per_member(&self) -> usize {
        self.slots_per_member
    }

    /// s, the number of slots that a member writes in an exchange.
    pub fn writes(&self) -> usize {
        self.writes
    }

    /// q, the number of slots that a member reads in an exchange.
    pub fn reads(&self) -> usize {
        self.reads
    }

    /// L, the bytes of a slot.
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// N, the number of slots of a mailbox: those of the members, and the sentinel.
    pub fn slots(&self) -> usize {
        self.members * self.slots_per_member + 1
    }

    /// The bytes of a member's own slots: m L.
    pub fn own_slots_len(&self) -> usize {
        self.slots_per_member * self.slot_len
    }

    /// The bytes of a mailbox.
    pub fn mailbox_len(&self) -> usize {
        self.slots() * self.slot_len
    }
}

fn check(
    what: &'static str,
    value: usize,
    range: RangeInclusive<usize>,
) -> Result<(), MailboxShapeError> {
    let (min, max) = range.into_inner();
    if (min..=max).contains(&value) {
        Ok(())
    } else {
        Err(MailboxShapeError { what, value, min, max })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailbox_shape_errors_name_the_parameter_out_of_range() {
        assert_eq!(MailboxShape::new(100, 2, 1, 12, 256).unwrap().slots(), 201);
        for (numbers, what) in [
            ((1, 2, 1, 12, 256), "the number of members is 1, but must be 2 to 1024"),
            ((3, 0, 1, 12, 256), "the number of slots of a member is 0, but must be 1 to 1024"),
            ((3, 2, 3, 12, 256), "the number of slots written is 3, but must be 1 to 2"),
            ((3, 2, 1, 2, 256), "the number of slots read is 2, but must be 3 to 64"),
            ((3, 2, 1, 12, 63), "the length of a slot is 63, but must be 64 to 4096"),
            (
                (1024, 1024, 1, 12, 256),
                "the length of a mailbox is 268435712, but must be 0 to 67108864",
            ),
        ] {
            let (members, slots, writes, reads, len) = numbers;
            let error = MailboxShape::new(members, slots, writes, reads, len).unwrap_err();
            assert_eq!(error.to_string(), what);
        }
    }
}
