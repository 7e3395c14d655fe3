//! Numbered places for values.

#![cfg(not(loom))]

use engine::slab::Slab;

#[test]
fn a_number_is_good_until_its_value_is_removed() {
    let mut slab = Slab::new();
    let numbers: Vec<_> = (0..4).map(|value| slab.try_insert(value).expect("memory")).collect();
    for (value, &number) in numbers.iter().enumerate() {
        assert_eq!(slab.get(number), Some(&value));
        *slab.get_mut(number).expect("a value") += 10;
        assert_eq!(slab.remove(number), Some(value + 10));
        assert_eq!(slab.get(number), None);
        assert_eq!(slab.get_mut(number), None);
        assert_eq!(slab.remove(number), None, "it was removed");
    }
    assert_eq!(slab.get(4), None, "never given out");
    assert_eq!(slab.remove(4), None, "never given out");
}

#[test]
fn the_place_that_was_freed_last_is_filled_first() {
    let mut slab = Slab::default();
    let numbers: Vec<_> = "abc".chars().map(|value| slab.try_insert(value).expect("memory")).collect();
    for &number in &numbers {
        slab.remove(number);
    }
    for &number in numbers.iter().rev() {
        assert_eq!(slab.try_insert('d'), Ok(number));
    }
    assert_eq!(slab.bound(), 3);
    assert_eq!(slab.try_insert('e'), Ok(3));
}
