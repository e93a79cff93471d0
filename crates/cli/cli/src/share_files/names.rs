//! The names of share files: `NAME.1.share` to `NAME.M.share`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// The suffix of share files.
const SUFFIX: &[u8] = b".share";

/// The name of the file for share `x` of the file `name`.
pub(crate) fn share_name(name: &OsStr, x: u8) -> OsString {
    let mut share = name.to_owned();
    share.push(format!(".{x}.share"));
    share
}

/// The name of the page with share `x` of the file `name`.
pub(crate) fn page_name(name: &OsStr, x: u8) -> OsString {
    let mut page = name.to_owned();
    page.push(format!(".{x}.html"));
    page
}

/// The name of the split file, from the name of a share; `None` if it is not named like a share.
pub(crate) fn original_name(share: &Path) -> Option<&OsStr> {
    let stem = share.file_name()?.as_bytes().strip_suffix(SUFFIX)?;
    let dot = stem.iter().rposition(|&byte| byte == b'.')?;
    let (name, number) = (&stem[..dot], &stem[dot + 1..]);
    let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
    (is_number && !name.is_empty()).then(|| OsStr::from_bytes(name))
}

/// Whether a file has the suffix of share files.
pub(crate) fn is_named_like_a_share(path: &Path) -> bool {
    path.as_os_str().as_bytes().ends_with(SUFFIX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_named_after_its_original() {
        for name in ["plan.pdf", "a", ".hidden", "x.1.share"] {
            let share = share_name(OsStr::new(name), 255);
            assert_eq!(share.to_str(), Some(format!("{name}.255.share").as_str()));
            assert_eq!(original_name(Path::new(&share)), Some(OsStr::new(name)));
        }
    }

    #[test]
    fn other_names_have_no_original() {
        for name in ["plan.pdf", "1.share", ".1.share", "a.share", "a..share", "a.x.share", "/", ""]
        {
            assert_eq!(original_name(Path::new(name)), None, "{name}");
        }
    }
}
