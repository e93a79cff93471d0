//! The interface for C, from C and C++: installed as a user installs it, compiled against with gcc
//! and g++, with the shared library and with the static one.

mod examples;
mod header;
mod installed;
mod programs;
