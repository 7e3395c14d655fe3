//! Versions of the interface and how one is agreed on (NDKPI 1).

use crate::NtStatus;

/// A version of the interface (NDKPI 3.1), ordered by major and then minor number.
///
/// Within a major version every minor version is a superset of the one before: dispatch tables only grow at the end.
///
/// ```
/// use ndkpi::{NDK_VERSION, NtStatus};
///
/// let highest = [NDK_VERSION::V1_2, NDK_VERSION::V2_1];
/// // The opener names the lowest minor version it can live with and gets the highest one the provider has.
/// assert_eq!(NDK_VERSION::V1_1.negotiate(&highest), Ok(NDK_VERSION::V1_2));
/// assert_eq!(NDK_VERSION::new(2, 0).negotiate(&highest), Ok(NDK_VERSION::V2_1));
/// assert_eq!(NDK_VERSION::new(2, 2).negotiate(&highest), Err(NtStatus::NDIS_BAD_VERSION));
/// assert_eq!(NDK_VERSION::new(3, 0).negotiate(&highest), Err(NtStatus::NDIS_BAD_VERSION));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(C)]
pub struct NDK_VERSION {
    /// The major version; different ones are different interfaces.
    pub Major: u16,
    /// The minor version.
    pub Minor: u16,
}

layout!(NDK_VERSION: size 4, align 2, { Major @ 0x00, Minor @ 0x02 });

impl NDK_VERSION {
    /// NDKPI 1.1: the whole base interface.
    pub const V1_1: Self = Self::new(1, 1);
    /// NDKPI 1.2: adds send-and-invalidate, `NdkGetCqResultsEx`, the defer flag and the read's local invalidate.
    pub const V1_2: Self = Self::new(1, 2);
    /// NDKPI 2.0: adds `RdmaTechnology` to the adapter information.
    pub const V2_0: Self = Self::new(2, 0);
    /// NDKPI 2.1: adds `NdkCompleteConnectEx`, `NdkAcceptEx` and the provider's error code.
    pub const V2_1: Self = Self::new(2, 1);

    /// The version `major.minor`.
    #[must_use]
    pub const fn new(major: u16, minor: u16) -> Self {
        Self { Major: major, Minor: minor }
    }

    /// The version in force if an opener asks for `self` and the provider's highest version of each major version it
    /// offers is in `highest`.
    ///
    /// # Errors
    ///
    /// [`NtStatus::NDIS_BAD_VERSION`] if the major version is not offered, or only with a lower minor version.
    pub fn negotiate(self, highest: &[Self]) -> Result<Self, NtStatus> {
        let offered = highest.iter().filter(|offered| offered.Major == self.Major).max();
        offered.copied().filter(|offered| *offered >= self).ok_or(NtStatus::NDIS_BAD_VERSION)
    }
}

impl core::fmt::Display for NDK_VERSION {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{}.{}", self.Major, self.Minor)
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::string::ToString;

    use super::NDK_VERSION;
    use crate::NtStatus;

    const HIGHEST: [NDK_VERSION; 2] = [NDK_VERSION::V1_2, NDK_VERSION::V2_1];

    #[test]
    fn versions_are_ordered_by_major_then_minor() {
        let ascending = [NDK_VERSION::V1_1, NDK_VERSION::V1_2, NDK_VERSION::V2_0, NDK_VERSION::V2_1];
        assert!(ascending.is_sorted_by(|low, high| low < high));
        assert!(NDK_VERSION::new(1, 65535) < NDK_VERSION::V2_0);
        assert_eq!(NDK_VERSION::V2_1.to_string(), "2.1");
    }

    #[test]
    fn a_lower_or_equal_minor_gets_the_highest_minor() {
        for (major, minors, got) in [(1, 0..=2, NDK_VERSION::V1_2), (2, 0..=1, NDK_VERSION::V2_1)] {
            for minor in minors {
                assert_eq!(NDK_VERSION::new(major, minor).negotiate(&HIGHEST), Ok(got));
            }
        }
    }

    #[test]
    fn a_higher_minor_or_another_major_is_a_bad_version() {
        for (major, minor) in [(0, 0), (1, 3), (2, 2), (3, 0), (u16::MAX, u16::MAX)] {
            assert_eq!(NDK_VERSION::new(major, minor).negotiate(&HIGHEST), Err(NtStatus::NDIS_BAD_VERSION));
        }
        assert_eq!(NDK_VERSION::V1_1.negotiate(&[]), Err(NtStatus::NDIS_BAD_VERSION));
    }
}
