//! Versions and what an adapter says of itself (`NDKPI 1`, `3.11`, `5.2`).

use ndkpi::{NDK_ADAPTER_INFO, NDK_RDMA_TECHNOLOGY, NDK_VERSION, NtStatus, adapter_flags};

use crate::{
    case::{Case, Check, HELD, Verdict},
    client::{Adapter, Session},
};

pub const CASES: &[Case] = &[
    Case::new(
        "version.highest-minor-is-in-force",
        "NDKPI 1",
        "Opens the adapter with every minor version up to the one in force.",
        "It is open with the highest minor version each time.",
        highest_minor_is_in_force,
    ),
    Case::new(
        "version.higher-minor-is-refused",
        "NDKPI 1",
        "Opens the adapter with minor versions above the one in force.",
        "NDIS_STATUS_BAD_VERSION.",
        higher_minor_is_refused,
    ),
    Case::new(
        "version.other-major-is-refused",
        "NDKPI 1",
        "Opens the adapter with the major versions 0, 3 and 65535.",
        "NDIS_STATUS_BAD_VERSION.",
        other_major_is_refused,
    ),
    Case::new(
        "version.majors",
        "NDKPI 1",
        "Opens the adapter with the major versions 1 and 2.",
        "Open: which of them are there. What is there is in force.",
        majors,
    ),
    Case::new(
        "version.information-says-the-same",
        "NDKPI 1",
        "Compares the version in the adapter's information with the one in its header.",
        "They are the same.",
        information_says_the_same,
    ),
    Case::new(
        "version.information-buffer",
        "NDKPI 5.2",
        "Asks for the information with buffers of every size from 0 bytes on.",
        "STATUS_BUFFER_TOO_SMALL with the size that is needed, or STATUS_SUCCESS with the size that was written.",
        information_buffer,
    ),
    Case::new(
        "version.information-makes-sense",
        "NDKPI 3.11",
        "Looks at the limits and flags.",
        "Every limit that a consumer cannot do without is there, no unknown flag is set.",
        information_makes_sense,
    ),
    Case::new(
        "version.several-adapters-open",
        "NDKPI 1",
        "Opens the adapter again, with both major versions, while it is open.",
        "Each consumer has its own.",
        several_adapters_open,
    ),
];

fn highest_minor_is_in_force(s: &Session<'_>) -> Verdict {
    let got = s.version()?;
    for minor in 0..=got.Minor {
        let asked = NDK_VERSION::new(got.Major, minor);
        match Adapter::glimpse(s.platform(), 0, asked)? {
            Ok((version, info)) => {
                ensure_eq!(version, got, "version of the adapter opened with {asked}");
                ensure_eq!(info.Version, got, "version in the information of the adapter opened with {asked}");
            }
            Err(status) => fail!("open with {asked}: {status}"),
        }
    }
    HELD
}

fn refused(s: &Session<'_>, version: NDK_VERSION) -> Check {
    match Adapter::glimpse(s.platform(), 0, version)? {
        Ok((got, _)) => fail!("open with {version} has opened {got}"),
        Err(status) => ensure_eq!(status, NtStatus::NDIS_BAD_VERSION, "open with {version}"),
    }
    Ok(())
}

fn higher_minor_is_refused(s: &Session<'_>) -> Verdict {
    let got = s.version()?;
    for minor in [got.Minor + 1, 100, u16::MAX] {
        refused(s, NDK_VERSION::new(got.Major, minor))?;
    }
    HELD
}

fn other_major_is_refused(s: &Session<'_>) -> Verdict {
    for major in [0, 3, u16::MAX] {
        for minor in [0, 1, u16::MAX] {
            refused(s, NDK_VERSION::new(major, minor))?;
        }
    }
    HELD
}

