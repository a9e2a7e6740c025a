//! All attacks, one file per category. A table entry says what is tried inside, what shows it outside, and in one
//! line what would be lost.

mod bombs;
mod file_interface;
mod files;
mod kernel;
mod mounts;
mod namespaces;
mod neighbours;
mod network;
mod races;
mod setid;
mod supervisor;
mod terminal;
mod writes;

use crate::attack::Attack;
use crate::verdict::Category;

const TABLES: &[&[Attack]] = &[
    files::ATTACKS,
    file_interface::ATTACKS,
    races::ATTACKS,
    writes::ATTACKS,
    mounts::ATTACKS,
    setid::ATTACKS,
    namespaces::ATTACKS,
    supervisor::ATTACKS,
    kernel::ATTACKS,
    network::ATTACKS,
    neighbours::ATTACKS,
    bombs::ATTACKS,
    terminal::ATTACKS,
];

pub(crate) fn of(category: Category) -> impl Iterator<Item = &'static Attack> {
    TABLES.iter().copied().flatten().filter(move |attack| attack.category == category)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_there_are_enough_of_them() {
        let all: Vec<&str> = TABLES.iter().copied().flatten().map(|attack| attack.name).collect();
        let names: BTreeSet<&str> = all.iter().copied().collect();
        assert_eq!(all.len(), names.len(), "a name is used twice: {all:?}");
        assert!(names.len() >= 50, "{} attacks", names.len());
        for category in Category::ALL {
            assert!(of(category).count() > 0, "{category} has no attack");
        }
    }
}
