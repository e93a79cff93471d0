//! Names the shared library as the linker of programs records it. The number changes when programs
//! have to be compiled again.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsunder_transport.so.0");
}
