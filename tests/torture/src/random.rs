//! Numbers that look random and are the same for the same seed.

use std::time::Duration;

/// SplitMix64: one addition and a mix for each number, and every seed is as good as any other.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another sequence, for somebody who draws at a pace of its own.
    pub fn fork(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From `from` to `to`, both possible.
    pub fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.next() % (to - from + 1)
    }

    pub fn one_in(&mut self, number: u64) -> bool {
        self.between(1, number) == 1
    }

    /// From nothing to `most`, short times as likely as long ones: each power of two has the same chance.
    pub fn moment(&mut self, most: Duration) -> Duration {
        let most = (most.as_micros() as u64).max(2);
        let power = self.between(0, u64::from(most.ilog2()));
        Duration::from_micros(self.between(0, most >> power))
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        if from.is_empty() { None } else { from.get(self.between(0, from.len() as u64 - 1) as usize) }
    }
}
