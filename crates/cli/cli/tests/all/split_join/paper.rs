//! `sunder split --paper`: shares are printed, and joined again from what is scanned or typed.

use std::fs;
use std::process::{Command, Stdio};

use super::place::{TestDirectory, bytes, error_line, stderr};

/// The lines to type on the page of a share.
pub(crate) fn typed_lines(place: &TestDirectory, x: u8) -> String {
    let page = String::from_utf8(place.read(&format!("secret.{x}.html"))).unwrap();
    page.split("<pre>\n").nth(1).unwrap().split("</pre>").next().unwrap().to_owned()
}

#[test]
fn typed_lines_come_back() {
    for (options, x, y) in
        [("-k 2 -m 3", 1, 3), ("-k 2 -m 2 --scheme xor", 2, 1), ("-k 2 -m 20", 20, 12)]
    {
        for len in [0, 1, 32, 4096] {
            let place = TestDirectory::new();
            let secret = bytes(len);
            place.split(&format!("{options} --paper"), &secret);
            place.write("one.txt", typed_lines(&place, x).to_lowercase().as_bytes());
            place.write("other.txt", typed_lines(&place, y).replace(' ', "").as_bytes());
            place.succeed("join --out secret one.txt other.txt");
            assert!(place.read("secret") == secret, "{options}, {len} bytes");
            // A text and a share file, and both in one text.
            place.succeed(&format!("join --out again secret.{x}.share other.txt"));
            let lines: Vec<String> =
                [x, y].map(|x| typed_lines(&place, x)).concat().lines().map(Into::into).collect();
            let reversed: Vec<&str> = lines.iter().rev().map(String::as_str).collect();
            place.write("both.txt", format!("# typed\n\n{}", reversed.join("\n")).as_bytes());
            place.succeed("join --out both both.txt");
            assert!(place.read("both") == secret);
            place.succeed("check both.txt");
        }
    }
}

#[test]
fn mistyped_and_missing_lines_are_named() {
    let place = TestDirectory::new();
    place.split("-k 1 -m 1 --paper", &bytes(100));
    let lines = typed_lines(&place, 1);
    let lines: Vec<&str> = lines.lines().collect();
    let label = lines[0].split_once("-1:").unwrap().0;

    let mut mistyped: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let last = mistyped[3].pop().unwrap();
    mistyped[3].push(if last == 'A' { 'B' } else { 'A' });
    place.write("typed.txt", mistyped.join("\n").as_bytes());
    let message = place.fail(2, "join --out x typed.txt");
    assert!(message.contains("typed.txt (line 4: a character is mistyped"), "{message}");
    assert!(message.contains(&format!("share {label}: line 4 is missing")), "{message}");
    assert_eq!(place.run("check typed.txt").status.code(), Some(2));

    place.write("typed.txt", lines[2..].join("\n").as_bytes());
    let message = place.fail(2, "join --out x typed.txt");
    assert!(message.contains("lines 1, 2 are missing"), "{message}");

    place.write("typed.txt", [lines[0], "what is this?"].join("\n").as_bytes());
    let message = place.fail(2, "join --out x typed.txt");
    assert!(message.contains("line 2: it does not begin with a label"), "{message}");
}

#[test]
fn a_page_that_is_given_as_a_share_is_refused_with_what_to_do() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 2 --paper", &bytes(40));
    let joined = place.fail(2, "join --out x secret.1.html secret.2.html");
    let checked = place.run("check secret.1.html");
    for message in [joined, error_line(&checked, 2)] {
        assert!(message.contains("secret.1.html (a page to print: write its lines"), "{message}");
    }
}

#[test]
fn a_change_that_fits_its_checksum_is_detected() {
    let place = TestDirectory::new();
    place.split("-k 2 -m 2 --paper", &bytes(40));
    // An attacker writes the page of share 2 again, from other bytes.
    place.edit("secret.2.share", |bytes| bytes[80] ^= 1);
    let lines = sharing::paper::lines(&place.read("secret.2.share"), 1, true).unwrap();
    place.write("two.txt", lines.join("\n").as_bytes());
    place.write("one.txt", typed_lines(&place, 1).as_bytes());
    place.fail(3, "join --out x one.txt two.txt");
    place.fail(3, "join --out x secret.1.share two.txt");
}

#[test]
fn a_secret_that_is_too_long_for_paper_is_refused() {
    let place = TestDirectory::new();
    place.write("long", &bytes(4097));
    let message = place.fail(2, "split --paper -k 2 -m 3 long");
    assert!(message.contains("it has more than 4096 bytes"), "{message}");
    let mut split = place.command("split --paper -k 2 -m 3 -".split(' '));
    let split = split.stdin(fs::File::open(place.path("long")).unwrap()).output().unwrap();
    error_line(&split, 2);
    assert_eq!(place.names(), ["long"]);
}

#[test]
fn pages_are_private_and_named_in_the_report() {
    use std::os::unix::fs::PermissionsExt;
    let place = TestDirectory::new();
    place.write("a<b>&", b"x");
    let output = place.succeed("split --json --paper -k 1 -m 2 a<b>&");
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["pages"], serde_json::json!(["./a<b>&.1.html", "./a<b>&.2.html"]));
    let mode = fs::metadata(place.path("a<b>&.1.html")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let page = String::from_utf8(place.read("a<b>&.1.html")).unwrap();
    assert!(page.contains("Share 1 of 2: a&lt;b&gt;&amp;"));
    // A browser is asked for nothing else.
    assert!(!page.contains("src=") && !page.contains("href=") && !page.contains("<script"));
}

/// Draws a page with Chromium as a picture; `None` where that is missing.
fn draw(place: &TestDirectory, page: &str, height: u32) -> Option<String> {
    let picture = format!("{page}.png");
    let mut chromium = Command::new("chromium");
    chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]);
    chromium.arg("--force-device-scale-factor=2");
    chromium.arg(format!("--window-size=800,{height}"));
    chromium.arg(format!("--user-data-dir={}", place.path("profile").display()));
    chromium.arg(format!("--screenshot={}", place.path(&picture).display()));
    chromium.arg(format!("file://{}", place.path(page).display()));
    match chromium.stdin(Stdio::null()).output() {
        Ok(output) => {
            assert!(place.path(&picture).exists(), "{}", stderr(&output));
            Some(picture)
        }
        Err(error) => {
            eprintln!("skipped: chromium cannot be run: {error}");
            None
        }
    }
}

#[test]
fn a_scanner_reads_the_codes_of_a_page() {
    for (len, codes, height) in [(32, 1, 1100), (4096, 12, 5200)] {
        let place = TestDirectory::new();
        let secret = bytes(len);
        place.split("-k 2 -m 2 --paper", &secret);
        for x in 1..=2 {
            let Some(picture) = draw(&place, &format!("secret.{x}.html"), height) else { return };
            let mut zbarimg = Command::new("zbarimg");
            // Among the modules of a QR code it sees a bar code now and then.
            zbarimg.args(["--quiet", "-S", "disable", "-S", "qrcode.enable", &picture]);
            zbarimg.current_dir(place.path("."));
            let scanned = match zbarimg.output() {
                Ok(scanned) => scanned,
                Err(error) => return eprintln!("skipped: zbarimg cannot be run: {error}"),
            };
            let text = String::from_utf8(scanned.stdout).unwrap();
            assert_eq!(text.lines().count(), codes, "{text}");
            place.write(&format!("scanned.{x}.txt"), text.as_bytes());
        }
        place.succeed("join --out secret scanned.1.txt scanned.2.txt");
        assert!(place.read("secret") == secret, "{len} bytes");
    }
}
