//! Sets the name by which programs refer to the shared library (its soname). The number changes
//! when programs must be recompiled.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsunder_transport.so.0");
}
