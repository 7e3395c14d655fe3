//! The engine and the provider with deliberate mistakes, for the proof that the tests find them.
//!
//! The product has none of this. A [`Mistake`] is a name and some edits of the product's sources, each of one place. The packages in
//! `copies` are the engine and the provider with every edit woven in ([`weave`]), and the host's crates once more on top of those;
//! the tests here run the suite and others on them, with one mistake at a time chosen by its number (`engine::switch`).
//!
//! ```text
//! crates/provider/engine/src   --+
//!                                +--> build.rs of copies/engine --> broken-engine --> broken-provider --> broken-host, ... --> tests
//! src/mistakes (the edits)     --+
//! ```

pub mod copy;
pub mod mistakes;
pub mod weave;

pub use mistakes::{Edit, Kind, Mistake, all};
