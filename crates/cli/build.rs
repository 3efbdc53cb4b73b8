//! Links the program so that it starts fast.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A static program that may be loaded anywhere moves its own pointers at each start, and a
    // sandbox's init is this program again. Packed, their list is a fiftieth of the size.
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
