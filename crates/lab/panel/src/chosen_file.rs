//! Files that a person chooses on the page: their texts or bytes, and what is kept of them. Pure.

use base64ct::{Base64, Encoding as _};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// A file as the page sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChosenFile {
    /// Its name at the person's. It is shown, and never a path.
    name: String,
    text: String,
}

/// An archive as the page sends it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ChosenArchive {
    /// Its name at the person's, or that of the folder. It is shown, and never a path.
    name: String,
    base64: String,
}

/// The file in the directory of a run that has its archive. The page gives it to nobody.
pub(crate) const ARCHIVE_FILE: &str = "scripts.archive";

/// The maximum length of a name, in bytes.
const MAX_NAME: usize = 255;

/// The text of the only value of a knob, or the example if there is no value.
///
/// # Errors
/// If there are several values, or the value is no text file of at most `max_bytes`.
pub(crate) fn text(
    values: &[Value],
    max_bytes: usize,
    example: Option<&str>,
) -> Result<String, String> {
    let value = match values {
        [] => return example.map(str::to_owned).ok_or_else(|| "choose a file".into()),
        [value] => value,
        _ => return Err("choose one file".into()),
    };
    let ChosenFile { name, text } = read(value).ok_or(AGAIN)?;
    check_name(&name)?;
    if text.trim().is_empty() {
        return Err("the file is empty".into());
    }
    if text.len() > max_bytes {
        return Err(too_long(text.len(), max_bytes));
    }
    if text.contains('\0') {
        return Err("this is no text file: it has a zero byte".into());
    }
    Ok(text)
}

/// The bytes of the only value of a knob; `None` if there is no value.
///
/// # Errors
/// If there are several values, or the value is no archive of at most `max_bytes`. What is in it is
/// not looked at.
pub(crate) fn archive(values: &[Value], max_bytes: usize) -> Result<Option<Vec<u8>>, String> {
    let value = match values {
        [] => return Ok(None),
        [value] => value,
        _ => return Err("choose one folder or archive".into()),
    };
    let ChosenArchive { name, base64 } = read(value).ok_or(AGAIN)?;
    check_name(&name)?;
    // Before anything is decoded.
    let about = base64.len() / 4 * 3;
    if about > max_bytes + 2 {
        return Err(too_long(about, max_bytes));
    }
    let bytes = Base64::decode_vec(&base64).map_err(|_| AGAIN)?;
    if bytes.len() > max_bytes {
        return Err(too_long(bytes.len(), max_bytes));
    }
    Ok(Some(bytes))
}

/// What is kept of a value: of a file its name, its length and its SHA-256.
pub(crate) fn kept(value: &Value) -> Value {
    let (name, bytes) = if let Some(ChosenFile { name, text }) = read(value) {
        (name, text.into_bytes())
    } else if let Some(ChosenArchive { name, base64 }) = read(value) {
        (name, Base64::decode_vec(&base64).unwrap_or_default())
    } else {
        return value.clone();
    };
    let sha256 = base16ct::lower::encode_string(&Sha256::digest(&bytes));
    json!({ "name": name, "bytes": bytes.len(), "sha256": sha256 })
}

/// What a person does if the value is no file: that of an earlier run is not kept.
const AGAIN: &str = "choose the file again";

fn check_name(name: &str) -> Result<(), String> {
    if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
        return Err(format!("the file's name must have 1 to {MAX_NAME} plain characters"));
    }
    Ok(())
}

fn too_long(length: usize, max_bytes: usize) -> String {
    format!("the file has {length} bytes; it may have at most {max_bytes}")
}

/// A value as a file of a kind, if it is one.
fn read<'a, T: Deserialize<'a>>(value: &'a Value) -> Option<T> {
    T::deserialize(value).ok().filter(|_| value.is_object())
}
