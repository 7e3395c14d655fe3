//! Adapters that reach each other by frames only.

mod suite;
