//! The SQLite store does what every store has to do.

use std::sync::Arc;

use cofferdam_store::{SqliteStore, Store, conformance};

#[tokio::test]
async fn sqlite_conforms() {
    let directory = tempfile::tempdir().unwrap();
    let number = std::sync::atomic::AtomicU32::new(0);
    conformance::run_all(|hook| {
        let number = number.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let path = directory.path().join(format!("{number}.db"));
        Arc::new(SqliteStore::open(&path, hook).unwrap()) as Arc<dyn Store>
    })
    .await;
}
