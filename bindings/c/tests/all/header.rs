//! Checks that the header declares what the library exports: the same functions, arguments and
//! codes.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::installed::{prefix, succeed};

/// For each function the types of its result and its arguments, without names and `const`.
type Signatures = BTreeMap<String, (String, Vec<String>)>;

const HEADER: &str = include_str!("../../include/sunder_transport.h");

#[test]
fn the_header_declares_the_functions_of_the_library() {
    let declared = declared();
    assert!(declared.len() > 30, "{declared:?}");
    assert_eq!(declared, defined());
}

#[test]
fn the_shared_library_exports_what_the_header_declares() {
    let library = prefix().join("lib/libsunder_transport.so.0");
    let symbols = succeed(Command::new("nm").args(["-D", "--defined-only"]).arg(&library));
    let mut exported: Vec<&str> =
        symbols.lines().filter_map(|line| line.split(' ').nth(2)).collect();
    exported.retain(|name| !name.starts_with("rust_eh"));
    exported.sort_unstable();
    assert_eq!(exported, declared().keys().map(String::as_str).collect::<Vec<_>>());
    let dynamic = succeed(Command::new("readelf").arg("-d").arg(&library));
    assert!(dynamic.contains("[libsunder_transport.so.0]"), "{dynamic}");
}

#[test]
fn the_header_has_the_codes_of_the_library() {
    let source = fs::read_to_string(source().join("error.rs")).unwrap();
    let codes = between(&source, "pub enum Code {", "}");
    let codes: BTreeMap<String, String> = assignments(codes)
        .map(|(name, value)| (format!("SUNDER_{}", upper_snake(&name)), value))
        .collect();
    let in_header = between(HEADER, "typedef enum sunder_code {", "}");
    assert_eq!(codes, assignments(&without_comments(in_header)).collect());
}

fn source() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

/// `NAME = VALUE` in an enum, of C or Rust.
fn assignments(text: &str) -> impl Iterator<Item = (String, String)> {
    text.split([',', '\n']).filter_map(|line| {
        let (name, value) = line.split_once('=')?;
        Some((name.trim().to_owned(), value.trim().to_owned()))
    })
}

/// The functions of the header.
fn declared() -> Signatures {
    let text = without_comments(HEADER);
    let text: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    let mut found = Signatures::new();
    for statement in text.split([';', '{', '}']) {
        let Some((before, arguments)) = statement.trim().split_once('(') else { continue };
        // A pointer to a function, in a structure.
        if arguments.starts_with('*') {
            continue;
        }
        let at = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap();
        let (result, name) = before.split_at(at + 1);
        let arguments = arguments.trim_end_matches(')').split(',');
        let arguments = arguments.map(|argument| {
            let name = |c: char| c.is_alphanumeric() || c == '_';
            let argument = argument.trim();
            c_type(if argument == "void" { "" } else { argument.trim_end_matches(name) })
        });
        let arguments = arguments.filter(|argument| !argument.is_empty()).collect();
        found.insert(name.to_owned(), (c_type(result), arguments));
    }
    found
}

/// The functions of the library's source, with C types.
fn defined() -> Signatures {
    let mut found = Signatures::new();
    for file in fs::read_dir(source()).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for function in text.split("#[unsafe(no_mangle)]").skip(1) {
            let (name, rest) =
                between(function, "pub extern \"C\" fn ", " {").split_once('(').unwrap();
            let (arguments, result) = rest.rsplit_once(')').unwrap();
            let result = result.trim().strip_prefix("-> ").unwrap_or("()");
            let arguments = arguments.split(',').filter_map(|argument| argument.split_once(": "));
            let arguments = arguments.map(|(_, of)| rust_type(of)).collect();
            found.insert(name.to_owned(), (rust_type(result), arguments));
        }
    }
    found
}

fn c_type(text: &str) -> String {
    let words = text.replace('*', " * ").replace("const ", "");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The C type that a Rust type has at the boundary.
fn rust_type(of: &str) -> String {
    let of = of.trim();
    let inside = of.strip_prefix("Option<").and_then(|of| of.strip_suffix('>'));
    if let Some(inside) = inside {
        let of = inside.strip_prefix("Box<").map(|of| of.trim_end_matches('>'));
        let of = of.unwrap_or_else(|| inside.trim_start_matches('&').trim_start_matches("mut "));
        return format!("{} *", rust_type(of));
    }
    match of {
        "()" => "void",
        "i32" => "int32_t",
        "i64" => "int64_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        "usize" => "size_t",
        "Text" | "TextBuffer" | "*const c_char" => "char *",
        "Input" | "Output" => "void *",
        "Message" => "uint8_t *",
        "StatisticsBuffer" => "sunder_statistics *",
        "FunctionTable" => "sunder_transport_functions *",
        handle => {
            return format!("sunder_{}", handle.trim_end_matches("Handle").to_lowercase());
        }
    }
    .to_owned()
}

fn upper_snake(name: &str) -> String {
    let mut text = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !text.is_empty() {
            text.push('_');
        }
        text.push(letter.to_ascii_uppercase());
    }
    text
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| text + part.split_once("*/").unwrap().1)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    text.split_once(start).unwrap().1.split_once(end).unwrap().0
}
