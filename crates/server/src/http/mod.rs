//! What every request passes through before a handler sees it, and every answer on its way out.
