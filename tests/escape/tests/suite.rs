//! Every attack of the suite is held on this machine, as whoever runs the tests: one test per category, the whole
//! scorecard of it printed when one fails.

use std::sync::OnceLock;

use cofferdam_escape::{Category, run_category};
use cofferdam_sandbox::local::{LocalConfig, LocalRuntime};

fn runtime() -> &'static LocalRuntime {
    static RUNTIME: OnceLock<LocalRuntime> = OnceLock::new();
    RUNTIME.get_or_init(|| LocalRuntime::new(&LocalConfig::default()).unwrap())
}

async fn holds(category: Category) {
    let card = run_category(runtime(), category, |_| ()).await;
    // Shown by `--nocapture`, and by a failure.
    println!("{card}");
    assert!(card.all_passed(), "{category}: not every attack was held\n{card}");
}

#[tokio::test]
async fn reading_the_host() {
    holds(Category::Files).await;
}

#[tokio::test]
async fn the_file_interface() {
    holds(Category::FileInterface).await;
}

#[tokio::test]
async fn writing_outside() {
    holds(Category::Writes).await;
}

#[tokio::test]
async fn mounts() {
    holds(Category::Mounts).await;
}

#[tokio::test]
async fn set_uid_files() {
    holds(Category::SetId).await;
}

#[tokio::test]
async fn namespaces_and_rights() {
    holds(Category::Namespaces).await;
}

#[tokio::test]
async fn guest_and_reaper() {
    holds(Category::Supervisor).await;
}

#[tokio::test]
async fn kernel_interfaces() {
    holds(Category::Kernel).await;
}

#[tokio::test]
async fn network() {
    holds(Category::Network).await;
}

#[tokio::test]
async fn neighbours() {
    holds(Category::Neighbours).await;
}

#[tokio::test]
async fn bombs() {
    holds(Category::Bombs).await;
}

#[tokio::test]
async fn terminals() {
    holds(Category::Terminal).await;
}
