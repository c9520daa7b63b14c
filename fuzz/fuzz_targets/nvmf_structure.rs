#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    esker_nvmf::fuzz::nvmf_structure(data);
});
