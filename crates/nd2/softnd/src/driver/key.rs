//! How the files of one process find each other in the driver.

use nd2_control::wire::{KEY, VERSION, Verb, Word};
use zerocopy::transmute;

/// The bytes of a file's first word.
const WORD: usize = size_of::<Word>();

/// The key of a process's session: bytes that nobody guesses.
#[derive(Clone)]
pub struct Key([u8; KEY]);

impl Key {
    /// A key that `random` fills.
    ///
    /// # Errors
    ///
    /// What `random` says.
    pub fn try_new<E>(random: impl FnOnce(&mut [u8]) -> Result<(), E>) -> Result<Self, E> {
        let mut key = [0; KEY];
        random(&mut key).map(|()| Self(key))
    }

    /// The first word of the first file: its control code and its input.
    #[must_use]
    pub fn begin(&self) -> (u32, [u8; WORD]) {
        self.word(Verb::Begin)
    }

    /// The first word of every other file.
    #[must_use]
    pub fn join(&self) -> (u32, [u8; WORD]) {
        self.word(Verb::Join)
    }

    fn word(&self, verb: Verb) -> (u32, [u8; WORD]) {
        (verb.code(), transmute!(Word { version: VERSION.into(), key: self.0 }))
    }
}
