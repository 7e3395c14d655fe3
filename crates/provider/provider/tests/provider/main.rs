//! The provider through its dispatch tables: rules, objects that were handed out, notes, limits and device profiles.

mod limits;
mod notes;
mod objects;
mod profiles;
mod rules;
