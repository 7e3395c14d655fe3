//! The load configuration: what the loader has to fill in so that the compiler's guards work.

use object::pe::IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG;

use crate::{error::Error, image::Image};

/// Places in the image that a loader fills in. Addresses are relative to its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Guard {
    /// The security cookie, eight bytes: a random number, so that overruns of the stack are noticed (`/GS`).
    pub cookie: Option<u32>,
    /// A pointer to the routine that checks the target of an indirect call, which is in `rcx`.
    pub check: Option<u32>,
    /// A pointer to the routine that checks the target of an indirect call and jumps there; it is in `rax`.
    pub dispatch: Option<u32>,
    /// The table of targets that indirect calls may have.
    pub targets: Option<Targets>,
}

/// The table of Control Flow Guard: sorted addresses of functions, four bytes and a few more for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Targets {
    /// Where it begins.
    pub address: u32,
    /// How many functions it has.
    pub count: u32,
    /// Bytes for each.
    pub stride: u32,
}

/// Offsets of `IMAGE_LOAD_CONFIG_DIRECTORY64`.
const COOKIE: usize = 0x58;
const CHECK: usize = 0x70;
const DISPATCH: usize = 0x78;
const TABLE: usize = 0x80;
const COUNT: usize = 0x88;
const FLAGS: usize = 0x90;

const PART: &str = "load configuration";

pub fn read(image: &Image, range: impl Fn(usize) -> Option<(u32, u32)>) -> Result<Guard, Error> {
    let Some((address, _)) = range(IMAGE_DIRECTORY_ENTRY_LOAD_CONFIG) else { return Ok(Guard::default()) };
    let outside = || Error::broken(PART, "it lies outside of the image");
    let size = image.slice(address, 4).and_then(<[u8]>::first_chunk).copied().ok_or_else(outside)?;
    // It says itself how long it is: older linkers make shorter ones.
    let configuration = image.slice(address, u32::from_le_bytes(size)).ok_or_else(outside)?;
    let number = |offset: usize| {
        configuration.get(offset..).and_then(<[u8]>::first_chunk::<8>).map_or(0, |&bytes| u64::from_le_bytes(bytes))
    };
    let place = |offset: usize, problem: &'static str| match number(offset) {
        0 => Ok(None),
        there => {
            let place = image.relative(there).filter(|&place| {
                place.is_multiple_of(8) && image.slice(place, 8).is_some() && image.section(place).is_some()
            });
            place.map(Some).ok_or_else(|| Error::broken(PART, problem))
        }
    };
    let cookie = place(COOKIE, "its security cookie is no place of the image")?;
    let check = place(CHECK, "its pointer to the check of calls is no place of the image")?;
    let dispatch = place(DISPATCH, "its pointer to the dispatch of calls is no place of the image")?;
    let targets = match (number(TABLE), number(COUNT)) {
        (0, _) | (_, 0) => None,
        (table, count) => {
            let flags = configuration.get(FLAGS..).and_then(<[u8]>::first_chunk).copied().unwrap_or_default();
            let stride = 4 + (u32::from_le_bytes(flags) >> 28);
            let count = u32::try_from(count).ok();
            let bytes = count.and_then(|count| count.checked_mul(stride));
            let address = image
                .relative(table)
                .filter(|&address| bytes.is_some_and(|bytes| image.slice(address, bytes).is_some()));
            let broken = Error::broken(PART, "its table of call targets lies outside of the image");
            let (Some(address), Some(count)) = (address, count) else { return Err(broken) };
            Some(Targets { address, count, stride })
        }
    };
    Ok(Guard { cookie, check, dispatch, targets })
}
