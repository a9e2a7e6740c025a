//! A disk that is really full: the test runs itself again in a mount namespace of its own, on a small file system in
//! memory. Where the kernel does not let an ordinary user do that, it says so and checks nothing.

use std::path::PathBuf;
use std::process::Command;

use cofferdam_store::conformance::{id, new_job};
use cofferdam_store::{SqliteStore, Store, StoreError};

const INSIDE: &str = "COFFERDAM_TEST_SMALL_DISK";

#[test]
fn a_full_disk_loses_nothing_and_is_got_over() {
    if let Some(disk) = std::env::var_os(INSIDE) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(fill(PathBuf::from(disk)));
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-ec", script, "sh"]).arg(directory.path());
        command
    };
    let mount = "mount -t tmpfs -o size=2m small \"$1\"";
    if !unshare(mount).output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: no file system can be mounted here, not even in a user namespace");
        return;
    }
    let output = unshare(&format!("{mount}; exec \"$2\" --exact a_full_disk_loses_nothing_and_is_got_over"))
        .arg(std::env::current_exe().unwrap())
        .env(INSIDE, directory.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

async fn fill(disk: PathBuf) {
    std::fs::write(disk.join("ballast"), vec![0; 1 << 20]).unwrap();
    let path = disk.join("cofferdam.db");
    let store = SqliteStore::open(&path, Box::new(|_, _| {})).unwrap();
    let mut created = 0;
    let failure = loop {
        match store.create(new_job(created)).await {
            Ok(_) => created += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(failure, StoreError::NoSpace);
    assert!(created > 0);
    // Still full, still the same answer, and reading goes on.
    assert_eq!(store.create(new_job(created)).await, Err(StoreError::NoSpace));
    assert_eq!(store.queued().await.unwrap().len() as u64, created);
    assert_eq!(store.job(&id(created)).await, Err(StoreError::NotFound(id(created))));

    std::fs::remove_file(disk.join("ballast")).unwrap();
    assert!(store.create(new_job(created)).await.unwrap().is_new);
    drop(store);
    let store = SqliteStore::open(&path, Box::new(|_, _| {})).unwrap();
    assert_eq!(store.queued().await.unwrap().len() as u64, created + 1);
}
