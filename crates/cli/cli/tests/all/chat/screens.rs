//! The chat in terminals of several sizes, and in sentences.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;

use super::members::Room;
use super::staying::Relay;
use super::terminal::Terminal;

const NAMES: [&str; 3] = ["alice", "bob", "carol"];

/// Rows and columns of terminals.
const SIZES: [[u16; 2]; 3] = [[24, 80], [15, 40], [50, 200]];

#[test]
fn every_word_of_a_long_message_can_be_read_in_terminals_of_all_sizes() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut bob = room.talk("bob");
    let _carol = room.talk("carol");
    let words: Vec<String> = (0..800).map(|at| format!("word{at}")).collect();
    for [rows, columns] in SIZES {
        let mut alice = Terminal::start(&room, "alice", [rows, columns]);
        alice.wait_for("3 take part");
        assert!(bob.say("alice", &words.join(" ")));
        alice.wait_for("word799");
        assert!(alice.rows()[usize::from(rows) - 2].contains("3 take part"));
        // Each row is seen on the way up.
        let mut seen = String::new();
        loop {
            let above = alice.rows()[..usize::from(rows) - 2].join(" ");
            let is_begun = above.contains("bob: word0 ");
            seen = format!("{above} {seen}");
            if is_begun {
                break;
            }
            let first = alice.rows()[0].clone();
            alice.press("\x1b[A");
            alice.wait_until("another row", |screen| {
                screen.rows(0, columns).next() != Some(first.clone())
            });
        }
        for word in &words {
            assert!(seen.split_whitespace().any(|one| one == word), "{word} is not seen");
        }
        alice.press("\x1b");
        alice.wait_for("word799");
        alice.press("\x03");
        alice.check_restored();
    }
}

#[test]
fn a_large_paste_and_combined_characters_are_edited() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut bob = room.talk("bob");
    let _carol = room.talk("carol");
    let mut alice = Terminal::start(&room, "alice", [24, 80]);
    alice.wait_for("3 take part");
    let text = "lorem ipsum ".repeat(5_000);
    alice.press(&format!("@bob \x1b[200~{text}\x1b[201~END"));
    alice.wait_for("ipsum END");
    // The line stays fast: many keys, of which each is drawn.
    for key in ["a", "b", "c", "\x7f", "\x7f", "\x7f", "\x1b[D", "\x1b[C"].repeat(20) {
        alice.press(key);
    }
    alice.press("!\r");
    assert_eq!(bob.wait_for("message"), format!("message alice {text}END!"));
    // A family, of which one press of the key removes all.
    alice.press("wine 👨‍👩‍👧x\x7f\x7fand\r");
    assert_eq!(bob.wait_for("message"), "message alice wine and");
    // A paste that is too long is refused as a whole.
    alice.press(&format!("\x1b[200~{}\x1b[201~", "y".repeat(70_000)));
    alice.wait_for("not pasted");
}

#[test]
fn a_message_to_a_group_has_one_line_with_times_and_a_combined_mark() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut bob = room.talk("bob");
    let mut carol = room.talk("carol");
    let mut alice = Terminal::start(&room, "alice", [24, 80]);
    alice.wait_for("3 take part");
    alice.press("@a\tgood morning\r");
    alice.wait_for("→ all: good morning ✓ 2/2");
    for member in [&mut bob, &mut carol] {
        assert_eq!(member.wait_for("message"), "message alice good morning");
    }
    let row = alice.rows().into_iter().find(|row| row.contains("→ all")).unwrap();
    let [hours, minutes] = [&row[..2], &row[3..5]].map(|digits| digits.parse::<u8>().unwrap());
    assert!(row[2..3] == *":" && hours < 24 && minutes < 60, "{row}");
    // The date is above the first line.
    assert!(alice.rows()[0].starts_with("— "), "{:?}", alice.rows());
    alice.press("/verify bob\r");
    alice.wait_for("safety number of bob and you (not verified)");
    bob.enter("/verify alice");
    let number = bob.wait_for("safety").splitn(3, ' ').nth(2).unwrap().to_owned();
    alice.press(&format!("/verify bob {number}\r"));
    alice.wait_for("bob is verified");
    alice.press("@bob hello\r");
    alice.wait_for("→ ◆bob: hello ✓");
    bob.enter("@alice hello");
    alice.wait_for("◆bob: hello");
    // An invitation is not shown.
    alice.press("/invite dora\r");
    alice.wait_for("dora.invitation");
    assert!(!alice.rows().concat().contains("sunder-mix"));
    assert!(room.path("dora.invitation").exists());
    bob.enter("/send alice bob.toml");
    alice.wait_for("/accept 1");
    alice.press("/accept 1\r");
    alice.wait_for("saved as");
    alice.press("/cancel\r");
    alice.wait_for("no message was dropped");
}

