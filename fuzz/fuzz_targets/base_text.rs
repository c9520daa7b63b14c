#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_base::fuzz::base_text(data);
});
