#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_cache::fuzz::cache_page(data);
});
