//! Overwrites the stack after calls that handle secrets.

use std::hint::black_box;

use zeroize::Zeroizing;

/// How much is overwritten, in 8-byte words: 32 KiB. Calls in a build for tests left a secret 17.5
/// KiB deep.
const WORDS: usize = 4096;

/// Overwrites 32 KiB of the stack, where calls that have returned may have left secrets: a moved
/// value leaves a copy behind, and libraries that use keys have temporaries. The caller of a
/// function that uses a key calls this afterwards. Registers, and copies that the compiler keeps in
/// the caller's own frame, are not overwritten.
#[inline(never)]
#[expect(clippy::large_stack_arrays, reason = "the stack is what it overwrites")]
pub fn wipe_stack() {
    let mut left = Zeroizing::new([0_u64; WORDS]);
    black_box(&mut *left);
}
