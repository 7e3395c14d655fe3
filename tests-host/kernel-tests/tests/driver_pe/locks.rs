//! An image releases each queued spin lock with the handle that acquired it: seen from its code.
//!
//! Windows finds a handle again by its address, and a compiler is free to move a value that the program moves. So the program alone
//! does not show it. The code of each function is followed along every path, with what is known of its registers: addresses in
//! its frame, and routines. At a call of a release the address that is passed must be one that was passed to an acquisition on a way
//! there.

mod aarch64;
mod x86_64;

use std::collections::{BTreeMap, BTreeSet};

pub use self::{aarch64::follow as follow_aarch64, x86_64::follow as follow_x86_64};

/// A routine of the kernel that has to do with handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Routine {
    /// Acquires a queued spin lock; the handle is the second argument.
    Acquire,
    /// Releases one; the handle is the first argument.
    Release,
}

impl Routine {
    /// The routine of that name, if it is one of them.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "KeAcquireInStackQueuedSpinLock" | "KeAcquireInStackQueuedSpinLockAtDpcLevel" => Some(Self::Acquire),
            "KeReleaseInStackQueuedSpinLock" | "KeReleaseInStackQueuedSpinLockFromDpcLevel" => Some(Self::Release),
            _ => None,
        }
    }
}

/// The routines, by the addresses of the pointers to them.
pub type Imports = BTreeMap<u64, Routine>;

/// What was found, each with the address of the call.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Acquisitions with a handle in the function's frame.
    pub acquired: BTreeSet<u64>,
    /// Releases with a handle that was acquired on a way there.
    pub released: BTreeSet<u64>,
    /// Releases with another place of the frame.
    pub elsewhere: BTreeSet<u64>,
    /// Acquisitions and releases with a handle that could not be followed.
    pub unknown: BTreeSet<u64>,
}

impl Found {
    /// Puts together what was found in two functions.
    pub fn add(&mut self, other: Self) {
        self.acquired.extend(other.acquired);
        self.released.extend(other.released);
        self.elsewhere.extend(other.elsewhere);
        self.unknown.extend(other.unknown);
    }
}

/// What a register or a place in the frame holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    /// An address in the frame, counted from the stack pointer at the function's entry, or after the instruction there that has
    /// aligned it.
    Frame(FrameSlot),
    /// One of two addresses in the frame, the smaller one first: a compiler makes one call of two that differ in the handle only.
    OneOf(FrameSlot, FrameSlot),
    /// An address in the image, not in the frame.
    Image(u64),
    /// The address of a routine.
    Routine(Routine),
}

impl Value {
    /// The value after an addition.
    const fn plus(self, offset: i64) -> Option<Self> {
        match self {
            Self::Frame(place) => Some(Self::Frame(place.plus(offset))),
            Self::OneOf(one, other) => Some(Self::OneOf(one.plus(offset), other.plus(offset))),
            Self::Image(address) => Some(Self::Image(address.wrapping_add_signed(offset))),
            Self::Routine(_) => None,
        }
    }

    /// The addresses in the frame that it may be; none if it is something else.
    fn slots(self) -> BTreeSet<FrameSlot> {
        match self {
            Self::Frame(place) => BTreeSet::from([place]),
            Self::OneOf(one, other) => BTreeSet::from([one, other]),
            Self::Image(_) | Self::Routine(_) => BTreeSet::new(),
        }
    }

    /// What is known of a value that is the one or the other.
    fn or(self, other: Self) -> Option<Self> {
        if self == other {
            return Some(self);
        }
        let (mine, its) = (self.slots(), other.slots());
        let both = mine.union(&its).copied().collect::<Vec<_>>();
        match *both {
            [one, other] if !mine.is_empty() && !its.is_empty() => Some(Self::OneOf(one, other)),
            _ => None,
        }
    }
}

/// An address in the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct FrameSlot {
    base: u64,
    offset: i64,
}

impl FrameSlot {
    const fn plus(self, offset: i64) -> Self {
        Self { base: self.base, offset: self.offset.wrapping_add(offset) }
    }
}

/// What is known at an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    /// Registers whose value is known.
    registers: BTreeMap<u8, Value>,
    /// Places of the frame whose value is known.
    memory: BTreeMap<FrameSlot, Value>,
    /// Handles that may hold a lock.
    held: BTreeSet<FrameSlot>,
}

impl State {
    /// At a function's entry, with the number of the stack pointer.
    fn at_entry(stack_pointer: u8) -> Self {
        let stack = Value::Frame(FrameSlot { base: 0, offset: 0 });
        Self { registers: BTreeMap::from([(stack_pointer, stack)]), memory: BTreeMap::new(), held: BTreeSet::new() }
    }

    fn get(&self, register: u8) -> Option<Value> {
        self.registers.get(&register).copied()
    }

    fn set(&mut self, register: u8, value: Option<Value>) {
        match value {
            Some(value) => self.registers.insert(register, value),
            None => self.registers.remove(&register),
        };
    }

    /// What is known of the eight bytes at a place of the frame.
    fn load(&self, place: FrameSlot) -> Option<Value> {
        self.memory.get(&place).copied()
    }

