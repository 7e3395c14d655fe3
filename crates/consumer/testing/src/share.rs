//! Many runs that share the work.

/// The items that run `run` of `runs` has, if each item is in `each` of the runs: in every run some.
///
/// ```
/// let of = |run| testing::share::share(0..4, run, 2, 1).collect::<Vec<_>>();
/// assert_eq!((of(0), of(1)), (vec![0, 2], vec![1, 3]));
/// ```
pub fn share<T>(items: impl Iterator<Item = T>, run: usize, runs: usize, each: usize) -> impl Iterator<Item = T> {
    let has = move |number: usize| (number + run) % runs < each;
    items.enumerate().filter(move |(number, _)| has(*number)).map(|(_, item)| item)
}
