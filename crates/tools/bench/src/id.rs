//! Which row it is, whatever it is called: `bench --compare` finds a row of another commit by this.
//!
//! A row's name is a subject and its variants, with commas between. A variant that was the only one once, and so went without saying,
//! does not count; one that is called otherwise now has its former name here. Who renames a row adds a line.

/// Variants that go without saying.
const DEFAULTS: [&str; 2] = ["direct engine", "inlined lock"];

/// What parts were called, and are called.
const RENAMED: [(&str, &str); 3] = [
    ("DPC engine", "deferred engine"),
    ("inline", "inline data"),
    ("two atomic exchanges and a completion in a deferred call", "two atomic exchanges and a completion in a DPC"),
];

/// What a part of a name is called now.
fn renamed(part: &str) -> &str {
    RENAMED.iter().find(|(before, _)| *before == part).map_or(part, |(_, now)| now)
}

/// The row with this name.
pub fn of(name: &str) -> String {
    let parts: Vec<_> = name.split(", ").filter(|part| !DEFAULTS.contains(part)).map(renamed).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn a_row_is_found_under_its_former_names() {
        for (before, now) in [
            (
                "8 byte message rate, window 64, DPC engine, inline, 32 a doorbell",
                "8 byte message rate, window 64, deferred engine, inlined lock, inline data, 32 a doorbell",
            ),
            (
                "machine: memcpy of 64 KiB, two atomic exchanges and a completion in a deferred call, posted and polled by calls",
                "machine: memcpy of 64 KiB, two atomic exchanges and a completion in a DPC, posted and polled by calls",
            ),
            ("CQ hand-off on two cores, batch 32", "CQ hand-off on two cores, batch 32, inlined lock"),
            ("RDMA write, 16 KiB, 16 a doorbell", "RDMA write, 16 KiB, direct engine, inlined lock, 16 a doorbell"),
        ] {
            assert_eq!(of(before), of(now));
        }
    }

    #[test]
    fn the_rows_that_were_measured_last_are_told_apart() {
        let text = include_str!("../../../../docs/performance/results.json");
        let rows: Vec<crate::report::Figure> = serde_json::from_str(text).expect("rows");
        let names = rows.iter().filter_map(|row| Some((row.row.split(" | ").next()?, &row.unit)));
        let names: std::collections::BTreeSet<_> = names.collect();
        let ids: std::collections::BTreeSet<_> = names.iter().map(|(name, unit)| (of(name), unit)).collect();
        assert!(names.len() > 100 && ids.len() == names.len(), "{} names, {} ids", names.len(), ids.len());
    }

    #[test]
    fn other_variants_are_other_rows() {
        let rows = [
            "CQ, four producers, inlined lock",
            "CQ, four producers, called lock",
            "RDMA read, 4 KiB, deferred engine, inlined lock",
            "RDMA read, 4 KiB, direct engine, inlined lock",
            "8 byte latency, polled, half round trip, direct engine, inlined lock",
            "8 byte latency, polled, half round trip, direct engine, inlined lock, inline data",
        ];
        let ids: std::collections::BTreeSet<_> = rows.into_iter().map(of).collect();
        assert_eq!(ids.len(), rows.len());
    }
}
