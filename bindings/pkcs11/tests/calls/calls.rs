//! Right and wrong calls, from one thread and from many.

use std::env;
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;

use cryptoki_sys::*;
use sunder_pkcs11::C_GetFunctionList;

use crate::server::{FORGED, OTHERWISE, REFUSED, SigningServer, openssl};

static SERVER: LazyLock<SigningServer> = LazyLock::new(SigningServer::start);

/// The module has one state in a process, so one test uses it at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// The module between `C_Initialize` and `C_Finalize`.
struct Module {
    functions: CK_FUNCTION_LIST,
    _guard: MutexGuard<'static, ()>,
}

/// Calls a function of the list.
macro_rules! call {
    ($module:expr, $name:ident($($argument:expr),*)) => {{
        let function = $module.functions.$name.unwrap();
        // SAFETY: pointers are null, or of values that live here; lengths are theirs.
        unsafe { function($($argument),*) }
    }};
}

impl Module {
    fn new() -> Self {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = SERVER.socket();
        // SAFETY: the tests that read the environment, here and in `openssl`, have the lock.
        unsafe { env::set_var(sunder_pkcs11::config::SOCKET_VARIABLE, socket) };
        let mut list = null_mut();
        // SAFETY: it is a pointer to a pointer, which then is one to the list.
        let functions = unsafe {
            assert_eq!(C_GetFunctionList(&raw mut list), CKR_OK);
            *list
        };
        let module = Self { functions, _guard: guard };
        assert_eq!(call!(module, C_Initialize(null_mut())), CKR_OK);
        module
    }

    fn session(&self) -> CK_SESSION_HANDLE {
        let mut session = 0;
        let flags = CKF_SERIAL_SESSION;
        let opened = call!(self, C_OpenSession(0, flags, null_mut(), None, &raw mut session));
        assert_eq!(opened, CKR_OK);
        session
    }

    /// The handle of the only object of a class.
    fn object(&self, session: CK_SESSION_HANDLE, class: CK_OBJECT_CLASS) -> CK_OBJECT_HANDLE {
        let mut class = class;
        let mut template = attribute(CKA_CLASS, (&raw mut class).cast(), size_of_val(&class));
        let begun = call!(self, C_FindObjectsInit(session, &raw mut template, 1));
        assert_eq!(begun, CKR_OK);
        let (mut found, mut count) = ([0; 4], 0);
        let call = call!(self, C_FindObjects(session, found.as_mut_ptr(), 4, &raw mut count));
        assert_eq!((call, count), (CKR_OK, 1));
        let call = call!(self, C_FindObjects(session, found.as_mut_ptr(), 4, &raw mut count));
        assert_eq!((call, count), (CKR_OK, 0));
        assert_eq!(call!(self, C_FindObjectsFinal(session)), CKR_OK);
        found[0]
    }

    fn begin(&self, session: CK_SESSION_HANDLE, mechanism: CK_MECHANISM_TYPE) -> CK_RV {
        let key = self.object(session, CKO_PRIVATE_KEY);
        let mut given = CK_MECHANISM { mechanism, ..CK_MECHANISM::default() };
        call!(self, C_SignInit(session, &raw mut given, key))
    }

