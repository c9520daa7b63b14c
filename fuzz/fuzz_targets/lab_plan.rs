#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_lab::fuzz::lab_plan(data);
});
