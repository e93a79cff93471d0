//! The bytes of a SOCKS5 client, and the target in an `Open` record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use micss::socks::{parse_greeting, parse_request};
use micss::target::{Parsed, Target};

fuzz_target!(|bytes: &[u8]| {
    check(bytes, parse_greeting);
    check(bytes, parse_request);
    check(bytes, Target::parse_prefix);
    if let Ok(target) = Target::parse(bytes) {
        assert_eq!(Target::parse(&target.encode()), Ok(target.clone()));
        assert_eq!(target.to_string().parse(), Ok(target));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(target) = text.parse::<Target>()
    {
        assert_eq!(Target::parse(&target.encode()), Ok(target));
    }
});

/// A prefix of a valid message is incomplete, and a parser consumes no more than it gets.
fn check<T, E>(bytes: &[u8], parse: impl Fn(&[u8]) -> Result<Parsed<T>, E>) {
    if let Ok(Parsed::Done(_, len)) = parse(bytes) {
        assert!(len <= bytes.len());
        for cut in 0..len {
            match parse(&bytes[..cut]) {
                Ok(Parsed::Missing(missing)) => assert!(missing > 0 && cut + missing <= len),
                _ => panic!("{cut} of {len} bytes are no beginning"),
            }
        }
    }
}
