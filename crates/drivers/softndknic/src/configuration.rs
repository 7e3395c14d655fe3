//! The keywords of an adapter: the advanced properties that the INF declares (`docs/registry.md`).

use core::{ptr, slice};

use cable::{Impairment, MacAddress, Tagging, frame::is_station};
use kernel::{unicode, wide};
use ndis::{
    NDIS_CONFIGURATION_OBJECT, NDIS_CONFIGURATION_PARAMETER_DATA, NDIS_PARAMETER_TYPE, NDIS_STATUS,
    NdisCloseConfiguration, NdisOpenConfigurationEx, NdisReadConfiguration, NdisReadNetworkAddress,
};
use ndkpi::{NDIS_HANDLE, NDK_RDMA_TECHNOLOGY, NtStatus};
use provider::Profile;

/// Bytes of a link header, without a tag of 802.1Q.
pub const LINK_HEADER: u32 = 14;

/// What the keywords say. Every value is in its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keywords {
    /// `*NetworkDirect`: NDK may be enabled.
    pub network_direct: bool,
    /// `*NetworkDirectTechnology`.
    pub technology: NDK_RDMA_TECHNOLOGY,
    /// `RdmaProfile`: what kind of adapter this one is like.
    pub profile: Profile,
    /// `*NetworkDirectRoCEFrameSize`, in force: the largest that a frame has room for and is not above what was asked.
    pub roce_frame: u32,
    /// `*NetworkDirectRoCEFrameSize`, as it was asked for.
    pub wanted_roce_frame: u32,
    /// `*JumboPacket`: bytes of a frame, link header included, without a tag.
    pub frame: u32,
    /// `*PriorityVLANTag`: what protocols say beside a frame that its tag says.
    pub tagging: Tagging,
    /// What is wrong with the cable on purpose.
    pub impairment: Impairment,
    /// `NetworkAddress`: the hardware address that the administrator chose.
    pub address: Option<MacAddress>,
}

/// A number among the keywords.
pub struct Number<const N: usize> {
    name: [u16; N],
    range: core::ops::RangeInclusive<u32>,
    default: u32,
}

const NETWORK_DIRECT: Number<14> = Number { name: wide("*NetworkDirect"), range: 0..=1, default: 1 };
const TECHNOLOGY: Number<24> = Number { name: wide("*NetworkDirectTechnology"), range: 1..=4, default: 4 };
/// InfiniBand, among the technologies: no adapter of Ethernet has it.
const INFINIBAND: NDK_RDMA_TECHNOLOGY = NDK_RDMA_TECHNOLOGY(2);
const TAGGING: Number<16> = Number { name: wide("*PriorityVLANTag"), range: 0..=3, default: 3 };
const PROFILE: Number<11> = Number { name: wide("RdmaProfile"), range: 0..=5, default: 0 };
const ROCE_FRAME: Number<27> = Number { name: wide("*NetworkDirectRoCEFrameSize"), range: 256..=4096, default: 1024 };
const JUMBO_PACKET: Number<12> = Number { name: wide("*JumboPacket"), range: 1514..=9014, default: 1514 };
const DELAY: Number<10> = Number { name: wide("CableDelay"), range: 0..=1_000_000, default: 0 };
const JITTER: Number<11> = Number { name: wide("CableJitter"), range: 0..=1_000_000, default: 0 };
const LOSS: Number<9> = Number { name: wide("CableLoss"), range: 0..=1_000_000, default: 0 };
const RATE: Number<9> = Number { name: wide("CableRate"), range: 0..=100_000, default: 0 };
/// The port of VXLAN's datagrams, on both sides.
pub const WIRE_PORT: Number<8> = Number { name: wide("WirePort"), range: 1..=65535, default: 4789 };
/// The network of VXLAN.
pub const WIRE_VNI: Number<7> = Number { name: wide("WireVni"), range: 0..=16_777_215, default: 42 };
/// The other ends of a wire.
pub const WIRE_PEER: [u16; 8] = wide("WirePeer");
/// The address of this end.
pub const WIRE_LOCAL: [u16; 9] = wide("WireLocal");
const SEED: Number<9> = Number { name: wide("CableSeed"), range: 0..=i32::MAX.cast_unsigned(), default: 0 };

