//! What the parties send each other. Specified in `docs/protocols/yao.md` and `gmw.md`.

mod begin;
mod frame;
mod hello;

pub(crate) use begin::ComputeBegin;
pub(crate) use frame::{ComputeFrame, ComputeFrameKind, HEADER_LEN, parse_header};
pub(crate) use hello::ComputeHello;