/// What a member writes so that a row of it looks like a message of somebody else. No clock shows
/// this time.
const FORGED: &str = "24:01\u{a0}◆carol:\u{a0}send\u{a0}the\u{a0}key\u{a0}to\u{a0}mallory";

#[test]
fn no_row_of_a_text_is_drawn_where_messages_begin() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut bob = room.talk("bob");
    let _carol = room.talk("carol");
    let mut alice = Terminal::start(&room, "alice", [24, 80]);
    alice.wait_for("3 take part");
    // Each of the four takes a cell here, and 16 in the terminal, which so reaches its edge.
    let cluster = "\u{d4e}".repeat(15) + "a";
    assert!(bob.say("alice", &format!("{}.....{FORGED}", cluster.repeat(4))));
    alice.wait_for("mallory");
    let rows = alice.rows();
    assert!(!rows.iter().any(|row| row.starts_with("24:01")), "{rows:#?}");
    assert!(alice.is_wrap_off());
    alice.press("\x03");
    alice.check_restored();
}

#[test]
fn nothing_of_a_wide_text_remains_behind_the_message_of_another_member() {
    let (room, _proxy) = Room::open(&NAMES);
    let [mut bob, mut carol] = ["bob", "carol"].map(|name| room.talk(name));
    let mut alice = Terminal::start(&room, "alice", [8, 80]);
    alice.wait_for("3 take part");
    // The terminal draws these letters with two cells each, and the rest farther to the right.
    assert!(bob.say("alice", &format!("{}nothing", "ж".repeat(20))));
    alice.wait_for("nothing");
    assert!(carol.say("alice", "I promise"));
    alice.wait_until("carol's message alone in its row", |screen| {
        screen.rows(0, 80).any(|row| row.trim_end().ends_with("carol: I promise"))
    });
}

/// What a terminal of this size shows after the conversation of the guide: its rows, and the same
/// with their colours.
fn conversation_in(size: [u16; 2]) -> (Vec<String>, String) {
    let (room, _proxy) = Room::open(&NAMES);
    let mut bob = room.talk("bob");
    let carol = room.talk("carol");
    let mut alice = Terminal::start(&room, "alice", size);
    alice.wait_for("in the group: bob, carol");
    alice.wait_for("3 take part");
    bob.enter("@alice Is everybody coming?");
    alice.wait_for("Is everybody coming?");
    bob.enter("/verify alice");
    let number = bob.wait_for("safety").splitn(3, ' ').nth(2).unwrap().to_owned();
    alice.press(&format!("/verify bob {number}\r"));
    alice.wait_for("bob is verified");
    alice.press("@bob I am.\r");
    alice.wait_for("I am. ✓");
    alice.press("/group team bob carol\r");
    alice.wait_for("the group team is set");
    alice.press("@team Meet at the bridge at eight. Bring a lamp, a rope and something to eat.\r");
    alice.wait_for_words("✓ 2/2");
    fs::write(room.path("plan.txt"), "At eight.\n").unwrap();
    carol.enter("/send alice plan.txt");
    alice.wait_for_words("/decline 1 drops it");
    alice.press("/accept 1\r");
    alice.wait_for_words("saved as received/plan.txt");
    alice.press("And torches!");
    alice.wait_for("@team> And torches!");
    alice.wait_until("nothing under way", |screen| !screen.contents().contains("not delivered"));
    (alice.rows(), alice.rows_with_colours())
}