/// The path MTUs of RoCE.
const ROCE_FRAMES: [u32; 5] = [4096, 2048, 1024, 512, 256];

/// What RoCE v2 puts around a path MTU, at most: IPv6, UDP, the transport's headers and the checksums.
const ROCE_HEADERS: u32 = 40 + 8 + 12 + 16 + 8;

/// The largest path MTU of RoCE that is not above `wanted` and that fits frames of `frame` bytes.
#[must_use]
pub fn roce_frame(wanted: u32, frame: u32) -> u32 {
    let fits = |size: &u32| *size <= wanted && *size + ROCE_HEADERS + LINK_HEADER <= frame;
    ROCE_FRAMES.into_iter().find(fits).unwrap_or(256)
}

/// The technology of that number, or the default for one that an adapter of Ethernet cannot have.
fn technology(number: u32) -> NDK_RDMA_TECHNOLOGY {
    let chosen = NDK_RDMA_TECHNOLOGY(number.cast_signed());
    if chosen == INFINIBAND { NDK_RDMA_TECHNOLOGY(TECHNOLOGY.default.cast_signed()) } else { chosen }
}

/// The keywords, open. Closed when dropped.
///
/// # Invariants
///
/// `handle` is open and nobody else closes it.
pub struct Configuration {
    handle: NDIS_HANDLE,
}

impl Keywords {
    /// Frames have so many bytes less, because a wire needs them.
    pub fn shorten(&mut self, bytes: u32) {
        self.frame = self.frame.saturating_sub(bytes);
        self.roce_frame = roce_frame(self.wanted_roce_frame, self.frame);
    }

    /// Reads the keywords of an adapter; each that is missing or out of range has its default. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// What NDIS says.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS.
    #[inline(never)]
    pub unsafe fn read(adapter: NDIS_HANDLE) -> Result<Self, NtStatus> {
        // SAFETY: the handle is NDIS's (`# Safety`).
        let configuration = unsafe { Configuration::open(adapter) }?;
        let frame = configuration.number(&JUMBO_PACKET);
        let wanted_roce_frame = configuration.number(&ROCE_FRAME);
        Ok(Self {
            network_direct: configuration.number(&NETWORK_DIRECT) != 0,
            technology: technology(configuration.number(&TECHNOLOGY)),
            profile: Profile::from_number(configuration.number(&PROFILE)).unwrap_or_default(),
            roce_frame: roce_frame(wanted_roce_frame, frame),
            wanted_roce_frame,
            frame,
            tagging: Tagging::from_number(configuration.number(&TAGGING)).unwrap_or_default(),
            impairment: Impairment {
                delay: configuration.number(&DELAY),
                jitter: configuration.number(&JITTER),
                loss: configuration.number(&LOSS),
                rate: configuration.number(&RATE),
                seed: configuration.number(&SEED).into(),
            },
            address: configuration.address(),
        })
    }
}

impl Configuration {
    /// Opens the keywords of an adapter. `PASSIVE_LEVEL`.
    ///
    /// # Errors
    ///
    /// What NDIS says.
    ///
    /// # Safety
    ///
    /// `adapter` is an adapter of NDIS.
    pub unsafe fn open(adapter: NDIS_HANDLE) -> Result<Self, NtStatus> {
        let object =
            NDIS_CONFIGURATION_OBJECT { Header: NDIS_CONFIGURATION_OBJECT::HEADER, NdisHandle: adapter, Flags: 0 };
        let mut handle = ptr::null_mut();
        // SAFETY: an adapter of NDIS (`# Safety`); the structure and the place live until the call returns.
        let status = unsafe { NdisOpenConfigurationEx(&raw const object, &raw mut handle) };
        if status == NDIS_STATUS::SUCCESS { Ok(Self { handle }) } else { Err(status) }
    }

