//! Which job is next, and when: a state machine without IO.