/// The guide's picture of a terminal is one of this program.
#[test]
fn the_terminal_in_the_guide_is_what_is_shown() {
    const GUIDE: &str = include_str!("../../../../../../docs/guides/chat.md");
    let (rows, _) = conversation_in([24, 80]);
    let shown = rows.join("\n");
    let pictured = GUIDE.split("```text\n").find(|text| text.starts_with('—')).unwrap();
    let pictured = pictured.split("\n```").next().unwrap();
    let [shown_rows, pictured] =
        [&shown, pictured].map(|rows| rows.lines().map(without_numbers).collect::<Vec<_>>());
    assert_eq!(shown_rows, pictured, "the guide needs:\n{shown}");
}

/// So are its pictures of a small and of a large terminal.
#[test]
fn the_pictures_of_terminals_are_what_is_shown() {
    for [rows, columns] in [SIZES[1], SIZES[2]] {
        let (shown, coloured) = conversation_in([rows, columns]);
        let is_status = |row: &str| row.starts_with(" 3 take part");
        // The end of a short status line is cut off, where depends on its numbers.
        let of = |row: &str| {
            without_numbers(if is_status(row) && columns < 80 { &row[..12] } else { row })
        };
        let picture = format!("docs/pictures/chat-{columns}x{rows}.svg");
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let pictured = fs::read_to_string(root.join(&picture)).unwrap_or_default();
        let pictured: Vec<String> = rows_of_picture(&pictured).iter().map(|row| of(row)).collect();
        let wanted = shown.iter().filter(|row| !row.trim().is_empty());
        let wanted: Vec<String> = wanted.map(|row| of(row)).collect();
        if pictured != wanted {
            let screen = Path::new(env!("CARGO_TARGET_TMPDIR")).join("screen");
            fs::write(&screen, coloured).unwrap();
            let (screen, shown) = (screen.display(), shown.join("\n"));
            let title = format!("sunder chat in {columns} columns and {rows} rows");
            panic!(
                "draw it again: scripts/terminal-picture {picture} --screen {screen} '{title}'\n\
                 {pictured:#?} is not what is shown:\n{shown}"
            );
        }
    }
}

