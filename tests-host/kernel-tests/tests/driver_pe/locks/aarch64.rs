//! The code of `AArch64`.

use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::{InstDecoder, Instruction as Decoded, Opcode, Operand, SIMDSizeCode, SizeCode};

use super::{Found, FrameSlot, Imports, Instruction, Next, Routine, State, Value};

/// Follows the code of a function that begins at `address`. `imports` has the addresses of the pointers to the routines.
pub fn follow(code: &[u8], address: u64, imports: &Imports) -> Found {
    let decoder = InstDecoder::default();
    let words = (address..).step_by(4).zip(code.chunks_exact(4));
    let instructions = words.filter_map(|(address, word)| {
        let decoded = decoder.decode(&mut U8Reader::new(word)).ok()?;
        Some((address, At { address, decoded }))
    });
    super::follow(instructions.collect(), address, imports)
}

/// An instruction and where it is.
struct At {
    address: u64,
    decoded: Decoded,
}

const SP: u8 = 31;

/// The number of a general register that an operand is. For writing: the zero register keeps nothing.
fn number(operand: Operand) -> Option<u8> {
    let number = match operand {
        Operand::Register(_, number) => Some(number).filter(|&number| number != u16::from(SP)),
        Operand::RegisterOrSP(_, number) => Some(number),
        _ => None,
    };
    number.and_then(|number| u8::try_from(number).ok())
}

/// The same for a whole register, of 64 bits.
fn whole(operand: Operand) -> Option<u8> {
    let is_whole = matches!(operand, Operand::Register(SizeCode::X, _) | Operand::RegisterOrSP(SizeCode::X, _));
    number(operand).filter(|_| is_whole)
}

/// A register, if it is one that keeps something, is written.
fn set(state: &mut State, register: Option<u8>, value: Option<Value>) {
    if let Some(register) = register {
        state.set(register, value);
    }
}

/// The bytes of a register in memory.
fn size(operand: Operand) -> i64 {
    match operand {
        Operand::Register(SizeCode::W, _) | Operand::SIMDRegister(SIMDSizeCode::S, _) => 4,
        Operand::Register(SizeCode::X, _) | Operand::SIMDRegister(SIMDSizeCode::D, _) => 8,
        _ => 16,
    }
}

/// How an instruction reaches memory.
struct Access {
    /// The register with an address.
    base: u8,
    /// What is added to it before the access.
    before: i64,
    /// By how much the register has moved afterwards.
    moves: i64,
    /// How many operands are before it: registers that are loaded or stored.
    registers: usize,
}

impl At {
    /// How it reaches memory, if it does by a register and a number.
    fn access(&self) -> Option<Access> {
        let (registers, access) = self.decoded.operands.iter().enumerate().find_map(|(index, operand)| {
            let access = match *operand {
                Operand::RegPreIndex(base, by, writes) => (base, i64::from(by), if writes { i64::from(by) } else { 0 }),
                Operand::RegPostIndex(base, by) => (base, 0, i64::from(by)),
                _ => return None,
            };
            Some((index, access))
        })?;
        Some(Access { base: u8::try_from(access.0).ok()?, before: access.1, moves: access.2, registers })
    }

    /// The address that it names by its distance.
    fn target(&self) -> Option<u64> {
        self.decoded.operands.iter().find_map(|operand| match operand {
            Operand::PCOffset(distance) => Some(self.address.wrapping_add_signed(*distance)),
            _ => None,
        })
    }

    /// The number that it adds.
    fn added(&self) -> Option<i64> {
        let number = match self.decoded.operands[2] {
            Operand::Immediate(number) => i64::from(number),
            Operand::ImmShift(number, shift) => i64::from(number) << shift,
            _ => return None,
        };
        Some(if self.decoded.opcode == Opcode::SUB { -number } else { number })
    }

    /// It stores registers, and changes none but perhaps the one with the address.
    const fn is_store(&self) -> bool {
        matches!(
            self.decoded.opcode,
            Opcode::STP
                | Opcode::STNP
                | Opcode::STR
                | Opcode::STRB
                | Opcode::STRH
                | Opcode::STUR
                | Opcode::STURB
                | Opcode::STURH
                | Opcode::STLR
                | Opcode::STLRB
                | Opcode::STLRH
                | Opcode::STLUR
        )
    }

    /// It loads whole registers, and does nothing else.
    const fn is_load(&self) -> bool {
        matches!(self.decoded.opcode, Opcode::LDR | Opcode::LDUR | Opcode::LDP | Opcode::LDNP)
    }

    /// It changes no register.
    const fn only_reads(&self) -> bool {
        matches!(
            self.decoded.opcode,
            Opcode::CCMN
                | Opcode::CCMP
                | Opcode::CBZ
                | Opcode::CBNZ
                | Opcode::TBZ
                | Opcode::TBNZ
                | Opcode::BR
                | Opcode::RET
                | Opcode::MSR
        )
    }
}

