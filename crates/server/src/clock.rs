//! Time as the rest of the server sees it, and names made of it.

use std::sync::Mutex;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use cofferdam_protocol::job::JobId;

/// Milliseconds since 1970.
pub fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

/// `2026-11-16T08:00:00.000Z`
pub fn rfc3339(time_ms: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(time_ms)).to_string()
}

/// 128 bits that nobody can guess.
pub fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the kernel gives random numbers");
    u128::from_ne_bytes(bytes)
}

/// Makes ids that sort in the order in which they were made, also within a millisecond.
#[derive(Debug, Default)]
pub struct JobIds(Mutex<(u64, u128)>);

impl JobIds {
    pub fn next(&self) -> JobId {
        // Room above for half a million million million ids of one millisecond.
        const RANDOM_BITS: u128 = (1 << 79) - 1;
        let mut last = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let now = now_ms();
        *last = if now > last.0 { (now, random() & RANDOM_BITS) } else { (last.0, last.1 + 1) };
        JobId::new(last.0, last.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_as_they_were_made() {
        let ids = JobIds::default();
        let made: Vec<_> = (0..10_000).map(|_| ids.next()).collect();
        assert!(made.is_sorted());
        assert!(made.windows(2).all(|pair| pair[0] != pair[1]));
    }

    #[test]
    fn times_are_written_for_people() {
        assert_eq!(rfc3339(1_794_816_000_123), "2026-11-16T08:00:00.123Z");
    }
}
