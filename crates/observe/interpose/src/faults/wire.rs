//! A plan as bytes, for a control code.

use ndkpi::{NDK_OBJECT_TYPE, NtStatus};
use zerocopy::{
    FromBytes, FromZeros, Immutable, IntoBytes,
    little_endian::{U32, U64},
};

use super::{
    plan::{Delay, MOST_RULES, Plan, Rule, Which, Wrong},
    table::Kind,
};
use crate::Function;

/// The version of the layout.
const VERSION: u32 = 1;

/// The bytes of a plan: a header of four words and eight rules of twelve, all little-endian. Rules that are not there are zero.
pub const PLAN_BYTES: usize = size_of::<WirePlan>();

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct WirePlan {
    version: U32,
    count: U32,
    seed: U64,
    rules: [WireRule; MOST_RULES],
}

/// A rule. What may be anything is 0, what is a certain one counts from 1.
#[derive(Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct WireRule {
    kind: U32,
    function: U32,
    object_type: U32,
    object: U32,
    consumer: U32,
    which: U32,
    number: U32,
    status: U32,
    distribution: U32,
    first: U32,
    second: U32,
    reserved: U32,
}

impl Plan {
    /// Where in the bytes of a plan its seed stands, in eight of them.
    pub const SEED_AT: usize = core::mem::offset_of!(WirePlan, seed);

    /// The plan as bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; PLAN_BYTES] {
        let mut plan = WirePlan { version: VERSION.into(), seed: self.seed.into(), ..WirePlan::new_zeroed() };
        for (place, rule) in plan.rules.iter_mut().zip(self.rules()) {
            *place = wire(rule);
            plan.count += 1;
        }
        zerocopy::transmute!(plan)
    }

    /// The plan that has these bytes.
    ///
    /// # Errors
    ///
    /// What is wrong with them. Every plan that is returned is one that [`Plan::with`] can make.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Wrong> {
        let wire = WirePlan::read_from_bytes(bytes).map_err(|_| Wrong::Bytes)?;
        let there = wire.rules.split_at_checked(wire.count.get() as usize);
        let (there, unused) = there.filter(|_| wire.version == VERSION).ok_or(Wrong::Bytes)?;
        if unused.iter().any(|rule| *rule != WireRule::new_zeroed()) {
            return Err(Wrong::Bytes);
        }
        there.iter().try_fold(Self::new(wire.seed.get()), |plan, wire| plan.with(rule(wire)?))
    }
}

fn wire(rule: &Rule) -> WireRule {
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
    WireRule {
        kind: (rule.kind as u32).into(),
        function: rule.function.map_or(0, |function| u32::from(function as u8) + 1).into(),
        object_type: rule.object_type.map_or(0, |kind| kind.0.cast_unsigned().wrapping_add(1)).into(),
        object: rule.object.map_or(0, |number| number.wrapping_add(1)).into(),
        consumer: rule.consumer.unwrap_or(0).into(),
        which: which.into(),
        number: number.into(),
        status: rule.status.map_or(0, NtStatus::to_bits).into(),
        distribution: distribution.into(),
        first: first.into(),
        second: second.into(),
        reserved: 0.into(),
    }
}

fn rule(wire: &WireRule) -> Result<Rule, Wrong> {
    let first = wire.first.get();
    let certain = |word: u32| word.checked_sub(1);
    let function = match certain(wire.function.get()) {
        Some(index) => Some(*Function::ALL.get(index as usize).ok_or(Wrong::Bytes)?),
        None => None,
    };
    let object_type = match certain(wire.object_type.get()) {
        Some(number) => {
            let kind = NDK_OBJECT_TYPE(number.cast_signed());
            kind.name().ok_or(Wrong::Bytes)?;
            Some(kind)
        }
        None => None,
    };
    let number = wire.number.get();
    let which = match wire.which.get() {
        1 => Which::Nth(number),
        2 => Which::Every(number),
        3 => Which::Chance(number),
        _ => return Err(Wrong::Bytes),
    };
    let delay = match (wire.distribution.get(), wire.second.get()) {
        (0, 0) => Delay::Fixed(first),
        (1, most) => Delay::Uniform(first, most),
        (2, most) => Delay::Exponential(first, most),
        _ => return Err(Wrong::Bytes),
    };
    if wire.reserved != 0 {
        return Err(Wrong::Bytes);
    }
    Ok(Rule {
        kind: Kind::from_number(wire.kind.get()).ok_or(Wrong::Bytes)?,
        function,
        object_type,
        object: certain(wire.object.get()),
        consumer: (wire.consumer != 0).then_some(wire.consumer.get()),
        which,
        status: (wire.status != 0).then(|| NtStatus::from_bits(wire.status.get())),
        delay,
    })
}
