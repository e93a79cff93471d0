//! MICSS.
