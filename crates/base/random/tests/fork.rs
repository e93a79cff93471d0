//! A child of `fork` must not continue with its parent's generator: the two would share their
//! secrets under the same random bytes.
#![cfg(unix)]
#![allow(unsafe_code)]

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{FromRawFd, OwnedFd};

use sunder_random::RandomGenerator;

const LEN: usize = 64;

#[test]
fn a_child_draws_other_bytes_than_its_parent() {
    let mut generator = RandomGenerator::seeded().unwrap();
    let before: [u8; LEN] = generator.array().unwrap();

    let (mut reader, writer) = pipe();
    // SAFETY: the child only draws random bytes, writes to a pipe and leaves.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "no child: {}", std::io::Error::last_os_error());
    if child == 0 {
        let drawn: [u8; LEN] = generator.array().unwrap_or([0; LEN]);
        let written = File::from(writer).write_all(&drawn);
        // SAFETY: leaves at once, without what the test harness does at exit.
        unsafe { libc::_exit(i32::from(written.is_err())) };
    }
    drop(writer);
    let mut childs = Vec::new();
    reader.read_to_end(&mut childs).unwrap();
    // SAFETY: waits for the child made above; no status is asked for.
    assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child);

    let parents: [u8; LEN] = generator.array().unwrap();
    assert_eq!(childs.len(), LEN);
    for (name, bytes) in [("after", &parents), ("before", &before), ("nothing", &[0; LEN])] {
        let same = bytes.iter().zip(&childs).filter(|(a, b)| a == b).count();
        // A byte is equal by chance in 1 of 256 cases; 16 of 64 bytes are once in 10^23.
        assert!(same < 16, "the child's bytes are the parent's ({name})");
    }
}

fn pipe() -> (File, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: two descriptors are written to an array of two.
    let failed = unsafe { libc::pipe(ends.as_mut_ptr()) };
    assert_eq!(failed, 0, "no pipe: {}", std::io::Error::last_os_error());
    // SAFETY: both were just opened, and nobody else owns them.
    let [reader, writer] = ends.map(|end| unsafe { OwnedFd::from_raw_fd(end) });
    (File::from(reader), writer)
}
