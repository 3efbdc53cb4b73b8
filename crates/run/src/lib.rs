//! Assemble the plan, supervise it, tear it down
