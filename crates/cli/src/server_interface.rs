//! Stand-in until the server crate has these.
use cofferdam_server::Settings;
use std::path::Path;

pub struct Server;
#[derive(Debug)]
pub enum ServerError {
    InUse { url: String },
}
impl std::fmt::Display for ServerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no server yet")
    }
}
pub struct RunningServer {
    pub pid: u32,
    pub url: String,
}
impl Server {
    pub async fn start(_settings: Settings) -> Result<Server, ServerError> {
        Err(ServerError::InUse { url: String::new() })
    }
    pub fn url(&self) -> String {
        String::new()
    }
    pub async fn stop(self) {}
}
pub fn running_server(_data: &Path) -> Option<RunningServer> {
    None
}
