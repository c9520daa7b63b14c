#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_attach::fuzz::attach_mount(data);
});
