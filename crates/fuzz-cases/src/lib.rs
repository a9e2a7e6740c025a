//! What the fuzz targets do with one input: each function takes arbitrary bytes and panics if something that must
//! hold does not. Inputs are text where possible, so that the seeds in `fuzz/corpus` can be read and written by hand.
//! How inputs are found is cargo-fuzz's business (`fuzz/`); `tests/replay.rs` runs those that were kept.

mod archive;
mod guest_answers;
mod guest_requests;
mod path_resolution;
mod scratch;

pub use guest_answers::guest_answers;
pub use guest_requests::guest_requests;
pub use path_resolution::path_resolution;

/// JSON that is read comes out the same when it is written and read again. For types without equality the text is
/// compared.
fn check_json<T: serde::Serialize + serde::de::DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let value: T = serde_json::from_slice(bytes).ok()?;
    let written = serde_json::to_vec(&value).expect("what was read can be written");
    let again: T = serde_json::from_slice(&written).expect("what was written can be read");
    assert_eq!(serde_json::to_vec(&again).expect("and written again"), written);
    Some(value)
}
