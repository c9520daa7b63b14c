#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_kv::fuzz::kv_meta(data);
});
