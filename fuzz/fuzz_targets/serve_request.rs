#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_serve::fuzz::serve_request(data);
});
