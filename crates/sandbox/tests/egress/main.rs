//! The egress proxy with real sockets, all of them on 127.0.0.0/8. Each file is one side of it; `support` holds what
//! they share.

mod forward;
mod hostile;
mod refusal;
mod support;
mod tunnel;
