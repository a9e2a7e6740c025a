//! What only this store can be asked: commits that fail, a full database, and closing.