impl Instruction for At {
    const STACK_POINTER: u8 = SP;
    const ARGUMENTS: [u8; 2] = [0, 1];

    fn following(&self) -> u64 {
        self.address + 4
    }

    fn is_filler(&self) -> bool {
        matches!(self.decoded.opcode, Opcode::BRK | Opcode::UDF | Opcode::HINT)
    }

    fn next(&self) -> Next {
        match self.decoded.opcode {
            Opcode::B => self.target().map_or(Next::Nowhere, Next::To),
            Opcode::Bcc(_) | Opcode::BCcc(_) | Opcode::CBZ | Opcode::CBNZ | Opcode::TBZ | Opcode::TBNZ => {
                self.target().map_or(Next::Nowhere, Next::Fork)
            }
            Opcode::BR => Next::Computed,
            Opcode::RET | Opcode::BRK | Opcode::UDF | Opcode::HLT => Next::Nowhere,
            _ => Next::On,
        }
    }

    fn routine(&self, state: &State, _: &Imports) -> Option<Routine> {
        if !matches!(self.decoded.opcode, Opcode::BLR | Opcode::BR) {
            return None;
        }
        match state.get(whole(self.decoded.operands[0])?) {
            Some(Value::Routine(routine)) => Some(routine),
            _ => None,
        }
    }

