//! See `cofferdam_fuzz_cases::guest_requests` for what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| cofferdam_fuzz_cases::guest_requests(data));
