//! The numbers that a group agrees on.

use std::ops::RangeInclusive;

/// `n_g` of the paper.
pub(crate) const MEMBERS: RangeInclusive<usize> = 2..=1024;
/// m of the paper.
pub(crate) const SLOTS_PER_MEMBER: RangeInclusive<usize> = 1..=1024;
/// Of a slot, in bytes.
pub(crate) const SLOT_LEN: RangeInclusive<usize> = 64..=4096;
/// The sentinel, the member's own slot, and one of another member at least.
pub(crate) const READS: RangeInclusive<usize> = 3..=64;
/// Of a mailbox, in bytes.
pub const MAX_MAILBOX_LEN: usize = 64 << 20;

/// The numbers that a group agrees on, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailboxShape {
    members: usize,
    slots_per_member: usize,
    writes: usize,
    reads: usize,
    slot_len: usize,
}

/// A number that is out of its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}, but must be {min} to {max}")]
pub struct MailboxShapeError {
    /// Which number.
    pub what: &'static str,
    /// What it is.
    pub value: usize,
    /// The least that it may be.
    pub min: usize,
    /// The most that it may be.
    pub max: usize,
}

impl MailboxShape {
    /// A group of `members` (`n_g`), with `slots_per_member` (m) slots of `slot_len` bytes each, of
    /// which a member writes `writes` (s) in an exchange, and reads `reads` (q) of all.
    ///
    /// # Errors
    /// If a number is out of its range, `writes` is not 1 to `slots_per_member`, or a mailbox has
    /// more than [`MAX_MAILBOX_LEN`] bytes.
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
    fn what_is_out_of_range_is_named() {
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
