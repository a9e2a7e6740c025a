//! A server and nothing else, with the two flags of `cofferdam serve` that the torture uses. A process of its own, so
//! that it can be killed.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::Result;
use clap::Parser;
use cofferdam_server::{Server, Settings};
use tokio::signal::unix::{SignalKind, signal};

#[derive(Debug, Parser)]
struct Arguments {
    #[arg(long)]
    listen: SocketAddr,
    #[arg(long)]
    data: PathBuf,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let filter = tracing_subscriber::EnvFilter::from_default_env();
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut terminate = signal(SignalKind::terminate())?;
    let server = Server::start(Settings::new(arguments.listen, arguments.data)).await?;
    terminate.recv().await;
    server.stop().await;
    Ok(())
}