fn majors(s: &Session<'_>) -> Verdict {
    let mut seen = [None; 2];
    for (seen, major) in seen.iter_mut().zip([1, 2]) {
        match Adapter::glimpse(s.platform(), 0, NDK_VERSION::new(major, 0))? {
            Ok((version, _)) => {
                ensure_eq!(version.Major, major, "major version in force");
                *seen = Some(version);
            }
            Err(status) => ensure_eq!(status, NtStatus::NDIS_BAD_VERSION, "open with major version {major}"),
        }
    }
    match seen {
        [Some(one), Some(two)] => observed!("{one} and {two}"),
        [Some(one), None] => observed!("{one}"),
        [None, Some(two)] => observed!("{two}"),
        [None, None] => fail!("neither major version can be opened"),
    }
}

fn information_says_the_same(s: &Session<'_>) -> Verdict {
    ensure_eq!(s.info()?.Version, s.version()?, "version in the adapter's information");
    HELD
}

fn information_buffer(s: &Session<'_>) -> Verdict {
    let adapter = s.adapter()?;
    let whole = u32::try_from(size_of::<NDK_ADAPTER_INFO>()).unwrap_or(0);
    let mut served = None;
    for size in 0..=whole {
        let (status, stored, info) = adapter.query(size)?;
        match status {
            NtStatus::BUFFER_TOO_SMALL => {
                ensure!(stored > size, "a buffer of {size} bytes is too small, but {stored} are needed");
                ensure!(served.is_none(), "a buffer of {size} bytes is too small, a smaller one was not");
                ensure!(info == NDK_ADAPTER_INFO::default(), "a buffer of {size} bytes is too small, and was written");
            }
            NtStatus::SUCCESS => {
                ensure!(stored <= size, "{stored} bytes were written into {size}");
                served.get_or_insert(size);
            }
            status => fail!("NdkQueryAdapterInfo with {size} bytes: {status}"),
        }
    }
    match served {
        Some(size) => observed!("{size} bytes are enough"),
        None => fail!("{whole} bytes, the whole structure, are too few"),
    }
}

fn information_makes_sense(s: &Session<'_>) -> Verdict {
    let info = s.info()?;
    let positive = [
        ("MaxRegistrationSize", info.MaxRegistrationSize as u64),
        ("MaxWindowSize", info.MaxWindowSize as u64),
        ("MaxInitiatorRequestSge", info.MaxInitiatorRequestSge.into()),
        ("MaxReceiveRequestSge", info.MaxReceiveRequestSge.into()),
        ("MaxReadRequestSge", info.MaxReadRequestSge.into()),
        ("MaxTransferLength", info.MaxTransferLength.into()),
        ("MaxReceiveQueueDepth", info.MaxReceiveQueueDepth.into()),
        ("MaxInitiatorQueueDepth", info.MaxInitiatorQueueDepth.into()),
        ("MaxCqDepth", info.MaxCqDepth.into()),
    ];
    for (name, value) in positive {
        ensure!(value > 0, "{name} is 0");
    }
    ensure!(info.FRMRPageCount >= 16, "FRMRPageCount is {}, less than 16", info.FRMRPageCount);
    let unknown = info.AdapterFlags & !adapter_flags::ALL;
    ensure!(unknown == 0, "unknown adapter flags {unknown:#x}");
    if s.version()? >= NDK_VERSION::V2_0 {
        let technology = info.RdmaTechnology;
        ensure!((0..NDK_RDMA_TECHNOLOGY::MAX.0).contains(&technology.0), "RdmaTechnology is {technology:?}");
    }
    HELD
}

fn several_adapters_open(s: &Session<'_>) -> Verdict {
    let first = *s.info()?;
    for major in [1, 2] {
        if let Ok((_, info)) = Adapter::glimpse(s.platform(), 0, NDK_VERSION::new(major, 0))? {
            let same = NDK_ADAPTER_INFO { Version: info.Version, ..first };
            ensure!(info == same, "the adapter opened again says something else of itself");
        }
    }
    // The first one is as it was.
    s.adapter()?.create_cq(16, None)?.close()?;
    HELD
}