    /// The signature of a message in one call.
    fn sign(&self, session: CK_SESSION_HANDLE, message: &[u8]) -> Result<Vec<u8>, CK_RV> {
        let mut message = message.to_vec();
        let (mut signature, mut len) = (vec![0; 300], 300);
        let (data, data_len) = (message.as_mut_ptr(), message.len() as CK_ULONG);
        let out = signature.as_mut_ptr();
        match call!(self, C_Sign(session, data, data_len, out, &raw mut len)) {
            CKR_OK => {
                signature.truncate(usize::try_from(len).unwrap());
                Ok(signature)
            }
            code => Err(code),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        assert_eq!(call!(self, C_Finalize(null_mut())), CKR_OK);
        assert_eq!(call!(self, C_Finalize(null_mut())), CKR_CRYPTOKI_NOT_INITIALIZED);
        assert_eq!(call!(self, C_CloseSession(1)), CKR_CRYPTOKI_NOT_INITIALIZED);
    }
}

fn attribute(kind: CK_ATTRIBUTE_TYPE, value: *mut std::ffi::c_void, len: usize) -> CK_ATTRIBUTE {
    CK_ATTRIBUTE { type_: kind, pValue: value, ulValueLen: len as CK_ULONG }
}

/// Whether `openssl` accepts a signature.
fn is_right(message: &[u8], signature: &[u8], options: &str) -> bool {
    let place = tempfile::tempdir_in(SERVER.path()).unwrap();
    std::fs::write(place.path().join("message"), message).unwrap();
    std::fs::write(place.path().join("signature"), signature).unwrap();
    let arguments = format!("dgst {options} -verify ../public -signature signature message");
    openssl(place.path(), &arguments) == b"Verified OK\n"
}

#[test]
fn whole_messages_are_signed_in_one_call_and_in_parts() {
    let module = Module::new();
    let session = module.session();
    for (mechanism, options) in [(CKM_SHA256_RSA_PKCS, "-sha256"), (CKM_SHA512_RSA_PKCS, "-sha512")]
    {
        assert_eq!(module.begin(session, mechanism), CKR_OK);
        let signature = module.sign(session, b"a message").unwrap();
        assert!(is_right(b"a message", &signature, options));
    }
    // In parts, after the length was asked for twice.
    assert_eq!(module.begin(session, CKM_SHA256_RSA_PKCS), CKR_OK);
    for part in ["a ", "", "message"] {
        let mut part = part.as_bytes().to_vec();
        let (data, len) = (part.as_mut_ptr(), part.len() as CK_ULONG);
        assert_eq!(call!(module, C_SignUpdate(session, data, len)), CKR_OK);
    }
    assert_eq!(module.sign(session, b"a message"), Err(CKR_OPERATION_ACTIVE));
    let (mut signature, mut len) = (vec![0; 256], 0);
    let out = signature.as_mut_ptr();
    assert_eq!(call!(module, C_SignFinal(session, null_mut(), &raw mut len)), CKR_OK);
    assert_eq!(len, 256);
    len = 255;
    assert_eq!(call!(module, C_SignFinal(session, out, &raw mut len)), CKR_BUFFER_TOO_SMALL);
    assert_eq!(len, 256);
    assert_eq!(call!(module, C_SignFinal(session, out, &raw mut len)), CKR_OK);
    assert!(is_right(b"a message", &signature, "-sha256"));
    let after = call!(module, C_SignFinal(session, out, &raw mut len));
    assert_eq!(after, CKR_OPERATION_NOT_INITIALIZED);
    // In place: the signature replaces the message.
    assert_eq!(module.begin(session, CKM_SHA256_RSA_PKCS), CKR_OK);
    signature[..9].copy_from_slice(b"a message");
    let out = signature.as_mut_ptr();
    assert_eq!(call!(module, C_Sign(session, out, 9, out, &raw mut len)), CKR_OK);
    assert!(is_right(b"a message", &signature, "-sha256"));
}

/// The standard ends a signature if a call for it fails, so that the session can begin another one.
#[test]
fn wrong_arguments_end_a_signature() {
    let module = Module::new();
    let session = module.session();
    let (mut signature, mut len) = (vec![0; 256], 256);
    let (out, none) = (signature.as_mut_ptr(), null_mut());
    let calls: [&mut dyn FnMut() -> CK_RV; 5] = [
        &mut || call!(module, C_Sign(session, none, 1, out, &raw mut len)),
        &mut || call!(module, C_Sign(session, out, 1, out, null_mut())),
        &mut || call!(module, C_SignUpdate(session, none, 1)),
        &mut || call!(module, C_SignUpdate(session, out, CK_ULONG::MAX)),
        &mut || call!(module, C_SignFinal(session, out, null_mut())),
    ];
    for call in calls {
        assert_eq!(module.begin(session, CKM_SHA256_RSA_PKCS), CKR_OK);
        assert_eq!(call(), CKR_ARGUMENTS_BAD);
        let ended = module.sign(session, b"a message");
        assert_eq!(ended, Err(CKR_OPERATION_NOT_INITIALIZED));
    }
}

#[test]
fn pss_has_the_parameters_of_the_servers_only() {
    let module = Module::new();
    let session = module.session();
    let key = module.object(session, CKO_PRIVATE_KEY);
    let begin = |hash, mgf, salt, len| {
        let mut parameters = CK_RSA_PKCS_PSS_PARAMS { hashAlg: hash, mgf, sLen: salt };
        let mut given = CK_MECHANISM {
            mechanism: CKM_SHA256_RSA_PKCS_PSS,
            pParameter: (&raw mut parameters).cast(),
            ulParameterLen: len,
        };
        call!(module, C_SignInit(session, &raw mut given, key))
    };
    let len = size_of::<CK_RSA_PKCS_PSS_PARAMS>() as CK_ULONG;
    for (hash, mgf, salt, len) in [
        (CKM_SHA512, CKG_MGF1_SHA256, 32, len),
        (CKM_SHA256, CKG_MGF1_SHA512, 32, len),
        (CKM_SHA256, CKG_MGF1_SHA256, 20, len),
        (CKM_SHA256, CKG_MGF1_SHA256, 32, len - 1),
        (CKM_SHA256, CKG_MGF1_SHA256, 32, 0),
    ] {
        assert_eq!(begin(hash, mgf, salt, len), CKR_MECHANISM_PARAM_INVALID);
    }
    assert_eq!(module.begin(session, CKM_SHA256_RSA_PKCS_PSS), CKR_MECHANISM_PARAM_INVALID);
    assert_eq!(begin(CKM_SHA256, CKG_MGF1_SHA256, 32, len), CKR_OK);
    let signature = module.sign(session, b"a message").unwrap();
    let options = "-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32";
    assert!(is_right(b"a message", &signature, options));
}

#[test]
fn what_servers_do_not_sign_is_refused_with_the_right_code() {
    let module = Module::new();
    let session = module.session();
    // Digests: they could be those of an epoch's header.
    for mechanism in [CKM_RSA_PKCS, CKM_RSA_PKCS_PSS, CKM_RSA_X_509, CKM_SHA_1, CKM_ECDSA] {
        assert_eq!(module.begin(session, mechanism), CKR_MECHANISM_INVALID);
        assert_eq!(module.sign(session, b"a message"), Err(CKR_OPERATION_NOT_INITIALIZED));
    }
    // A mechanism of Ed25519 keys, and the key is an RSA key.
    assert_eq!(module.begin(session, CKM_EDDSA), CKR_KEY_TYPE_INCONSISTENT);
    for (message, expected) in [
        (REFUSED, CKR_FUNCTION_REJECTED),
        // A server of another group, for example.
        (FORGED, CKR_DEVICE_ERROR),
        // The program would write it into something that names the encoding.
        (OTHERWISE, CKR_DEVICE_ERROR),
        (&vec![0; (1 << 20) + 1], CKR_DATA_LEN_RANGE),
    ] {
        assert_eq!(module.begin(session, CKM_SHA256_RSA_PKCS), CKR_OK);
        assert_eq!(module.sign(session, message), Err(expected));
        // The operation has ended.
        assert_eq!(module.sign(session, message), Err(CKR_OPERATION_NOT_INITIALIZED));
    }
    assert_eq!(module.begin(session, CKM_SHA256_RSA_PKCS), CKR_OK);
    let mut part = vec![0; 1 << 20];
    let (data, len) = (part.as_mut_ptr(), part.len() as CK_ULONG);
    assert_eq!(call!(module, C_SignUpdate(session, data, len)), CKR_OK);
    assert_eq!(call!(module, C_SignUpdate(session, data, 1)), CKR_DATA_LEN_RANGE);
    let mut out_len = 0;
    let ended = call!(module, C_SignFinal(session, null_mut(), &raw mut out_len));
    assert_eq!(ended, CKR_OPERATION_NOT_INITIALIZED);
    // The public key does not sign.
    let key = module.object(session, CKO_PUBLIC_KEY);
    let mut given = CK_MECHANISM { mechanism: CKM_SHA256_RSA_PKCS, ..CK_MECHANISM::default() };
    let begun = call!(module, C_SignInit(session, &raw mut given, key));
    assert_eq!(begun, CKR_KEY_FUNCTION_NOT_PERMITTED);
    assert_eq!(call!(module, C_SignInit(session, &raw mut given, 99)), CKR_KEY_HANDLE_INVALID);
    // Functions without support.
    assert_eq!(call!(module, C_GenerateRandom(session, data, 1)), CKR_FUNCTION_NOT_SUPPORTED);
    assert_eq!(call!(module, C_GetFunctionStatus(session)), CKR_FUNCTION_NOT_PARALLEL);
}

#[test]
fn attributes_are_given_with_their_lengths_and_secrets_are_not() {
    let module = Module::new();
    let session = module.session();
    let key = module.object(session, CKO_PRIVATE_KEY);
    let get = |template: &mut [CK_ATTRIBUTE]| {
        let count = template.len() as CK_ULONG;
        call!(module, C_GetAttributeValue(session, key, template.as_mut_ptr(), count))
    };
    let (mut modulus, mut short) = ([0_u8; 300], [0_u8; 10]);
    let mut template = [
        attribute(CKA_MODULUS, modulus.as_mut_ptr().cast(), 300),
        attribute(CKA_MODULUS, null_mut(), 0),
        attribute(CKA_PUBLIC_EXPONENT, short.as_mut_ptr().cast(), 10),
    ];
    assert_eq!(get(&mut template), CKR_OK);
    assert_eq!(template.map(|it| it.ulValueLen), [256, 256, 3]);
    assert_eq!(short[..3], [1, 0, 1]);
    let printed = openssl(SERVER.path(), "rsa -pubin -in public -noout -modulus");
    let hex = str::from_utf8(&printed).unwrap().trim().strip_prefix("Modulus=").unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[2 * at..2 * at + 2], 16).unwrap();
    assert_eq!((0..256).map(byte).collect::<Vec<_>>(), modulus[..256]);
    // The others are given, whatever one of them is.
    for (kind, expected) in [
        (CKA_PRIVATE_EXPONENT, CKR_ATTRIBUTE_SENSITIVE),
        (CKA_PRIME_1, CKR_ATTRIBUTE_SENSITIVE),
        (CKA_EC_POINT, CKR_ATTRIBUTE_TYPE_INVALID),
        (CKA_MODULUS, CKR_BUFFER_TOO_SMALL),
    ] {
        let mut template = [
            attribute(kind, short.as_mut_ptr().cast(), 10),
            attribute(CKA_MODULUS, modulus.as_mut_ptr().cast(), 300),
        ];
        assert_eq!(get(&mut template), expected);
        assert_eq!(template.map(|it| it.ulValueLen), [CK_UNAVAILABLE_INFORMATION, 256]);
    }
    assert_eq!(get(&mut []), CKR_OK);
}

