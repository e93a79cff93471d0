//! Tests of the interface from C and C++: the library is installed as a user does, and programs are
//! compiled with gcc and g++ and linked with the shared and the static library.

mod emp;
mod examples;
mod header;
mod installed;
mod programs;
