//! Numbers on the command line. A refusal says what is allowed.

use control::{provider_device::RECORDING_SLOTS, test_device::SECONDS};

/// The longest message: `MaxTransferLength`.
const MOST_BYTES: u64 = 1 << 30;
const MOST_ROUNDS: u64 = 100_000_000;
const MOST_REPEATS: u64 = 1_000_000;

/// A number of bytes, perhaps with a unit: `4K`, or `4 KiB` and `100 bytes` as this program prints them.
fn bytes(text: &str) -> Option<u64> {
    let digits = text.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let (digits, unit) = text.split_at(text.len() - digits.len());
    let factor = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" | "byte" | "bytes" => 1,
        "k" | "kib" => 1 << 10,
        "m" | "mib" => 1 << 20,
        "g" | "gib" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// A number of bytes between 1 and 1 GiB.
pub fn parse_size(text: &str) -> Result<u32, String> {
    bytes(text)
        .filter(|size| (1..=MOST_BYTES).contains(size))
        .and_then(|size| u32::try_from(size).ok())
        .ok_or_else(|| "a size is 1 to 1G bytes, for example 64, 4K or 1M".to_owned())
}

/// A number of slots of a recording.
pub fn parse_slots(text: &str) -> Result<u32, String> {
    bytes(text)
        .filter(|slots| (1 << 8..=1 << 24).contains(slots))
        .and_then(|slots| u32::try_from(slots).ok())
        .ok_or_else(|| "a number of slots is 256 to 16M, for example 64K".to_owned())
}

/// A number of slots of a recording in the driver.
pub fn parse_driver_slots(text: &str) -> Result<u32, String> {
    bytes(text)
        .and_then(|slots| u32::try_from(slots).ok())
        .filter(|slots| RECORDING_SLOTS.contains(slots))
        .ok_or_else(|| "a number of slots is 256 to 1M, for example 64K".to_owned())
}

fn number(text: &str, what: &str, most: u64) -> Result<u32, String> {
    text.parse::<u64>()
        .ok()
        .filter(|number| (1..=most).contains(number))
        .and_then(|number| u32::try_from(number).ok())
        .ok_or_else(|| format!("{what} is a whole number from 1 to {most}"))
}

/// A number of round trips.
pub fn parse_count(text: &str) -> Result<u32, String> {
    number(text, "a count", MOST_ROUNDS)
}

/// How often to run everything.
pub fn parse_repeat(text: &str) -> Result<u32, String> {
    number(text, "a number of repetitions", MOST_REPEATS)
}

/// How long a driver is to run.
pub fn parse_seconds(text: &str) -> Result<u32, String> {
    number(text, "a number of seconds", u64::from(*SECONDS.end()))
}

/// A number of processors.
pub fn parse_processors(text: &str) -> Result<u32, String> {
    number(text, "a number of processors", 64)
}

/// A seed.
pub fn parse_seed(text: &str) -> Result<u64, String> {
    let seed = text
        .strip_prefix("0x")
        .or_else(|| text.strip_prefix("0X"))
        .map_or_else(|| text.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok());
    seed.ok_or_else(|| {
        format!("a seed is a whole number from 0 to {}, or 0x and up to 16 hexadecimal digits", u64::MAX)
    })
}

#[cfg(test)]
mod tests {
    use super::{parse_count, parse_processors, parse_seed, parse_size};

    #[test]
    fn sizes_have_units_and_limits() {
        for (text, size) in [("1", 1), ("64", 64), ("4K", 4096), ("4k", 4096), ("1M", 1 << 20), ("1G", 1 << 30)] {
            assert_eq!(parse_size(text), Ok(size));
            // As it is printed.
            assert_eq!(parse_size(&crate::output::bytes(size.into())), Ok(size));
        }
        for text in ["4KiB", "4 kib", "4096 bytes", "4096B"] {
            assert_eq!(parse_size(text), Ok(4096), "{text}");
        }
        for text in
            ["", "0", "-1", "K", "2G", "1.5K", "12x", "4 KB", "KiB", "18446744073709551615G", "99999999999999999999"]
        {
            assert!(parse_size(text).is_err_and(|words| words.contains("1 to 1G")), "{text}");
        }
    }

    #[test]
    fn counts_have_limits() {
        assert_eq!(parse_count("100000000"), Ok(100_000_000));
        assert!(parse_count("0").is_err());
        assert!(parse_count("100000001").is_err());
        assert_eq!(parse_processors("64"), Ok(64));
        assert!(parse_processors("65").is_err());
    }

    #[test]
    fn seeds_are_decimal_or_hexadecimal() {
        assert_eq!(parse_seed("0"), Ok(0));
        assert_eq!(parse_seed("0xFF"), Ok(255));
        assert_eq!(parse_seed("18446744073709551615"), Ok(u64::MAX));
        assert!(parse_seed("0x").is_err());
        assert!(parse_seed("x").is_err());
    }
}
