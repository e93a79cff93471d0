//! Repair symbols.

/// The number of repair symbols.
pub fn count(_symbols: usize, _loss: f64, _target: f64) -> usize {
    0
}

/// Makes repair symbols.
#[derive(Debug)]
pub struct Encoder;

impl Encoder {
    /// For n symbols.
    pub fn new(_n: usize, _m: usize) -> Self {
        Self
    }

    /// A symbol.
    pub fn add(&mut self, _index: usize, _symbol: &[u8]) {}

    /// The repair symbols.
    pub fn packets(self) -> Vec<Vec<u8>> {
        Vec::new()
    }
}

/// Recovers symbols.
#[derive(Debug)]
pub struct Decoder;

impl Decoder {
    /// For n symbols.
    pub fn new(_n: usize, _m: usize, _len: usize) -> Self {
        Self
    }

    /// A symbol.
    pub fn add_source(&mut self, _index: usize, _symbol: &[u8]) {}

    /// A repair symbol.
    pub fn add_repair(&mut self, _index: usize, _symbol: &[u8]) {}

    /// What is recovered.
    pub fn recovered(self) -> Vec<(usize, Vec<u8>)> {
        Vec::new()
    }
}
