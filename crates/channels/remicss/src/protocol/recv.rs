//! The receiving side: shares come in, packets go out in the order of their flows.

mod byte_ring;
mod channel_bits;
pub mod delay_equalizer;
mod fault_tracker;
mod part_joiner;
pub mod reassembly;
pub mod receiver;
pub mod reorder_buffer;
mod sequence_window;
pub mod symbol_sink;
