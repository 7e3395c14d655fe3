//! The histogram of the performance run.

use ndktest::histogram::Histogram;

#[test]
fn percentiles_are_known_to_an_eighth() {
    let mut histogram = Histogram::try_new().expect("memory");
    assert_eq!((histogram.total(), histogram.percentile(500), histogram.largest()), (0, 0, 0));
    for value in 1..=10_000 {
        histogram.record(value);
    }
    assert_eq!((histogram.total(), histogram.largest()), (10_000, 10_000));
    for (per_mille, exact) in [(1, 10), (500, 5_000), (990, 9_900), (1000, 10_000)] {
        let found = histogram.percentile(per_mille);
        assert!(found <= exact && exact - found <= exact / 8, "{per_mille}: {found}, not {exact}");
    }
}

#[test]
fn every_value_has_a_place() {
    for value in (0..64).map(|power| 1 << power).chain([0, 7, 8, 9, 255, u64::MAX]) {
        let mut histogram = Histogram::try_new().expect("memory");
        histogram.record(value);
        let found = histogram.percentile(500);
        assert!(found <= value && value - found <= value / 8, "{value}: {found}");
    }
}
