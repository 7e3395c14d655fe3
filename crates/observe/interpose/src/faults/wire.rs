//! A plan as bytes, for a control code.

use ndkpi::{NDK_OBJECT_TYPE, NtStatus};

use super::{
    plan::{Delay, MOST_RULES, Plan, Rule, Which, Wrong},
    table::Kind,
};
use crate::Function;

/// The version of the layout.
const VERSION: u32 = 1;

/// Version, number of rules, and the seed in two halves.
const HEADER: usize = 16;

/// The words of a rule.
const WORDS: usize = 12;

/// The bytes of a plan: a header of four words and eight rules of twelve, all little-endian. Rules that are not there are zero.
pub const PLAN_BYTES: usize = HEADER + MOST_RULES * WORDS * 4;

impl Plan {
    /// The plan as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PLAN_BYTES] {
        let mut bytes = [0; PLAN_BYTES];
        let [low, high] = halves(self.seed);
        let count = u32::try_from(self.rules().count()).unwrap_or(0);
        let header = [VERSION, count, low, high];
        let words = header.into_iter().chain(self.rules().flat_map(words));
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The plan that has these bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with them. Every plan that is returned is one that [`Plan::with`] can make.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Wrong> {
        if bytes.len() != PLAN_BYTES {
            return Err(Wrong::Bytes);
        }
        let mut all = [0; PLAN_BYTES / 4];
        for (word, place) in all.iter_mut().zip(bytes.chunks_exact(4)) {
            *word = u32::from_le_bytes(place.try_into().map_err(|_| Wrong::Bytes)?);
        }
        let (header, rules) = all.split_at(HEADER / 4);
        let &[version, count, low, high] = header else { return Err(Wrong::Bytes) };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if version != VERSION || count > MOST_RULES {
            return Err(Wrong::Bytes);
        }
        let (there, unused) = rules.split_at(count * WORDS);
        if unused.iter().any(|word| *word != 0) {
            return Err(Wrong::Bytes);
        }
        let mut plan = Self::new(u64::from(high) << 32 | u64::from(low));
        for words in there.chunks_exact(WORDS) {
            plan = plan.with(rule(words)?)?;
        }
        Ok(plan)
    }
}

fn halves(number: u64) -> [u32; 2] {
    [number & u64::from(u32::MAX), number >> 32].map(|half| u32::try_from(half).unwrap_or(0))
}

/// The words of a rule. What may be anything is 0, what is a certain one counts from 1.
fn words(rule: &Rule) -> [u32; WORDS] {
    let (which, number) = match rule.which {
        Which::Nth(number) => (1, number),
        Which::Every(number) => (2, number),
        Which::Chance(number) => (3, number),
    };
    let (distribution, first, second) = match rule.delay {
        Delay::Fixed(length) => (0, length, 0),
        Delay::Uniform(least, most) => (1, least, most),
        Delay::Exponential(mean, most) => (2, mean, most),
    };
    [
        rule.kind as u32,
        rule.function.map_or(0, |function| u32::from(function as u8) + 1),
        rule.object_type.map_or(0, |kind| kind.0.cast_unsigned().wrapping_add(1)),
        rule.object.map_or(0, |number| number.wrapping_add(1)),
        rule.consumer.unwrap_or(0),
        which,
        number,
        rule.status.map_or(0, NtStatus::to_bits),
        distribution,
        first,
        second,
        0,
    ]
}

fn rule(words: &[u32]) -> Result<Rule, Wrong> {
    let &[kind, function, object_type, object, consumer, which, number, status, distribution, first, second, unused] =
        words
    else {
        return Err(Wrong::Bytes);
    };
    let certain = |word: u32| word.checked_sub(1);
    let function = match certain(function) {
        Some(index) => Some(*Function::ALL.get(index as usize).ok_or(Wrong::Bytes)?),
        None => None,
    };
    let object_type = match certain(object_type) {
        Some(number) => {
            let kind = NDK_OBJECT_TYPE(number.cast_signed());
            kind.name().ok_or(Wrong::Bytes)?;
            Some(kind)
        }
        None => None,
    };
    let which = match which {
        1 => Which::Nth(number),
        2 => Which::Every(number),
        3 => Which::Chance(number),
        _ => return Err(Wrong::Bytes),
    };
    let delay = match (distribution, second) {
        (0, 0) => Delay::Fixed(first),
        (1, most) => Delay::Uniform(first, most),
        (2, most) => Delay::Exponential(first, most),
        _ => return Err(Wrong::Bytes),
    };
    if unused != 0 {
        return Err(Wrong::Bytes);
    }
    Ok(Rule {
        kind: Kind::from_number(kind).ok_or(Wrong::Bytes)?,
        function,
        object_type,
        object: certain(object),
        consumer: (consumer != 0).then_some(consumer),
        which,
        status: (status != 0).then(|| NtStatus::from_bits(status)),
        delay,
    })
}
