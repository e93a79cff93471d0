//! Quotes of CSV that are not closed: a reader would take what follows for one long field.

/// Where in a file the quotes are wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct QuoteFault {
    /// The line in which the field begins, from 1.
    pub(super) line: usize,
    /// What is wrong.
    pub(super) what: &'static str,
}

/// Checks that each field that begins with a quote ends with one (RFC 4180), after which the next
/// field or row begins. Within it, quotes are written twice.
///
/// # Errors
/// If one does not.
pub(super) fn check(data: &[u8], delimiter: u8) -> Result<(), QuoteFault> {
    let mut line = 1;
    let mut rest = data.iter().copied().peekable();
    let mut is_field_begin = true;
    while let Some(byte) = rest.next() {
        if byte == b'"' && is_field_begin {
            let begin = line;
            let fault = |what| Err(QuoteFault { line: begin, what });
            loop {
                match rest.next() {
                    Some(b'"') if rest.peek() == Some(&b'"') => drop(rest.next()),
                    Some(b'"') => break,
                    Some(byte) => line += usize::from(byte == b'\n'),
                    None => return fault("a quote is not closed"),
                }
            }
            match rest.peek() {
                None | Some(b'\r' | b'\n') => {}
                Some(next) if *next == delimiter => {}
                Some(_) => {
                    return fault(
                        "a quote is not closed, or more follows it: a quote within a value is \
                         written twice",
                    );
                }
            }
            is_field_begin = false;
            continue;
        }
        line += usize::from(byte == b'\n');
        is_field_begin = byte == delimiter || byte == b'\n' || byte == b'\r';
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_that_are_not_closed_are_found() {
        for good in [
            "a,b\n1,\"x\"\n",
            "\"a \"\"b\"\" c\",\"\"\r\n\"multi\nline\",2",
            "5\" pipe,a\"b\n",
            "",
            "\"\"",
        ] {
            assert_eq!(check(good.as_bytes(), b','), Ok(()), "{good}");
        }
        for (bad, line) in [
            ("id,email\n1,\"bob\n2,eve\n", 2),
            ("a\n\"x\n\"y\"\n", 2),
            ("\"a\nb\"\n\"c", 3),
            ("\"a\" ,b\n", 1),
        ] {
            assert_eq!(check(bad.as_bytes(), b',').unwrap_err().line, line, "{bad}");
        }
        assert_eq!(check(b"\"a\";\"b\"", b';'), Ok(()));
        assert!(check(b"\"a\";\"b\"", b',').is_err());
    }
}
