#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_trace::fuzz::trace_compressed(data);
});
