//! Reads fields from bytes that are not trusted.

use std::mem;

/// Why bytes are not the expected fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// A field is missing, or cut off.
    #[error("too short")]
    Short,
    /// A field is longer than it may be, or bytes follow the last one.
    #[error("too long")]
    Long,
    /// The bytes of a text are not UTF-8.
    #[error("not text")]
    NotText,
}

/// Reads fields from the front of bytes.
pub struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    /// Reads from the first of `bytes` on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next `N` bytes, as an array.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn take<const N: usize>(&mut self) -> Result<[u8; N], FieldError> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(FieldError::Short)?;
        self.rest = rest;
        Ok(*bytes)
    }

    /// The next `len` bytes.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], FieldError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(FieldError::Short)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// The next byte.
    ///
    /// # Errors
    /// If there is none.
    pub fn u8(&mut self) -> Result<u8, FieldError> {
        self.take().map(u8::from_be_bytes)
    }

    /// The next 2 bytes, as an integer.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn u16(&mut self) -> Result<u16, FieldError> {
        self.take().map(u16::from_be_bytes)
    }

    /// The next 4 bytes, as an integer.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn u32(&mut self) -> Result<u32, FieldError> {
        self.take().map(u32::from_be_bytes)
    }

    /// The next 8 bytes, as an integer.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn u64(&mut self) -> Result<u64, FieldError> {
        self.take().map(u64::from_be_bytes)
    }

    /// Bytes preceded by their number, of 32 bits. The caller has bounded the length of the input,
    /// and so that of the field.
    ///
    /// # Errors
    /// If there are fewer.
    pub fn counted(&mut self) -> Result<&'a [u8], FieldError> {
        self.counted_up_to(usize::MAX)
    }

    /// Bytes preceded by their number, of 32 bits: at most `max`.
    ///
    /// # Errors
    /// If there are fewer, or the number is greater than `max`.
    pub fn counted_up_to(&mut self, max: usize) -> Result<&'a [u8], FieldError> {
        let len = usize::try_from(self.u32()?).map_err(|_| FieldError::Short)?;
        if len > max { Err(FieldError::Long) } else { self.bytes(len) }
    }

    /// Text preceded by the number of its bytes, of 8 bits.
    ///
    /// # Errors
    /// If there are fewer bytes, or they are not UTF-8.
    pub fn text(&mut self) -> Result<&'a str, FieldError> {
        let len = self.u8()?;
        std::str::from_utf8(self.bytes(len.into())?).map_err(|_| FieldError::NotText)
    }

    /// All bytes that are left. Then none are.
    pub fn rest(&mut self) -> &'a [u8] {
        mem::take(&mut self.rest)
    }

    /// All bytes that are left: at most `max`. Then none are.
    ///
    /// # Errors
    /// If there are more.
    pub fn rest_up_to(&mut self, max: usize) -> Result<&'a [u8], FieldError> {
        let rest = self.rest();
        if rest.len() > max { Err(FieldError::Long) } else { Ok(rest) }
    }

    /// Whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Ends reading.
    ///
    /// # Errors
    /// If bytes are left.
    pub fn finish(self) -> Result<(), FieldError> {
        if self.is_empty() { Ok(()) } else { Err(FieldError::Long) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_big_endian() {
        let bytes: Vec<u8> = (1..=18).collect();
        let mut reader = FieldReader::new(&bytes);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.u16(), Ok(0x0203));
        assert_eq!(reader.u32(), Ok(0x0405_0607));
        assert_eq!(reader.u64(), Ok(0x0809_0a0b_0c0d_0e0f));
        assert_eq!(reader.take(), Ok([16, 17]));
        assert_eq!(reader.bytes(1), Ok(&[18][..]));
        assert_eq!(reader.finish(), Ok(()));
    }

    #[test]
    fn a_field_that_is_cut_off_is_not_read() {
        let mut reader = FieldReader::new(&[7]);
        assert_eq!(reader.take::<2>(), Err(FieldError::Short));
        assert_eq!(reader.bytes(2), Err(FieldError::Short));
        assert_eq!(reader.u16(), Err(FieldError::Short));
        assert_eq!(reader.u32(), Err(FieldError::Short));
        assert_eq!(reader.u64(), Err(FieldError::Short));
        assert_eq!(reader.counted(), Err(FieldError::Short));
        assert_eq!(reader.u8(), Ok(7));
        assert_eq!(reader.u8(), Err(FieldError::Short));
    }

    #[test]
    fn counted_bytes_have_a_maximum() {
        let bytes = [0, 0, 0, 2, 5, 6, 7];
        assert_eq!(FieldReader::new(&bytes).counted(), Ok(&[5, 6][..]));
        assert_eq!(FieldReader::new(&bytes).counted_up_to(2), Ok(&[5, 6][..]));
        assert_eq!(FieldReader::new(&bytes).counted_up_to(1), Err(FieldError::Long));
        assert_eq!(FieldReader::new(&bytes[..5]).counted(), Err(FieldError::Short));
        assert_eq!(FieldReader::new(&[0xff; 4]).counted(), Err(FieldError::Short));
    }

    #[test]
    fn text_is_utf_8() {
        assert_eq!(FieldReader::new(&[2, 0xc3, 0xa9, 9]).text(), Ok("é"));
        assert_eq!(FieldReader::new(&[1, 0xc3, 0xa9]).text(), Err(FieldError::NotText));
        assert_eq!(FieldReader::new(&[3, 0xc3, 0xa9]).text(), Err(FieldError::Short));
    }

    #[test]
    fn bytes_after_the_last_field_are_refused() {
        let mut reader = FieldReader::new(&[1, 2, 3]);
        assert_eq!(reader.u8(), Ok(1));
        assert!(!reader.is_empty());
        assert_eq!(reader.finish(), Err(FieldError::Long));
    }

    #[test]
    fn the_rest_is_read_once_and_has_a_maximum() {
        let mut reader = FieldReader::new(&[1, 2, 3]);
        assert_eq!(reader.u8(), Ok(1));
        assert_eq!(reader.rest(), [2, 3]);
        assert!(reader.is_empty());
        assert_eq!(FieldReader::new(&[1, 2]).rest_up_to(2), Ok(&[1, 2][..]));
        assert_eq!(FieldReader::new(&[1, 2]).rest_up_to(1), Err(FieldError::Long));
    }
}
