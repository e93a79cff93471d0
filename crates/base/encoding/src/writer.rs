//! Appends fields to a buffer.

/// Appends fields that [`FieldReader`](crate::FieldReader) reads. A buffer of secrets must have
/// room for them, because one that grows leaves a copy.
pub trait FieldWrite {
    /// Two bytes.
    fn put_u16(&mut self, value: u16);

    /// Four bytes.
    fn put_u32(&mut self, value: u32);

    /// Eight bytes.
    fn put_u64(&mut self, value: u64);

    /// A number of bytes or of fields, in four bytes.
    ///
    /// # Panics
    /// If it is 2^32 or more.
    fn put_count(&mut self, count: usize);

    /// Bytes, preceded by their number: [`FieldReader::counted`](crate::FieldReader::counted).
    ///
    /// # Panics
    /// If there are 2^32 or more.
    fn put_counted(&mut self, bytes: &[u8]);

    /// Text, preceded by the number of its bytes: [`FieldReader::text`](crate::FieldReader::text).
    ///
    /// # Panics
    /// If it has more than 255 bytes.
    fn put_text(&mut self, text: &str);
}

impl FieldWrite for Vec<u8> {
    fn put_u16(&mut self, value: u16) {
        self.extend(value.to_be_bytes());
    }

    fn put_u32(&mut self, value: u32) {
        self.extend(value.to_be_bytes());
    }

    fn put_u64(&mut self, value: u64) {
        self.extend(value.to_be_bytes());
    }

    fn put_count(&mut self, count: usize) {
        self.put_u32(u32::try_from(count).expect("messages are bounded"));
    }

    fn put_counted(&mut self, bytes: &[u8]) {
        self.put_count(bytes.len());
        self.extend(bytes);
    }

    fn put_text(&mut self, text: &str) {
        self.push(u8::try_from(text.len()).expect("at most 255 bytes"));
        self.extend(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_as_specified() {
        let mut bytes = Vec::new();
        bytes.put_u16(0x0102);
        bytes.put_u32(0x0304_0506);
        bytes.put_u64(0x0708_090a_0b0c_0d0e);
        assert_eq!(bytes, (1..=14).collect::<Vec<u8>>());
        bytes.clear();
        bytes.put_count(1);
        bytes.put_counted(&[5, 6]);
        bytes.put_text("é");
        assert_eq!(bytes, [0, 0, 0, 1, 0, 0, 0, 2, 5, 6, 2, 0xc3, 0xa9]);
    }

    #[test]
    #[should_panic(expected = "at most 255 bytes")]
    fn a_text_of_256_bytes_is_not_written() {
        Vec::<u8>::new().put_text(&"x".repeat(256));
    }
}
