//! Recordings: what is recorded can be read, shown, and run again with the same result; what is no recording is refused.

#[path = "replay/again.rs"]
mod again;
#[path = "replay/failure.rs"]
mod failure;
#[path = "replay/hostile.rs"]
mod hostile;
#[path = "replay/random.rs"]
mod random;
#[path = "replay/shown.rs"]
mod shown;
#[path = "replay/world.rs"]
mod world;
