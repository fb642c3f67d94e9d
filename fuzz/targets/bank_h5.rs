#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bodies::bank_h5(bytes));
