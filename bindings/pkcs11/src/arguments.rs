//! Pointers of C, and the boundary at which panics end.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;

use cryptoki_sys::{
    CK_ATTRIBUTE, CK_RV, CK_ULONG, CKR_ARGUMENTS_BAD, CKR_BUFFER_TOO_SMALL, CKR_GENERAL_ERROR,
};

use crate::return_value::{CryptokiError, code_of};
use crate::sigpipe::SigpipeBlock;

const BAD: CryptokiError = CryptokiError(CKR_ARGUMENTS_BAD);

/// Runs the body of a function, which does all its work in this thread.
pub(crate) fn boundary(body: impl FnOnce() -> Result<(), CryptokiError>) -> CK_RV {
    let _blocked = SigpipeBlock::new();
    // After a panic, the state is whole: it changes only under a lock, in code that does not panic.
    let caught = catch_unwind(AssertUnwindSafe(body));
    caught.map_or(CKR_GENERAL_ERROR, code_of)
}

/// Writes a value of the caller.
///
/// # Safety
/// The pointer is null, or valid for a write.
pub(crate) unsafe fn write<T>(pointer: *mut T, value: T) -> Result<(), CryptokiError> {
    if pointer.is_null() {
        return Err(BAD);
    }
    // SAFETY: it is not null, so the caller promises that it is valid. The standard's structures
    // may be packed by a caller, so no alignment is assumed.
    unsafe { pointer.write_unaligned(value) };
    Ok(())
}

/// Reads a value of the caller.
///
/// # Safety
/// The pointer is null, or valid for a read of an initialised value.
pub(crate) unsafe fn read<T: Copy>(pointer: *const T) -> Result<T, CryptokiError> {
    if pointer.is_null() {
        return Err(BAD);
    }
    // SAFETY: it is not null, so the caller promises that it is valid.
    Ok(unsafe { pointer.read_unaligned() })
}

/// Bytes of the caller. Null is an empty slice if the length is 0.
///
/// # Safety
/// The pointer is null, or valid for reads of `len` bytes while the slice lives.
pub(crate) unsafe fn bytes<'a>(
    pointer: *const u8,
    len: CK_ULONG,
) -> Result<&'a [u8], CryptokiError> {
    let len = length(len)?;
    match (pointer.is_null(), len) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(BAD),
        // SAFETY: it is not null, so the caller promises that it is valid, and bytes need no
        // alignment. The length fits an `isize`.
        (false, len) => Ok(unsafe { slice::from_raw_parts(pointer, len) }),
    }
}

/// The attributes that the caller searches for, or asks for.
///
/// # Safety
/// As for [`bytes`], with `count` attributes.
pub(crate) unsafe fn template(
    pointer: *const CK_ATTRIBUTE,
    count: CK_ULONG,
) -> Result<Vec<CK_ATTRIBUTE>, CryptokiError> {
    let count = length(count)?;
    // SAFETY: a null pointer is refused, and otherwise each attribute is valid.
    (0..count).map(|at| unsafe { read(pointer.wrapping_add(at)) }).collect()
}

/// Writes a list, or its length if the pointer is null.
///
/// # Safety
/// `count` is null, or valid for a read and a write. `out` is null, or valid for writes of as many
/// items as `count` says.
pub(crate) unsafe fn write_list<T: Copy>(
    items: &[T],
    out: *mut T,
    count: *mut CK_ULONG,
) -> Result<(), CryptokiError> {
    // SAFETY: the caller promises that it is null or valid.
    let room = unsafe { read(count) }?;
    // SAFETY: it is not null, because it was read.
    unsafe { write(count, items.len() as CK_ULONG) }?;
    if out.is_null() {
        return Ok(());
    }
    if room < items.len() as CK_ULONG {
        return Err(CryptokiError(CKR_BUFFER_TOO_SMALL));
    }
    for (at, item) in items.iter().enumerate() {
        // SAFETY: there is room for all items.
        unsafe { write(out.wrapping_add(at), *item) }?;
    }
    Ok(())
}

/// A length that fits the address space.
pub(crate) fn length(len: CK_ULONG) -> Result<usize, CryptokiError> {
    isize::try_from(len).ok().and_then(|len| usize::try_from(len).ok()).ok_or(BAD)
}
