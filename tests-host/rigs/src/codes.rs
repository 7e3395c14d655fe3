//! Control codes as a fuzzer has them: bytes are read as a row of requests, and anything may be in them.

use control::provider_device;
use simulated_kernel::Answer;

use crate::bytes::Bytes;

/// Requests of one row at most.
const LONGEST: usize = 200;

/// Those of a provider's control device.
pub const PROVIDER: [u32; 14] = [
    provider_device::QUERY_INFO,
    provider_device::QUERY_COUNTERS,
    provider_device::QUERY_CONNECTIONS,
    provider_device::QUERY_SETTINGS,
    provider_device::SET_SETTINGS,
    provider_device::SET_FAULTS,
    provider_device::SET_FAULT_PLAN,
    provider_device::QUERY_FAULT_PLAN,
    provider_device::SET_RECORDING,
    provider_device::QUERY_RECORDING,
    provider_device::READ_RECORDING,
    provider_device::QUERY_WIRES,
    provider_device::SET_ADVISER,
    provider_device::QUERY_ADVICE,
];

/// Sends the requests of a row to devices that know these codes: `ask` is told to which.
///
/// A byte says to which and how far the code is a known one, one more which, two how many bytes go in, two how many may come out.
pub fn send(bytes: &[u8], codes: &[u32], ask: impl Fn(bool, u32, &[u8], usize) -> Answer) {
    let mut bytes = Bytes(bytes);
    for _ in 0..LONGEST {
        if bytes.is_over() {
            break;
        }
        let choice = bytes.next();
        let known = codes[usize::from(bytes.next()) % codes.len()];
        let code = match choice >> 1 & 7 {
            // Any code, or one that is nearly known.
            0 => u32::from(bytes.word()) << 16 | u32::from(bytes.word()),
            1 => known ^ 1 << (bytes.next() % 32),
            _ => known,
        };
        let length = usize::from(bytes.word()) % (provider_device::FAULT_PLAN_BYTES + 8);
        let input = bytes.take(length);
        let output = usize::from(bytes.word() % 8192);
        let answer = ask(choice & 1 == 1, code, &input, output);
        assert!(answer.bytes.len() <= output, "{} bytes for {output}", answer.bytes.len());
        assert_ne!(answer.status, simulated_kernel::wdk::STATUS_PENDING);
    }
}
