//! Control codes and queries at random.

use ndk_interface::{SOFTNDK_INTERFACE, SOFTNDK_INTERFACE_VERSION, control, test_control};
use simulated_kernel::{Device, File, Kernel, wdk::GUID};

use crate::world::{Consumer, Provider, consumer_control, provider_control};

/// A small generator, so that a failure is found again.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> usize {
        usize::try_from(self.next() % bound).expect("a small number")
    }
}

const CODES: [u32; 10] = [
    control::QUERY_INFO,
    control::QUERY_COUNTERS,
    control::QUERY_CONNECTIONS,
    control::QUERY_SETTINGS,
    control::SET_SETTINGS,
    control::SET_FAULTS,
    test_control::START,
    test_control::QUERY_PROGRESS,
    test_control::CANCEL,
    test_control::QUERY_REPORT,
];

fn request(random: &mut Random, file: &File) {
    let code = match random.below(4) {
        // A known code, perhaps with a bit changed, or anything.
        0 => u32::try_from(random.next() & 0xFFFF_FFFF).expect("masked"),
        1 => CODES[random.below(10)] ^ 1 << random.below(16),
        _ => CODES[random.below(10)],
    };
    let input: Vec<u8> =
        (0..random.below(40)).map(|_| if random.below(2) == 0 { 0 } else { random.next().to_le_bytes()[0] }).collect();
    let output = [random.below(48), random.below(5000)][random.below(2)];
    let answer = file.control(code, &input, output);
    assert!(answer.bytes.len() <= output);
    assert_ne!(answer.status, simulated_kernel::wdk::STATUS_PENDING);
}

fn query(random: &mut Random, device: &Device) {
    let kind = ndk_interface::GUID_SOFTNDK;
    let mut kind = GUID { Data1: kind.Data1, Data2: kind.Data2, Data3: kind.Data3, Data4: kind.Data4 };
    if random.below(4) == 0 {
        kind.Data4[random.below(8)] ^= 1;
    }
    let size = u16::try_from(random.below(100)).expect("a small number");
    let version = u16::try_from(random.below(3)).expect("a small number");
    let mut place = [SOFTNDK_INTERFACE::EMPTY; 2];
    // SAFETY: the place has room for more than a hundred bytes.
    let answer = unsafe { device.query_interface(&kind, place.as_mut_ptr().cast(), size, version) };
    let should = usize::from(size) >= size_of::<SOFTNDK_INTERFACE>()
        && version == SOFTNDK_INTERFACE_VERSION
        && kind.Data4 == ndk_interface::GUID_SOFTNDK.Data4;
    assert_eq!(answer.is_ok(), should, "size {size}, version {version}");
    if answer.is_ok()
        && let Some(dereference) = place[0].InterfaceDereference
    {
        // SAFETY: the interface's own routine and context, for the user that the query has counted.
        unsafe { dereference(place[0].Context) };
    }
}

#[test]
fn any_control_code_and_any_query_is_answered() {
    for seed in 1..5_u64 {
        let kernel = Kernel::seeded(seed).start();
        let provider = Provider::load(&kernel).expect("the provider loads");
        let consumer = Consumer::load(&kernel).expect("the consumer loads");
        let (ours, theirs) = (provider_control(&kernel), consumer_control(&kernel));
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for _ in 0..1500 {
            match random.below(5) {
                0 => query(&mut random, &provider.device),
                1 | 2 => request(&mut random, &ours),
                _ => request(&mut random, &theirs),
            }
        }
        drop((ours, theirs));
        consumer.unload();
        provider.unload();
    }
}
