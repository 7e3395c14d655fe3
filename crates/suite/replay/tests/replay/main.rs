//! Recordings: what is recorded can be read, shown, and run again with the same result; what is no recording is refused.

mod again;
mod failure;
mod hostile;
mod random;
mod shown;
mod wire;
mod world;
