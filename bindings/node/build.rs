//! Links the module for Node.js.

fn main() {
    napi_build::setup();
    // Threads of the engine may still run when the last worker that loaded the module ends: it stays in memory.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
