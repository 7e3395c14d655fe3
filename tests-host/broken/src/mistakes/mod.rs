//! The list of mistakes. Each is one that a provider has been shipped with, or that its rule is there to prevent.

mod callbacks;
mod connections;
mod memory;
mod objects;
mod queues;
mod requests;

/// A mistake: what is wrong, what finds it, and how it is made.
#[derive(Debug)]
pub struct Mistake {
    /// What it is called, also in `docs/broken-providers.md`.
    pub name: &'static str,
    /// What the provider does wrong.
    pub about: &'static str,
    /// The cases of the suite that are about it. More may fail, but these have to.
    pub cases: &'static [&'static str],
    /// What it changes.
    pub edits: &'static [Edit],
}

/// A change of one place of a source.
#[derive(Debug)]
pub struct Edit {
    /// The source, from `crates/provider`.
    pub file: &'static str,
    /// Text that stands in the source once, with the place between `«` and `»`: an expression, or nothing, between statements or
    /// items.
    pub place: &'static str,
    /// What comes there: an expression instead of the expression, statements or items where nothing is.
    pub text: &'static str,
    /// When.
    pub kind: Kind,
}

/// When the text of an edit holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// While the mistake is made.
    Wrong,
    /// Always: a field or a function that the mistake needs, and that changes nothing by itself.
    State,
}

impl Edit {
    const fn wrong(file: &'static str, place: &'static str, text: &'static str) -> Self {
        Self { file, place, text, kind: Kind::Wrong }
    }

    const fn state(file: &'static str, place: &'static str, text: &'static str) -> Self {
        Self { file, place, text, kind: Kind::State }
    }
}

/// All mistakes with their numbers, which begin with 1.
pub fn all() -> impl Iterator<Item = (usize, &'static Mistake)> {
    let lists = [callbacks::ALL, queues::ALL, requests::ALL, memory::ALL, connections::ALL, objects::ALL];
    (1..).zip(lists.into_iter().flatten())
}

/// The number of the mistake of this name.
///
/// # Panics
///
/// If there is none.
#[must_use]
pub fn number(name: &str) -> usize {
    all().find(|(_, mistake)| mistake.name == name).unwrap_or_else(|| panic!("there is no mistake {name}")).0
}
