//! The database file, the connections to it, and its schema, which is brought up to date before anything else is done
//! with it.

use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use super::error;
use crate::StoreError;

/// The schema's versions, counted from 1. What has been released is never changed again: a new file is added.
const MIGRATIONS: &[&str] = &[include_str!("migrations/0001_jobs.sql")];

/// Specifications and events may hold what their author would not show to others.
const FILE_MODE: u32 = 0o600;
/// Another process at the same file (a backup, a curious person) may hold its lock for a moment.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// The upper levels of all indexes of some hundred thousand jobs.
const WRITER_CACHE_KIB: i64 = 16 * 1024;
/// Readers share the kernel's cache through the mapping; theirs is for the write-ahead log.
const READER_CACHE_KIB: i64 = 2 * 1024;
const READER_MAP_BYTES: i64 = 256 << 20;
/// Pages in the write-ahead log before they are moved to the database: four times the default, as most are pages that
/// were written before, and a move costs two syncs.
const CHECKPOINT_PAGES: i64 = 4_000;
/// The log shrinks back to this after a burst.
const LOG_KEPT_BYTES: i64 = 32 << 20;
/// More than there are different statements here.
const STATEMENTS_MAX: usize = 64;

pub(super) fn writer(path: &Path) -> Result<Connection, StoreError> {
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(FILE_MODE).open(path);
    // The log and its index take their mode from this file.
    file.and_then(|file| file.set_permissions(PermissionsExt::from_mode(FILE_MODE)))
        .map_err(|error| error::from_file(&error))?;
    let mut connection = connect(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Savepoints note what they may have to undo: in memory, as a batch is small.
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", LOG_KEPT_BYTES)?;
    migrate(&mut connection)?;
    Ok(connection)
}

pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.pragma_update(None, "cache_size", -READER_CACHE_KIB)?;
    connection.pragma_update(None, "mmap_size", READER_MAP_BYTES)?;
    Ok(connection)
}

fn connect(path: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    // A connection is used by one thread at a time, and its path is a path, not a URI.
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_MAX);
    Ok(connection)
}

fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let known = MIGRATIONS.len();
    // Read inside: another process may be doing the same.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let found: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    let Some(missing) = MIGRATIONS.get(found as usize..) else {
        return Err(StoreError::Newer { found, known: known as u32 });
    };
    if !missing.is_empty() {
        for migration in missing {
            transaction.execute_batch(migration)?;
        }
        transaction.pragma_update(None, "user_version", known as u32)?;
        transaction.commit()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_from_the_future_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cofferdam.db");
        writer(&path).unwrap().pragma_update(None, "user_version", 7).unwrap();
        let error = writer(&path).unwrap_err();
        assert!(matches!(error, StoreError::Newer { found: 7, known: 1 }), "{error}");
        let version: u32 = reader(&path).unwrap().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(version, 7);
    }

    #[test]
    fn what_is_no_database_is_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cofferdam.db");
        std::fs::write(&path, "not a database, but long enough to be taken for one: ".repeat(100)).unwrap();
        let error = writer(&path).unwrap_err();
        assert!(matches!(error, StoreError::Damaged(_)), "{error}");
    }

    #[test]
    fn only_the_owner_reads_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cofferdam.db");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
        let _writer = writer(&path).unwrap();
        let mut modes: Vec<_> = std::fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().permissions().mode()))
            .collect();
        modes.sort();
        let expected =
            ["cofferdam.db", "cofferdam.db-shm", "cofferdam.db-wal"].map(|name| (name.to_owned(), 0o100_600));
        assert_eq!(modes, expected);
    }
}
