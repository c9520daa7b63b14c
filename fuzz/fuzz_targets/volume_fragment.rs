#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_volume::fuzz::volume_fragment(data);
});
