//! Jobs over HTTP. [`http`] is what every request passes through, [`scheduler`] decides which job is next.

pub mod http;
pub mod scheduler;
mod settings;

pub use settings::Settings;