    /// So many bytes are written to a place of the frame.
    fn store(&mut self, place: FrameSlot, size: i64, value: Option<Value>) {
        self.memory.retain(|known, _| {
            known.base != place.base
                || known.offset + 8 <= place.offset
                || known.offset >= place.offset.saturating_add(size)
        });
        self.memory.extend(value.map(|value| (place, value)));
    }

    /// Adds what is known on another way to the same instruction: what is not known on both is not known, and what may be held on one
    /// may be held. Returns true if that changes anything.
    fn join(&mut self, other: &Self) -> bool {
        fn both<K: Ord>(mine: &mut BTreeMap<K, Value>, its: &BTreeMap<K, Value>) {
            mine.retain(|key, value| {
                let joined = its.get(key).and_then(|other| value.or(*other));
                joined.inspect(|joined| *value = *joined).is_some()
            });
        }
        let before = self.clone();
        both(&mut self.registers, &other.registers);
        both(&mut self.memory, &other.memory);
        self.held.extend(&other.held);
        *self != before
    }
}

/// Where the code goes after an instruction.
enum Next {
    /// To the following one.
    On,
    /// To another one.
    To(u64),
    /// To one of the two.
    Fork(u64),
    /// To an address that was computed.
    Computed,
    /// Nowhere in this function.
    Nowhere,
}

/// An instruction of a processor.
trait Instruction {
    /// The number of the stack pointer.
    const STACK_POINTER: u8;
    /// The numbers of the registers that have the first two arguments of a call.
    const ARGUMENTS: [u8; 2];

    /// The address of the following instruction.
    fn following(&self) -> u64;
    /// Whether compilers fill space with it that nothing leads to.
    fn is_filler(&self) -> bool;
    fn next(&self) -> Next;
    /// The routine that it calls or goes to.
    fn routine(&self, state: &State, imports: &Imports) -> Option<Routine>;
    /// What is known after it, of what was known before.
    fn step(&self, state: &mut State, imports: &Imports);
}

/// Follows the code of a function.
struct Function<'image, I> {
    instructions: BTreeMap<u64, I>,
    imports: &'image Imports,
    states: BTreeMap<u64, State>,
    /// What is known where the function goes on at an address that it has computed.
    computed: Option<State>,
    found: Found,
}

/// Follows the code of a function that begins at `address`.
fn follow<I: Instruction>(instructions: BTreeMap<u64, I>, address: u64, imports: &Imports) -> Found {
    let mut function =
        Function { instructions, imports, states: BTreeMap::new(), computed: None, found: Found::default() };
    function.walk(vec![(address, State::at_entry(I::STACK_POINTER))]);
    // What only a table of addresses leads to: the arms of a `match`.
    while let Some(state) = function.computed.clone() {
        let unseen = function
            .instructions
            .iter()
            .find(|(address, instruction)| !function.states.contains_key(address) && !instruction.is_filler());
        let Some((&next, _)) = unseen else { break };
        function.walk(vec![(next, state)]);
    }
    function.found
}

impl<I: Instruction> Function<'_, I> {
    fn walk(&mut self, mut ahead: Vec<(u64, State)>) {
        while let Some((address, state)) = ahead.pop() {
            let Some(instruction) = self.instructions.get(&address) else { continue };
            let mut state = if let Some(known) = self.states.get_mut(&address) {
                if !known.join(&state) {
                    continue;
                }
                known.clone()
            } else {
                self.states.insert(address, state.clone());
                state
            };
            if let Some(routine) = instruction.routine(&state, self.imports) {
                handle(&mut self.found, address, routine, I::ARGUMENTS, &mut state);
            }
            instruction.step(&mut state, self.imports);
            match instruction.next() {
                Next::On => ahead.push((instruction.following(), state)),
                Next::To(target) => ahead.push((target, state)),
                Next::Fork(target) => {
                    ahead.push((target, state.clone()));
                    ahead.push((instruction.following(), state));
                }
                Next::Computed => match &mut self.computed {
                    Some(known) => {
                        known.join(&state);
                    }
                    none => *none = Some(state),
                },
                Next::Nowhere => {}
            }
        }
    }
}

/// A routine is called. A call may be seen several times, the last time with all that is known.
fn handle(found: &mut Found, address: u64, routine: Routine, arguments: [u8; 2], state: &mut State) {
    for slots in [&mut found.acquired, &mut found.released, &mut found.elsewhere, &mut found.unknown] {
        slots.remove(&address);
    }
    let argument = arguments[usize::from(routine == Routine::Acquire)];
    let handles = state.get(argument).map_or_else(BTreeSet::new, Value::slots);
    let place = match routine {
        _ if handles.is_empty() => &mut found.unknown,
        Routine::Acquire => {
            state.held.extend(handles);
            &mut found.acquired
        }
        // Whichever it is, it has to be held.
        Routine::Release if handles.is_subset(&state.held) => {
            state.held.retain(|held| !handles.contains(held));
            &mut found.released
        }
        Routine::Release => &mut found.elsewhere,
    };
    place.insert(address);
}
