//! The functions that are supported, by their names in the standard.
//!
//! No function waits for a server while it has the lock of the module's state.
#![allow(non_snake_case, reason = "the standard's names")]

use std::ffi::c_void;
use std::ptr::null;

use cryptoki_sys::*;
use quorum::api::ApiEncoding;

use crate::arguments::{boundary, bytes, length, read, template, write, write_list};
use crate::module::{self, with_state};
use crate::object::{TokenAttribute, TokenObject, key_sizes_of, mechanisms_of, signature_len_of};
use crate::return_value::{CryptokiError, report};
use crate::session::SignOperation;

const MANUFACTURER: &str = "Sunder";

/// The length of a PSS salt that servers choose, in bytes.
const SALT_LEN: CK_ULONG = 32;

fn error<T>(code: CK_RV) -> Result<T, CryptokiError> {
    Err(CryptokiError(code))
}

/// Defines functions of C whose bodies may use `?`. All take what the standard says, which is what
/// the blocks in the bodies rely on: a pointer is null, or valid for what the function does with
/// it, and a length or count is that of what the pointer before it points to.
macro_rules! cryptoki {
    ($(fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {
        $(
            pub(crate) unsafe extern "C" fn $name($($argument: $kind),*) -> CK_RV {
                boundary(|| $body)
            }
        )*
    };
}

cryptoki! {
    fn C_Initialize(arguments: *mut c_void) {
        if !arguments.is_null() {
            // SAFETY: as the standard says.
            let given = unsafe { read(arguments.cast::<CK_C_INITIALIZE_ARGS>()) }?;
            if !given.pReserved.is_null() {
                return error(CKR_ARGUMENTS_BAD);
            }
            // The module needs locks of the system if several threads call it.
            let are_given = given.CreateMutex.is_some() || given.LockMutex.is_some();
            if are_given && given.flags & CKF_OS_LOCKING_OK == 0 {
                return error(CKR_CANT_LOCK);
            }
        }
        module::initialize()
    }

    fn C_Finalize(reserved: *mut c_void) {
        if reserved.is_null() { module::finalize() } else { error(CKR_ARGUMENTS_BAD) }
    }

    fn C_GetInfo(out: *mut CK_INFO) {
        with_state(|_| Ok(()))?;
        let info = CK_INFO {
            cryptokiVersion: CK_VERSION { major: 2, minor: 40 },
            manufacturerID: padded(MANUFACTURER),
            flags: 0,
            libraryDescription: padded("Keys of quorums"),
            libraryVersion: version(),
        };
        // SAFETY: as the standard says.
        unsafe { write(out, info) }
    }

    fn C_GetSlotList(present: CK_BBOOL, out: *mut CK_SLOT_ID, count: *mut CK_ULONG) {
        let tokens = with_state(|state| Ok(state.tokens.clone()))?;
        let slots = (0..).zip(&tokens);
        let slots = slots.filter(|(_, token)| present == CK_FALSE || token.key().is_ok());
        let slots: Vec<CK_SLOT_ID> = slots.map(|(slot, _)| slot).collect();
        // SAFETY: as the standard says.
        unsafe { write_list(&slots, out, count) }
    }

    fn C_GetSlotInfo(slot: CK_SLOT_ID, out: *mut CK_SLOT_INFO) {
        let (_, token) = with_state(|state| state.token(slot))?;
        let flags = if token.key().is_ok() { CKF_TOKEN_PRESENT } else { 0 };
        let info = CK_SLOT_INFO {
            slotDescription: padded(&format!("Sunder quorum: {}", token.label())),
            manufacturerID: padded(MANUFACTURER),
            flags,
            hardwareVersion: version(),
            firmwareVersion: version(),
        };
        // SAFETY: as the standard says.
        unsafe { write(out, info) }
    }

    fn C_GetTokenInfo(slot: CK_SLOT_ID, out: *mut CK_TOKEN_INFO) {
        let (place, token) = with_state(|state| state.token(slot))?;
        let key = token.key()?;
        let count = with_state(|state| Ok(state.sessions.count(place)))?;
        let serial = key.public.digest().first_chunk().map_or(0, |it| u64::from_be_bytes(*it));
        let info = CK_TOKEN_INFO {
            label: padded(token.label()),
            manufacturerID: padded(MANUFACTURER),
            model: padded("quorum"),
            serialNumber: padded(&format!("{serial:016x}")),
            flags: CKF_TOKEN_INITIALIZED | CKF_WRITE_PROTECTED,
            ulMaxSessionCount: CK_EFFECTIVELY_INFINITE,
            ulSessionCount: count as CK_ULONG,
            ulMaxRwSessionCount: 0,
            ulRwSessionCount: 0,
            ulMaxPinLen: 255,
            ulMinPinLen: 0,
            ulTotalPublicMemory: CK_UNAVAILABLE_INFORMATION,
            ulFreePublicMemory: CK_UNAVAILABLE_INFORMATION,
            ulTotalPrivateMemory: CK_UNAVAILABLE_INFORMATION,
            ulFreePrivateMemory: CK_UNAVAILABLE_INFORMATION,
            hardwareVersion: version(),
            firmwareVersion: version(),
            utcTime: padded(""),
        };
        // SAFETY: as the standard says.
        unsafe { write(out, info) }
    }

    fn C_GetMechanismList(slot: CK_SLOT_ID, out: *mut CK_MECHANISM_TYPE, count: *mut CK_ULONG) {
        let (_, token) = with_state(|state| state.token(slot))?;
        let key = token.key()?;
        // SAFETY: as the standard says.
        unsafe { write_list(mechanisms_of(&key.public), out, count) }
    }

    fn C_GetMechanismInfo(
        slot: CK_SLOT_ID,
        mechanism: CK_MECHANISM_TYPE,
        out: *mut CK_MECHANISM_INFO,
    ) {
        let (_, token) = with_state(|state| state.token(slot))?;
        let key = token.key()?;
        if !mechanisms_of(&key.public).contains(&mechanism) {
            return error(CKR_MECHANISM_INVALID);
        }
        let (min, max) = key_sizes_of(&key.public);
        let info = CK_MECHANISM_INFO { ulMinKeySize: min, ulMaxKeySize: max, flags: CKF_SIGN };
        // SAFETY: as the standard says.
        unsafe { write(out, info) }
    }

    fn C_OpenSession(
        slot: CK_SLOT_ID,
        flags: CK_FLAGS,
        _application: *mut c_void,
        _notify: CK_NOTIFY,
        out: *mut CK_SESSION_HANDLE,
    ) {
        let (place, token) = with_state(|state| state.token(slot))?;
        if flags & CKF_SERIAL_SESSION == 0 {
            return error(CKR_SESSION_PARALLEL_NOT_SUPPORTED);
        }
        if flags & CKF_RW_SESSION != 0 {
            return error(CKR_TOKEN_WRITE_PROTECTED);
        }
        if out.is_null() {
            return error(CKR_ARGUMENTS_BAD);
        }
        token.key()?;
        let session = with_state(|state| state.sessions.open(place))?;
        // SAFETY: as the standard says.
        unsafe { write(out, session) }
    }

    fn C_CloseSession(session: CK_SESSION_HANDLE) {
        with_state(|state| state.sessions.close(session))
    }

    fn C_CloseAllSessions(slot: CK_SLOT_ID) {
        with_state(|state| {
            let (place, _) = state.token(slot)?;
            state.sessions.close_all(place);
            Ok(())
        })
    }

    fn C_GetSessionInfo(session: CK_SESSION_HANDLE, out: *mut CK_SESSION_INFO) {
        let slot = with_state(|state| Ok(state.sessions.session(session)?.slot))?;
        let info = CK_SESSION_INFO {
            slotID: slot as CK_SLOT_ID,
            state: CKS_RO_PUBLIC_SESSION,
            flags: CKF_SERIAL_SESSION,
            ulDeviceError: 0,
        };
        // SAFETY: as the standard says.
        unsafe { write(out, info) }
    }

    // The token needs no login. Programs that log in anyway may: nothing depends on it.
    fn C_Login(
        session: CK_SESSION_HANDLE,
        user: CK_USER_TYPE,
        _pin: *mut CK_UTF8CHAR,
        _pin_len: CK_ULONG,
    ) {
        with_state(|state| state.sessions.session(session).map(drop))?;
        if user == CKU_USER { Ok(()) } else { error(CKR_USER_TYPE_INVALID) }
    }

    fn C_Logout(session: CK_SESSION_HANDLE) {
        with_state(|state| state.sessions.session(session).map(drop))
    }

    fn C_GetAttributeValue(
        session: CK_SESSION_HANDLE,
        object: CK_OBJECT_HANDLE,
        wanted: *mut CK_ATTRIBUTE,
        count: CK_ULONG,
    ) {
        let objects = with_state(|state| state.token_of(session))?.key()?.objects;
        let object = object_of(&objects, object)?;
        // SAFETY: as the standard says.
        let template = unsafe { template(wanted, count) }?;
        let mut result = Ok(());
        for (place, attribute) in template.into_iter().enumerate() {
            let (len, failed) = match object.attribute(attribute.type_) {
                TokenAttribute::Sensitive => {
                    (CK_UNAVAILABLE_INFORMATION, Some(CKR_ATTRIBUTE_SENSITIVE))
                }
                TokenAttribute::Missing => {
                    (CK_UNAVAILABLE_INFORMATION, Some(CKR_ATTRIBUTE_TYPE_INVALID))
                }
                TokenAttribute::Value(value) if attribute.pValue.is_null() => {
                    (value.len() as CK_ULONG, None)
                }
                TokenAttribute::Value(value) if attribute.ulValueLen < value.len() as CK_ULONG => {
                    (CK_UNAVAILABLE_INFORMATION, Some(CKR_BUFFER_TOO_SMALL))
                }
                TokenAttribute::Value(value) => {
                    for (at, byte) in value.iter().enumerate() {
                        let to = attribute.pValue.cast::<u8>().wrapping_add(at);
                        // SAFETY: as the standard says: the length is that of the buffer.
                        unsafe { write(to, *byte) }?;
                    }
                    (value.len() as CK_ULONG, None)
                }
            };
            let changed = CK_ATTRIBUTE { ulValueLen: len, ..attribute };
            // SAFETY: as the standard says: it was read from there.
            unsafe { write(wanted.wrapping_add(place), changed) }?;
            // All attributes are written, and the first failure is returned.
            result = result.and(failed.map_or(Ok(()), error));
        }
        result
    }

    fn C_FindObjectsInit(session: CK_SESSION_HANDLE, wanted: *mut CK_ATTRIBUTE, count: CK_ULONG) {
        let objects = with_state(|state| state.token_of(session))?.key()?.objects;
        // SAFETY: as the standard says.
        let template = unsafe { template(wanted, count) }?;
        let mut values = Vec::with_capacity(template.len());
        for attribute in &template {
            // SAFETY: as the standard says.
            let value = unsafe { bytes(attribute.pValue.cast(), attribute.ulValueLen) }?;
            values.push((attribute.type_, value));
        }
        let is_found = |object: &TokenObject| {
            let has = |(kind, value)| object.attribute(kind) == TokenAttribute::Value(value);
            values.iter().copied().all(has)
        };
        let found = (1..).zip(&objects).filter(|(_, object)| is_found(object));
        let found = found.map(|(handle, _)| handle).collect();
        with_state(|state| {
            let session = state.sessions.session(session)?;
            if session.found.is_some() {
                return error(CKR_OPERATION_ACTIVE);
            }
            session.found = Some(found);
            Ok(())
        })
    }

    fn C_FindObjects(
        session: CK_SESSION_HANDLE,
        out: *mut CK_OBJECT_HANDLE,
        max: CK_ULONG,
        count: *mut CK_ULONG,
    ) {
        let max = length(max)?;
        if count.is_null() || out.is_null() && max > 0 {
            return error(CKR_ARGUMENTS_BAD);
        }
        let next: Vec<CK_OBJECT_HANDLE> = with_state(|state| {
            let found = state.sessions.session(session)?.found.as_mut();
            let found = found.ok_or(CryptokiError(CKR_OPERATION_NOT_INITIALIZED))?;
            Ok(found.drain(..max.min(found.len())).collect())
        })?;
        for (at, handle) in next.iter().enumerate() {
            // SAFETY: as the standard says: there are at most `max`.
            unsafe { write(out.wrapping_add(at), *handle) }?;
        }
        // SAFETY: as the standard says.
        unsafe { write(count, next.len() as CK_ULONG) }
    }

    fn C_FindObjectsFinal(session: CK_SESSION_HANDLE) {
        with_state(|state| {
            let ended = state.sessions.session(session)?.found.take();
            ended.map(drop).ok_or(CryptokiError(CKR_OPERATION_NOT_INITIALIZED))
        })
    }

    fn C_SignInit(
        session: CK_SESSION_HANDLE,
        mechanism: *mut CK_MECHANISM,
        key: CK_OBJECT_HANDLE,
    ) {
        let token = with_state(|state| state.token_of(session))?;
        // SAFETY: as the standard says.
        let mechanism = unsafe { read(mechanism) }?;
        // SAFETY: as the standard says.
        let encoding = unsafe { encoding_of(&mechanism) }?;
        let known = token.key()?;
        match object_of(&known.objects, key) {
            Ok(object) if object.is_private_key() => {}
            Ok(_) => return error(CKR_KEY_FUNCTION_NOT_PERMITTED),
            Err(_) => return error(CKR_KEY_HANDLE_INVALID),
        }
        if !mechanisms_of(&known.public).contains(&mechanism.mechanism) {
            report(&"the mechanism is not one of the group's key");
            return error(CKR_KEY_TYPE_INCONSISTENT);
        }
        with_state(|state| {
            let session = state.sessions.session(session)?;
            if session.signing.is_some() {
                return error(CKR_OPERATION_ACTIVE);
            }
            session.signing = Some(SignOperation {
                encoding,
                signature_len: signature_len_of(&known.public),
                message: vec![],
                is_in_parts: false,
            });
            Ok(())
        })
    }

    fn C_Sign(
        session: CK_SESSION_HANDLE,
        message: *mut CK_BYTE,
        message_len: CK_ULONG,
        out: *mut CK_BYTE,
        out_len: *mut CK_ULONG,
    ) {
        let is_in_parts = with_state(|state| {
            Ok(state.sessions.session(session)?.signing()?.is_in_parts)
        })?;
        if is_in_parts {
            return error(CKR_OPERATION_ACTIVE);
        }
        // SAFETY: as the standard says.
        unsafe { finish(session, (message, message_len), (out, out_len)) }
    }

    fn C_SignUpdate(session: CK_SESSION_HANDLE, part: *mut CK_BYTE, len: CK_ULONG) {
        // SAFETY: as the standard says.
        let part = unsafe { bytes(part, len) };
        ended_if_wrong(session, part.and_then(|part| {
            with_state(|state| state.sessions.session(session)?.signing()?.add(part))
        }))
    }

    fn C_SignFinal(session: CK_SESSION_HANDLE, out: *mut CK_BYTE, out_len: *mut CK_ULONG) {
        // SAFETY: as the standard says.
        unsafe { finish(session, (null(), 0), (out, out_len)) }
    }
}

/// Ends a session's signature if a call for it has failed, as the standard says.
fn ended_if_wrong<T>(
    session: CK_SESSION_HANDLE,
    result: Result<T, CryptokiError>,
) -> Result<T, CryptokiError> {
    if result.is_err() {
        with_state(|state| {
            state.sessions.session(session)?.signing = None;
            Ok(())
        })?;
    }
    result
}

/// Signs what was added to the session's message, and the rest of it; or tells the length of the
/// signature, after which the operation goes on.
///
/// # Safety
/// As for `C_Sign`.
unsafe fn finish(
    session: CK_SESSION_HANDLE,
    (rest, rest_len): (*const CK_BYTE, CK_ULONG),
    (out, out_len): (*mut CK_BYTE, *mut CK_ULONG),
) -> Result<(), CryptokiError> {
    // SAFETY: as the caller promises.
    let room = ended_if_wrong(session, unsafe { read(out_len) })?;
    let (token, operation) = with_state(|state| {
        let token = state.token_of(session)?;
        let session = state.sessions.session(session)?;
        let len = session.signing()?.signature_len as CK_ULONG;
        if out.is_null() || room < len {
            // SAFETY: as the caller promises: it was read from there.
            unsafe { write(out_len, len) }?;
            return if out.is_null() { Ok((token, None)) } else { error(CKR_BUFFER_TOO_SMALL) };
        }
        Ok((token, session.signing.take()))
    })?;
    let Some(mut operation) = operation else { return Ok(()) };
    // It is copied before anything is written, because `out` may be the same memory.
    // SAFETY: as the caller promises.
    operation.add(unsafe { bytes(rest, rest_len) }?)?;
    let SignOperation { encoding, signature_len, message, .. } = operation;
    let signature = token.sign(&token.key()?.public, encoding, message)?;
    if signature.len() != signature_len {
        return error(CKR_DEVICE_ERROR);
    }
    for (at, byte) in signature.iter().enumerate() {
        // SAFETY: there is room for the signature.
        unsafe { write(out.wrapping_add(at), *byte) }?;
    }
    // SAFETY: as the caller promises: it was read from there.
    unsafe { write(out_len, signature.len() as CK_ULONG) }
}

/// How a message is encoded by a mechanism.
///
/// # Safety
/// The parameter is null, or valid for reads of its length.
unsafe fn encoding_of(mechanism: &CK_MECHANISM) -> Result<ApiEncoding, CryptokiError> {
    let parameter = mechanism.pParameter;
    let encoding = match mechanism.mechanism {
        CKM_SHA256_RSA_PKCS => ApiEncoding::Pkcs1,
        CKM_SHA512_RSA_PKCS => ApiEncoding::Pkcs1Sha512,
        // Without a parameter, it is Ed25519 of the whole message (PKCS #11 3.0, 2.3.14).
        CKM_EDDSA => ApiEncoding::Ed25519,
        CKM_SHA256_RSA_PKCS_PSS => {
            if mechanism.ulParameterLen != size_of::<CK_RSA_PKCS_PSS_PARAMS>() as CK_ULONG {
                return error(CKR_MECHANISM_PARAM_INVALID);
            }
            // SAFETY: as the caller promises: it has this length.
            let given = unsafe { read(parameter.cast::<CK_RSA_PKCS_PSS_PARAMS>()) }
                .map_err(|_| CryptokiError(CKR_MECHANISM_PARAM_INVALID))?;
            if (given.hashAlg, given.mgf, given.sLen) != (CKM_SHA256, CKG_MGF1_SHA256, SALT_LEN) {
                report(&"servers sign with PSS by SHA-256, MGF1 by SHA-256 and a salt of 32 bytes");
                return error(CKR_MECHANISM_PARAM_INVALID);
            }
            return Ok(ApiEncoding::Pss);
        }
        CKM_RSA_PKCS | CKM_RSA_PKCS_PSS | CKM_RSA_X_509 => {
            report(
                &"the program asks for the signature of a digest, but servers sign whole messages \
                  only",
            );
            return error(CKR_MECHANISM_INVALID);
        }
        _ => return error(CKR_MECHANISM_INVALID),
    };
    let has_parameter = !parameter.is_null() && mechanism.ulParameterLen > 0;
    if has_parameter { error(CKR_MECHANISM_PARAM_INVALID) } else { Ok(encoding) }
}

fn object_of(
    objects: &[TokenObject],
    handle: CK_OBJECT_HANDLE,
) -> Result<&TokenObject, CryptokiError> {
    let place = usize::try_from(handle).ok().and_then(|handle| handle.checked_sub(1));
    place.and_then(|place| objects.get(place)).ok_or(CryptokiError(CKR_OBJECT_HANDLE_INVALID))
}

/// A text of the standard: padded with spaces. A text that is too long is cut, but none is.
fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut padded = [b' '; N];
    let len = text.len().min(N);
    padded[..len].copy_from_slice(&text.as_bytes()[..len]);
    padded
}

/// The version of the module.
fn version() -> CK_VERSION {
    let part = |text: &str| text.parse().unwrap_or(0);
    CK_VERSION {
        major: part(env!("CARGO_PKG_VERSION_MAJOR")),
        minor: part(env!("CARGO_PKG_VERSION_MINOR")),
    }
}
