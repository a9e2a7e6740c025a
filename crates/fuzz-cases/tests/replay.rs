//! The whole corpus, seeds and past findings, through the functions that the fuzzer runs.

use std::path::Path;

fn replay(target: &str, run: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in std::fs::read_dir(&corpus).unwrap_or_else(|error| panic!("{}: {error}", corpus.display())) {
        let path = entry.unwrap().path();
        let data = std::fs::read(&path).unwrap();
        // Names the input when it fails; passing tests show nothing.
        eprintln!("{}", path.display());
        run(&data);
        count += 1;
    }
    assert!(count >= 20, "{} holds only {count} inputs", corpus.display());
}

#[test]
fn paths() {
    replay("path_resolution", cofferdam_fuzz_cases::path_resolution);
}

#[test]
fn requests() {
    replay("guest_requests", cofferdam_fuzz_cases::guest_requests);
}

#[test]
fn answers() {
    replay("guest_answers", cofferdam_fuzz_cases::guest_answers);
}