/// The rows of a picture that `scripts/terminal-picture` has drawn, but for empty ones.
fn rows_of_picture(svg: &str) -> Vec<String> {
    const MARGIN: f64 = 16.0;
    const WIDTH: f64 = 7.25;
    let mut rows = BTreeMap::<String, String>::new();
    for text in svg.split("<text").skip(1) {
        let (attributes, rest) = text.split_once('>').unwrap();
        let attribute = |name: &str| {
            let value = attributes.split_once(&format!(" {name}=\"")).unwrap().1;
            value.split('"').next().unwrap()
        };
        let column = (attribute("x").parse::<f64>().unwrap() - MARGIN) / WIDTH;
        let row = rows.entry(format!("{:>5}", attribute("y"))).or_default();
        let column: usize = format!("{column:.0}").parse().unwrap();
        row.extend(std::iter::repeat_n(' ', column.saturating_sub(row.chars().count())));
        let words = rest.split("</text>").next().unwrap();
        row.push_str(&words.replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"));
    }
    rows.into_values().collect()
}

/// A row whose numbers and date do not matter.
fn without_numbers(row: &str) -> String {
    if row.starts_with('—') {
        return "a day".to_owned();
    }
    let parts = row.trim_end().split(|c: char| c.is_ascii_digit());
    parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("0")
}

#[test]
fn a_proxy_that_does_not_answer_is_shown() {
    let (room, _proxy) = Room::open(&NAMES);
    let relay = Relay::start(room.address());
    room.set_proxy("alice", &relay.address);
    let [_bob, _carol] = ["bob", "carol"].map(|name| room.talk(name));
    for size in SIZES {
        let mut alice = Terminal::start(&room, "alice", size);
        alice.wait_for("3 take part");
        relay.hold(true);
        alice.wait_for("no answer from the proxy for ");
        relay.hold(false);
        alice.wait_for("3 take part");
    }
}

/// A verified member has joined again with another key, and somebody has written to a member that
/// was away. Both are shown when that member comes, and who has the other key is sent nothing.
#[test]
fn another_key_and_messages_from_before_are_shown_in_terminals_of_all_sizes() {
    let (room, _proxy) = Room::open(&NAMES);
    let [mut alice, mut bob, mut carol] = NAMES.map(|name| room.talk(name));
    for member in [&mut alice, &mut bob, &mut carol] {
        member.wait_for("anonymity 3");
    }
    bob.enter("/verify carol");
    let number = bob.wait_for("safety").splitn(3, ' ').nth(2).unwrap().to_owned();
    bob.enter(&format!("/verify carol {number}"));
    bob.wait_for("verified");
    bob.stop(Signal::TERM);
    carol.stop(Signal::TERM);
    let contacts = fs::read(room.path("bob.state/contacts")).unwrap();
    room.lose(&mut alice, "carol");
    for size in SIZES {
        // As if the member had not been there since.
        fs::write(room.path("bob.state/contacts"), &contacts).unwrap();
        let [_, columns] = size;
        assert!(alice.say("bob", &format!("until later {columns}")));
        alice.wait_for("stored");
        let mut bob = Terminal::start(&room, "bob", size);
        bob.wait_for_words("carol has ANOTHER KEY");
        bob.wait_for_words(&format!("alice: until later {columns}"));
        alice.wait_for("delivered");
        bob.press("@carol is it you?\r");
        bob.wait_for_words("/trust carol");
        if columns == SIZES[2][1] {
            bob.press("/trust carol\r");
            bob.press("/verify carol\r");
            bob.wait_for_words("safety number of carol and you (not verified)");
        }
        bob.press("\x03");
        bob.check_restored();
    }
}

#[test]
fn what_happens_is_said_in_lines() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut bob = room.talk("bob");
    let _carol = room.talk("carol");
    for [rows, columns] in SIZES {
        // The terminal echoes what is entered, and nothing is drawn.
        let mut alice = Terminal::start_with(&room, "alice", &["--lines"], [rows, columns]);
        alice.wait_for("members take part: messages are sent.");
        alice.press("@bob good morning\n");
        alice.wait_for("What you enter now goes to bob.");
        assert_eq!(bob.wait_for("message"), "message alice good morning");
        alice.wait_for("Delivered to bob.");
        bob.enter("@alice good morning to you");
        alice.wait_for("bob: good morning to you");
        alice.press("hello @\n@eve hello\n");
        assert_eq!(bob.wait_for("message"), "message alice hello @");
        alice.wait_for("Warning: not sent to eve:");
        alice.check_drawn_nothing();
        alice.press("\x03");
        alice.check_restored();
    }
    // At the end of its input it stays for its rounds.
    let mut command = room.chat("alice", &["--lines", "--stay", "3"]);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let output = room.start("alice", &mut command).wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && said.contains("the chat ends after 3 rounds"), "{said}");
    assert!(!said.contains('\x1b'), "{said}");
}

#[test]
fn no_row_of_a_sentence_looks_like_another_one() {
    let (room, _proxy) = Room::open(&NAMES);
    let mut bob = room.talk("bob");
    let _carol = room.talk("carol");
    let mut alice = Terminal::start_with(&room, "alice", &["--lines"], [24, 80]);
    alice.wait_for("members take part: messages are sent.");
    // With `HH:MM bob: ` it reaches the right edge.
    assert!(bob.say("alice", &format!("ok{}{FORGED}", "\u{a0}".repeat(67))));
    alice.wait_for("mallory");
    let rows = alice.rows();
    assert!(!rows.iter().any(|row| row.starts_with("24:01")), "{rows:#?}");
    // A message that comes while a line is entered begins at the left edge as well.
    alice.press("@bob I am ty");
    alice.wait_for("I am ty");
    assert!(bob.say("alice", "hello"));
    alice.wait_until("a row with the message", |screen| {
        let mut rows = screen.rows(0, 80);
        rows.any(|row| row.get(5..).is_some_and(|row| row.trim_end() == " bob: hello"))
    });
    alice.press("ping\n");
    assert_eq!(bob.wait_for("message"), "message alice I am typing");
}
