//! The bytes of a SOCKS5 client, and the request in an `Open` record.
#![no_main]

use libfuzzer_sys::fuzz_target;
use micss::open_request::OpenRequest;
use micss::socks::{parse_greeting, parse_request};
use micss::target::{ParsedPrefix, ServiceTarget};

fuzz_target!(|bytes: &[u8]| {
    check(bytes, parse_greeting);
    check(bytes, parse_request);
    check(bytes, ServiceTarget::parse_prefix);
    if let Ok(target) = ServiceTarget::parse(bytes) {
        assert_eq!(ServiceTarget::parse(&target.encode()), Ok(target.clone()));
        assert_eq!(target.to_string().parse(), Ok(target));
    }
    if let Ok(request) = OpenRequest::parse(bytes) {
        assert_eq!(OpenRequest::parse(&request.encode()), Ok(request));
    }
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(target) = text.parse::<ServiceTarget>()
    {
        assert_eq!(ServiceTarget::parse(&target.encode()), Ok(target));
    }
});

/// A prefix of a valid message is incomplete, and a parser consumes no more than it gets.
fn check<T, E>(bytes: &[u8], parse: impl Fn(&[u8]) -> Result<ParsedPrefix<T>, E>) {
    if let Ok(ParsedPrefix::Done(_, len)) = parse(bytes) {
        assert!(len <= bytes.len());
        for cut in 0..len {
            match parse(&bytes[..cut]) {
                Ok(ParsedPrefix::Missing(missing)) => assert!(missing > 0 && cut + missing <= len),
                _ => panic!("{cut} of {len} bytes are no beginning"),
            }
        }
    }
}
