//! What is behind `IND2Provider`.

use std::{
    ffi::c_void,
    net::{IpAddr, SocketAddr},
};

use fallible::Arc;
use nd2::{
    abi::HRESULT,
    address,
    back_end::BackEnd,
    com::{Object, Provider},
};
use nd2_control::wire::{ADDRESS, AdapterAddress, Verb, begin};
use ndkpi::{GUID, NtStatus};
use zerocopy::{FromBytes, little_endian::U32};

use super::{
    Transport,
    adapter::Adapter,
    connection::{Connector, Listener},
    memory::{MemoryRegion, MemoryWindow},
    qp::QueuePair,
    queues::{CompletionQueue, SharedReceiveQueue},
};

/// Bytes of the longest list of addresses: eight adapters with eight addresses.
const LIST: usize = size_of::<U32>() + 64 * size_of::<AdapterAddress>();

/// The adapters' addresses, with their adapters.
pub fn addresses(transport: &impl Transport) -> Result<Vec<(u64, SocketAddr)>, NtStatus> {
    let mut answer = [0; LIST];
    let length = transport.call(Verb::Addresses.code(), &[], &mut answer)?;
    let (count, entries) = begin::<U32>(&answer[..length])?;
    let (entries, _) = <[AdapterAddress]>::ref_from_prefix_with_elems(entries, count.get() as usize)
        .map_err(|_| NtStatus::INVALID_PARAMETER)?;
    entries.iter().map(|entry| Ok((entry.adapter.get(), read_address(&entry.address)?))).collect()
}

/// An address as it is sent.
pub fn read_address(bytes: &[u8; ADDRESS]) -> Result<SocketAddr, NtStatus> {
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    let length = ADDRESS as u32;
    // SAFETY: the address is as long as it says.
    unsafe { address::read(bytes.as_ptr().cast(), length) }
}

/// The driver's adapters.
pub struct Driver<T: Transport>(T);

/// `DllGetClassObject`: makes a provider over `transport()`, which is called only if the interface exists.
///
/// # Safety
///
/// `iid` is null or valid for reading, `out` null or valid for writing.
pub unsafe fn get_class_object<T: Transport>(
    iid: *const GUID,
    out: *mut *mut c_void,
    transport: impl FnOnce() -> Result<T, HRESULT>,
) -> HRESULT {
    // SAFETY: `iid` is null or valid for reading, and `out` null or valid for writing (`# Safety`).
    unsafe { Object::hand_out(iid, out, || transport().map(|transport| Provider(Driver(transport)))) }
}

impl<T: Transport> BackEnd for Driver<T> {
    type Adapter = Adapter<T>;
    type File = T::File;
    type CompletionQueue = CompletionQueue<T>;
    type SharedReceiveQueue = SharedReceiveQueue<T>;
    type QueuePair = QueuePair<T>;
    type MemoryRegion = MemoryRegion<T>;
    type MemoryWindow = MemoryWindow<T>;
    type Connector = Connector<T>;
    type Listener = Listener<T>;

    fn addresses(&self) -> Result<Vec<IpAddr>, NtStatus> {
        Ok(addresses(&self.0)?.iter().map(|(_, one)| one.ip()).collect())
    }

    fn resolve(&self, address: IpAddr) -> Result<u64, NtStatus> {
        let found = addresses(&self.0)?;
        let found = found.iter().find(|(_, one)| one.ip() == address);
        found.map(|(number, _)| *number).ok_or(NtStatus::INVALID_ADDRESS)
    }

    fn open(&self, number: u64) -> Result<Arc<Adapter<T>>, HRESULT> {
        Adapter::try_new(&self.0, number).map_err(HRESULT::of)
    }
}
