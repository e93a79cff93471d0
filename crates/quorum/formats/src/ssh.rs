//! The key as OpenSSH writes it (RFC 4253, 6.6).

use base64ct::{Base64, Encoding as _};
use keys::RsaPublicKey;
use keys::rsa::PUBLIC_EXPONENT;

/// The line of the key in `authorized_keys` and `allowed_signers`, without a comment.
pub fn public_key_line(key: &RsaPublicKey) -> String {
    let fields =
        [b"ssh-rsa".to_vec(), number(&PUBLIC_EXPONENT.to_be_bytes()), number(&key.modulus())];
    let blob: Vec<u8> = fields.iter().flat_map(|field| counted(field)).collect();
    format!("ssh-rsa {}", Base64::encode_string(&blob))
}

/// A positive number, with a zero before a highest bit (RFC 4251, 5).
fn number(bytes: &[u8]) -> Vec<u8> {
    let zeros = bytes.iter().take_while(|&&byte| byte == 0).count();
    let bytes = &bytes[zeros..];
    let sign: &[u8] = if bytes.first().is_some_and(|byte| byte >> 7 == 1) { &[0] } else { &[] };
    [sign, bytes].concat()
}

fn counted(field: &[u8]) -> Vec<u8> {
    let len = u32::try_from(field.len()).expect("keys are short").to_be_bytes();
    [&len, field].concat()
}
