//! What calls leave on the stack.

use std::hint::black_box;

use zeroize::Zeroizing;

/// How much is overwritten, in words of 8 bytes: 4 KiB.
const WORDS: usize = 512;

/// Overwrites what calls that have returned left on the stack, 4 KiB deep: a value that is moved
/// leaves a copy where it was, and libraries that take keys have temporaries of their own. The
/// caller of a function that takes a key calls this afterwards. What registers hold, and what the
/// compiler keeps of the caller's own, stays.
#[inline(never)]
pub fn wipe_stack() {
    let mut left = Zeroizing::new([0_u64; WORDS]);
    black_box(&mut *left);
}
