//! What SQLite's refusals mean to a caller.

use std::io;

use rusqlite::{Error, ErrorCode, ffi};

use crate::StoreError;

/// By reference: all waiters of a failed commit are given the same reason.
pub(super) fn from_sqlite(error: &Error) -> StoreError {
    let text = error.to_string();
    let Error::SqliteFailure(failure, _) = error else {
        return match error {
            // What a row holds is not what this program wrote there.
            Error::FromSqlConversionFailure(..) | Error::InvalidColumnType(..) | Error::IntegralValueOutOfRange(..) => {
                StoreError::Damaged(text)
            }
            _ => StoreError::Other(text),
        };
    };
    match failure.code {
        ErrorCode::DiskFull => StoreError::NoSpace,
        // The index of the write-ahead log could not grow, which is all that this operation does.
        ErrorCode::SystemIoFailure if failure.extended_code == ffi::SQLITE_IOERR_SHMSIZE => StoreError::NoSpace,
        ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied => StoreError::ReadOnly(text),
        ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase => StoreError::Damaged(text),
        _ => StoreError::Other(text),
    }
}

/// Of making the file itself, before SQLite sees it.
pub(super) fn from_file(error: &io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => StoreError::NoSpace,
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => StoreError::ReadOnly(error.to_string()),
        _ => StoreError::Other(error.to_string()),
    }
}

impl From<Error> for StoreError {
    fn from(error: Error) -> Self {
        from_sqlite(&error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_refusal_of_sqlite_has_its_remedy() {
        let of = |code| from_sqlite(&Error::SqliteFailure(ffi::Error::new(code), None));
        for code in [ffi::SQLITE_FULL, ffi::SQLITE_IOERR_SHMSIZE] {
            assert_eq!(of(code), StoreError::NoSpace, "{code}");
        }
        for code in [ffi::SQLITE_READONLY, ffi::SQLITE_READONLY_DBMOVED, ffi::SQLITE_CANTOPEN, ffi::SQLITE_PERM] {
            assert!(matches!(of(code), StoreError::ReadOnly(_)), "{code}");
        }
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_CORRUPT_INDEX, ffi::SQLITE_NOTADB] {
            assert!(matches!(of(code), StoreError::Damaged(_)), "{code}");
        }
        for code in [ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_BUSY, ffi::SQLITE_CONSTRAINT_UNIQUE] {
            assert!(matches!(of(code), StoreError::Other(_)), "{code}");
        }
    }
}
