//! See `cofferdam_fuzz_cases::guest_answers` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_fuzz_cases::guest_answers(data));
