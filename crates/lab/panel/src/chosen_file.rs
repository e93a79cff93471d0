//! Files that a person chooses on the page: their texts, and what is kept of them. Pure.

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
    let ChosenFile { name, text } = read(value).ok_or("choose the file again")?;
    if name.is_empty() || name.len() > MAX_NAME || name.contains(char::is_control) {
        return Err(format!("the file's name must have 1 to {MAX_NAME} plain characters"));
    }
    if text.trim().is_empty() {
        return Err("the file is empty".into());
    }
    if text.len() > max_bytes {
        let length = text.len();
        return Err(format!("the file has {length} bytes; it may have at most {max_bytes}"));
    }
    if text.contains('\0') {
        return Err("this is no text file: it has a zero byte".into());
    }
    Ok(text)
}

/// What is kept of a value: of a file its name, its length and its SHA-256.
pub(crate) fn kept(value: &Value) -> Value {
    let Some(ChosenFile { name, text }) = read(value) else { return value.clone() };
    let sha256 = base16ct::lower::encode_string(&Sha256::digest(&text));
    json!({ "name": name, "bytes": text.len(), "sha256": sha256 })
}

/// A value as a file, if it is one.
fn read(value: &Value) -> Option<ChosenFile> {
    ChosenFile::deserialize(value).ok().filter(|_| value.is_object())
}
