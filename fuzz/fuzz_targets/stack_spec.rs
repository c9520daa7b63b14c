#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_stack::fuzz::stack_spec(data);
});
