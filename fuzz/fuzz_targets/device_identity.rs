#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_device::fuzz::device_identity(data);
});