    /// The value of a keyword, if it is there and NDIS can read it so.
    fn value(&self, name: &[u16], kind: NDIS_PARAMETER_TYPE) -> Option<NDIS_CONFIGURATION_PARAMETER_DATA> {
        let name = unicode(name);
        let (mut status, mut value) = (NDIS_STATUS::SUCCESS, ptr::null_mut());
        // SAFETY: the configuration is open (invariant); the name and the places live until the call returns.
        unsafe {
            NdisReadConfiguration(&raw mut status, &raw mut value, self.handle, (&raw const name).cast(), kind);
        }
        if status != NDIS_STATUS::SUCCESS || value.is_null() {
            return None;
        }
        // SAFETY: NDIS's value, which lives until the configuration is closed.
        Some(unsafe { value.read() }.ParameterData)
    }

    fn number<const N: usize>(&self, number: &Number<N>) -> u32 {
        self.number_in_range(number).unwrap_or(number.default)
    }

    /// A number, or its default; `None` if it is out of its range.
    #[must_use]
    pub fn number_in_range<const N: usize>(&self, number: &Number<N>) -> Option<u32> {
        let Some(value) = self.value(&number.name, NDIS_PARAMETER_TYPE::INTEGER) else { return Some(number.default) };
        // SAFETY: a number was asked for; every value of the number is one.
        let value = unsafe { value.IntegerData };
        number.range.contains(&value).then_some(value)
    }

    /// What `read` makes of a text; `None` if it is not there.
    pub fn text<T>(&self, name: &[u16], read: impl FnOnce(&[u16]) -> T) -> Option<T> {
        let value = self.value(name, NDIS_PARAMETER_TYPE::STRING)?;
        // SAFETY: a text was asked for; every value of its fields is one.
        let text = unsafe { value.StringData };
        let units = usize::from(text.Length) / 2;
        if text.Buffer.is_null() || units == 0 {
            return Some(read(&[]));
        }
        // SAFETY: NDIS's text has as many units, and lives until the configuration is closed.
        Some(read(unsafe { slice::from_raw_parts(text.Buffer, units) }))
    }

    fn address(&self) -> Option<MacAddress> {
        let (mut status, mut bytes, mut length) = (NDIS_STATUS::SUCCESS, ptr::null_mut(), 0);
        // SAFETY: the configuration is open (invariant), and the places live until the call returns.
        unsafe { NdisReadNetworkAddress(&raw mut status, &raw mut bytes, &raw mut length, self.handle) };
        if status != NDIS_STATUS::SUCCESS || bytes.is_null() || length != 6 {
            return None;
        }
        // SAFETY: NDIS's value has as many bytes as it says, and lives until the configuration is closed.
        let bytes = unsafe { slice::from_raw_parts(bytes.cast_const().cast::<u8>(), 6) };
        bytes.try_into().ok().filter(is_station)
    }
}

impl Drop for Configuration {
    fn drop(&mut self) {
        // SAFETY: the handle is open and ours (invariant), and not used again.
        unsafe { NdisCloseConfiguration(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use ndkpi::NDK_RDMA_TECHNOLOGY;

    use super::{LINK_HEADER, ROCE_HEADERS, roce_frame, technology};

    #[test]
    fn an_adapter_of_ethernet_has_no_technology_of_another_medium() {
        assert_eq!([1, 2, 3, 4].map(technology), [1, 4, 3, 4].map(NDK_RDMA_TECHNOLOGY));
    }

    #[test]
    fn the_path_mtu_fits_the_frame() {
        assert_eq!(roce_frame(1024, 1514), 1024);
        assert_eq!(roce_frame(4096, 1514), 1024);
        assert_eq!(roce_frame(4096, 9014), 4096);
        assert_eq!(roce_frame(512, 9014), 512);
        assert_eq!(roce_frame(1500, 9014), 1024);
        let least = 1024 + ROCE_HEADERS + LINK_HEADER;
        assert_eq!([roce_frame(4096, least), roce_frame(4096, least - 1)], [1024, 512]);
    }
}
