//! Which threshold each symbol is sent with, drawn from a schedule.
