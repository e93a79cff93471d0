//! The list of functions, which is all that programs look up by name.
#![allow(non_snake_case, reason = "the standard's names")]

use cryptoki_sys::{
    CK_FUNCTION_LIST, CK_RV, CK_VERSION, CKR_FUNCTION_NOT_PARALLEL, CKR_FUNCTION_NOT_SUPPORTED,
};

use crate::arguments::{boundary, write};
use crate::functions;

/// Gives the list of functions.
///
/// # Safety
/// `out` is null, or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn C_GetFunctionList(out: *mut *mut CK_FUNCTION_LIST) -> CK_RV {
    // SAFETY: as the caller promises. The standard gives a pointer that is not `const`, but callers
    // do not write to the list.
    boundary(|| unsafe { write(out, (&raw const LIST).cast_mut()) })
}

static LIST: CK_FUNCTION_LIST = CK_FUNCTION_LIST {
    version: CK_VERSION { major: 2, minor: 40 },
    C_Initialize: Some(functions::C_Initialize),
    C_Finalize: Some(functions::C_Finalize),
    C_GetInfo: Some(functions::C_GetInfo),
    C_GetFunctionList: Some(C_GetFunctionList),
    C_GetSlotList: Some(functions::C_GetSlotList),
    C_GetSlotInfo: Some(functions::C_GetSlotInfo),
    C_GetTokenInfo: Some(functions::C_GetTokenInfo),
    C_GetMechanismList: Some(functions::C_GetMechanismList),
    C_GetMechanismInfo: Some(functions::C_GetMechanismInfo),
    C_InitToken: Some(unsupported_4),
    C_InitPIN: Some(unsupported_3),
    C_SetPIN: Some(unsupported_5),
    C_OpenSession: Some(functions::C_OpenSession),
    C_CloseSession: Some(functions::C_CloseSession),
    C_CloseAllSessions: Some(functions::C_CloseAllSessions),
    C_GetSessionInfo: Some(functions::C_GetSessionInfo),
    C_GetOperationState: Some(unsupported_3),
    C_SetOperationState: Some(unsupported_5),
    C_Login: Some(functions::C_Login),
    C_Logout: Some(functions::C_Logout),
    C_CreateObject: Some(unsupported_4),
    C_CopyObject: Some(unsupported_5),
    C_DestroyObject: Some(unsupported_2),
    C_GetObjectSize: Some(unsupported_3),
    C_GetAttributeValue: Some(functions::C_GetAttributeValue),
    C_SetAttributeValue: Some(unsupported_4),
    C_FindObjectsInit: Some(functions::C_FindObjectsInit),
    C_FindObjects: Some(functions::C_FindObjects),
    C_FindObjectsFinal: Some(functions::C_FindObjectsFinal),
    C_EncryptInit: Some(unsupported_3),
    C_Encrypt: Some(unsupported_5),
    C_EncryptUpdate: Some(unsupported_5),
    C_EncryptFinal: Some(unsupported_3),
    C_DecryptInit: Some(unsupported_3),
    C_Decrypt: Some(unsupported_5),
    C_DecryptUpdate: Some(unsupported_5),
    C_DecryptFinal: Some(unsupported_3),
    C_DigestInit: Some(unsupported_2),
    C_Digest: Some(unsupported_5),
    C_DigestUpdate: Some(unsupported_3),
    C_DigestKey: Some(unsupported_2),
    C_DigestFinal: Some(unsupported_3),
    C_SignInit: Some(functions::C_SignInit),
    C_Sign: Some(functions::C_Sign),
    C_SignUpdate: Some(functions::C_SignUpdate),
    C_SignFinal: Some(functions::C_SignFinal),
    C_SignRecoverInit: Some(unsupported_3),
    C_SignRecover: Some(unsupported_5),
    C_VerifyInit: Some(unsupported_3),
    C_Verify: Some(unsupported_5),
    C_VerifyUpdate: Some(unsupported_3),
    C_VerifyFinal: Some(unsupported_3),
    C_VerifyRecoverInit: Some(unsupported_3),
    C_VerifyRecover: Some(unsupported_5),
    C_DigestEncryptUpdate: Some(unsupported_5),
    C_DecryptDigestUpdate: Some(unsupported_5),
    C_SignEncryptUpdate: Some(unsupported_5),
    C_DecryptVerifyUpdate: Some(unsupported_5),
    C_GenerateKey: Some(unsupported_5),
    C_GenerateKeyPair: Some(unsupported_8),
    C_WrapKey: Some(unsupported_6),
    C_UnwrapKey: Some(unsupported_8),
    C_DeriveKey: Some(unsupported_6),
    C_SeedRandom: Some(unsupported_3),
    C_GenerateRandom: Some(unsupported_3),
    C_GetFunctionStatus: Some(not_parallel),
    C_CancelFunction: Some(not_parallel),
    C_WaitForSlotEvent: Some(unsupported_3),
};

unsafe extern "C" fn not_parallel<A>(_: A) -> CK_RV {
    CKR_FUNCTION_NOT_PARALLEL
}

/// Defines functions that are not supported, by the number of their arguments.
macro_rules! unsupported {
    ($($name:ident($($kind:ident),*);)*) => {
        $(
            unsafe extern "C" fn $name<$($kind),*>($(_: $kind),*) -> CK_RV {
                CKR_FUNCTION_NOT_SUPPORTED
            }
        )*
    };
}

unsupported! {
    unsupported_2(A, B);
    unsupported_3(A, B, C);
    unsupported_4(A, B, C, D);
    unsupported_5(A, B, C, D, E);
    unsupported_6(A, B, C, D, E, F);
    unsupported_8(A, B, C, D, E, F, G, H);
}
