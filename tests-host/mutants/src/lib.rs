//! Mutation testing with one build. cargo-mutants says what the mutants are; all of them are written into one copy of the tree, a number
//! chooses one at run time, and of the tests only those are run that reach it. `cargo xtask mutants` is the command to type.

pub mod known;
pub mod mutant;
pub mod test_run;
pub mod tree;
pub mod weave;
