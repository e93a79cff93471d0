//! Reads numbers and bytes from an untrusted message.

/// The unread rest of a message.
pub(crate) struct UntrustedReader<'a>(&'a [u8]);

impl<'a> UntrustedReader<'a> {
    /// Reads from the beginning of `bytes`.
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next `len` bytes; `None` if there are fewer.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(bytes)
    }

    /// The next bytes.
    pub(crate) fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (bytes, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*bytes)
    }

    /// The next byte.
    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    /// The next two bytes as a number.
    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four bytes as a number.
    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes as a number.
    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Text of at most 255 bytes after its length in one byte.
    pub(crate) fn text(&mut self) -> Option<&'a str> {
        let len = self.u8()?;
        std::str::from_utf8(self.bytes(len.into())?).ok()
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// Appends what [`UntrustedReader::text`] reads.
///
/// # Panics
/// If it has more than 255 bytes.
pub(crate) fn put_text(out: &mut Vec<u8>, text: &str) {
    out.push(u8::try_from(text.len()).expect("at most 255 bytes"));
    out.extend(text.as_bytes());
}
