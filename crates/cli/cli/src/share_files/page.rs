//! A share as a page to print: QR codes, the same as lines to type, and what to do with them. Pure.

use std::fmt::Write;

use qrcodegen::{QrCode, QrCodeEcc};
use sharing::SecretSharingScheme;
use sharing::file::ShareFileHeader;
use sharing::paper::{LINE_LEN, PaperShareLabel, lines};

/// The longest secret whose shares are printed: twelve codes, which fill a page.
pub(crate) const MAX_PAPER_SECRET: u64 = 4096;

/// The number of lines in a QR code. Such a code has 77 modules on each side at most, which phones
/// read well.
const LINES_IN_CODE: usize = 14;

/// The modules around a code that are left white.
const QUIET_ZONE: i32 = 4;

const STYLE: &str = "\
@page { margin: 12mm }
body { font: 10pt sans-serif; color: black; background: white; max-width: 186mm; margin: auto }
h1 { font-size: 16pt; margin: 0 0 2mm } h2 { font-size: 11pt; margin: 4mm 0 1mm } p { margin: 1mm 0 }
.codes { display: flex; flex-wrap: wrap; gap: 3mm }
figure { margin: 0; width: 58mm; break-inside: avoid; text-align: center; font-size: 8pt }
svg { width: 58mm; height: 58mm; display: block }
pre { font: 10.5pt monospace; line-height: 1.5; margin: 1mm 0 }
";

/// The page of the share file `share`, which has a valid header, of the file `name`.
///
/// # Errors
/// If the share is too long for QR codes, or has no valid header.
pub(crate) fn share_page(share: &[u8], name: &str) -> Result<String, String> {
    let header = ShareFileHeader::parse(share).map_err(|error| error.to_string())?;
    let typed = lines(share, 1, true).map_err(|error| error.to_string())?;
    let codes = lines(share, LINES_IN_CODE, false).map_err(|error| error.to_string())?;
    let split = header.split();
    let (x, k, m) = (header.coordinate(), split.sharing().threshold(), split.sharing().shares());
    let title = format!("Share {x} of {m}: {}", escaped(name));
    let all = match split.sharing().scheme() {
        SecretSharingScheme::Xor => format!("All {m} shares"),
        SecretSharingScheme::Shamir => format!("Any {k} of the {m} shares"),
    };
    let mut page = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n\
         <style>\n{STYLE}</style></head><body>\n<h1>{title}</h1>\n\
         <p>{all} of this split restore the file ({} bytes). Fewer reveal nothing but its length. \
         Keep this page where nobody can read {k} of them.</p>\n\
         <p>Split {}. All lines of this page begin with {}.</p>\n",
        split.length(),
        split.id(),
        PaperShareLabel::of(&header),
    );
    page.push_str("<h2>Codes</h2>\n<div class=\"codes\">\n");
    for (index, code) in codes.iter().enumerate() {
        let first = index * LINES_IN_CODE + 1;
        let last = typed.len().min(first + LINES_IN_CODE - 1);
        let caption = format!("code {} of {}: lines {first} to {last}", index + 1, codes.len());
        page.push_str(&figure(code, &caption)?);
    }
    page.push_str("</div>\n<h2>Lines</h2>\n<pre>\n");
    for line in &typed {
        page.extend([line.as_str(), "\n"]);
    }
    page.push_str("</pre>\n");
    page.push_str(&instructions(k));
    page.push_str("</body></html>\n");
    Ok(page)
}

/// What to do with the page, also for those who have no Sunder.
fn instructions(k: u8) -> String {
    format!(
        "<h2>How to restore the file</h2>\n\
         <p>Scan the codes of {k} shares with any QR scanner, and put the text of each code on a \
         line of a text file, in any order. Lines that cannot be scanned can be typed: spaces and \
         small letters do not matter. Then run <code>sunder join --out FILE TEXTFILE</code>. A \
         mistyped line is named.</p>\n\
         <p>A line is its label, a colon, up to {LINE_LEN} bytes of the share file in base32 \
         (RFC 4648), and 4 characters of checksum: the first 20 bits of the CRC-32 of the label, \
         the colon and the bytes. A code has the same form and holds several lines. The format of \
         the share file is in docs/formats/share.md of Sunder's source code, and join_shares.py \
         beside it needs only Python. Keep a copy of both with the shares.</p>\n"
    )
}

/// A QR code with a caption.
fn figure(text: &str, caption: &str) -> Result<String, String> {
    let code = QrCode::encode_text(text, QrCodeEcc::Medium).map_err(|error| error.to_string())?;
    let side = code.size() + 2 * QUIET_ZONE;
    let mut path = String::new();
    for y in 0..code.size() {
        for x in (0..code.size()).filter(|&x| code.get_module(x, y)) {
            // Writing to a string does not fail.
            let _ = write!(path, "M{},{}h1v1h-1z", x + QUIET_ZONE, y + QUIET_ZONE);
        }
    }
    Ok(format!(
        "<figure><svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {side} {side}\" \
         shape-rendering=\"crispEdges\"><rect width=\"{side}\" height=\"{side}\" \
         fill=\"white\"/><path d=\"{path}\"/></svg><figcaption>{caption}</figcaption></figure>\n"
    ))
}

/// Text in HTML.
fn escaped(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .map(|c| match c {
            '&' => "&amp;".to_owned(),
            '<' => "&lt;".to_owned(),
            '>' => "&gt;".to_owned(),
            '"' => "&quot;".to_owned(),
            _ => c.to_string(),
        })
        .collect()
}