/// Each pointer may be null, each handle and length wrong: no call crashes, and each says why.
#[test]
fn wrong_arguments_are_refused() {
    let module = Module::new();
    let session = module.session();
    assert_eq!(call!(module, C_Initialize(null_mut())), CKR_CRYPTOKI_ALREADY_INITIALIZED);
    // SAFETY: null is allowed.
    assert_eq!(unsafe { C_GetFunctionList(null_mut()) }, CKR_ARGUMENTS_BAD);
    let bad = [
        call!(module, C_Finalize(std::ptr::dangling_mut())),
        call!(module, C_GetInfo(null_mut())),
        call!(module, C_GetSlotList(0, null_mut(), null_mut())),
        call!(module, C_GetSlotInfo(0, null_mut())),
        call!(module, C_GetTokenInfo(0, null_mut())),
        call!(module, C_GetMechanismList(0, null_mut(), null_mut())),
        call!(module, C_GetMechanismInfo(0, CKM_SHA256_RSA_PKCS, null_mut())),
        call!(module, C_OpenSession(0, CKF_SERIAL_SESSION, null_mut(), None, null_mut())),
        call!(module, C_GetSessionInfo(session, null_mut())),
        call!(module, C_GetAttributeValue(session, 1, null_mut(), 1)),
        call!(module, C_GetAttributeValue(session, 1, null_mut(), CK_ULONG::MAX)),
        call!(module, C_FindObjectsInit(session, null_mut(), 1)),
        call!(module, C_FindObjects(session, null_mut(), 1, null_mut())),
        call!(module, C_SignInit(session, null_mut(), 1)),
        call!(module, C_SignUpdate(session, null_mut(), 1)),
        call!(module, C_SignUpdate(session, null_mut(), CK_ULONG::MAX)),
        call!(module, C_SignFinal(session, null_mut(), null_mut())),
    ];
    assert!(bad.iter().all(|code| *code == CKR_ARGUMENTS_BAD), "{bad:x?}");
    let mut template = attribute(CKA_LABEL, null_mut(), 5);
    let begun = call!(module, C_FindObjectsInit(session, &raw mut template, 1));
    assert_eq!(begun, CKR_ARGUMENTS_BAD);

    let mut info = CK_SLOT_INFO::default();
    for slot in [1, CK_SLOT_ID::MAX] {
        assert_eq!(call!(module, C_GetSlotInfo(slot, &raw mut info)), CKR_SLOT_ID_INVALID);
        assert_eq!(call!(module, C_CloseAllSessions(slot)), CKR_SLOT_ID_INVALID);
    }
    let mut len = 0;
    for wrong in [0, session + 1, CK_SESSION_HANDLE::MAX] {
        let codes = [
            call!(module, C_CloseSession(wrong)),
            call!(module, C_Login(wrong, CKU_USER, null_mut(), 0)),
            call!(module, C_FindObjectsInit(wrong, null_mut(), 0)),
            call!(module, C_FindObjectsFinal(wrong)),
            call!(module, C_Sign(wrong, null_mut(), 0, null_mut(), &raw mut len)),
            call!(module, C_SignFinal(wrong, null_mut(), &raw mut len)),
        ];
        assert!(codes.iter().all(|code| *code == CKR_SESSION_HANDLE_INVALID), "{codes:x?}");
    }
    for object in [0, 3, CK_OBJECT_HANDLE::MAX] {
        let got = call!(module, C_GetAttributeValue(session, object, null_mut(), 0));
        assert_eq!(got, CKR_OBJECT_HANDLE_INVALID);
    }
    let mut opened = 0;
    for (flags, expected) in [
        (0, CKR_SESSION_PARALLEL_NOT_SUPPORTED),
        (CKF_SERIAL_SESSION | CKF_RW_SESSION, CKR_TOKEN_WRITE_PROTECTED),
    ] {
        let call = call!(module, C_OpenSession(0, flags, null_mut(), None, &raw mut opened));
        assert_eq!(call, expected);
    }
    // A list that is too short is not written, and its length is said.
    let (mut list, mut count) = ([7; 3], 2);
    let short = call!(module, C_GetMechanismList(0, list.as_mut_ptr(), &raw mut count));
    assert_eq!((short, count, list), (CKR_BUFFER_TOO_SMALL, 3, [7; 3]));
    assert_eq!(call!(module, C_Login(session, CKU_SO, null_mut(), 0)), CKR_USER_TYPE_INVALID);
    assert_eq!(call!(module, C_Login(session, CKU_USER, null_mut(), 0)), CKR_OK);
    // The arguments of C_Initialize: locks that are not the system's, and a reserved pointer.
    let mut arguments = CK_C_INITIALIZE_ARGS::default();
    assert_eq!(
        call!(module, C_Initialize((&raw mut arguments).cast())),
        CKR_CRYPTOKI_ALREADY_INITIALIZED
    );
    arguments.pReserved = std::ptr::dangling_mut();
    assert_eq!(call!(module, C_Initialize((&raw mut arguments).cast())), CKR_ARGUMENTS_BAD);
}

#[test]
fn many_threads_sign_at_once() {
    let module = Module::new();
    thread::scope(|scope| {
        for thread in 0..8 {
            let module = &module;
            scope.spawn(move || {
                let session = module.session();
                for round in 0..3 {
                    let message = format!("message {thread} {round}");
                    assert_eq!(module.begin(session, CKM_SHA256_RSA_PKCS), CKR_OK);
                    let signature = module.sign(session, message.as_bytes()).unwrap();
                    assert!(is_right(message.as_bytes(), &signature, "-sha256"));
                }
                assert_eq!(call!(module, C_CloseSession(session)), CKR_OK);
            });
        }
    });
    // There are bounds.
    let sessions: Vec<_> = (0..4_096).map(|_| module.session()).collect();
    let (flags, mut session) = (CKF_SERIAL_SESSION, 0);
    let more = call!(module, C_OpenSession(0, flags, null_mut(), None, &raw mut session));
    assert_eq!((sessions.len(), more), (4_096, CKR_SESSION_COUNT));
    assert_eq!(call!(module, C_CloseAllSessions(0)), CKR_OK);
}
