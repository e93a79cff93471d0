//! The connection to the other party, and where random bytes are from.

use std::io::{BufReader, BufWriter, Read, Write};

use blocks::Block;
use curve25519_dalek::scalar::Scalar;
use random::RandomGenerator;
use zeroize::Zeroizing;

use crate::error::Error;
use crate::points;

/// The buffers of the connection, in bytes.
const BUFFER_LEN: usize = 1 << 18;

/// What the sender answers when it has the result.
const RECEIVED: u8 = 1;

/// A connection, and where random bytes are from.
pub(crate) struct PsiLink<R: Read, W: Write> {
    reader: BufReader<R>,
    writer: BufWriter<W>,
    pub(crate) random: RandomGenerator,
}

impl<R: Read, W: Write> PsiLink<R, W> {
    pub(crate) fn new(reader: R, writer: W) -> Result<Self, Error> {
        Ok(Self {
            reader: BufReader::with_capacity(BUFFER_LEN, reader),
            writer: BufWriter::with_capacity(BUFFER_LEN, writer),
            random: RandomGenerator::seeded()?,
        })
    }

    /// A random block.
    pub(crate) fn block(&mut self) -> Result<Block, Error> {
        Ok(Block::from_bytes(self.random.array()?))
    }

    /// A random scalar.
    pub(crate) fn scalar(&mut self) -> Result<Zeroizing<Scalar>, Error> {
        Ok(points::scalar(&Zeroizing::new(self.random.array()?)))
    }

    pub(crate) fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        self.writer.write_all(message)?;
        Ok(())
    }

    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        self.writer.flush()?;
        Ok(())
    }

    pub(crate) fn read(&mut self, len: usize) -> Result<Vec<u8>, Error> {
        let mut message = vec![0; len];
        self.reader.read_exact(&mut message)?;
        Ok(message)
    }

    pub(crate) fn read_array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut message = [0; N];
        self.reader.read_exact(&mut message)?;
        Ok(message)
    }

    /// Sends what was reported to the sender, and waits until it has that.
    pub(crate) fn finish_report(&mut self) -> Result<(), Error> {
        self.flush()?;
        if self.read_array()? != [RECEIVED] {
            return Err(Error::Malformed("more than belongs to this run"));
        }
        Ok(())
    }

    /// Tells the receiver that this party has its report.
    pub(crate) fn acknowledge_report(&mut self) -> Result<(), Error> {
        self.send(&[RECEIVED])?;
        self.flush()
    }
}