    fn step(&self, state: &mut State, imports: &Imports) {
        let [first, second, third, _] = self.decoded.operands;
        let get = |state: &State, operand| whole(operand).and_then(|number| state.get(number));
        match self.decoded.opcode {
            Opcode::BL | Opcode::BLR => {
                for volatile in (0..=17).chain([30]) {
                    state.set(volatile, None);
                }
                return;
            }
            Opcode::ADRP | Opcode::ADR => {
                let from = if self.decoded.opcode == Opcode::ADRP { self.address & 0xFFF } else { 0 };
                let value = self.target().map(|target| Value::Image(target - from));
                set(state, whole(first), value);
                return;
            }
            Opcode::ADD | Opcode::SUB if self.added().is_some() => {
                let value = self.added().and_then(|by| get(state, second)?.plus(by));
                set(state, number(first), value);
                return;
            }
            // `mov`: something or nothing, which is the zero register.
            Opcode::ORR if matches!(second, Operand::Register(_, 31)) => {
                let value = match third {
                    Operand::RegShift(_, 0, size, register) => get(state, Operand::Register(size, register)),
                    _ => None,
                };
                set(state, number(first), value);
                return;
            }
            // From here on the frame is counted anew: how far it was moved is not known.
            Opcode::AND if matches!(first, Operand::RegisterOrSP(_, 31)) => {
                state.set(SP, Some(Value::Frame(FrameSlot { base: self.address, offset: 0 })));
                return;
            }
            _ => {}
        }
        let Some(access) = self.access() else {
            if !self.only_reads() {
                set(state, number(first), None);
            }
            return;
        };
        let base = state.get(access.base);
        let place = match base {
            Some(Value::Frame(place)) => Some(place.plus(access.before)),
            _ => None,
        };
        let mut offset = 0;
        for &register in &self.decoded.operands[..access.registers] {
            let here = place.map(|place| place.plus(offset));
            if self.is_load() {
                let pointer = match base.and_then(|base| base.plus(access.before + offset)) {
                    Some(Value::Image(address)) => imports.get(&address).map(|&routine| Value::Routine(routine)),
                    _ => None,
                };
                let value = pointer.or_else(|| here.and_then(|place| state.load(place)));
                let value = value.filter(|_| whole(register).is_some());
                set(state, number(register), value);
            } else {
                if let Some(place) = here {
                    let value = if self.is_store() { get(state, register) } else { None };
                    state.store(place, size(register), value);
                }
                if !self.is_store() {
                    set(state, number(register), None);
                }
            }
            offset += size(register);
        }
        if access.moves != 0 {
            state.set(access.base, base.and_then(|base| base.plus(access.moves)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::Routine, follow};

    /// A page on, at its beginning and eight bytes further.
    const ACQUIRE: u64 = 0x2000;
    const RELEASE: u64 = 0x2008;
    const BEGIN: u64 = 0x1000;

    /// `stp x29, x30, [sp, #-0x90]!`
    const ENTER: u32 = 0xA9B7_7BFD;
    /// `ldp x29, x30, [sp], #0x90`
    const LEAVE: u32 = 0xA8C9_7BFD;
    const RET: u32 = 0xD65F_03C0;
    /// `add x1, sp, #0x50`
    const SECOND_IS_50: u32 = 0x9101_43E1;
    /// `add x0, sp, #0x50`
    const FIRST_IS_50: u32 = 0x9101_43E0;
    /// `add x0, sp, #0x30`
    const FIRST_IS_30: u32 = 0x9100_C3E0;
    /// `adrp x8, ACQUIRE; ldr x8, [x8]; blr x8`
    const CALL_ACQUIRE: [u32; 3] = [0xB000_0008, 0xF940_0108, 0xD63F_0100];
    /// `adrp x8, RELEASE; ldr x8, [x8, #8]; blr x8`
    const CALL_RELEASE: [u32; 3] = [0xB000_0008, 0xF940_0508, 0xD63F_0100];

    /// How many acquisitions, right releases, wrong releases and calls that could not be followed it has.
    fn counts(parts: &[&[u32]]) -> [usize; 4] {
        let code = parts.concat().into_iter().flat_map(u32::to_le_bytes).collect::<Vec<_>>();
        let imports = [(ACQUIRE, Routine::Acquire), (RELEASE, Routine::Release)].into();
        let found = follow(&code, BEGIN, &imports);
        [found.acquired.len(), found.released.len(), found.elsewhere.len(), found.unknown.len()]
    }

    #[test]
    fn the_same_place_of_the_frame_is_right() {
        let code: [&[u32]; 4] =
            [&[ENTER, SECOND_IS_50], &CALL_ACQUIRE, &[FIRST_IS_50], &[CALL_RELEASE.as_slice(), &[LEAVE, RET]].concat()];
        assert_eq!(counts(&code), [1, 1, 0, 0]);
    }

    /// What a compiler makes of a guard that is moved: `ldr q0, [sp, #0x50]; str q0, [sp, #0x30]`.
    #[test]
    fn another_place_is_wrong_also_if_the_handle_was_copied_there() {
        let copy = [0x3DC0_17E0, 0x3D80_0FE0, FIRST_IS_30];
        assert_eq!(counts(&[&[ENTER, SECOND_IS_50], &CALL_ACQUIRE, &copy, &CALL_RELEASE, &[LEAVE, RET]]), [1, 0, 1, 0]);
    }

    /// `add x19, sp, #0x50; mov x1, x19` and `mov x0, x19`; then `stp x19, x20, [sp, #0x20]`, another `x19`, and back by `ldr`.
    #[test]
    fn an_address_is_followed_through_registers_and_the_stack() {
        let second = [ENTER, 0x9101_43F3, 0xAA13_03E1];
        assert_eq!(counts(&[&second, &CALL_ACQUIRE, &[0xAA13_03E0], &CALL_RELEASE, &[LEAVE, RET]]), [1, 1, 0, 0]);
        let spill = [0xA902_53F3, 0xD280_0013, 0xF940_13E0];
        assert_eq!(counts(&[&second, &CALL_ACQUIRE, &spill, &CALL_RELEASE, &[LEAVE, RET]]), [1, 1, 0, 0]);
        // `mov x19, #0; mov x0, x19`
        assert_eq!(
            counts(&[&second, &CALL_ACQUIRE, &[0xD280_0013, 0xAA13_03E0], &CALL_RELEASE, &[LEAVE, RET]]),
            [1, 0, 0, 1]
        );
    }

    /// `cbz w2` to the second of `add x0, sp, #0x50; b` and `add x0, sp, #0x30`, which meet at one call.
    #[test]
    fn every_way_is_followed() {
        let one_of_two = [0x3400_0062, FIRST_IS_50, 0x1400_0002, FIRST_IS_30];
        assert_eq!(
            counts(&[&[ENTER, SECOND_IS_50], &CALL_ACQUIRE, &one_of_two, &CALL_RELEASE, &[LEAVE, RET]]),
            [1, 0, 1, 0]
        );
        // `add x1, sp, #0x30`
        let second = [&[ENTER, SECOND_IS_50], CALL_ACQUIRE.as_slice(), &[0x9100_C3E1]].concat();
        assert_eq!(counts(&[&second, &CALL_ACQUIRE, &one_of_two, &CALL_RELEASE, &[LEAVE, RET]]), [2, 1, 0, 0]);
    }

    #[test]
    fn a_release_of_what_was_released_is_wrong() {
        let release = [[FIRST_IS_50].as_slice(), &CALL_RELEASE].concat();
        assert_eq!(counts(&[&[ENTER, SECOND_IS_50], &CALL_ACQUIRE, &release, &release, &[LEAVE, RET]]), [1, 1, 1, 0]);
    }

    /// `ldr x0, [x9]`
    #[test]
    fn a_handle_from_elsewhere_is_not_known() {
        assert_eq!(
            counts(&[&[ENTER, SECOND_IS_50], &CALL_ACQUIRE, &[0xF940_0120], &CALL_RELEASE, &[LEAVE, RET]]),
            [1, 0, 0, 1]
        );
    }
}
